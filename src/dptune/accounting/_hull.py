"""The tight bound on private selection: a mixture of shifted base profiles.

The weights come from the lower convex hull of the curve (C w(G(U(x))), c w(H(x))); c = C = 1 is plain random
stopping (``docs/theorems/select.md``), a wider box is adaptive sampling (``docs/theorems/adaptive.md``). Every
discretisation here moves the curve outward, to smaller second coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune.accounting._polygon import Polygon, coarse_losses, outer_polygon, refine, split
from dptune.accounting._ratio import log_ratio
from dptune.accounting.profiles import DirectedProfile, ProfilePair
from dptune.accounting.runs import Runs

__all__ = ["HullProfile", "hull_profile"]

_GUARD = 1e-12
_FINE = 700  # losses in the refined polygon
_WIDEST = 0.08  # change of log w along an arc
_ROUNDS, _MOST = 12, 6000  # of cutting arcs, and how many arcs that may make
_SPACING = 0.01  # of the slopes kept, in log
_NO_WIDTH = 1e-20
_SPOILT = 1e-9  # roundoff of a law beyond which one exact edge may be better than many rounded ones


@dataclass(frozen=True, eq=False)
class HullProfile(DirectedProfile):
    """d(e) = sum of width_k * d_base(e + log slope_k).

    ``alone`` is one shift and the width of all edges together: the first edge's line, where roundoff of the law spoils
    the others.
    """

    base: ProfilePair
    shifts: Array
    widths: Array
    alone: tuple[float, float] | None = None

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        values = self.base.delta(e[..., None] + self.shifts) @ self.widths
        if self.alone is not None:
            values = np.minimum(values, self.alone[1] * self.base.delta(e + self.alone[0]))
        return np.asarray(np.minimum(values, 1.0))

    @property
    def end(self) -> float:
        return float(self.base.remove.end - self.shifts[0])


@dataclass(frozen=True)
class _Box:
    """The transforms G and H of a sampling density kept within [c, C] times the prior."""

    low: float
    high: float

    def upper(self, u: Array) -> Array:
        return np.minimum(np.minimum(self.high * u, 1.0 - self.low * (1.0 - u)), 1.0)

    def lower(self, x: Array) -> Array:
        return np.maximum(np.maximum(self.low * x, 1.0 - self.high * (1.0 - x)), 0.0)

    def upper_slope(self, u: Array, side: str) -> Array:
        """Slope of G just right or left of u; G is concave with one kink."""
        if self.low == self.high:
            return np.ones_like(u)
        kink = (1.0 - self.low) / (self.high - self.low)
        before = u < kink if side == "right" else u <= kink
        return np.where(before, self.high, self.low)

    def lower_slope(self, x: Array, side: str) -> Array:
        """Slope of H just right or left of x; H is convex with one kink."""
        if self.low == self.high:
            return np.ones_like(x)
        kink = (self.high - 1.0) / (self.high - self.low)
        before = x < kink if side == "right" else x <= kink
        return np.where(before, self.low, self.high)


def _curve(polygon: Polygon, runs: Runs, box: _Box) -> tuple[Array, Array]:
    x = box.high * runs.slope(box.upper(polygon.p))
    y = box.low * runs.slope(box.lower(polygon.q))
    return x, y


def _moved(polygon: Polygon, runs: Runs, box: _Box) -> Array:
    """How far each arc moves the curve, in the logs of both coordinates."""
    # Widths below every delta anyone states no longer matter, and where w starts from 0 its log would never settle.
    x, y = (np.log(np.maximum(v, _NO_WIDTH)) for v in _curve(polygon, runs, box))
    return np.asarray(np.abs(np.diff(x)) + np.abs(np.diff(y)))


def _outward_points(polygon: Polygon, runs: Runs, box: _Box) -> tuple[Array, Array]:
    """Points whose hull lies below the curve: the nodes, and in every arc a vertex under the curve.

    Within an arc the curve's slope lies between bounds that follow from monotonicity of w', G' and H';
    the two lines through the ends with these slopes meet at the vertex.
    """
    q, p, slope = polygon.q, polygon.p, polygon.slopes
    x, y = _curve(polygon, runs, box)
    u, v = box.upper(p), box.lower(q)
    rise_x = box.high * runs.slope(u, 2)
    rise_y = box.low * runs.slope(v, 2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        least = rise_y[:-1] * box.lower_slope(q[:-1], "right")
        least = least / (rise_x[1:] * box.upper_slope(p[:-1], "right") * slope)
        most = rise_y[1:] * box.lower_slope(q[1:], "left")
        most = most / (rise_x[:-1] * box.upper_slope(p[1:], "left") * slope)
        dx, dy = np.diff(x), np.diff(y)
        along = (most * dx - dy) / (most - least)
    fine = np.isfinite(along) & np.isfinite(least) & (most > least) & (along >= 0.0) & (along <= dx)
    corner_x = np.where(fine, x[:-1] + along, x[1:])
    corner_y = np.where(fine, y[:-1] + np.where(fine, least, 0.0) * np.where(fine, along, 0.0), y[:-1])
    every_x = np.empty(2 * len(x) - 1)
    every_y = np.empty_like(every_x)
    every_x[::2], every_x[1::2] = x, corner_x
    every_y[::2], every_y[1::2] = y, corner_y
    return every_x, every_y * (1.0 - _GUARD - runs.roundoff)


def _lower_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Lower hull of (0, 0) and points sorted by x: drop points above their neighbours' chord until none is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(x > 0, y / x, np.inf)
    start = len(x) - 1 - int(np.argmin(ratio[::-1]))
    x, y = np.append(0.0, x[start:]), np.append(0.0, y[start:])
    while len(x) > 2:
        cross = np.diff(x)[:-1] * (y[2:] - y[:-2]) - np.diff(y)[:-1] * (x[2:] - x[:-2])
        bad = np.flatnonzero(cross <= 0.0)
        if len(bad) == 0:
            break
        # A point is on the hull or not whatever the order of removal, but neighbours must not go together.
        keep = bad[np.concatenate([[True], np.diff(bad) > 1])]
        x, y = np.delete(x, keep + 1), np.delete(y, keep + 1)
    return x, y


def _thin(x: Array, y: Array, spacing: float) -> tuple[Array, Array]:
    """Slopes and widths of a coarser hull that lies below: keep some supporting lines, drop the others."""
    flat = np.append(True, np.diff(x) > 0.0)  # a vertical edge has no width
    x, y = x[flat], y[flat]
    with np.errstate(divide="ignore"):
        slope = np.diff(y) / np.diff(x)
        level = np.floor(np.log(np.maximum(slope, 1e-300)) / spacing)
    keep = np.concatenate([[True], np.diff(level) > 0])
    keep[-1] = True
    offset = y[:-1] - slope * x[:-1]
    slope, offset = slope[keep], offset[keep]
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = -np.diff(offset) / np.diff(slope)
    cut = np.where(np.isfinite(cut), cut, 0.0)
    edges = np.concatenate([[0.0], np.maximum.accumulate(np.clip(cut, 0.0, x[-1])), [x[-1]]])
    return slope, np.diff(edges)


def _above_line(slopes: Array, widths: Array, ratio: float) -> tuple[Array, Array]:
    """The hull, where it is above the line through (0, 0) that the largest ratio allows; the line elsewhere.

    The curve is above both, hence above their maximum, which is convex.
    """
    least = math.exp(-min(ratio, 700.0)) if ratio < math.inf else 0.0
    x, y = (np.append(0.0, np.cumsum(v)) for v in (widths, slopes * widths))
    ahead = np.flatnonzero(y[1:] > least * x[1:])
    if slopes[0] >= least:
        return slopes, widths
    if len(ahead) == 0:
        return np.array([least]), np.array([x[-1]])
    k = int(ahead[0])  # the hull meets the line on this edge
    met = np.clip((y[k] - slopes[k] * x[k]) / (least - slopes[k]), x[k], x[k + 1])
    return np.append(least, slopes[k:]), np.concatenate([[met, x[k + 1] - met], widths[k + 1 :]])


def hull_profile(pair: ProfilePair, runs: Runs, density: tuple[float, float] = (1.0, 1.0)) -> HullProfile:
    """The tight bound in the removal direction of ``pair``."""
    box = _Box(*density)
    t = coarse_losses(pair)
    polygon = outer_polygon(pair, t)
    moved = _moved(polygon, runs, box)
    if len(polygon.slopes) == len(t) + 2:  # no line was dropped: arcs and losses correspond
        centre = np.convolve(moved[1:-1][::-1], [0.5, 0.5], mode="valid")
        importance = np.minimum(centre, 2.0) + 0.02 * np.diff(t) / max(t[-1], 1e-9)
        t = refine(t, importance, _FINE)
        polygon = outer_polygon(pair, t)
    # w moves fastest at the end of a long straight arc: cut again what one even cut leaves too wide.
    for _ in range(_ROUNDS):
        moved = _moved(polygon, runs, box)
        if moved.max() <= _WIDEST or len(moved) > _MOST:
            break
        q, p, arc = split(polygon.q, polygon.p, np.minimum(moved, 400.0 * _WIDEST), _WIDEST, 2 * _MOST)
        polygon = Polygon(q, p, polygon.slopes[arc])
    hull_x, hull_y = _lower_hull(*_outward_points(polygon, runs, box))
    slopes, widths = _thin(hull_x, hull_y, _SPACING)
    alone = None
    if density == (1.0, 1.0):
        ratio = log_ratio(pair, runs)
        slopes, widths = _above_line(slopes, widths, ratio)
        if runs.roundoff > _SPOILT and ratio < math.inf:
            alone = (-ratio, runs.expected * (1.0 + _GUARD))
    keep = widths > 0.0
    with np.errstate(divide="ignore"):
        shifts = np.log(np.maximum(slopes[keep], 1e-300)) - _GUARD
    return HullProfile(pair, shifts, widths[keep] * (1.0 + _GUARD + runs.roundoff), alone)
