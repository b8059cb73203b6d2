"""Whitening: before a training, noised second moments show the directions in which all records stand out.

Features of images have a few directions with most of their length: what all images have in common. DP-SGD spends its
clip norm on them. Here they are brought down to the others' level by a :class:`~dptune.training.lens.Lens`. It is
computed from the sum of all records' outer products, to which Gaussian noise is added once: a mechanism of its own,
composed with the training (``docs/theorems/whitening.md``). That sum is exact: records are rounded to a grid, so that
their products are whole numbers which doubles add without an error, and no record decides another's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dptune import _validate
from dptune._memory import blocks, room
from dptune._places import origin
from dptune._typing import Array, Floats, Indices
from dptune.accounting import Cost, DpSgd, Gaussian, compose
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training.dpsgd import Settings
from dptune.training.lens import Lens
from dptune.training.noise import SecureNoise
from dptune.units import UnitDataset

__all__ = ["MOST_FEATURES", "MOST_RECORDS", "MOST_SPREAD", "Whitening", "check_whitened", "second_moments", "through"]

MOST_FEATURES = 2048
"""Products of all pairs of features are summed: with more of them that would take longer than the training."""

MOST_RECORDS = 2**24
"""Of so many, and of eight times as many, sums are as exact as the proof needs."""

MOST_SPREAD = 0.5
"""How far rounding to the lattice of the noise may move the sums, in what one record may: more noise is refused."""

_GRID = 2.0**14  # steps along a feature of length one; products of two are at most 2^28
_FARTHEST = 64.0  # radii; squares of 2048 features of that size are whole numbers that add up exactly
_SHORTER = 1.0 - 2.0**-40  # rounding in doubles cannot make a record longer than it may be
_LATTICE = 1.01 * 2.0**-20  # the most that the lattice's points are apart, in deviations of the noise, and a little
_LEVEL = 1.5  # directions are never brought below this many times the mean


@dataclass(frozen=True)
class Whitening:
    """How much of the budget goes to the second moments, and how long a record counts at most.

    Args:
        share: Which part of the squared signal of a run the moments get; the training gets the rest.
        radius: Records longer than this count as if they had this length. Features of images and texts have length 1.

    Raises:
        InvalidInput: A figure is out of range.

    Example:
        >>> from dptune.training import Settings
        >>> settings = Settings.from_batch(
        ...     6000, 60000, noise_multiplier=7.5, steps=400, clip_norm=0.1, learning_rate=80
        ... )
        >>> whitening = Whitening()
        >>> round(whitening.noise_multiplier(settings), 1)
        8.6
        >>> whitening.cost(settings).epsilon(1e-5) > DpSgd(0.1, 7.5, 400).epsilon(1e-5)
        True
    """

    share: float = 0.16
    radius: float = 1.0

    def __post_init__(self) -> None:
        _validate.real("share", self.share, 0.0, 1.0, low_open=True, high_open=True)
        _validate.real("radius", self.radius, 2.0**-40, 2.0**40)

    def noise_multiplier(self, settings: Settings) -> float:
        """The noise on the moments, in units of what one record can move them by: it follows that of the training.

        Args:
            settings: The run.

        Returns:
            The deviation.
        """
        return self._noise(settings.sampling_rate * math.sqrt(settings.steps) / settings.noise_multiplier)

    def _noise(self, signal: float) -> float:
        return math.sqrt((1.0 - self.share) / self.share) / signal

    def spread(self, features: int, signal: float) -> float:
        """How far rounding to the noise's lattice may move the sums: public, known before any record is read.

        Args:
            features: How many a record has.
            signal: Of a run: sampling rate times the root of its steps over its noise multiplier.

        Returns:
            A share of what one record may move them by; above ``MOST_SPREAD`` a training is refused.

        Example:
            >>> Whitening().spread(976, 0.2) < MOST_SPREAD < Whitening().spread(976, 1e-3)
            True
        """
        return _spread(features, self._noise(signal))

    def cost(self, settings: Settings) -> Cost:
        """The cost of a run: its training, and one Gaussian for the moments.

        Args:
            settings: The run.

        Returns:
            The composition of both.
        """
        training = DpSgd(settings.sampling_rate, settings.noise_multiplier, settings.steps)
        return compose(training, Gaussian(self.noise_multiplier(settings)))

    def describe(self) -> str:
        """For statements."""
        return (
            f"records are whitened by noised second moments, which get {self.share:g} of the squared signal and are "
            "part of the cost (docs/theorems/whitening.md)"
        )

    def lens(
        self, data: Dataset | UnitDataset, settings: Settings, key: Randomness, places: Indices | None = None
    ) -> Lens:
        """What the records of a run are looked at through.

        Args:
            data: The private records.
            settings: The run, whose noise decides that of the moments.
            key: The randomness of the run.
            places: The records that are trained on; None: all.

        Returns:
            The lens, a function of noised sums and public figures alone.

        Raises:
            InvalidInput: Records have too many features.
        """
        features, records = data.features, settings.batch_size / settings.sampling_rate
        check_whitened(features, records)
        rows = data if places is None else data.take(places)
        if settings.noise_multiplier == 0.0:  # a rehearsal of one's own: no finite cost
            return _lens(second_moments(rows, self.radius, 1.0) / records, 0.0)
        noise = self.noise_multiplier(settings)
        length = 1.0 - _spread(features, noise)  # rounding the sums to the noise's lattice moves them, too
        if length < 1.0 - MOST_SPREAD:
            raise InvalidInput("The noise on the second moments is too large for its lattice. Leave 'whitening' out.")
        moments = second_moments(rows, self.radius, length)
        _add_noise(moments, noise, key.child("whitening"))
        return _lens(moments / records, math.sqrt(2.0 * features) * noise / records)


def _spread(features: int, noise: float) -> float:
    return noise * math.sqrt(features * (features + 1) // 2) * _LATTICE


def check_whitened(features: int, records: float) -> None:
    """Refuse what cannot be summed in time, or not exactly.

    Args:
        features: How many a record has.
        records: About how many records there are; public.

    Raises:
        InvalidInput: There are too many.

    Example:
        >>> check_whitened(441, 60000)
    """
    if features > MOST_FEATURES:
        raise InvalidInput(
            f"'whitening' takes records of at most {MOST_FEATURES} features; these have {features}. Leave it out."
        )
    if records > MOST_RECORDS:
        raise InvalidInput(f"'whitening' takes at most {MOST_RECORDS} records; {records:.0f} are declared.")


def through(data: Dataset | UnitDataset, lens: Lens) -> Dataset | UnitDataset:
    """The records as a lens shows them.

    Args:
        data: The records; those of units of several rows stay together.
        lens: The lens.

    Returns:
        The same records in the same order, with other features.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset
        >>> plain = Lens(np.empty((2, 0), np.float32), np.empty(0, np.float32))
        >>> through(Dataset(np.array([[3.0, 4.0]]), np.array([0]), classes=2), plain).x
        array([[0.6, 0.8]], dtype=float32)
    """
    rows = (data.rows if isinstance(data, UnitDataset) else data).flat
    x = room((len(rows), rows.features), np.float32)
    for part, own in _parts(rows):
        x[part] = lens(own)
    seen = rows.holding(x, rows.y)
    return data.with_rows(seen) if isinstance(data, UnitDataset) else seen


def second_moments(data: Dataset | UnitDataset, radius: float, length: float) -> Array:
    """The sum of outer products of all records, exactly: one record more or less moves it by at most ``length``.

    A record is divided by ``radius``, shortened so that its squared length is at most ``length``, and rounded towards
    zero to a grid. Of a unit the squared lengths of its rows are added. What is not finite adds nothing.

    Args:
        data: The records.
        radius: Their usual length.
        length: How far one of them may move the sum, in the norm that counts every entry of the matrix.

    Returns:
        A symmetric matrix.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset
        >>> two = Dataset(np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([0, 1]), classes=2)
        >>> second_moments(two, 1.0, 1.0).round(2)
        array([[1.  , 0.  ],
               [0.  , 0.25]])
    """
    rows = (data.rows if isinstance(data, UnitDataset) else data).flat
    total = np.zeros((rows.features, rows.features), np.int64)
    with np.errstate(all="ignore"):  # about no record more than about another
        factors = _factors(data, rows, radius, length)
        for part, x in _parts(rows):
            steps = np.trunc(_steps(x, radius) * factors[part, None])
            total += (steps.T @ steps).astype(np.int64)
    return total / _GRID**2


def _parts(rows: Dataset) -> Iterator[tuple[slice, Floats]]:
    """The rows, a few megabytes at a time: of a part of large records no copy is made."""
    whole, places = origin(rows)
    for part in blocks(len(rows), 8 * rows.features):
        yield part, whole.x[part] if places is None else whole.x[places[part]]


def _steps(x: Floats, radius: float) -> Array:
    """Rows in whole steps of the grid, element by element; one that is not finite becomes zero."""
    steps: Array = np.asarray(x, np.float64) / radius
    steps[~np.isfinite(steps).all(axis=1)] = 0.0
    np.clip(steps, -_FARTHEST, _FARTHEST, out=steps)
    steps *= _GRID
    return np.trunc(steps, out=steps)


def _factors(data: Dataset | UnitDataset, rows: Dataset, radius: float, length: float) -> Array:
    """What every row is multiplied by, so that its record's squared length is at most ``length``."""
    squares = np.empty(len(rows))
    for part, x in _parts(rows):
        squares[part] = np.square(_steps(x, radius)).sum(axis=1)  # whole numbers below 2^53: exact in any order
    if isinstance(data, UnitDataset):
        owners = data.row_units
        squares = np.bincount(owners, squares, len(data)).astype(np.float64)[owners]  # in the order of a unit's rows
    most = length * _GRID**2
    return np.where(squares <= most, 1.0, _SHORTER * np.sqrt(most / np.maximum(squares, most)))


def _add_noise(moments: Array, noise: float, key: Randomness) -> None:
    """Symmetric noise: entries off the diagonal count twice in the norm, so theirs is smaller by the root of two."""
    features = len(moments)
    upper, diagonal = np.triu_indices(features, 1), np.diag_indices(features)
    off, on = moments[upper], moments[diagonal]
    SecureNoise(key.child("off the diagonal"), len(off)).add(off, noise / math.sqrt(2.0), 0)
    SecureNoise(key.child("diagonal"), len(on)).add(on, noise, 0)
    moments[upper] = off
    moments.T[upper] = off
    moments[diagonal] = on


def _lens(moments: Array, edge: float) -> Lens:
    """Directions above what noise alone would show (its edge) are brought down to it, or to the common level."""
    values, vectors = np.linalg.eigh(moments)
    level = max(edge, _LEVEL / len(moments))
    seen = values > level
    taken = 1.0 - np.sqrt(level / values[seen])
    return Lens(np.ascontiguousarray(vectors[:, seen], np.float32), taken.astype(np.float32))
