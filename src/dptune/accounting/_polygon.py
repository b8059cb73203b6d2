"""ROC curves as polygons: U(x) = max P(E) over events with Q(E) <= x.

Each value d(t) of an upper profile is a line d(t) + exp(t) x above U, so any finite set of losses gives a
polygon above U: a dominating pair with finitely many outcomes (``docs/theorems/profiles.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting import _solvers
from dptune.accounting.profiles import ProfilePair, TableProfile

__all__ = ["Polygon", "attained_points", "coarse_losses", "outer_polygon", "refine", "split"]

_LARGEST_EXPONENT = 690.0  # of exp, with room for a product


@dataclass(frozen=True, eq=False)
class Polygon:
    """A concave chain from (0, 0) to (1, 1). Arc i joins node i to node i + 1 and has slope ``slopes[i]``
    (infinite on the first arc, which holds the outcomes that Q never shows; 0 on the last)."""

    q: Array
    p: Array
    slopes: Array

    def roc(self, x: Array) -> Array:
        """U(x), by interpolation along the chain."""
        return np.interp(x, self.q[1:], self.p[1:])


def _values(pair: ProfilePair, t: Array) -> tuple[Array, Array]:
    """d at the losses t >= 0, and the other direction's d at -t for t <= 0; they agree at 0."""
    zero = int(np.searchsorted(t, 0.0))
    ahead = pair.remove.delta(t[zero:])
    back = pair.add.delta(-t[: zero + 1])
    ahead[0] = back[-1] = min(ahead[0], back[-1])
    return ahead, back


def _meet(t: Array, ahead: Array, back: Array) -> tuple[Array, Array]:
    """Where the lines of neighbouring losses meet, from the last point of the ROC curve to the first."""
    zero = len(back) - 1
    gap = np.diff(t)
    with np.errstate(over="ignore", under="ignore"):
        drop = (ahead[:-1] - ahead[1:]) / np.expm1(gap[zero:])
        x_ahead = drop * np.exp(-t[zero:-1])
        # Below zero work with complements: 1 - x and 1 - p keep their digits there.
        rest = (back[1:] - np.exp(-gap[:zero]) * back[:-1]) / -np.expm1(-gap[:zero])
        p_rest = np.exp(t[:zero]) * (rest - back[:-1])
    x = np.concatenate([1.0 - rest, x_ahead])
    p = np.concatenate([1.0 - p_rest, ahead[:-1] + drop])
    return x, p


def _chain(t: Array, ahead: Array, back: Array) -> tuple[Array, Array]:
    """Nodes from (0, 0) to (1, 1): outcomes that Q never shows first, those that P never shows last."""
    x, p = _meet(t, ahead, back)
    last, first = float(ahead[-1]), float(back[0])
    q = np.concatenate([[0.0, 0.0], x[::-1], [1.0 - first, 1.0]])
    p = np.concatenate([[0.0, last], p[::-1], [1.0, 1.0]])
    return np.maximum.accumulate(np.clip(q, 0.0, 1.0)), np.maximum.accumulate(np.clip(p, 0.0, 1.0))


def _crossing(one: tuple[float, float], two: tuple[float, float]) -> tuple[float, float]:
    """x and 1 - x where the lines of two losses meet; a point is (t, d(t)) or, for t < 0, (t, the other's d(-t))."""
    (t, v), (s, u) = one, two
    if t >= 0.0:
        x = (v - u) / math.expm1(min(s - t, 700.0)) * math.exp(-min(t, 700.0))
        return x, 1.0 - x
    if s <= 0.0:
        rest = (u - math.exp(t - s) * v) / -math.expm1(t - s)
        return 1.0 - rest, rest
    x = (1.0 + math.exp(t) * (v - 1.0) - u) / (math.exp(min(s, 700.0)) - math.exp(t))
    return x, 1.0 - x


def _minorant(t: Array, ahead: Array, back: Array) -> tuple[Array, Array, Array]:
    """The losses whose lines bound the polygon: the vertices of the convex minorant of d in exp(t).

    The loss 0 stays; if it is not a vertex its value is the minorant's (the truth is convex, so it is below).
    """
    values = np.concatenate([back[:-1], ahead]).tolist()
    kept = [(-math.inf, 0.0)]  # the line p = 1
    for point in zip(t.tolist(), values, strict=True):
        while len(kept) > 1:
            (x, rest), (next_x, next_rest) = _crossing(kept[-2], kept[-1]), _crossing(kept[-1], point)
            crossed = next_rest < rest if point[0] <= 0.0 else next_x > x
            if not crossed:
                break
            kept.pop()
        kept.append(point)
    while len(kept) > 2 and kept[-1][1] >= kept[-2][1] and kept[-2][0] >= 0.0:
        kept.pop()  # steeper and higher than the line before: never the lowest
    losses = np.array([loss for loss, _ in kept])
    value = np.array([v for _, v in kept])
    zero = int(np.searchsorted(losses, 0.0))
    if losses[zero] != 0.0:
        x, _ = _crossing(kept[zero - 1], kept[zero])
        level = kept[zero][1] + x * math.expm1(kept[zero][0])
        losses, value = np.insert(losses, zero, 0.0), np.insert(value, zero, level)
    return losses[1:], value[zero:], value[1 : zero + 1]


