"""Poisson sampling exactly as the accountant assumes it: every record independently with the stated rate.

The number of records is drawn first (binomial), then that many records without replacement: the same law as
one coin per record, at the cost of the batch instead of the data set. Batches are never truncated, padded
with other records or redrawn when empty; their sizes are private.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dptune import _validate
from dptune.training.noise import RunKey

__all__ = ["PoissonSampler", "poisson_subset"]


class PoissonSampler:
    """The batches of one run: a function of (run, step)."""

    def __init__(self, key: RunKey, records: int, rate: float) -> None:
        self._key = key.child("batches")
        self._records = _validate.integer("records", records, 0)
        self._rate = _validate.real("sampling_rate", rate, 0.0, 1.0)

    def batch(self, step: int) -> NDArray[np.int64]:
        """Indices of the records drawn for ``step``, possibly none."""
        rng = self._key.generator(step)
        size = int(rng.binomial(self._records, self._rate))
        chosen: NDArray[np.int64] = rng.choice(self._records, size, replace=False, shuffle=False)
        return chosen


def poisson_subset(records: int, rate: float, key: RunKey) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices inside and outside a Poisson subset, for tuning on a part of the data."""
    _validate.integer("records", records, 0)
    _validate.real("rate", rate, 0.0, 1.0)
    inside = key.child("subset").generator().random(records) < rate
    return np.flatnonzero(inside), np.flatnonzero(~inside)
