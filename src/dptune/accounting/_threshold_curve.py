"""The worst ROC curve of stopping at a known threshold, from above and from below.

With the tested event among good outputs at Q-mass s and the other good outputs at Q-mass b, the event's probabilities
are functions of two positions on the base's ROC curve; ``docs/theorems/known_threshold.md`` has them, their
convexity and the rounding of cells. Everything for prices moves outward, everything for certificates inward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting._polygon import Polygon, coarse_losses, outer_polygon, refine
from dptune.accounting.profiles import ProfilePair, TableProfile
from dptune.accounting.runs import Runs

__all__ = ["Hitting", "attained", "fewer", "table_above", "worst_points"]

_LOSSES = 420  # in the polygon above U, about
_STEP = 0.06  # of the measure along the curve, about
_MOST = 1000  # arcs
_NO_MASS = 1e-300
_BLOCK = 96  # rows made at a time


@dataclass(frozen=True)
class Hitting:
    """h(x) = (1 - f(1 - x)) / x, the expected number of runs until one is good or none is left, at P(good) = x.

    Arguments are z = 1 - x beside x, for either may be small. ``guard`` covers roundoff of every value here.
    """

    runs: Runs

    @property
    def guard(self) -> float:
        return 1e-13 + 8.0 * self.runs.roundoff

    @cached_property
    def scale(self) -> float:
        """f''(1) / f'(1), at least 1: h changes when its argument does by the inverse of this."""
        one = np.ones(1)
        return max(float(self.runs.slope(one, 2)[0] / self.runs.slope(one)[0]), 1.0)

    def value(self, x: Array) -> Array:
        least = np.maximum(x, _NO_MASS)
        found = self.runs.gain(np.ones_like(x), np.minimum(least, 1.0)) / least
        return np.where(x <= 1e-290, self.runs.expected, found)

    def default(self, z: Array) -> Array:
        """f(z): the probability that the default is released."""
        return self.runs.generating(z)

    def fall(self, x: Array, z: Array, h: Array, w: Array) -> tuple[Array, Array]:
        """-h'(x) rounded down and up, from h(x) and w = f'(z): the integral of t f''(1 - x t) over t in [0, 1].

        Where x is small the difference of h and w says nothing, and f'' changes too little to matter.
        """
        g, least = self.guard, np.maximum(x, 1e-290)
        low = np.maximum((h * (1.0 - g) - w * (1.0 + g)) / least, 0.0)
        high = np.maximum((h * (1.0 + g) - w * (1.0 - g)) / least, 0.0)
        small = x * self.scale < 1e-3
        low[small] = np.maximum(low[small], 0.5 * self.runs.slope(z[small], 2) * (1.0 - g))
        return low, np.minimum(high, 0.5 * float(self.runs.slope(np.ones(1), 2)[0]) * (1.0 + g))


def _levels(q: Array, p: Array, law: Hitting) -> Array:
    """A measure along the curve in which cells of equal length lose about equally much.

    A mass y enters h(y), which changes on a scale of 1 / steepness: rounding loses the square of a step relative to y
    above that scale, relative to y and the scale below it. The chance of the default is a power of z where the law has
    few small numbers of runs.
    """
    total = np.zeros(len(q) - 1)
    for mass in (p, q):
        for side in (mass, 1.0 - mass):
            total += np.abs(np.diff(2.0 * np.arcsinh(np.sqrt(law.scale * np.maximum(side, 0.0)))))
        least = np.maximum(mass, _NO_MASS)
        power = np.log(law.runs.gain(least, least) / least + law.runs.never + 1e-15)
        total += 0.5 * np.abs(np.diff(power))
    return np.asarray(total)


def _cut(q: Array, p: Array, law: Hitting, most: int) -> tuple[Array, Array]:
    """The chain with new nodes on its long arcs, even in :func:`_levels`; about ``most`` arcs or fewer."""
    moved = _levels(q, p, law)
    step = max(_STEP, float(moved.sum()) / max(most - len(moved), 1))
    ends = np.geomspace(1e-14, 0.5, 160)
    share = np.concatenate([[0.0], ends, 1.0 - ends[-2::-1], [1.0]])
    new_q, new_p = [], []
    for k in range(len(moved)):
        inner = np.empty(0)
        if moved[k] > step:
            dense_q, dense_p = q[k] + share * (q[k + 1] - q[k]), p[k] + share * (p[k + 1] - p[k])
            level = np.append(0.0, np.cumsum(_levels(dense_q, dense_p, law)))
            parts = math.ceil(level[-1] / step)
            inner = np.unique(np.interp(np.arange(1, parts) * (level[-1] / parts), level, share))
        at = np.append(0.0, inner)
        new_q.append(q[k] + at * (q[k + 1] - q[k]))
        new_p.append(p[k] + at * (p[k + 1] - p[k]))
    return np.concatenate([*new_q, q[-1:]]), np.concatenate([*new_p, p[-1:]])


