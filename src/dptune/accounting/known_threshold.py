"""Stopping at a known threshold: the cost of releasing the first run whose score reaches a public figure.

``docs/theorems/known_threshold.md`` has the exact worst case for every law of the largest number of runs. It holds only
if nothing but the good run, or the default, leaves: no score, no count, no timing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dptune.accounting._convex import joined
from dptune.accounting._published import LeastProfile, PureProfile
from dptune.accounting._threshold_curve import attained, fewer, table_above, worst_points
from dptune.accounting.atoms import atoms_below
from dptune.accounting.cost import Cost, check_cost, fast_profile, lower_pair
from dptune.accounting.interleave import inward
from dptune.accounting.neighbours import Neighbours
from dptune.accounting.profiles import DirectedProfile, ProfilePair, solve
from dptune.accounting.runs import NegativeBinomial, Runs
from dptune.accounting.selected_profile import roc_points
from dptune.errors import InvalidInput

__all__ = ["KnownThreshold", "known_threshold", "liu_talwar_threshold"]

_POINTS = 500  # of an attained ROC curve, for a certificate


@dataclass(frozen=True)
class KnownThreshold(Cost):
    """The first of at most K runs of ``base`` whose score reaches a threshold; made by :func:`known_threshold`."""

    kind: ClassVar[str] = "known-threshold"
    base: Cost
    runs: Runs

    def __post_init__(self) -> None:
        check_cost("base", self.base)
        if not isinstance(self.runs, Runs):
            raise InvalidInput(f"'runs' must be a law such as Geometric(10) or Poisson(15); got {self.runs!r}.")

    @property
    def neighbours(self) -> Neighbours:
        return self.base.neighbours  # the theorem compares any two data sets on which the base's pair holds

    def _profile(self) -> ProfilePair:
        base = fast_profile(self.base)
        remove = table_above(*worst_points(base, self.runs))
        add = remove if base.symmetric else table_above(*worst_points(base.flip(), self.runs))
        both = joined(remove, add)
        first = self._capped(both.remove)
        return ProfilePair(first, first if base.symmetric else self._capped(both.add))

    def _pure(self) -> float:
        return liu_talwar_threshold(self.base, self.runs)

    def _capped(self, directed: DirectedProfile) -> DirectedProfile:
        pure = self._pure()
        return directed if pure == math.inf else LeastProfile(directed, lambda: PureProfile(pure))

    def _lower(self, delta: float) -> ProfilePair:
        base = lower_pair(self.base, delta)
        forward, reached = self._event(base, delta)
        if base.symmetric:
            return forward
        other, more = self._event(base.flip(), delta)
        return other.flip() if more > reached else forward

    def _event(self, base: ProfilePair, delta: float) -> tuple[ProfilePair, float]:
        """The pair of the worst event at this delta and of its complement, rounded down, and the loss it proves."""
        q, p = fewer(*roc_points(base), self.runs, _POINTS)
        b, a = attained(q, p, self.runs, inward(self.runs))
        found = solve(table_above(b, a), delta, upward=False)
        k = int(np.argmax(a - math.exp(min(found, 600.0)) * b)) if found < math.inf else 0
        in_p, in_q = float(a[k]), min(float(b[k]), 1.0)
        never = in_p if in_q == 0.0 else 0.0
        masses_p, masses_q = np.array([in_p, 1.0 - in_p]), np.array([in_q, 1.0 - in_q])
        pair = ProfilePair(atoms_below(masses_p, masses_q, never), atoms_below(masses_q, masses_p))
        return pair, solve(pair.remove, delta, upward=False)


def known_threshold(base: Cost, runs: Runs) -> KnownThreshold:
    """The cost of running until a score reaches a public threshold, at most K times, K drawn from a public law.

    The first run whose score reaches the threshold is released, and nothing else; if none of K runs does, a public
    default is. The score must be part of what a run pays for; a failed run counts as one below the threshold. K
    and the number of runs made stay secret. Stopping with probability g after every run that is not good
    is ``Geometric(1 / g)``.

    Args:
        base: the cost of one run.
        runs: the law of K, the most runs there may be.

    Returns:
        The cost of everything that leaves: the first good run, or the default.

    Raises:
        InvalidInput: an argument is not a cost or not a law.

    Example:
        >>> from dptune.accounting import Geometric, PureDp
        >>> round(known_threshold(PureDp(1.0), Geometric(2)).delta(1.2), 3)
        0.06
    """
    return KnownThreshold(base, runs)


def liu_talwar_threshold(base: Cost, runs: Runs) -> float:
    """Liu and Talwar's bound for a known threshold: twice a pure epsilon, where stopping is geometric.

    Args:
        base: the cost of one run.
        runs: the law of the most runs there may be.

    Returns:
        The epsilon, with delta 0; infinite where the theorem says nothing.

    Example:
        >>> from dptune.accounting import Geometric, PureDp
        >>> round(liu_talwar_threshold(PureDp(0.5), Geometric(10)), 9)
        1.0
    """
    if isinstance(runs, NegativeBinomial) and runs.shape == 1.0:
        return 2.0 * base._pure() * (1.0 + 1e-15)
    return math.inf
