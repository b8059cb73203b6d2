"""A hyperparameter-free optimiser: the learning rate follows from losses that are released with every gradient.

Every step releases, from one Poisson batch, the sum of normalised gradients and then three sums of clipped losses, at
the parameters and a step before and behind them along the noised gradient. With noise multiplier z_g on the first and
z_l on each of the three that is one Gaussian of multiplier ``(z_g^-2 + 3 z_l^-2)^(-1/2)``, although the losses are
asked after the gradient was seen (``docs/theorems/clipping.md``). That multiplier is what is priced; z_g and z_l follow
from it in one place. A parabola through the losses says how far to step (after Bu and Liu 2024): post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune import _validate
from dptune._typing import Array, Indices
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
from dptune.training.noise import FastNoise
from dptune.training.ruled_sums import RuledSums, follows_itself
from dptune.training.sampling import PoissonSampler
from dptune.training.trained_regression import trained as as_model

__all__ = ["FreeTrainer", "split_noise"]

_POINTS = np.array([-1.0, 0.0, 1.0])  # where losses are asked, in steps against the noised gradient
_KEPT = 0.9  # how much of what losses said stays from step to step
_FASTEST = 1.25  # the factor by which the learning rate may change in one step


def split_noise(multiplier: float, share: float) -> tuple[float, float]:
    """The noise multipliers of the gradient and of each loss that together are one Gaussian of ``multiplier``.

    Args:
        multiplier: what is priced.
        share: which part of the squared signal the losses get, in (0, 1).

    Returns:
        Both.

    Example:
        >>> gradient, loss = split_noise(2.0, 0.1)
        >>> round((gradient**-2 + 3 * loss**-2) ** -0.5, 12)
        2.0
    """
    return multiplier / math.sqrt(1.0 - share), multiplier * math.sqrt(len(_POINTS) / share)


@dataclass(frozen=True)
class FreeTrainer:
    """Trains a softmax regression without a learning rate or a clip norm to choose.

    Args:
        base: whose model, sampling rate, steps, batch size and public validation are used.
        share: which part of the squared signal of a step the losses get.

    Raises:
        InvalidInput: the model is no softmax regression, noise is secure, or scores are private.
    """

    base: DpSgdTrainer
    share: float = 0.1

    def __post_init__(self) -> None:
        _validate.real("share", self.share, 0.0, 1.0, low_open=True, high_open=True)
        model = self.base.model
        if not isinstance(model, Mlp) or model.hidden or model.classes < 2:
            raise InvalidInput("The hyperparameter-free optimiser trains softmax regressions only.")
        if self.base.holdout is not None or self.base.settings.secure:
            raise InvalidInput("The hyperparameter-free optimiser has neither a holdout nor secure noise.")
        if self.base.whitening is not None:
            raise InvalidInput("The hyperparameter-free optimiser does not whiten records: leave 'whitening' out.")
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
        return (
            "DP-SGD; gradients divided by their norms; the learning rate follows three noised losses at every step, "
            f"which get {self.share:g} of the squared signal and are part of the cost"
        )

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
        settings, key = self.base.resolve(params), as_randomness(rng)
        flat = self._descend(settings, data.flat, key)
        model: Any = as_model(self.base.model, flat, self.base.engine, self.base.prepared)  # type: ignore[arg-type] # an Mlp
        return Fitted(model, 0.0 if self.validation is None else float(model.accuracy(self.validation)))

    def _descend(self, settings: Settings, data: Dataset, key: Randomness) -> Array:
        """All steps: gradient, losses, parabola."""
        assert isinstance(self.base.model, Mlp)
        own = engine_for(self.base.model, rule=Automatic())
        if not follows_itself(own, Automatic()):
            own = engine_for(self.base.model, double=True, engine="numpy")
        engine, losses_of = RuledSums(own, Automatic()), _Losses(data)
        engine.bind(data)
        sampler = PoissonSampler(key, len(data), settings.sampling_rate, settings.steps)
        noises = FastNoise(key.child("gradient"), engine.dimension), FastNoise(key.child("losses"), len(_POINTS))
        scales = split_noise(settings.noise_multiplier, self.share)
        flat, out = engine.start(key), np.empty((1, engine.dimension))
        most, unit, pace = 2.0 * math.log(data.classes), 1.0 / settings.batch_size, _Pace()
        with np.errstate(all="ignore"):  # a diverging run is an outcome, not an error
            for step in range(settings.steps):
                batch = sampler.batch(step)
                engine.clipped_sums(flat[None], [batch], np.ones(1), out)
                noises[0].add(out[0], scales[0], step, unit)
                losses = losses_of([flat - c * pace.rate * out[0] for c in _POINTS], batch, most)
                noises[1].add(losses, scales[1] * most, step, unit)
                flat = flat - pace.rate * out[0]
                pace.learn(losses)
        return np.asarray(flat)


class _Losses:
    """The losses of records under several parameters at once: a row is read once, and each by itself."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._side_by_side = engine_for(Mlp(data.features, len(_POINTS) * data.classes))

    def __call__(self, flats: Sequence[Array], batch: Indices, most: float) -> Array:
        """The sums of the batch's losses, each brought to [0, most]: one record moves each by at most ``most``."""
        classes, totals = self._data.classes, []
        weights = np.concatenate([flat.reshape(-1, classes) for flat in flats], axis=1)
        labels = self._data.y[batch]
        outputs = self._side_by_side.logits(weights.ravel(), self._data.x[batch])
        for scores in np.split(np.asarray(outputs, np.float64), len(flats), axis=1):
            below = scores - scores.max(axis=1, keepdims=True)
            each = np.log(np.exp(below).sum(axis=1)) - below[np.arange(len(batch)), labels]
            totals.append(math.fsum(np.clip(np.where(np.isnan(each), most, each), 0.0, most)))
        return np.array(totals)


class _Pace:
    """The learning rate, from noised losses alone: towards the least of the parabola through them."""

    def __init__(self) -> None:
        self.rate = 1.0
        self._fall, self._bend = 0.0, 0.0

    def learn(self, losses: Array) -> None:
        """Take the noised losses behind, at and before the parameters."""
        before, here, after = losses.tolist()  # against the gradient is where the loss should fall
        self._fall = _KEPT * self._fall + (1.0 - _KEPT) * (before - after) / 2.0
        self._bend = _KEPT * self._bend + (1.0 - _KEPT) * (before + after - 2.0 * here)
        wanted = self._fall / self._bend if self._bend > 0.0 else _FASTEST
        if self._fall <= 0.0:
            wanted = 0.0
        self.rate *= min(max(wanted, 1.0 / _FASTEST), _FASTEST)
        self.rate = min(max(self.rate, 1e-6), 1e6)