def _nodes(pair: ProfilePair, law: Hitting) -> tuple[Array, Array]:
    """Nodes of a polygon above the base's ROC curve, cut as finely as the law asks for."""
    t = coarse_losses(pair)
    polygon: Polygon = outer_polygon(pair, t)
    if len(polygon.slopes) == len(t) + 2:
        moved = np.minimum(_levels(polygon.q, polygon.p, law), 1.0)[1:-1][::-1]
        importance = np.convolve(moved, [0.5, 0.5], mode="valid")
        importance = importance / max(float(importance.sum()), 1e-9) + np.diff(t) / (t[-1] - t[0])
        polygon = outer_polygon(pair, refine(t, importance, _LOSSES))
    return _cut(polygon.q, polygon.p, law, _MOST)


def fewer(q: Array, p: Array, runs: Runs, count: int) -> tuple[Array, Array]:
    """About ``count`` points of an attained curve, some of them between its own: an outcome may be split."""
    law = Hitting(runs)
    q, p = _cut(q, p, law, len(q) + count)
    with np.errstate(divide="ignore"):
        rare = np.log(np.maximum(np.stack([q, p, 1.0 - q, 1.0 - p]), 1e-18))
    moved = _levels(q, p, law) + 0.1 * np.abs(np.diff(rare, axis=1)).sum(axis=0)
    level = np.append(0.0, np.cumsum(moved))
    marks = np.floor(level / max(float(level[-1]), 1e-9) * count)
    kept = np.union1d(np.flatnonzero(np.diff(marks, prepend=-1.0) > 0), [0, len(q) - 1])
    return q[kept], p[kept]


def _pareto(b: Array, a: Array) -> tuple[Array, Array]:
    """The points that no other point beats by a smaller Q-mass and a larger P-mass, by increasing Q-mass."""
    order = np.lexsort((-a, b))
    b, a = b[order], a[order]
    top = np.maximum.accumulate(a)
    kept = np.append(True, a[1:] > top[:-1])
    return b[kept], a[kept]


def _hull(b: Array, a: Array) -> tuple[Array, Array]:
    """Vertices of the smallest concave curve above the points, which are sorted."""
    kept: list[tuple[float, float]] = []
    for x, y in zip(b.tolist(), a.tolist(), strict=True):
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2], kept[-1]
            if (y1 - y0) * (x - x1) > (y - y1) * (x1 - x0):
                break
            kept.pop()
        kept.append((x, y))
    found = np.array(kept)
    return found[:, 0], found[:, 1]


def worst_points(pair: ProfilePair, runs: Runs) -> tuple[Array, Array]:
    """Q- and P-masses whose lines P - exp(e) Q together are above every event's, in the removal direction."""
    law = Hitting(runs)
    q, p = _nodes(pair, law)
    found_b, found_a = [np.zeros(1)], [np.zeros(1)]
    for first in range(0, len(q), _BLOCK):
        b, a = _rows(q, p, law, first, min(first + _BLOCK, len(q)))
        b, a = _pareto(b, a)
        found_b.append(b)
        found_a.append(a)
    return _hull(*_pareto(np.concatenate(found_b), np.concatenate(found_a)))


def _rows(q: Array, p: Array, law: Hitting, first: int, last: int) -> tuple[Array, Array]:
    """The points of the rows ``first`` to ``last`` (s = q_i) and of their columns (b = 1 - q_j): both kinds of events.

    P-masses by the tangent at the row before, Q-masses by the tangent at the column before: exact on the first row,
    exact on the diagonal.
    """
    g = law.guard
    start = max(first - 1, 0)
    rows, columns = np.arange(start, last), np.arange(start, len(q))
    high = _continued(*_tangents(p, law, rows, columns), p[rows], first - start)
    low = _lowered(q, law, np.arange(first, last), columns)
    allowed = columns[None, :] >= np.arange(first, last)[:, None]
    found = [(b[allowed] * (1.0 - g), a[allowed] * (1.0 + g)) for a, b in zip(high, low, strict=True)]
    b, a = (np.concatenate(side) for side in zip(*found, strict=True))
    return np.where(b < _NO_MASS, 0.0, b), np.minimum(a, 1.0)


