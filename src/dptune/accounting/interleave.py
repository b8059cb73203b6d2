"""The exact worst case of private selection, by dynamic programming over interleavings.

The worst score ranks the tested event S (the outcomes of largest likelihood ratio) in increasing order of that
ratio, its complement in decreasing order, and interleaves the two; ``docs/theorems/interleaving.md`` proves
that no score does worse. What remains is a path in the plane: r falls along S while y rises along the
complement. :class:`UpperProgramme` rounds every cell of that plane outward; :class:`LowerProgramme` takes
paths on the grid only, each of which a real score attains.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting._polygon import Polygon, coarse_losses, outer_polygon, refine, split
from dptune.accounting._recursion import GAINS, Recursion
from dptune.accounting.profiles import ProfilePair
from dptune.accounting.runs import Runs

__all__ = ["LowerProgramme", "UpperProgramme", "inward", "lower_programme", "upper_programme"]

_ROWS = 400  # arcs of S in the outer polygon, about
_CELLS = 160  # cells of the complement, about
_NODES = 520  # nodes of the inner polygon
_BLOCK = 64  # rows of gains made at a time: they stay in the cache
_FEW = 32  # rows of slopes made at a time
_GUARD = 1e-11
_OUTWARD = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])[:, None, None]  # gains in their order


@dataclass(frozen=True, eq=False)
class UpperProgramme:
    """Arcs of S (rows) against cells of the complement (columns), every gain rounded outward; serves any e.

    Gains are made as the recursion needs them, some rows at a time: they take less time to make than to remember.
    """

    polygon: Polygon
    columns: Indices  # the nodes that bound the cells
    lines: tuple[Array, Array]  # at both ends of a cell, the values of a line above the polygon
    runs: Runs

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).ravel(), 600.0))
        q, p = self.polygon.q, self.polygon.p
        nodes = q[self.columns], p[self.columns]
        state = Recursion(a, len(self.columns) - 1)
        for first in range((len(q) - 2) // _BLOCK * _BLOCK, -1, -_BLOCK):
            arcs = q[first : first + _BLOCK + 1], p[first : first + _BLOCK + 1]
            block = _room(len(arcs[0]) - 1, state.columns)
            _fill(block, arcs, nodes, self.lines, self.runs)
            state.upper(block)
        total = state.best() * (1.0 + _GUARD)
        return np.asarray(np.minimum(total, 1.0).reshape(np.shape(e)))


@dataclass(frozen=True, eq=False)
class LowerProgramme:
    """Exact gains of an arc of S (row) when y stands at a node (column)."""

    high: Array
    low: Array
    nodes: tuple[Array, Array]

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).ravel(), 600.0))
        state = Recursion(a, self.high.shape[1])
        state.lower(self.high, self.low)
        total = state.best() * (1.0 - _GUARD)
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


def _lift(p: Array, q: Array, runs: Runs) -> Array:
    """How far the law's slopes lift an arc's loss: row i with y at node j >= i; 0 before it, where y never stands.

    Some rows at a time, from their first column that counts: half the work, in the cache.
    """
    lift = np.zeros((len(p), len(p)))
    for first in range(0, len(p), _FEW):
        rows = slice(first, first + _FEW)
        up, across = p[first:] - p[rows, None], q[first:] - q[rows, None]
        lift[rows, first:] = np.triu(_log_slope(runs, up) - _log_slope(runs, across))
    return lift


def _importance(p: Array, q: Array, t: Array, runs: Runs, e_min: float) -> tuple[Array, Array]:
    """How finely S and its complement want each arc of a coarse polygon (arc i has log slope t[i])."""
    level_p, level_q = _log_slope(runs, p), _log_slope(runs, q)
    lift = _lift(p, q, runs)
    best = lift.argmax(axis=1)
    reach = lift.max(axis=1)[:-1] + t
    wanted = reach > e_min - 0.5
    wanted = wanted | np.append(wanted[1:], False) | np.append(False, wanted[:-1])
    u = np.clip(p[best] - p, 0.0, 1.0)
    steep = (runs.slope(u, 2) / np.maximum(runs.slope(u), 1e-300))[:-1]
    rows = np.where(wanted, steep * np.diff(p) + 0.01, 1e-4)
    cells = np.abs(np.diff(level_p)) + np.abs(np.diff(level_q)) + 1e-3
    return rows, cells


def upper_programme(pair: ProfilePair, runs: Runs, e_min: float) -> UpperProgramme:
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
    columns = _columns(polygon, runs)
    return UpperProgramme(polygon, columns, _lines_above(polygon, columns), runs)


def _columns(polygon: Polygon, runs: Runs) -> Indices:
    """Indices of the nodes that bound the cells of y: even steps of log w along both axes."""
    level = np.abs(np.diff(_log_slope(runs, polygon.p))) + np.abs(np.diff(_log_slope(runs, polygon.q)))
    # Where w starts from 0 its log says nothing about how many cells are needed.
    level = np.concatenate([[0.0], np.cumsum(np.minimum(level, 2.0) + 1e-3)])
    marks = np.floor(level / level[-1] * _CELLS)
    chosen = np.flatnonzero(np.diff(marks, prepend=-1.0) > 0)
    return np.union1d(chosen, [0, len(level) - 1])


def _lines_above(polygon: Polygon, columns: Indices) -> tuple[Array, Array]:
    """For every cell the two end values of a straight line that is nowhere below the polygon, nor above 1.

    A gain is convex along a line, so its ends bound it; along a line that was cut off at 1 they would not.
    """
    q, p = polygon.q[:-1], polygon.p[:-1]
    y, u = polygon.q[columns], polygon.p[columns]
    starts, cell = columns[:-1], np.repeat(np.arange(len(columns) - 1), np.diff(columns))
    above = np.maximum.reduceat(np.maximum(p - np.interp(q, y, u), 0.0), starts)
    flat = y[:-1] >= y[1:]  # the arc of outcomes that Q never shows
    right = np.where(flat, u[1:], np.minimum(u[1:] + above, 1.0))
    end, width = y[1:][cell], np.diff(y)[cell]
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(q < end, right[cell] - (right[cell] - p) * (width / (end - q)), -np.inf)
    return np.where(flat, right, np.maximum.reduceat(left, starts)), right


class _Kept(threading.local):
    """The memory for one block of gains, of each thread its own."""

    values = np.empty(0)


_kept = _Kept()


def _room(rows: int, columns: int) -> Array:
    """An array for a block of gains, with values that mean nothing yet; the same memory at every call of a thread.

    A block is some 700 kB. Asked for anew, it often comes from the operating system page by page, which costs a tenth
    of the whole programme's time.
    """
    wanted = GAINS * rows * columns
    if _kept.values.size < wanted:
        _kept.values = np.empty(GAINS * _BLOCK * columns)
    return _kept.values[:wanted].reshape(GAINS, rows, columns)


def _fill(
    gains: Array, arcs: tuple[Array, Array], nodes: tuple[Array, Array], lines: tuple[Array, Array], runs: Runs
) -> None:
    """The gains of some arcs of S (given by their ends) in every cell, in the order that the recursion takes.

    Only y >= q1 occurs: where q1 is beyond a cell's end or inside the cell, the arc's own end takes its place.
    """
    (q, p), (y, u), (line_a, line_b) = arcs, nodes, lines
    p0, p1, q0, q1 = p[:-1, None], p[1:, None], q[:-1, None], q[1:, None]
    dp, dq = p1 - p0, q1 - q0
    high_a, high_b, low_a, low_b, bend, start_high, start_low, turn_in, turn_out = gains
    high_b[:] = runs.gains_between(line_b, p0, dp)
    high_a[:] = runs.gains_between(line_a, p0, dp)
    np.copyto(high_a, high_b, where=q1 >= y[1:])
    _fill_cut(high_a, arcs, y, lines, runs)
    low = runs.gains_between(y, q0, dq)
    low_a[:], low_b[:] = low[:, :-1], low[:, 1:]
    first, second = runs.slopes_between(y, q1, 0.0 * dq, 1, 2)
    np.multiply(first[:, :-1], dq, out=start_low)
    _fill_bend(bend, (q0, q1, dq), y, second[:, 1:], runs)
    first, turn = runs.slopes_between(u, p0, dp, 1, 2)
    np.multiply(first[:, 1:], dp, out=start_high)
    turn *= dp * dp / 4.0
    turn_in[:], turn_out[:] = turn[:, :-1], turn[:, 1:]
    gains *= 1.0 + runs.roundoff * _OUTWARD


def _fill_bend(bend: Array, arcs: tuple[Array, Array, Array], y: Array, lower: Array, runs: Runs) -> None:
    """An eighth of the largest second derivative of the Q-gain in a cell, times the cell's width squared.

    The second derivative is a difference of nearly equal numbers: roundoff is added, the mean value theorem caps it.
    ``lower`` is what is subtracted: the law's second slope from each arc's end to each cell's.
    """
    q0, q1, dq = arcs
    upper, third = runs.slopes_between(y[1:], q0, dq, 2, 3)
    np.subtract(upper, lower, out=bend)
    bend += np.multiply(upper, 1e-13 + runs.roundoff, out=upper)
    np.minimum(bend, np.multiply(third, dq * (1.0 + runs.roundoff), out=third), out=bend)
    np.maximum(bend, 0.0, out=bend)
    width = np.diff(np.maximum(y, q1))
    bend *= width * width / 8.0


def _fill_cut(high: Array, arcs: tuple[Array, Array], y: Array, lines: tuple[Array, Array], runs: Runs) -> None:
    """The gain at the left end of the cell that an arc's end cuts: that end, on the cell's line."""
    (q, p), (line_a, line_b) = arcs, lines
    row = np.arange(len(q) - 1)
    cell = np.clip(np.searchsorted(y, q[1:], side="right") - 1, 0, len(y) - 2)
    width = y[cell + 1] - y[cell]
    inside = (width > 0.0) & (q[1:] < y[cell + 1])
    row, cell = row[inside], cell[inside]
    share = (q[row + 1] - y[cell]) / width[inside]
    line = line_a[cell] + (line_b[cell] - line_a[cell]) * np.clip(share, 0.0, 1.0)
    p0, p1 = p[row], p[row + 1]
    high[row, cell] = runs.gain(np.maximum(line, p1) - p0, p1 - p0)


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
    return LowerProgramme(high * (1.0 - inward(runs)), low * (1.0 + inward(runs)), (q, p))


def inward(runs: Runs) -> float:
    """A relative error that no gain on sums of a thousand masses exceeds, for use on the lower side."""
    return min(1e-11 + 1e3 * runs.roundoff, 1.0)
