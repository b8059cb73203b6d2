"""Privacy loss distributions on a uniform grid, from profiles: connect-the-dots (Doroshenko et al. 2022).

``dots_above`` and ``dots_below`` turn a pair into outcomes whose losses are multiples of a step, with a profile above
or below the pair's (``docs/theorems/compose.md``). Nothing here rounds inward.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune.accounting import _solvers
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile

__all__ = ["Pld", "convex_minorant", "dots_above", "dots_below", "even", "floored", "grid_below"]


_BELOW = 1e-11  # share by which values are lowered before their masses are read off: more than those lose


@dataclass(frozen=True, eq=False)
class Pld:
    """P-probabilities of the losses (first + k) * step and of an infinite loss, and what they may be wrong by.

    The masses at and above a loss x, together, are known to within ``slack + exp(log_noise - tilt * x)``.
    """

    step: float
    first: int
    masses: Array
    infinite: float
    slack: float
    log_noise: float = -math.inf
    tilt: float = 0.0

    def losses(self) -> Array:
        return np.asarray(self.step * (self.first + np.arange(len(self.masses))), dtype=np.float64)

    @functools.cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the finite part; a million points, asked for several times."""
        losses = self.losses()
        total = self.masses.sum()
        mean = float(self.masses @ losses / total)
        return mean, float(self.masses @ (losses - mean) ** 2 / total)


def even(step: float, count: int) -> Array:
    """The losses 0, step, 2 step, ...: as many as asked for."""
    return step * np.arange(count, dtype=np.float64)


def _points(directed: DirectedProfile, step: float, cut: float) -> int:
    """Number of grid points until the profile falls below ``cut`` or ends."""
    end = directed.end
    if float(directed.delta(np.array([end]))[0]) < cut:
        losses = np.linspace(0.0, end, 2000)
        end = float(losses[int(np.argmax(directed.delta(losses) <= cut))])
    return max(4, math.ceil(end / step) + 2)


def _values(pair: ProfilePair, step: float, cut: float) -> tuple[Array, Array]:
    """d at 0, step, 2 step, ... in both directions; they agree at 0."""
    ahead = pair.remove.delta(even(step, _points(pair.remove, step, cut)))
    back = pair.add.delta(even(step, _points(pair.add, step, cut)))
    ahead[0] = back[0] = min(ahead[0], back[0])
    return ahead, back


def _slopes(ahead: Array, back: Array, step: float) -> tuple[Array, Array]:
    """Q-mass above each interval, times exp(k step), ahead of 0; and its complement behind 0, outward."""
    above = np.append((ahead[:-1] - ahead[1:]) / math.expm1(step), 0.0)
    rest = np.append((back[:-1] - math.exp(-step) * back[1:]) / -math.expm1(-step), back[-1])
    return above, rest


def convex_minorant(values: Array, step: float) -> Array:
    """The convex minorant (in exp(e)) of values on the grid; convex values come back unchanged.

    Its slopes are the antitonic regression of the slopes, weighted by the lengths of the intervals; values
    are rebuilt from the far end, where they are smallest, so that the tail keeps its digits.
    """
    left = np.exp(np.minimum(even(step, len(values) - 1), 690.0))
    slopes = (values[:-1] - values[1:]) / (left * math.expm1(step))
    if np.all(slopes[1:] <= slopes[:-1] * (1.0 + 1e-13)):
        return values
    pooled = _solvers.isotonic_regression(slopes, weights=left, increasing=False).x
    drops = np.maximum(pooled, 0.0) * left * math.expm1(step)
    rebuilt = values[-1] + np.append(np.cumsum(drops[::-1])[::-1], 0.0)
    return np.asarray(np.minimum(rebuilt, values))


def _convex(ahead: Array, back: Array, step: float) -> tuple[Array, Array]:
    """The values with a convex profile below them, joined at 0. Both bounds allow it: the truth is convex
    below an upper bound, and a minorant of a lower bound is a lower bound."""
    for _ in range(20):
        ahead, back = convex_minorant(ahead, step), convex_minorant(back, step)
        above, rest = _slopes(ahead[:2], back[:2], step)
        excess = above[0] + rest[0] - 1.0
        if excess <= 1e-16:
            break
        # Lower d(0) until the two slopes that meet there agree.
        ahead, back = ahead.copy(), back.copy()
        ahead[0] -= excess / (1.0 / math.expm1(step) - 1.0 / math.expm1(-step))
        back[0] = ahead[0]
    return ahead, back


