"""Recursions, compiled if the install could, in numpy otherwise: two over interleavings, one along a table.

Both ways do the same operations in the same order and agree to the last bit (``tests/accounting/test_recursion.py``).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dptune._compiled import compiled
from dptune._typing import Array

__all__ = ["GAINS", "Recursion", "smoothed"]

# high and low at both ends of a cell (P-gain, Q-gain); bend: how far the Q-gain's curvature may lift a cell's middle;
# the two gains if S begins inside the arc; what changing cells within an arc may add, at the entry and at the exit.
GAINS = 9

_kernel: Any = compiled("dptune.accounting._programme")


def smoothed(values: Array, share: float, kernel: Any = _kernel) -> Array:
    """The means y[n] = share * x[n] + (1 - share) * y[n - 1], from y[-1] = 0.

    Args:
        values: x, one after the other.
        share: how much of each is its own, between 0 and 1.
        kernel: the compiled recursion, if there is one.

    Returns:
        y; the same bits as ``scipy.signal.lfilter([share], [1, share - 1], x)``, whose import takes half a second.
    """
    if hasattr(kernel, "smooth"):  # an extension that was built before this file has none
        found = np.array(values, dtype=float)
        kernel.smooth(share, found)
        return found
    kept = 1.0 - share
    steps = itertools.accumulate((share * values).tolist(), lambda before, own: before * kept + own)
    return np.fromiter(steps, dtype=float, count=len(values))


class Recursion:
    """The best value so far in every column, for each a; rows are given from the last to the first."""

    def __init__(self, a: Array, columns: int, kernel: Any = _kernel) -> None:
        if not np.isfinite(a).all():
            raise ValueError("Losses must be finite; got one that is not.")
        self.columns = columns
        self._count, self._kernel = len(a), kernel
        if kernel is None:
            self._a, self._best = a[:, None], np.zeros((len(a), columns))
            return
        groups = -(-len(a) // kernel.LANES)
        self._a = np.append(a, np.ones(groups * kernel.LANES - len(a)))
        self._best = np.zeros((groups, columns + 1, kernel.LANES))  # the row at the end turns NaN if a gain was

    def upper(self, gains: Array) -> None:
        """Go through a block of rows of outward gains, [GAINS, rows, columns]."""
        if self._kernel is not None:
            self._kernel.upper(gains.shape[1], self.columns, np.ascontiguousarray(gains), self._a, self._best)
            return
        a, best = self._a, self._best
        for high, high_b, low, low_b, bend, start_high, start_low, turn_in, turn_out in gains.swapaxes(0, 1)[::-1]:
            gain = np.maximum(high - a * low, high_b - a * low_b)
            gain += a * bend
            gain += np.maximum.accumulate(best - turn_in, axis=1)
            passed = np.maximum.accumulate(gain, axis=1) + turn_out
            best = np.maximum(passed, np.maximum(start_high - a * start_low, 0.0))
        self._best = best

    def lower(self, high: Array, low: Array) -> None:
        """Go through all rows of exact gains; column j lies at node j, and row i ends at node i + 1."""
        if self._kernel is not None:
            self._kernel.lower(len(high), self.columns, np.stack([high, low]), self._a, self._best)
            return
        best = self._best
        for i in range(len(high) - 1, -1, -1):
            gain = high[i] - self._a * low[i]
            best = np.maximum(np.maximum.accumulate(best, axis=1) + gain, 0.0)
            best[:, : i + 1] = 0.0  # y is never below r
        self._best = best

    def best(self) -> Array:
        """The largest value over the columns, for each a."""
        if self._kernel is None:
            return np.asarray(self._best.max(axis=1))
        values = self._best[:, :-1].max(axis=1) + self._best[:, -1]
        return np.asarray(values.ravel()[: self._count])
