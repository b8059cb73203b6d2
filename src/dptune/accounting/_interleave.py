"""The exact worst case of private selection, by dynamic programming over interleavings.

The worst score ranks the tested event S (the outcomes of largest likelihood ratio) in increasing order of that
ratio, its complement in decreasing order, and interleaves the two; ``docs/theorems/interleaving.md`` proves
that no score does worse. What remains is a path in the plane: r falls along S while y rises along the
complement. :class:`UpperProgramme` rounds every cell of that plane outward; :class:`LowerProgramme` takes
paths on the grid only, each of which a real score attains.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dptune.accounting._polygon import Polygon, coarse_losses, outer_polygon, refine, split
from dptune.accounting._profiles import Array, Indices, Pair
from dptune.accounting.runs import Runs

__all__ = ["LowerProgramme", "UpperProgramme", "lower_programme", "upper_programme"]

_ROWS = 400  # arcs of S in the outer polygon, about
_CELLS = 160  # cells of the complement, about
_NODES = 520  # nodes of the inner polygon
_GUARD = 1e-11


@dataclass(frozen=True, eq=False)
class UpperProgramme:
    """Outward gains for every arc of S (row) and cell of the complement (column); serves any e."""

    high: Array  # [2, rows, cells]: P-gain at both ends of a cell
    low: Array  # [2, rows, cells]: Q-gain there
    bend: Array  # how far the Q-gain's curvature may lift a cell's middle
    start_high: Array  # the two gains if S begins inside the arc
    start_low: Array
    turn_in: Array  # what changing cells within an arc may add: counted at the exit, less at the entry
    turn_out: Array

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).ravel(), 600.0))[:, None]
        best = np.zeros((len(a), self.bend.shape[1]))
        for i in range(self._first(float(a.min()), float(a.max())), -1, -1):
            gain = np.maximum(self.high[0, i] - a * self.low[0, i], self.high[1, i] - a * self.low[1, i])
            gain += a * self.bend[i]
            gain += np.maximum.accumulate(best - self.turn_in[i], axis=1)
            passed = np.maximum.accumulate(gain, axis=1) + self.turn_out[i]
            begun = self.start_high[i] - a * self.start_low[i]
            best = np.maximum(passed, np.maximum(begun, 0.0))
        total = best.max(axis=1) * (1.0 + _GUARD)
        return np.asarray(np.minimum(total, 1.0).reshape(np.shape(e)))

    def _first(self, least: float, most: float) -> int:
        """The first row, from the last, in which S can gain. Gains are convex in a, so the two ends decide."""
        useful = np.zeros(len(self.bend), dtype=bool)
        for a in (least, most):
            gain = np.maximum(self.high[0] - a * self.low[0], self.high[1] - a * self.low[1]) + a * self.bend
            gain += self.turn_out[:, -1:] - self.turn_in[:, :1]  # the most that changing cells may add
            useful |= (gain.max(axis=1) > 0.0) | ((self.start_high - a * self.start_low).max(axis=1) > 0.0)
        return int(np.max(np.flatnonzero(useful), initial=0))


@dataclass(frozen=True, eq=False)
class LowerProgramme:
    """Exact gains of an arc of S (row) when y stands at a node (column)."""

    high: Array
    low: Array
    nodes: tuple[Array, Array]

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).ravel(), 600.0))[:, None]
        best = np.zeros((len(a), self.high.shape[1]))
        for i in range(len(self.high) - 1, -1, -1):
            gain = self.high[i] - a * self.low[i]
            best = np.maximum(np.maximum.accumulate(best, axis=1) + gain, 0.0)
            best[:, : i + 1] = 0.0  # y is never below r
        total = best.max(axis=1) * (1.0 - _GUARD)
        return np.asarray(np.maximum(total, 0.0).reshape(np.shape(e)))

    def score(self, e: float) -> tuple[Array, Array]:
        """P- and Q-masses of the pieces of the best score at e, from the lowest rank to the highest."""
        a = float(np.exp(min(e, 600.0)))
        rows, columns = self.high.shape
        best = np.zeros(columns)
        came = np.empty((rows, columns), dtype=np.int64)  # the column before, or -1 where S begins
        places = np.arange(columns)
        for i in range(rows - 1, -1, -1):
            top = np.maximum.accumulate(best)
            source = np.maximum.accumulate(np.where(best >= top, places, 0))
            total = top + self.high[i] - a * self.low[i]
            started = (total <= 0.0) | (places <= i)
            came[i] = np.where(started, -1, source)
            best = np.where(started, 0.0, total)
        return self._unwind(came, int(best.argmax()))

    def _unwind(self, came: Indices, y: int) -> tuple[Array, Array]:
        """Follow the path back from the top rank; ``y`` is the node where the last arc of S was placed."""
        q, p = self.nodes
        stops = []  # (arc of S, node y) from the highest rank down
        for i in range(len(came)):
            before = int(came[i, y])
            if before < 0:
                break
            stops.append((i, y))
            y = before
        first = len(stops)  # S is the arcs 0 .. first - 1; the complement starts at this node
        order: list[tuple[int, int]] = []  # (from node, to node), lowest rank first
        at = first
        for i, node in reversed(stops):
            order.extend((k, k + 1) for k in range(at, max(at, node)))
            at = max(at, node)
            order.append((i, i + 1))
        order.extend((k, k + 1) for k in range(at, len(q) - 1))
        left = np.array([k for k, _ in order])
        right = np.array([k for _, k in order])
        return p[right] - p[left], q[right] - q[left]


def _log_slope(runs: Runs, z: Array) -> Array:
    return np.log(np.maximum(runs.slope(np.clip(z, 0.0, 1.0)), 1e-300))


def _importance(p: Array, q: Array, t: Array, runs: Runs, e_min: float) -> tuple[Array, Array]:
    """How finely S and its complement want each arc of a coarse polygon (arc i has log slope t[i])."""
    level_p, level_q = _log_slope(runs, p), _log_slope(runs, q)
    lift = _log_slope(runs, p[None, :] - p[:, None]) - _log_slope(runs, q[None, :] - q[:, None])
    lift[np.tril_indices(len(p), -1)] = 0.0
    best = lift.argmax(axis=1)
    reach = lift.max(axis=1)[:-1] + t
    wanted = reach > e_min - 0.5
    wanted = wanted | np.append(wanted[1:], False) | np.append(False, wanted[:-1])
    u = np.clip(p[best] - p, 0.0, 1.0)
    steep = (runs.slope(u, 2) / np.maximum(runs.slope(u), 1e-300))[:-1]
    rows = np.where(wanted, steep * np.diff(p) + 0.01, 1e-4)
    cells = np.abs(np.diff(level_p)) + np.abs(np.diff(level_q)) + 1e-3
    return rows, cells


def upper_programme(pair: Pair, runs: Runs, e_min: float) -> UpperProgramme:
    """The outward programme for the removal direction of ``pair``, resolved for e near or above e_min."""
    t = coarse_losses(pair)
    polygon = outer_polygon(pair, t)
    if len(polygon.slopes) == len(t) + 2:
        with np.errstate(divide="ignore"):
            rows, cells = _importance(polygon.p[1:-1], polygon.q[1:-1], t[::-1], runs, e_min)
        # Arcs belong to losses; intervals between losses get the mean of their two arcs.
        rows, cells = ((v[:-1] + v[1:])[::-1] / 2.0 for v in (rows, cells))
        t = refine(t, rows / rows.sum() * 0.6 + cells / cells.sum() * 0.4, _ROWS + _CELLS)
        polygon = outer_polygon(pair, t)
    q, p = polygon.q, polygon.p
    moved = np.abs(np.diff(_log_slope(runs, p))) + np.abs(np.diff(_log_slope(runs, q)))
    q, p, arc = split(q, p, moved, 0.25, 1200)
    polygon = Polygon(q, p, polygon.slopes[arc])
    return _upper_gains(polygon, runs, _columns(polygon, runs))


def _columns(polygon: Polygon, runs: Runs) -> Array:
    """Indices of the nodes that bound the cells of y: even steps of log w along both axes."""
    level = np.abs(np.diff(_log_slope(runs, polygon.p))) + np.abs(np.diff(_log_slope(runs, polygon.q)))
    # Where w starts from 0 its log says nothing about how many cells are needed.
    level = np.concatenate([[0.0], np.cumsum(np.minimum(level, 2.0) + 1e-3)])
    marks = np.floor(level / level[-1] * _CELLS)
    chosen = np.flatnonzero(np.diff(marks, prepend=-1.0) > 0)
    return np.union1d(chosen, [0, len(level) - 1])


def _lines_above(polygon: Polygon, columns: Array) -> tuple[Array, Array]:
    """For every cell the two end values of a straight line that is nowhere below the polygon, nor above 1.

    A gain is convex along a line, so its ends bound it; along a line that was cut off at 1 they would not.
    """
    q, p = polygon.q, polygon.p
    y, u = q[columns], p[columns]
    left, right = u[:-1].copy(), u[1:].copy()
    above = np.maximum(p - np.interp(q, y, u), 0.0)
    for cell, (i, j) in enumerate(pairwise(columns)):
        if y[cell] >= y[cell + 1]:  # the arc of outcomes that Q never shows
            left[cell] = right[cell]
            continue
        right[cell] = min(u[cell + 1] + above[i : j + 1].max(), 1.0)
        inside = np.arange(i, j + 1)[q[i : j + 1] < y[cell + 1]]
        reach = (y[cell + 1] - y[cell]) / (y[cell + 1] - q[inside])
        left[cell] = (right[cell] - (right[cell] - p[inside]) * reach).max()
    return left, right


def _upper_gains(polygon: Polygon, runs: Runs, columns: Array) -> UpperProgramme:
    q, p = polygon.q, polygon.p
    y, u = q[columns], p[columns]
    line_a, line_b = _lines_above(polygon, columns)
    p0, p1, q0, q1 = p[:-1, None], p[1:, None], q[:-1, None], q[1:, None]
    dp, dq = p1 - p0, q1 - q0
    # Only y >= q1 occurs: a cell that q1 cuts begins there.
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = np.where(np.diff(y) > 0.0, (q1 - y[:-1]) / np.diff(y), 1.0)
    line_a = line_a + (line_b - line_a) * np.clip(cut, 0.0, 1.0)

    def gains(y_at: Array, u_at: Array) -> tuple[Array, Array]:
        up = np.maximum(u_at, p1) - p0
        return runs.gain(up, np.minimum(dp, up)), runs.gain(np.maximum(y_at, q1) - q0, dq)

    high_a, low_a = gains(y[:-1], line_a)
    high_b, low_b = gains(y[1:], line_b)
    top = np.maximum(y[1:], q1)
    width = top - np.maximum(y[:-1], q1)
    bend = np.maximum(runs.slope(top - q0, 2) - runs.slope(top - q1, 2), 0.0) * width**2 / 8.0
    end = np.minimum(np.maximum(u[1:], p1), 1.0) - p0
    entry = np.maximum(u[:-1], p1) - p0
    return UpperProgramme(
        high=np.stack([high_a, high_b]),
        low=np.stack([low_a, low_b]),
        bend=bend,
        start_high=runs.slope(end) * dp,
        start_low=runs.slope(np.maximum(y[:-1] - q1, 0.0)) * dq,
        turn_in=runs.slope(entry, 2) * dp**2 / 4.0,
        turn_out=runs.slope(end, 2) * dp**2 / 4.0,
    )


def lower_programme(q: Array, p: Array, runs: Runs, e_min: float) -> LowerProgramme:
    """The grid programme on points (q, p) of a ROC curve that a real mechanism attains."""
    moved = np.abs(np.diff(_log_slope(runs, p))) + np.abs(np.diff(_log_slope(runs, q)))
    kinks = len(moved)
    q, p, arc = split(q, p, moved, 0.04, len(q) + 2000)  # a part of an atom: split by an independent uniform
    few = np.unique(np.linspace(0, len(q) - 1, 200).astype(np.int64))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.log(np.maximum(np.diff(p[few]), 1e-300) / np.maximum(np.diff(q[few]), 1e-300))
        rows, cells = _importance(p[few], q[few], t, runs, e_min)
    weight = np.concatenate([[0.0], np.cumsum(rows / rows.sum() * 0.6 + cells / cells.sum() * 0.4)])
    level = np.interp(np.arange(len(q)), few, weight)
    chosen = np.flatnonzero(np.diff(np.floor(level / level[-1] * _NODES), prepend=-1.0) > 0)
    chosen = np.union1d(chosen, [0, len(q) - 1])
    if kinks <= 128:  # few outcomes: cut each of them at its own ends
        chosen = np.union1d(chosen, np.searchsorted(arc, np.arange(kinks)))
    q, p = q[chosen], p[chosen]
    up = np.maximum(p[None, :] - p[:-1, None], 0.0)
    across = np.maximum(q[None, :] - q[:-1, None], 0.0)
    high = runs.gain(up, np.minimum(np.diff(p)[:, None], up))
    low = runs.gain(across, np.minimum(np.diff(q)[:, None], across))
    return LowerProgramme(high, low, (q, p))