def _pld(ahead: Array, back: Array, step: float, infinite: float) -> Pld:
    """The outcomes whose profile is piecewise linear in exp(e) with the given values."""
    ahead, back = _convex(ahead, back, step)
    above, rest = _slopes(ahead, back, step)
    p_ahead = above[:-1] * math.exp(step) - above[1:]
    with np.errstate(under="ignore"):
        p_back = np.exp(-even(step, len(back))[1:]) * (rest[:-1] - rest[1:])
    masses = np.concatenate([p_back[::-1], [1.0 - rest[0] - above[0]], p_ahead])
    clipped = float(-masses[masses < 0.0].sum())
    return Pld(step, 1 - len(back), np.maximum(masses, 0.0), infinite, clipped)


def dots_above(pair: ProfilePair, step: float, cut: float) -> Pld:
    """Outcomes whose profile meets the pair's on the grid and is above it everywhere."""
    ahead, back = _values(pair, step, cut)
    made = _pld(ahead, back, step, float(ahead[-1]))
    return Pld(made.step, made.first, made.masses, made.infinite, 0.0)  # a clipped mass only raises it


def _lowered(pair: ProfilePair, step: float, cut: float) -> tuple[Array, Array]:
    """Values on the grid, convex, whose chords are nowhere above the pair's profile.

    A chord exceeds a convex function by at most the height of the triangle that the neighbouring chords
    make with it, so each value is lowered by the larger height beside it.
    """
    ahead, back = (values * (1.0 - _BELOW) for values in _values(pair, step, cut))
    above, rest = _slopes(ahead, back, step)
    grow, shrink = math.exp(step), math.exp(-step)
    before = np.concatenate([[1.0 - rest[0]], above[:-1]])
    before[1:] *= grow
    after = np.append(above[1:], 0.0) * shrink
    height = np.maximum(before - after, 0.0) * math.expm1(step) / 4.0
    # Behind 0 the same, in the mirrored profile's own scale.
    inner = np.concatenate([[1.0 - above[0]], rest[:-1]])
    outer = np.append(rest[1:], rest[-1])
    mirror = np.maximum(inner - outer, 0.0) * -math.expm1(-step) / 4.0
    low_ahead = ahead - np.maximum(height, np.concatenate([[mirror[0]], height[:-1]]))
    low_back = back - np.maximum(mirror, np.concatenate([[height[0]], mirror[:-1] * grow]))
    low_ahead[0] = low_back[0] = min(low_ahead[0], low_back[0])
    low_ahead, low_back = floored(low_ahead), floored(low_back)
    low_ahead[0] = low_back[0] = min(low_ahead[0], low_back[0])
    return _convex(low_ahead, low_back, step)


def dots_below(pair: ProfilePair, step: float, cut: float) -> Pld:
    """Outcomes whose profile is nowhere above the pair's (exact, or itself a convex lower bound)."""
    ahead, back = _lowered(pair, step, cut)
    return _pld(ahead, back, step, 0.0)


def floored(values: Array) -> Array:
    """A lower profile with zeros from one point before its first negative value: chords stay below."""
    negative = np.flatnonzero(values <= 0.0)
    result = values.copy()
    result[max(0, int(negative[0]) - 1) if len(negative) else len(values) - 1 :] = 0.0
    return result


def grid_below(pair: ProfilePair, few: bool = False) -> tuple[TableProfile, TableProfile]:
    """One pair of grid profiles below the given one, which is exact or a convex lower bound itself.

    ``few`` asks for at most a thousand points a side, for use inside other sums.
    """
    ahead, back = pair.remove, pair.add
    if isinstance(ahead, TableProfile) and isinstance(back, TableProfile):
        short = len(ahead.losses) + len(back.losses) <= 2000
        if short or not few:
            return ahead, back
    step = max(pair.remove.end, pair.add.end, 1e-6) / (900.0 if few else 6000.0)
    low_ahead, low_back = _lowered(pair, step, 1e-17)
    return (
        TableProfile(even(step, len(low_ahead)), low_ahead, step),
        TableProfile(even(step, len(low_back)), low_back, step),
    )
