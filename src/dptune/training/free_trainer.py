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
from dptune._places import origin
from dptune._typing import Array, Floats, Indices
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
from dptune.training.whitening import through

__all__ = ["FreeTrainer", "split_noise"]

_ASKED = 2  # sums over losses in a step: fall and bend
_MOMENTUM = 0.9  # of the direction, which is a mean of noised gradients
_KEPT = 0.97  # how much of what losses said stays from step to step
_FASTEST = 0.1  # how far the logarithm of the learning rate may move in one step
_FIRST = 10  # steps in which ranges follow at once
_ROOM = 4.0  # the range of a record's bend, in mean bends
_SIDES = 3.0  # the range of its fall to either side, in roots of the mean bend
_RATES, _WIDTHS, _TINY = (1e-4, 1e4), (1e-30, 1e30), 1e-200
_SOME = 4096  # records whose losses are computed at a time


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
    reach: float = 0.25

    def __post_init__(self) -> None:
        _validate.real("reach", self.reach, 0.0, low_open=True)
        _validate.real("share", self.share, 0.0, 1.0, low_open=True, high_open=True)
        model = self.base.model
        if not isinstance(model, Mlp) or model.hidden or model.classes < 2:
            raise InvalidInput("The hyperparameter-free optimiser trains softmax regressions only.")
        if self.base.holdout is not None or self.base.settings.secure:
            raise InvalidInput("The hyperparameter-free optimiser has neither a holdout nor secure noise.")
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
        engine, losses = RuledSums(self._engine(), _RULE), _Losses(data)
        engine.bind(data)
        sampler = PoissonSampler(key, len(data), settings.sampling_rate, settings.steps)
        noises = FastNoise(key.child("gradient"), engine.dimension), FastNoise(key.child("losses"), _ASKED)
        scales = split_noise(settings.noise_multiplier, self.share)
        flat, mean, out = engine.start(key), np.zeros(engine.dimension), np.empty((1, engine.dimension))
        unit = 1.0 / settings.batch_size
        pace = _Pace(self.reach, scales[1] * unit)
        with np.errstate(all="ignore"):  # a diverging run is an outcome, not an error
            for step in range(settings.steps):
                batch = sampler.batch(step)
                engine.clipped_sums(flat[None], [batch], np.ones(1), out)
                noises[0].add(out[0], scales[0], step, unit)
                mean = _MOMENTUM * mean + (1.0 - _MOMENTUM) * out[0]
                against = mean / (1.0 - _MOMENTUM ** (step + 1))
                ranges = pace.ranges(against)
                ahead = pace.rate * against
                found = losses(np.asarray(flat, np.float64), ahead, batch, ranges) / ranges  # a record moves each by 1
                noises[1].add(found, scales[1], step, unit)
                flat = flat - ahead
                pace.learn(*(found * ranges).tolist(), first=step < _FIRST)
        return np.asarray(flat)

    def _engine(self) -> Any:
        """What computes the sums of normalised gradients: by itself if it can, otherwise in double precision."""
        base = self.base
        own = engine_for(base.model, engine=base.engine, threads=base.threads or 1, rule=_RULE)
        return own if follows_itself(own, _RULE) else engine_for(base.model, double=True, engine=base.engine)


_RULE = Automatic()


class _Losses:
    """How the losses of a batch change along a step: each record's by itself, in doubles."""

    def __init__(self, data: Dataset) -> None:
        self._whole, self._places = origin(data)
        self._side_by_side = engine_for(Mlp(data.features, 2 * data.classes))
        starts = range(0, len(self._whole), _SOME)
        parts = [_squares(self._whole.x[first : first + _SOME]) for first in starts]
        self._squares = np.concatenate([np.empty(0), *parts])

    def __call__(self, flat: Array, ahead: Array, batch: Indices, ranges: Array) -> Array:
        """The sums of falls and bends from ``flat + ahead`` by ``flat`` to ``flat - ahead``.

        Each is divided by the norm of the record's gradient, as its share of the gradient is. One record moves the sums
        by at most ``ranges``: falls are brought to [-range, range], bends to [0, range].
        """
        classes = self._whole.classes
        beside = np.concatenate([one.reshape(-1, classes) for one in (flat, ahead)], axis=1).ravel()
        found: list[Array] = [np.empty((2, 0))]
        for first in range(0, len(batch), _SOME):
            places = batch[first : first + _SOME]
            places = places if self._places is None else self._places[places]
            rows = self._whole.x[places]
            here, change = np.split(np.asarray(self._side_by_side.logits(beside, rows), np.float64), 2, axis=1)
            found.append(_fall_and_bend(here, change, self._whole.y[places], self._squares[places]))
        each = np.nan_to_num(np.concatenate(found, axis=1), nan=0.0)
        each = np.clip(each, [[-ranges[0]], [0.0]], ranges[:, None])
        return np.array([math.fsum(one) for one in each])


