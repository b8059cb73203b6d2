"""Whitening: before a training, noised second moments show the directions in which all records stand out.

Features of images have a few directions with most of their length: what all images have in common. DP-SGD spends its
clip norm on them. Here they are brought down to the others' level by a :class:`~dptune.training.lens.Lens`. It is
computed from the sum of all records' outer products, to which Gaussian noise is added once: a mechanism of its own,
composed with the training (``docs/theorems/whitening.md``). That sum is exact: records are rounded to a grid, so that
their products are whole numbers which doubles add without an error, and no record decides another's rounding.

Records of tables are centred, too, and all directions come to one level, as far as noise lets them be seen: numbers
fill a small part of their declared ranges and go together, so that a linear model would take thousands of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune import _validate
from dptune._memory import room
from dptune._typing import Array, Indices
from dptune.accounting import Cost, DpSgd, Gaussian, compose
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training.dpsgd import Settings
from dptune.training.lens import CentredLens, Lens
from dptune.training.moments import in_parts, second_moments
from dptune.training.noise import SecureNoise
from dptune.units import UnitDataset

__all__ = ["MOST_FEATURES", "MOST_RECORDS", "MOST_SPREAD", "Whitening", "check_whitened", "through"]

MOST_FEATURES = 2048
"""Products of all pairs of features are summed: with more of them that would take longer than the training."""

MOST_RECORDS = 2**24
"""Of so many, and of eight times as many, sums are as exact as the proof needs."""

MOST_SPREAD = 0.5
"""How far rounding to the lattice of the noise may move the sums, in what one record may: more noise is refused."""

_LATTICE = 1.01 * 2.0**-20  # the most that the lattice's points are apart, in deviations of the noise, and a little
_ROUNDED = 2.0**-26  # of very many records: twice what an entry's last bit is worth when it becomes a double
_LEVEL = 1.5  # directions are never brought below this many times the mean
_LEAST_MASS, _LEAST_SPREAD = 1e-6, 1e-8  # without noise, or without records: what is divided by is never zero


@dataclass(frozen=True)
class Whitening:
    """How much of the budget goes to the second moments, and how long a record counts at most.

    Args:
        share: Which part of the squared signal of a run the moments get; the training gets the rest.
        radius: Records longer than this count as if they had this length. Features of images and texts have length 1.
        centred: Whether records are centred as well, and all directions are brought to one level: for tables.

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
    centred: bool = False

    def __post_init__(self) -> None:
        _validate.flag("centred", self.centred)
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
        return _spread(self._summed(features), self._noise(signal))

    def _summed(self, features: int) -> int:
        """How many numbers of a record are multiplied with each other: its features, and a constant one."""
        return features + self.centred

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
        done = "centred and brought to one level in all directions" if self.centred else "whitened"
        return (
            f"records are {done} by noised second moments, which get {self.share:g} of the squared signal and are "
            "part of the cost (docs/theorems/whitening.md)"
        )

    def lens(
        self, data: Dataset | UnitDataset, settings: Settings, key: Randomness, places: Indices | None = None
    ) -> Lens | CentredLens:
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
        features, records = self._summed(data.features), settings.batch_size / settings.sampling_rate
        check_whitened(features, records)
        rows, made = data if places is None else data.take(places), _centred_lens if self.centred else _lens
        if settings.noise_multiplier == 0.0:  # a rehearsal of one's own: no finite cost
            return made(second_moments(rows, self.radius, 1.0, constant=self.centred) / records, 0.0)
        noise = self.noise_multiplier(settings)
        spread = _spread(features, noise)
        if spread > MOST_SPREAD:
            raise InvalidInput("The noise on the second moments is too large for its lattice. Leave 'whitening' out.")
        length = 1.0 - spread - features * _ROUNDED  # what rounding moves sums by
        moments = second_moments(rows, self.radius, length, constant=self.centred)
        _add_noise(moments, noise, key.child("whitening"))
        return made(moments / records, math.sqrt(2.0 * features) * noise / records)


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


def through(data: Dataset | UnitDataset, lens: Lens | CentredLens) -> Dataset | UnitDataset:
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
    for part, own in in_parts(rows):
        x[part] = lens(own)
    seen = rows.holding(x, rows.y)
    return data.with_rows(seen) if isinstance(data, UnitDataset) else seen


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


def _centred_lens(moments: Array, edge: float) -> CentredLens:
    """The noised mean is taken away, and all directions come to one level: that of noise where they are below it.

    The last row and column belong to the constant. Records are scaled so that they are about one long.
    """
    mass = max(float(moments[-1, -1]), edge, _LEAST_MASS)
    middle = moments[:-1, -1] / mass
    across = np.outer(middle, moments[-1, :-1] / mass)
    values, vectors = np.linalg.eigh(moments[:-1, :-1] / mass - (across + across.T) / 2.0)
    values = np.maximum(values, 0.0)
    floor = max(edge / mass, _LEAST_SPREAD)
    seen = max(1.0, float((values / (values + floor)).sum()))  # how many directions there are, noise counted out
    matrix = (vectors / np.sqrt((values + floor) * seen)) @ vectors.T
    return CentredLens(middle.astype(np.float32), np.ascontiguousarray(matrix, np.float32))
