"""Poisson sampling exactly as the accountant assumes it: every record independently with the stated rate.

The coins of all records over a block of steps are one long Bernoulli sequence; only the gaps between
successes are drawn (geometric), so a batch costs its own size instead of the data set's. Batches are never
truncated, filled up or redrawn when empty; their sizes are private.
"""

from __future__ import annotations

import math

import numpy as np

from dptune import _validate
from dptune._typing import Indices
from dptune.randomness import Randomness

__all__ = ["PoissonSampler"]

# About this many records are drawn at once.
_BLOCK = 16_384


class PoissonSampler:
    """The batches of one run of at most ``steps`` steps: a function of (run, step)."""

    def __init__(self, key: Randomness, records: int, rate: float, steps: int = 1024) -> None:
        self._key = key.child("batches")
        self._records = _validate.integer("records", records, 0)
        self._rate = _validate.real("sampling_rate", rate, 0.0, 1.0, low_open=True)
        self._steps = int(max(1, min(1024, steps, _BLOCK // max(1.0, records * rate))))
        self._block = -1
        self._heads = np.empty(0, np.int64)
        self._ends = [0] * (self._steps + 1)

    def batch(self, step: int) -> Indices:
        """Indices of the records drawn for ``step`` in increasing order, possibly none."""
        block, place = divmod(step, self._steps)
        if block != self._block:
            self._draw(block)
            self._block = block
        # Cut out on demand: a short run uses few of the steps of a block.
        return self._heads[self._ends[place] : self._ends[place + 1]] - place * self._records

    def _draw(self, block: int) -> None:
        coins = self._steps * self._records
        if coins == 0:
            return
        rng = self._key.generator(block)
        mean = coins * self._rate
        count = int(mean + 6.0 * np.sqrt(mean) + 16)
        parts: list[Indices] = []
        last = -1
        while last < coins:  # one round almost always
            places = last + np.cumsum(_gaps(rng, self._rate, count))
            parts.append(places)
            last = int(places[-1])
        self._heads = np.concatenate(parts)
        self._ends = np.searchsorted(self._heads, self._records * np.arange(self._steps + 1)).tolist()


def _gaps(rng: np.random.Generator, rate: float, count: int) -> Indices:
    """Geometric numbers by inversion, as numpy draws them for small rates, but all at once."""
    if rate == 1.0:
        return np.ones(count, np.int64)
    values = rng.standard_exponential(count)
    values *= -1.0 / math.log1p(-rate)
    np.ceil(values, out=values)
    np.clip(values, 1.0, 2.0**62 / count, out=values)  # an exponential of zero; a gap beyond all coins
    return values.astype(np.int64)
