"""ROC curves as polygons: U(x) = max P(E) over events with Q(E) <= x.

Each value d(t) of an upper profile is a line d(t) + exp(t) x above U, so any finite set of losses gives a
polygon above U: a dominating pair with finitely many outcomes (``docs/theorems/profiles.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptune.accounting._profiles import Array, Indices, Pair

__all__ = ["Polygon", "coarse_losses", "meeting_points", "outer_polygon", "refine", "split"]


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


def _meet(pair: Pair, t: Array) -> tuple[Array, Array, float, float]:
    """Where the lines of neighbouring losses meet; d at the last loss and its mirror at the first."""
    zero = int(np.searchsorted(t, 0.0))
    ahead = pair.remove.delta(t[zero:])
    back = pair.add.delta(-t[: zero + 1])
    ahead[0] = back[-1] = min(ahead[0], back[-1])
    gap = np.diff(t)
    with np.errstate(over="ignore", under="ignore"):
        drop = (ahead[:-1] - ahead[1:]) / np.expm1(gap[zero:])
        x_ahead = drop * np.exp(-t[zero:-1])
        # Below zero work with complements: 1 - x and 1 - p keep their digits there.
        rest = (back[1:] - np.exp(-gap[:zero]) * back[:-1]) / -np.expm1(-gap[:zero])
        p_rest = np.exp(t[:zero]) * (rest - back[:-1])
    x = np.concatenate([1.0 - rest, x_ahead])
    p = np.concatenate([1.0 - p_rest, ahead[:-1] + drop])
    return x, p, float(ahead[-1]), float(back[0])


def _chain(x: Array, p: Array, last: float, first: float) -> tuple[Array, Array]:
    """Nodes from (0, 0) to (1, 1): outcomes that Q never shows first, those that P never shows last."""
    q = np.concatenate([[0.0, 0.0], x[::-1], [1.0 - first, 1.0]])
    p = np.concatenate([[0.0, last], p[::-1], [1.0, 1.0]])
    return np.maximum.accumulate(np.clip(q, 0.0, 1.0)), np.maximum.accumulate(np.clip(p, 0.0, 1.0))


def outer_polygon(pair: Pair, t: Array) -> Polygon:
    """The polygon above U made of the lines at the losses t (increasing, containing 0).

    Lines that would break concavity are left out, which only raises the polygon.
    """
    x, p, last, first = _meet(pair, t)
    for _ in range(64):
        bad = np.flatnonzero(x[1:] > x[:-1] * (1.0 + 1e-9) + 1e-300) + 1
        bad = bad[t[bad] != 0.0]
        if len(bad) == 0:
            break
        # Of neighbouring offenders drop one at a time: that may heal the other.
        t = np.delete(t, bad[np.concatenate([[True], np.diff(bad) > 1])])
        x, p, last, first = _meet(pair, t)
    q, p = _chain(x, p, last, first)
    slopes = np.concatenate([[np.inf], np.exp(np.minimum(t[::-1], 700.0)), [0.0]])
    return Polygon(q, p, slopes)


def meeting_points(pair: Pair, t: Array) -> tuple[Array, Array]:
    """All vertices of the ROC curve of a pair whose profile is exactly piecewise linear with kinks at t."""
    return _chain(*_meet(pair, t))


def coarse_losses(pair: Pair, count: int = 96) -> Array:
    """Losses for a first polygon: zero, both ends of the profile, its kinks, and an even grid between."""
    ahead = np.linspace(0.0, max(pair.remove.end, 1e-9), count)
    back = np.linspace(0.0, max(pair.add.end, 1e-9), count)
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
