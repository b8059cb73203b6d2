"""Private validation by holding records back: a coin for each record, and a count of right answers that is noised.

The noise is the secure one, on a lattice of which whole numbers are points; its cost is part of the trainer's declared
one. An unnoised count must never leave a training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dptune import _validate
from dptune._typing import Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.scores import Auc
from dptune.training.noise import SecureNoise
from dptune.units import UnitDataset

__all__ = ["Holdout"]

RecordsT = TypeVar("RecordsT", Dataset, UnitDataset)

# A count is a whole number: it must be a point of the noise's lattice, or rounding would move it by more than a record.
_MOST_COUNT_NOISE = 2.0**20


@dataclass(frozen=True)
class Holdout:
    """Private validation: a coin sends each record to training or validation, the score is a noised count.

    The score is ``correct / denominator + N(0, scale^2)``; ``denominator`` is a public constant, about the
    expected number of held-out records. To a held-out record a run is a Gaussian mechanism with noise
    multiplier ``scale * denominator``; to a training record the score is post-processing.

    Args:
        fraction: The probability that a record is held out.
        denominator: The public number that the count is divided by.
        scale: The deviation of the score's noise, as an accuracy: 0.01 is one percent.

    Raises:
        InvalidInput: If a figure is out of range, or the noise so large that its lattice would not hold single records.

    Example:
        >>> from dptune.randomness import Randomness
        >>> from dptune.training import Holdout
        >>> holdout = Holdout(fraction=0.1, denominator=100, scale=0.02)
        >>> holdout.noise_multiplier
        2.0
        >>> kept, held = holdout.places(1000, Randomness.rehearsal(1))
        >>> len(kept) + len(held)
        1000
    """

    fraction: float
    denominator: float
    scale: float = 0.01

    def __post_init__(self) -> None:
        _validate.real("fraction", self.fraction, 0.0, 1.0, low_open=True, high_open=True)
        _validate.real("denominator", self.denominator, 0.0, low_open=True)
        _validate.real("scale", self.scale, 0.0, low_open=True)
        if self.noise_multiplier >= _MOST_COUNT_NOISE:
            raise InvalidInput(
                f"'scale' times 'denominator' is {self.noise_multiplier:g}, but noise of {_MOST_COUNT_NOISE:g} or more "
                "would live on a lattice wider than one record. Use a smaller 'scale'."
            )

    @property
    def noise_multiplier(self) -> float:
        """The noise of the count in units of its sensitivity."""
        return self.scale * self.denominator

    def places(self, records: int, key: Randomness) -> tuple[Indices, Indices]:
        """Where the training and the validation records of one run are.

        Args:
            records: How many records there are.
            key: The randomness of the run, of which the coins are a function.

        Returns:
            The places of the training records and those of the validation records.
        """
        held = key.child("holdout").generator().random(records) < self.fraction
        return np.flatnonzero(~held), np.flatnonzero(held)

    def groups(self, records: int, key: Randomness) -> tuple[Indices, int]:
        """The group of every record for the AUC, and how many groups there are.

        Args:
            records: How many records there are.
            key: The randomness of the run, of which the groups are a function.

        Returns:
            A group for each record, held out or not, and the public number of groups.
        """
        number = Auc.groups(self.denominator)
        return key.child("score groups").generator().integers(0, number, records), number

    def split(self, data: RecordsT, key: Randomness) -> tuple[RecordsT, RecordsT]:
        """The records of one run, split.

        Args:
            data: All records.
            key: The randomness of the run, of which the coins are a function.

        Returns:
            The training records and the validation records.
        """
        kept, held = self.places(len(data), key)
        return data.take(kept), data.take(held)

    def score(self, correct: int, key: Randomness) -> float:
        """The noised score of one run.

        Args:
            correct: How many validation records the model gets right. Private.
            key: The randomness of the run, of which the noise is a function.

        Returns:
            The score, which the trainer's declared cost pays for.
        """
        count = np.array([float(correct)])
        SecureNoise(key.child("score"), 1).add(count, self.noise_multiplier, 0)
        return float(count[0]) / self.denominator
