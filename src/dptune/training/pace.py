"""What losses say along a step, and the learning rate that follows from it, for a training that has none to choose.

:class:`StepLosses` sums how much the losses of a batch fall and bend along a step; noise is added by whoever calls it.
:class:`Pace` takes the noised sums, and nothing else: from them follow the learning rate and the ranges to which the
next numbers are clipped (:mod:`dptune.training.free_trainer`, ``docs/theorems/clipping.md``).
"""

from __future__ import annotations

import math

import numpy as np

from dptune._places import origin
from dptune._typing import Array, Floats, Indices
from dptune.data import Dataset
from dptune.training.clipping import Automatic
from dptune.training.engines import engine_for
from dptune.training.models import Mlp

__all__ = ["Pace", "StepLosses"]

_KEPT = 0.97  # how much of what losses said stays from step to step
_FASTEST = 0.1  # how far the logarithm of the learning rate may move in one step
_ROOM = 4.0  # the range of a record's bend, in mean bends
_SIDES = 3.0  # the range of its fall to either side, in roots of the mean bend
_RATES, _WIDTHS, _TINY = (1e-4, 1e4), (1e-30, 1e30), 1e-200
_SOME = 4096  # records whose losses are computed at a time
_STABILITY = Automatic().stability  # what is added to a gradient's norm before it divides


class StepLosses:
    """How the losses of a batch change along a step: each record's by itself, in doubles.

    Args:
        data: the records, with classes.

    Example:
        >>> import numpy as np
        >>> two = StepLosses(Dataset(np.eye(2), np.array([0, 1]), 2))
        >>> two(np.zeros(6), np.array([1.0, -1.0, -1.0, 1.0, 0.0, 0.0]), np.arange(2), np.array([9.0, 9.0])).round(2)
        array([-1.98,  1.72])
    """

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
    with np.errstate(all="ignore"):  # a tiny feature is nobody's business
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
    return np.asarray(np.array([falls, bends]) / (norms + _STABILITY))


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


class Pace:
    """The learning rate, from noised sums alone: towards the least of a parabola; and the ranges of the next ones.

    The ranges of the first steps are far too wide, so what these said is mostly noise: numbers count by their
    variances, and the learning rate changes as fast as the mean fall and bend together stand out of their noise.

    Args:
        reach: how far a step goes towards the least of the parabola, as a part of the way.
        noise: the standard deviation of a mean fall or bend, in parts of its range.

    Example:
        >>> import numpy as np
        >>> pace = Pace(0.5, 0.01)
        >>> for _ in range(200):  # a loss that is least at a learning rate of 4
        ...     _ = pace.ranges(np.array([1.0, 0.0]))
        ...     pace.learn(0.4 * pace.rate, 0.1 * pace.rate**2, first=False)
        >>> 1.7 < pace.rate < 2.3  # half of the way
        True
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