def _tangents(p: Array, law: Hitting, rows: Indices, columns: Indices) -> tuple[Array, Array, Array, Array]:
    """P-masses of both events at every row and column, and how fast they may grow until the next row."""
    p_i, p_j = p[rows][:, None], p[columns][None, :]
    z, v = np.maximum(p_j - p_i, 0.0), 1.0 - p_j
    x = np.minimum(p_i + v, 1.0)
    h, w = law.value(x), law.runs.slope(z)
    fall_low, fall_high = law.fall(x, z, h, w)
    alone = p_i * h
    # p near 1 is known to one part in 1e16 of 1, not of its complement.
    hidden = law.default(z) + w * (2.3e-16 * p_j) + alone
    outward = h * (1.0 + law.guard)
    slope, hidden_slope = outward - p_i * fall_low, v * fall_high
    # Long steps, and the triangle on the diagonal: the steepest slope in both cells beside this column.
    step = np.append(np.diff(p), 0.0)[rows][:, None]
    diagonal = columns[None, :] == rows[:, None] + 1
    coarse = (step > 0.5 * p_i) | diagonal
    one, zero = np.ones(1), np.zeros(1)
    least = float(law.fall(one, zero, law.value(one), law.runs.slope(zero))[0][0])
    steepest = np.where(diagonal, outward - p_i * least, _next(outward))
    v_before = np.minimum(np.append(v[:, :1], v[:, :-1], axis=1), 1.0 - p_i)
    slope = np.where(coarse, steepest, slope)
    hidden_slope = np.where(coarse, v_before * _next(fall_high), hidden_slope)
    return alone, hidden, np.maximum(slope, 0.0), hidden_slope


def _next(values: Array) -> Array:
    """The values of the next column, where less is good and h is larger; the last column has none."""
    return np.append(values[:, 1:], values[:, -1:], axis=1)


def _continued(
    alone: Array, hidden: Array, slope: Array, hidden_slope: Array, p: Array, skipped: int
) -> tuple[Array, Array]:
    """P-masses at each row by the tangents of the row before; the first row of all has none before it."""
    dp = np.diff(p)[:, None]
    found = []
    for value, rise in ((alone, slope), (hidden, hidden_slope)):
        after = value[:-1] + dp * rise[:-1]
        found.append(after if skipped else np.concatenate([value[:1], after]))
    return found[0], found[1]


def _lowered(q: Array, law: Hitting, rows: Indices, columns: Indices) -> tuple[Array, Array]:
    """Q-masses of both events at every row and column, by the tangent in z at the column before."""
    s, q_j = q[rows][:, None], q[columns][None, :]
    z = np.maximum(q_j - s, 0.0)
    x = np.minimum(s + (1.0 - q_j), 1.0)
    h, w = law.value(x), law.runs.slope(z)
    dz = np.append(np.diff(q), 0.0)[columns][None, :]
    alone = s * h
    hidden = alone + law.default(z)
    rise = s * law.fall(x, z, h, w)[0]
    on_diagonal = columns[None, :] <= rows[:, None]
    found = []
    for value, slope in ((alone, rise), (hidden, rise + w * (1.0 - law.guard))):
        after = (value + dz * slope)[:, :-1]
        after = np.append(value[:, :1], after, axis=1)
        found.append(np.where(on_diagonal, value, after))
    return found[0], found[1]


def table_above(b: Array, a: Array) -> TableProfile:
    """The profile of a concave curve through the points (b, a), the first of which has b = 0: max of a - exp(e) b."""
    slopes = np.diff(a) / np.diff(b)
    steep = np.flatnonzero(slopes > 1.0)
    knots = np.log(np.minimum(slopes[steep], 1e300))
    values = a[steep] - np.exp(knots) * b[steep] + 4e-16 * a[steep]
    start = float((a - b).max()) + 4e-16
    losses = np.append(knots, 0.0)[::-1]
    keep = np.append(True, np.diff(losses) > 1e-13)
    table = np.append(values, start)[::-1]
    return TableProfile(losses[keep], np.maximum.accumulate(np.minimum(table, 1.0)[keep][::-1])[::-1])


def attained(q: Array, p: Array, runs: Runs, inward: float) -> tuple[Array, Array]:
    """Q- and P-masses of events that a real threshold attains, on points (q, p) of an attained ROC curve, inward."""
    law = Hitting(runs)
    found_b, found_a = [], []
    for k in range(len(q)):
        # A point near 1 is known to a few parts in 1e16 of 1, not of its complement.
        z_p = np.maximum(p[k:] - p[k] - 1e-15 * p[k:], 0.0)
        z_q = np.clip(q[k:] - q[k] + 1e-15 * q[k:], 0.0, 1.0)
        in_p, in_q = (m[k] * law.value(np.minimum(m[k] + (1.0 - m[k:]), 1.0)) for m in (p, q))
        a = np.concatenate([in_p, in_p + law.default(z_p)]) * (1.0 - inward)
        b = np.concatenate([in_q, in_q + law.default(z_q)]) * (1.0 + inward)
        b, a = _pareto(b, a)
        found_b.append(b)
        found_a.append(a)
    return _hull(*_pareto(np.concatenate(found_b), np.concatenate(found_a)))