def _squares(rows: Floats) -> Array:
    """The squared length of every row, by the same operations wherever it stands."""
    return np.asarray(np.square(np.asarray(rows, np.float64)).sum(axis=1))


def _fall_and_bend(here: Array, change: Array, labels: Array, squares: Array) -> Array:
    """What every record's loss falls and bends by, over the norm of its gradient."""
    each = np.arange(len(labels))
    behind, now, before = (_losses(here + sign * change, labels) for sign in (1.0, 0.0, -1.0))
    slopes = np.exp(here - here.max(axis=1, keepdims=True))
    slopes /= slopes.sum(axis=1, keepdims=True)
    slopes[each, labels] -= 1.0
    norms = np.sqrt(np.square(slopes).sum(axis=1) * (squares + 1.0))
    falls, bends = (behind - before) / 2.0, behind + before - 2.0 * now
    return np.asarray(np.array([falls, bends]) / (norms + _RULE.stability))


def _losses(outputs: Array, labels: Array) -> Array:
    """Cross-entropies."""
    below = outputs - outputs.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(below).sum(axis=1)) - below[np.arange(len(labels)), labels])


class _Mean:
    """A mean that forgets: every number counts by one over the variance of its noise."""

    def __init__(self) -> None:
        self._total, self._weight, self._squares = 0.0, 0.0, 0.0

    def add(self, number: float, variance: float) -> None:
        """Take one more number."""
        weight = 1.0 / max(variance, _TINY)
        self._total = _KEPT * self._total + number * weight
        self._weight = _KEPT * self._weight + weight
        self._squares = _KEPT**2 * self._squares + weight

    @property
    def value(self) -> float:
        """The mean."""
        return self._total / self._weight

    @property
    def deviation(self) -> float:
        """The standard deviation that noise gives it."""
        return math.sqrt(self._squares) / self._weight


class _Pace:
    """The learning rate, from noised sums alone: towards the least of a parabola; and the ranges of the next ones.

    ``noise`` is the standard deviation of a mean fall or bend, in parts of its range. The ranges of the first steps are
    far too wide, so what these said is mostly noise: numbers count by their variances, and the learning rate changes
    as fast as the mean fall and bend together stand out of their noise.
    """

    def __init__(self, reach: float, noise: float) -> None:
        self.rate, self._reach, self._noise = 1.0, reach, noise
        self._slope, self._curve, self._width = _Mean(), _Mean(), 0.0

    def ranges(self, against: Array) -> Array:
        """How much a record may say of its fall and its bend along the step that comes next."""
        if self._width == 0.0:  # no more than this of a record of length one
            self._width = min(max(float(against @ against) / 4.0, _WIDTHS[0]), _WIDTHS[1])
        return np.array([_SIDES * math.sqrt(self._width) * self.rate, _ROOM * self._width * self.rate**2])

    def learn(self, fall: float, bend: float, *, first: bool) -> None:
        """Take the noised mean fall and mean bend of a step."""
        slope, curve, width = fall / self.rate, bend / self.rate**2, self._width
        if not math.isfinite(slope) or not math.isfinite(curve):
            return
        self._slope.add(slope, (self._noise * _SIDES) ** 2 * width)
        self._curve.add(curve, (self._noise * _ROOM * width) ** 2)
        near = min(max(curve, width / 2.0), 2.0 * width)
        self._width = min(max(near if first else 0.8 * width + 0.2 * near, _WIDTHS[0]), _WIDTHS[1])
        ahead = self._reach * self._slope.value - self.rate * self._curve.value  # positive where the least lies farther
        doubt = math.hypot(self._reach * self._slope.deviation, self.rate * self._curve.deviation)
        self.rate *= math.exp(_FASTEST * ahead / max(math.hypot(ahead, doubt), _TINY))
        self.rate = min(max(self.rate, _RATES[0]), _RATES[1])
