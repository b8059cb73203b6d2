"""A hyperparameter-free optimiser: the learning rate follows from losses that are released with every gradient.

Every step releases, from one Poisson batch, the sum of normalised gradients and then two sums over the same records:
how much their losses fall, and how much they bend, along the step that is about to be taken. With noise multiplier z_g
on the first and z_l on each of the two that is one Gaussian of multiplier ``(z_g^-2 + 2 z_l^-2)^(-1/2)``, although the
losses are asked after the gradient was seen (``docs/theorems/clipping.md``). That multiplier is what is priced; z_g and
z_l follow from it in one place. Fall over bend says how far to step (after Bu and Liu 2025): post-processing.

Differences of losses are small numbers, so they are clipped to a small range, and their noise is small, too. The range
follows from what was released before. A record's losses are divided by the norm of its gradient, as its gradient is:
otherwise the steps would descend on one function and the losses be those of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune import _validate
from dptune._typing import Array
from dptune.accounting import Cost
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness, Rng, as_randomness
from dptune.regression import range_of
from dptune.trainer import Fitted, Params
from dptune.training.clipping import Automatic
from dptune.training.dpsgd import Settings
from dptune.training.dpsgd_trainer import DpSgdTrainer
from dptune.training.encoders import is_encoder
from dptune.training.engines import engine_for
from dptune.training.models import Mlp
from dptune.training.noise import FastNoise, Noise, SecureNoise
from dptune.training.pace import Pace, StepLosses
from dptune.training.ruled_sums import RuledSums, follows_itself
from dptune.training.sampling import PoissonSampler
from dptune.training.trained_regression import trained as as_model
from dptune.training.whitening import through

__all__ = ["FreeTrainer", "split_noise"]

_ASKED = 2  # sums over losses in a step: fall and bend
_MOMENTUM = 0.9  # of the direction, which is a mean of noised gradients
_FIRST = 10  # steps in which ranges follow at once


def split_noise(multiplier: float, share: float) -> tuple[float, float]:
    """The noise multipliers of the gradient and of each loss that together are one Gaussian of ``multiplier``.

    Args:
        multiplier: what is priced.
        share: which part of the squared signal the losses get, in (0, 1).

    Returns:
        Both.

    Example:
        >>> gradient, loss = split_noise(2.0, 0.1)
        >>> round((gradient**-2 + 2 * loss**-2) ** -0.5, 12)
        2.0
    """
    return multiplier / math.sqrt(1.0 - share), multiplier * math.sqrt(_ASKED / share)


@dataclass(frozen=True)
class FreeTrainer:
    """Trains a softmax regression without a learning rate or a clip norm to choose.

    Args:
        base: whose model, sampling rate, steps, batch size and public validation are used.
        share: which part of the squared signal of a step the losses get.
        reach: how far a step goes towards the least of the parabola, as a part of the way.

    Raises:
        InvalidInput: the model is no softmax regression, noise is secure, or scores are private.
    """

    base: DpSgdTrainer
    share: float = 0.1
    reach: float = 0.125

    def __post_init__(self) -> None:
        _validate.real("reach", self.reach, 0.0, low_open=True)
        _validate.real("share", self.share, 0.0, 1.0, low_open=True, high_open=True)
        model = self.base.model
        if not isinstance(model, Mlp) or model.hidden or model.classes < 2:
            raise InvalidInput("The hyperparameter-free optimiser trains softmax regressions only.")
        if self.base.holdout is not None or self.base.settings.secure:
            raise InvalidInput("The hyperparameter-free optimiser has neither a holdout nor exact sums ('secure').")
        if self.base.engine not in ("auto", "numpy"):
            raise InvalidInput(f"The hyperparameter-free optimiser needs engine='auto'; got {self.base.engine!r}.")
        if self.base.score is not None:
            raise InvalidInput("The hyperparameter-free optimiser is scored by accuracy alone; leave 'score' out.")
        if is_encoder(self.base.prepared):
            raise InvalidInput(
                "The hyperparameter-free optimiser takes no public encoder: put its outputs into the data."
            )

    @property
    def validation(self) -> Dataset | None:
        """The public records that score a run, if there are any."""
        return self.base.validation

    @property
    def noise_generator(self) -> str:
        """Which generator draws the noise here."""
        return self.base.noise_generator

    @property
    def declared_records(self) -> int:
        """About how many records there are."""
        return self.base.declared_records

    @property
    def declared_training(self) -> str:
        """How a run trains, for statements."""
        said = (
            "DP-SGD; gradients divided by their norms; the learning rate follows two noised sums over losses at every "
            f"step, which get {self.share:g} of the squared signal and are part of the cost"
        )
        return said if self.base.whitening is None else f"{said}; {self.base.whitening.describe()}"

    def cost(self, params: Params) -> Cost:
        """The cost of one run: that of DP-SGD with the noise multiplier of gradient and losses together."""
        return self.base.cost(params)

    def check(self, params: Params, data: object) -> None:
        """Raise if the model cannot be trained on records of this kind; looks at no record, only at their shape."""
        if not isinstance(data, Dataset) or range_of(data) is not None:
            raise InvalidInput("The hyperparameter-free optimiser trains on a dptune Dataset with classes.")
        self.base.check(params, data)

    def fit(self, params: Params, data: Dataset, rng: Rng) -> Fitted[Any]:
        """Train once and score."""
        settings, key, seen, lens = self.base.resolve(params), as_randomness(rng), data.flat, None
        if self.base.whitening is not None:
            lens = self.base.whitening.lens(seen, settings, key)
            looked = through(seen, lens)
            assert isinstance(looked, Dataset)  # as it was given
            seen = looked
        flat = self._descend(settings, seen, key)
        model: Any = as_model(self.base.model, flat, self.base.engine, self.base.prepared, lens)  # type: ignore[arg-type] # an Mlp
        return Fitted(model, 0.0 if self.validation is None else float(model.accuracy(self.validation)))

    def _descend(self, settings: Settings, data: Dataset, key: Randomness) -> Array:
        """All steps: gradient, fall and bend, pace."""
        engine, losses = RuledSums(self._engine(), _RULE), StepLosses(data)
        engine.bind(data)
        sampler = PoissonSampler(key, len(data), settings.sampling_rate, settings.steps)
        scales = split_noise(settings.noise_multiplier, self.share)
        gradients, sums = (
            _noise(key.child(name), size, scale)
            for name, size, scale in zip(("gradient", "losses"), (engine.dimension, _ASKED), scales, strict=True)
        )
        flat, mean, out = engine.start(key), np.zeros(engine.dimension), np.empty((1, engine.dimension))
        unit, clip = 1.0 / settings.batch_size, np.array([1.0 - gradients.margin(engine.dimension, scales[0], 1.0)])
        most = 1.0 - sums.margin(_ASKED, scales[1], 1.0)  # rounding to the lattice of the noise moves sums, too
        pace = Pace(self.reach, scales[1] * unit)
        with np.errstate(all="ignore"):  # a diverging run is an outcome, not an error
            for step in range(settings.steps):
                batch = sampler.batch(step)
                engine.clipped_sums(flat[None], [batch], clip, out)
                gradients.add(out[0], scales[0], step, unit)
                mean = _MOMENTUM * mean + (1.0 - _MOMENTUM) * out[0]
                against = mean / (1.0 - _MOMENTUM ** (step + 1))
                ranges = pace.ranges(against)
                ahead = pace.rate * against
                found = losses(np.asarray(flat, np.float64), ahead, batch, ranges) / ranges * most  # each moves by 1
                sums.add(found, scales[1], step, unit)
                flat = flat - ahead
                pace.learn(*(found / most * ranges).tolist(), first=step < _FIRST)
        return np.asarray(flat)

    def _engine(self) -> Any:
        """What computes the sums of normalised gradients: by itself if it can, otherwise in double precision."""
        base = self.base
        own = engine_for(base.model, engine=base.engine, threads=base.threads or 1, rule=_RULE)
        return own if follows_itself(own, _RULE) else engine_for(base.model, double=True, engine=base.engine)


def _noise(key: Randomness, size: int, scale: float) -> Noise:
    """Sums are in doubles, so their noise is on a lattice, unless that does not fit: a public figure."""
    fits = scale > 0.0 and SecureNoise.margin_of(size, scale, 1.0) <= 0.5
    return (SecureNoise if fits else FastNoise)(key, size)


_RULE = Automatic()
