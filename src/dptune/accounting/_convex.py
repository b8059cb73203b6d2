"""Joining two directions of an upper bound: the truth is convex in exp(e) across e = 0, so its minorant is sound.

Each direction of a bound may be convex on its own and still meet the other in a kink that no real profile has
(``docs/theorems/profiles.md``); filling that kink is free privacy.
"""

from __future__ import annotations

import numpy as np

from dptune._typing import Array, Mask
from dptune.accounting import _solvers
from dptune.accounting.profiles import ProfilePair, TableProfile

__all__ = ["joined"]

_WORTH, _GUARD = 1e-8, 1e-11
_NEAR = 25.0  # losses within which the two directions can disturb each other


def joined(ahead: TableProfile, back: TableProfile) -> ProfilePair:
    """The pair of two tables, lowered to the convex minorant of the profile they describe together."""
    zero = len(back.losses) - 1
    every = np.concatenate([-back.losses[:0:-1], ahead.losses])
    near = np.flatnonzero(np.abs(every) <= _NEAR)  # a stretch of a convex function is convex
    level = min(ahead.values[0], back.values[0])
    whole = np.concatenate([back.values[:0:-1], [level], ahead.values[1:]])
    t, values = every[near], whole[near]
    a = np.exp(t)
    profile = np.where(t < 0.0, 1.0 + np.minimum(a, 1.0) * (values - 1.0), values)
    lengths = np.diff(a)
    slopes = -np.diff(profile) / lengths
    pooled = _solvers.isotonic_regression(slopes, weights=lengths, increasing=False).x
    # Only stretches that were pooled change; elsewhere the values keep all their digits.
    for first, last in _stretches(pooled, np.abs(pooled - slopes) > 1e-9 * np.maximum(np.abs(slopes), 1e-12)):
        inside = np.arange(first + 1, last)
        chord = profile[first] - pooled[first] * (a[inside] - a[first])
        lower = np.where(t[inside] < 0.0, (chord - 1.0 + a[inside]) / a[inside], chord)
        worth = values[inside] - lower > _WORTH  # smaller kinks are roundoff; leave them
        values[inside] = np.where(worth, np.maximum(lower, 0.0) + _GUARD, values[inside])
    whole[near] = values
    return ProfilePair(TableProfile(ahead.losses, whole[zero:]), TableProfile(back.losses, whole[zero::-1].copy()))


def _stretches(pooled: Array, changed: Mask) -> list[tuple[int, int]]:
    """Pairs of knots between which slopes were pooled to one value."""
    found = []
    index = 0
    while index < len(pooled):
        if not changed[index]:
            index += 1
            continue
        end = index
        while end + 1 < len(pooled) and pooled[end + 1] == pooled[index]:
            end += 1
        begin = index
        while begin > 0 and pooled[begin - 1] == pooled[index]:
            begin -= 1
        found.append((begin, end + 1))
        index = end + 1
    return found
