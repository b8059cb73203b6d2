"""Renyi divergences of an upper profile, as upper bounds.

In x = exp(e) a profile is convex, so the lower convex hull of any of its upper bounds at finitely many points is
the profile of outcomes that dominate the mechanism (``docs/theorems/filter.md``); their moments are finite sums.
Roundoff and the tail beyond the last point are added, never dropped.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from dptune._typing import Array, Indices
from dptune.accounting.profiles import DirectedProfile, ProfilePair

__all__ = ["divergences"]

_POINTS = 4000
_FARTHEST = 600.0  # exp stays finite; larger losses count as infinite
_EPS = float(np.finfo(float).eps)


def _reach(directed: DirectedProfile, cut: float) -> float:
    """A loss beyond which the profile is below ``cut`` or constant."""
    end = min(max(directed.end, 1e-9), _FARTHEST)
    losses = np.linspace(0.0, end, 4000)
    values = directed.delta(losses)
    low = np.flatnonzero(values <= max(cut, float(values[-1])))
    return float(losses[low[0]]) if len(low) and low[0] > 0 else end


def _points(pair: ProfilePair, cut: float) -> Array:
    """Losses on both sides of zero: even grids, and the kinks where the profile has a few."""
    ahead, back = _reach(pair.remove, cut), _reach(pair.add, cut)
    kinks, mirrored = pair.remove.knots(), -pair.add.knots()
    sides = [np.linspace(-back, 0.0, _POINTS), np.linspace(0.0, ahead, _POINTS)]
    inside = [kinks[kinks < ahead], mirrored[mirrored > -back]]
    losses = np.unique(np.concatenate([*sides, *inside]))
    # Points closer than roundoff can tell apart would make slopes of noise.
    gaps = np.concatenate([[True], np.diff(losses) > 1e-12 + 1e-9 * ahead / _POINTS])
    return np.asarray(losses[gaps])


def _lower_hull(x: Array, y: Array) -> Indices:
    """Indices of the lower convex hull of points with increasing x (monotone chain)."""
    kept: list[int] = []
    xs, ys = x.tolist(), y.tolist()
    for k in range(len(xs)):
        while len(kept) >= 2:
            i, j = kept[-2], kept[-1]
            if (ys[j] - ys[i]) * (xs[k] - xs[j]) >= (ys[k] - ys[j]) * (xs[j] - xs[i]):
                kept.pop()
            else:
                break
        kept.append(k)
    return np.array(kept)


def divergences(pair: ProfilePair, orders: Array, cut: float) -> tuple[Array, float]:
    """log E_P[exp((a - 1) loss); loss finite] / (a - 1) at every order a, and the probability of an infinite loss."""
    losses = _points(pair, cut)
    values = pair.delta(losses)
    x = np.concatenate([[0.0], np.exp(losses)])
    y = np.concatenate([[1.0], np.minimum(np.maximum(values, -np.expm1(np.minimum(losses, 0.0))), 1.0)])
    hull = _lower_hull(x, y)
    x, y, losses = x[hull], y[hull], losses[hull[1:] - 1]
    infinite = float(y[-1])
    slopes = np.append(np.diff(y) / np.diff(x), 0.0)
    slopes = np.minimum(np.maximum.accumulate(slopes), 0.0)
    masses = x[1:] * np.diff(slopes)
    # A mass is a difference of slopes, each known to a few units in the last place of y over the gap beside it.
    gaps = np.append(np.diff(x), np.inf)
    noise = 4.0 * _EPS * (y[:-1] / gaps[:-1] + y[1:] / gaps[1:]) * x[1:]
    masses = np.maximum(masses, 0.0) + noise
    logs = logsumexp((orders[:, None] - 1.0) * losses[None, :], b=masses[None, :], axis=1)
    return np.maximum(logs, 0.0) / (orders - 1.0), infinite
