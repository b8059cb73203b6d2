"""Projection of a sampling law to the box [c, C] times the prior: what makes adaptive sampling private.

Exact, by sorting the 2n breakpoints (L2), or by bisection (with a KL penalty); ``docs/theorems/adaptive.md``. The
result must never leave the box, so the box is shrunk by more than rounding could add.
"""

from __future__ import annotations

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.errors import InvalidInput

__all__ = ["project", "project_kl"]

_INSET = 1e-9


def _box(law: Array, prior: Array, density: tuple[float, float]) -> tuple[Array, Array, Array]:
    """The law with sum 1, and the two ends of the box, which is shrunk by more than rounding could add."""
    pi, pi0 = np.asarray(law, dtype=float), np.asarray(prior, dtype=float)
    c, big_c = density
    if pi.shape != pi0.shape or pi.ndim != 1 or len(pi) == 0:
        raise InvalidInput(f"A sampling law needs one weight per candidate ({pi0.shape}); got {pi.shape}.")
    if not np.isfinite(pi).all() or (pi < 0).any() or pi.sum() <= 0:
        raise InvalidInput("A sampling law must be finite, not negative and not all zero.")
    inset_c, inset_big = min(c * (1.0 + _INSET), 1.0), max(big_c * (1.0 - _INSET), 1.0)
    return pi / pi.sum(), inset_c * pi0, inset_big * pi0


def _no_room(density: tuple[float, float]) -> bool:
    """Whether the prior is the only law in the box (up to rounding)."""
    return density[0] * (1.0 + _INSET) >= 1.0 or density[1] * (1.0 - _INSET) <= 1.0


def project(law: Array, prior: Array, density: tuple[float, float]) -> Array:
    """The law nearest in L2 among those within [c, C] times the prior: ``clip(law - nu, c prior, C prior)``."""
    pi, low, high = _box(law, prior, density)
    if _no_room(density):
        return np.array(prior, dtype=float)
    # total(nu) falls from sum(high) >= 1 to sum(low) <= 1, piecewise linear with these breakpoints.
    breaks = np.concatenate([pi - high, pi - low])
    change = np.concatenate([-np.ones_like(pi), np.ones_like(pi)])
    order = np.argsort(breaks, kind="stable")
    nus, slopes = breaks[order], np.cumsum(change[order])
    totals = high.sum() + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(nus))])
    place = min(int(np.searchsorted(-totals, -1.0, side="left")), len(nus) - 1)
    nu = nus[place]
    if place > 0 and slopes[place - 1] < 0:
        nu = nus[place - 1] + (1.0 - totals[place - 1]) / slopes[place - 1]
    return _settled(np.clip(pi - nu, low, high), low, high)


def project_kl(law: Array, prior: Array, density: tuple[float, float], penalty: float) -> Array:
    """Minimises ``||f - law||^2 + penalty * KL(law, f)`` over the box (DP-HyPO, appendix C.1, squared norm)."""
    nu = real("penalty", penalty, 0, hint="Zero is the plain projection.")
    if nu == 0.0:
        return project(law, prior, density)
    pi, low, high = _box(law, prior, density)
    if _no_room(density):
        return np.array(prior, dtype=float)

    def at(shift: float) -> Array:
        x = pi - shift
        return np.clip((x + np.sqrt(x * x + 2.0 * nu * pi)) / 2.0, low, high)

    left, right = -1.0, 1.0
    while at(left).sum() < 1.0:
        left *= 2.0
    while at(right).sum() > 1.0:
        right *= 2.0
        if right > 1e300:
            break
    for _ in range(200):
        middle = (left + right) / 2.0
        if middle in (left, right):
            break
        left, right = (middle, right) if at(middle).sum() > 1.0 else (left, middle)
    return _settled(at(left), low, high)


def _settled(found: Array, low: Array, high: Array) -> Array:
    """Put the rounding error of the sum where there is room, and stay in the box."""
    error = 1.0 - float(found.sum())
    room = (high - found) if error > 0 else (found - low)
    total = float(room.sum())
    if total > 0 and error != 0.0:
        found = found + error * room / total
    return np.asarray(np.clip(found, low, high))