def _apart(t: Array) -> Array:
    """The losses without those that roundoff cannot tell from a neighbour; 0 stays."""
    close = np.flatnonzero(np.diff(t) <= 1e-13)
    return np.delete(t, np.where(t[close + 1] == 0.0, close, close + 1)) if len(close) else t


def outer_polygon(pair: ProfilePair, t: Array) -> Polygon:
    """The polygon above U made of the lines at the losses t (increasing, containing 0).

    Lines that would break concavity are left out, which only raises the polygon.
    """
    t = _apart(t)
    ahead, back = _values(pair, t)
    x, _ = _meet(t, ahead, back)
    x = np.concatenate([[1.0 - back[0]], x, [0.0]])
    if (x[1:] > x[:-1] * (1.0 + 1e-9) + 1e-300).any():
        t, ahead, back = _minorant(t, ahead, back)
    q, p = _chain(t, ahead, back)
    slopes = np.concatenate([[np.inf], np.exp(np.minimum(t[::-1], 700.0)), [0.0]])
    return Polygon(q, p, slopes)


def attained_points(ahead: TableProfile, back: TableProfile) -> tuple[Array, Array]:
    """Vertices of a ROC curve that is nowhere above a pair's, from two tables that are nowhere above its profile.

    They are read off the slopes of the convex minorant, never off differences of values near 1: where a profile is flat
    to all digits those would say that Q has no mass at all (``docs/theorems/roundoff.md``).
    """
    near = ahead.losses <= _LARGEST_EXPONENT
    t, values = ahead.losses[near], ahead.values[near]
    if len(t) < len(ahead.losses):
        values = np.append(values[:-1], 0.0)  # beyond, nothing is claimed
    a = np.exp(t)
    above = np.empty(0)
    if len(t) > 1:
        above = -np.diff(values) / np.diff(a)
        above = np.maximum(_solvers.isotonic_regression(above, weights=np.diff(a), increasing=False).x, 0.0)
    gap, b = np.diff(back.losses), back.values
    rest = np.append((b[:-1] - np.exp(-gap) * b[1:]) / -np.expm1(-gap), b[-1])
    # From the far end: what Q never shows, the slopes ahead of 0, those behind it, and what P never shows.
    q = np.concatenate([[0.0, 0.0], above[::-1], 1.0 - rest, [1.0]])
    q = np.maximum.accumulate(np.clip(q, 0.0, 1.0))
    with np.errstate(under="ignore"):
        ratios = np.concatenate([a[::-1], np.exp(-back.losses[1:]), [0.0]])
    p = np.cumsum(np.concatenate([[0.0, values[-1]], ratios * np.diff(q)[1:]]))
    return q, p / max(float(p[-1]), 1.0)


def coarse_losses(pair: ProfilePair, count: int = 96) -> Array:
    """Losses for a first polygon: zero, both ends of the profile, its kinks, and an even grid between."""
    # Losses closer than roundoff can tell apart would only add noise.
    ahead, back = (
        np.linspace(0.0, max(directed.end, 1e-9), count if directed.end > 1e-6 else 2)
        for directed in (pair.remove, pair.add)
    )
    return np.unique(np.concatenate([-back, -pair.add.knots(), ahead, pair.remove.knots()]))


def refine(t: Array, importance: Array, count: int) -> Array:
    """Add losses inside the intervals of t in proportion to their importance, about ``count`` in all."""
    total = float(importance.sum())
    if not np.isfinite(total) or total <= 0.0:
        return t
    parts = np.maximum(1, np.ceil(count * importance / total)).astype(np.int64)
    index = np.repeat(np.arange(len(parts)), parts)
    within = np.arange(len(index)) - np.repeat(np.cumsum(parts) - parts, parts)
    inner = t[index] + np.diff(t)[index] * within / parts[index]
    return np.append(inner, t[-1])


def split(q: Array, p: Array, importance: Array, largest: float, most: int = 6000) -> tuple[Array, Array, Indices]:
    """Cut arcs into equal parts so that none has more than ``largest`` importance; arcs stay straight.

    Returns the nodes and, for every new arc, the arc it came from.
    """
    parts = np.clip(np.ceil(importance / largest), 1, most)
    if parts.sum() > most:
        parts = np.maximum(1, np.floor(parts * (most / parts.sum())))
    count = parts.astype(np.int64)
    arc = np.repeat(np.arange(len(count)), count)
    share = (np.arange(len(arc)) - np.repeat(np.cumsum(count) - count, count)) / count[arc]
    new_q = np.append(q[arc] + share * np.diff(q)[arc], q[-1])
    new_p = np.append(p[arc] + share * np.diff(p)[arc], p[-1])
    return new_q, new_p, arc
