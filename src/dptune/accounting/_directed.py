"""One direction of a profile: what every kind of it must answer, and the one place where a profile becomes an epsilon.

The kinds themselves are in ``profiles`` and beside the operations that make them. Whether values bound the truth from
above or from below is the caller's knowledge; nothing here rounds inward on an upper bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from dptune._typing import Array
from dptune.accounting import _solvers

__all__ = ["TINY", "DirectedProfile", "solve"]

TINY = 1e-18  # below every delta anyone states; profiles are cut there
LARGEST_LOSS = 5000.0
_ROUND = 1e-10  # outward step of a root in e


class DirectedProfile(ABC):
    """One direction of a privacy profile, d(e) for losses e >= 0: decreasing, and convex in exp(e)."""

    @abstractmethod
    def delta(self, e: Array) -> Array:
        """d(e) for an array of e >= 0, of any shape."""

    @property
    @abstractmethod
    def end(self) -> float:
        """A loss beyond which d is constant or below 1e-18."""

    def knots(self) -> Array:
        """Losses where d has kinks, if it has a few; smooth profiles return none."""
        return np.empty(0)

    def epsilon(self, delta: float) -> float:
        """The smallest e >= 0 with d(e) <= delta, rounded up; infinite if there is none."""
        return solve(self, delta)

    def quick_epsilon(self, delta: float) -> float | None:
        """An upper bound on ``epsilon`` that is much cheaper, if there is one."""
        del delta
        return None

    def keeps(self, e: float, delta: float) -> bool:
        """Whether a cheap look proves d(e) <= delta; False means not known."""
        return bool(self.delta(np.array([e]))[0] <= delta)


def solve(directed: DirectedProfile, delta: float, upward: bool = True) -> float:
    """Root of d(e) = delta on e >= 0, rounded up (or down): the one place where profiles become epsilons."""

    def value(e: float) -> float:
        return float(directed.delta(np.array([e]))[0])

    if value(0.0) <= delta:
        return 0.0
    low, high = 0.0, max(directed.end, 1e-3)
    if value(high) > delta:
        high = LARGEST_LOSS
        if value(high) > delta:
            return math.inf
        low = directed.end

    def excess(e: float) -> float:
        return math.log(max(value(e), 1e-320)) - math.log(delta)

    root = float(_solvers.brentq(excess, low, high, xtol=_ROUND / 4, rtol=1e-14))
    step = _ROUND * max(1.0, root)
    if not upward:
        return max(0.0, root - step)
    root += step
    while value(root) > delta:
        step *= 2.0
        root += step
    return root
