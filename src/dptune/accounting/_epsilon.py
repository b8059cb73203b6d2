"""From a pair of profiles to one epsilon: the worse of the two directions, as an upper bound or as a certificate.

A single direction is solved in ``_directed``.
"""

from __future__ import annotations

from dptune.accounting._directed import solve
from dptune.accounting.profiles import ProfilePair

__all__ = ["certified", "larger_epsilon"]


def larger_epsilon(pair: ProfilePair, delta: float) -> float:
    """The larger epsilon of the two directions; the second is refined only if its quick bound exceeds the first."""
    if pair.symmetric:
        return pair.remove.epsilon(delta)
    quick = [one.quick_epsilon(delta) for one in (pair.remove, pair.add)]
    if quick[0] is None or quick[1] is None:
        return max(pair.remove.epsilon(delta), pair.add.epsilon(delta))
    first, second = (pair.remove, pair.add) if quick[0] >= quick[1] else (pair.add, pair.remove)
    found = first.epsilon(delta)
    if min(quick[0], quick[1]) <= found or second.keeps(found, delta):
        return found
    return max(found, second.epsilon(delta))


def certified(pair: ProfilePair, delta: float) -> float:
    """The epsilon that a lower pair proves at this delta."""
    return max(solve(pair.remove, delta, upward=False), solve(pair.add, delta, upward=False))
