"""The largest ratio w(U(x)) / w(x): by how much selection can make one outcome likelier in one world than in the other.

Closed forms for every law of runs, from Xiang, Wang, Wang and Wang (Theorem 3), evaluated on any upper profile and
rounded up. It is the first edge of the tight bound's hull (``docs/theorems/select.md``).
"""

from __future__ import annotations

import math

import numpy as np

from dptune.accounting import _solvers
from dptune.accounting.profiles import ProfilePair
from dptune.accounting.runs import Binomial, NegativeBinomial, Poisson, Runs

__all__ = ["log_ratio"]

_UP = 1e-12


def _d(pair: ProfilePair, e: float) -> float:
    return float(pair.delta(np.array([e]))[0])


def _crossing(pair: ProfilePair, odds: float) -> float:
    """The t >= 0 at which d(t) = (exp(t) - 1) / odds, rounded up."""
    if odds == 0.0 or _d(pair, 0.0) == 0.0:
        return 0.0

    def excess(t: float) -> float:
        return _d(pair, t) - math.expm1(t) / odds

    top = math.log1p(odds)
    if excess(top) >= 0.0:  # d is 1 there to all digits
        return top
    root = float(_solvers.brentq(excess, 0.0, top, xtol=1e-13, rtol=1e-14))
    return min(root + _UP * max(1.0, root), top)


def log_ratio(pair: ProfilePair, runs: Runs) -> float:
    """max over x of log w(U(x)) / w(x) in the removal direction; infinite where it is unbounded or not known."""
    if isinstance(runs, NegativeBinomial):
        return (1.0 + runs.shape) * _crossing(pair.flip(), (1.0 - runs.stopping) / runs.stopping)
    if isinstance(runs, Poisson):
        return runs.mean * _d(pair, 0.0)
    if isinstance(runs, Binomial) and runs.probability_each < 1.0:
        return (runs.trials - 1) * _crossing(pair, runs.probability_each / (1.0 - runs.probability_each))
    return math.inf
