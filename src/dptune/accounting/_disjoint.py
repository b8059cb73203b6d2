"""Profiles of tuning on a random part and training on the rest, exact for dominating pairs.

With independent likelihood ratios L1 (tuning) and L2 (training) the whole has the ratio q L1 + (1 - q) L2. Its profile
is an expectation over L2 of a convex function, hence a positive combination of values of L2's own profile
(``docs/theorems/disjoint.md``): no Q-mass is ever recovered from a P-mass, and chords round outward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptune._typing import Array
from dptune.accounting._polygon import coarse_losses, refine
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile

__all__ = ["disjoint_pair"]

_KNOTS = 700
_CLOSEST = 1e-6
_ROUNDED = 8.0 * float(np.finfo(float).eps)
_LARGEST = 300.0  # losses are cut here so that products of ratios stay finite; d only decreases beyond


def _ratio_losses(pair: ProfilePair, upper: bool) -> Array:
    """Losses of L2 at which the convex function is evaluated: all kinks of a table, else an even grid.

    Any knots serve an upper bound; those too close for their slopes to mean anything are left out of it.
    """
    t = _all_losses(pair)
    t = t[np.abs(t) <= _LARGEST]
    if not upper:
        return t
    if (np.diff(t) > _CLOSEST).all():
        return t
    kept = [float(t[0])]
    for loss in t[1:].tolist():
        if loss - kept[-1] > _CLOSEST:
            kept.append(loss)
    if len(kept) > 1:
        kept[-1] = float(t[-1])  # what is above the last knot counts as infinite
    return np.array(kept)


def _lost(value: Array, ratio: Array) -> Array:
    """What a slope may have lost: it is a difference of two values over that of two ratios."""
    return np.asarray(_ROUNDED * (value[:, 1:] + value[:, :-1]) / np.diff(ratio))


def _answered(total: Array, e: Array, upper: bool) -> Array:
    """The sum in the shape of e; a lower bound claims what sums are sure of, and nothing beyond the largest loss."""
    found = np.clip(total if upper else total * (1.0 - 1e-12), 0.0, 1.0).reshape(np.shape(e))
    return np.asarray(found if upper else np.where(np.asarray(e) > _LARGEST, 0.0, found))


def _all_losses(pair: ProfilePair) -> Array:
    """Losses of a pair at which its profile is looked at: the kinks of two short tables, else an even grid."""
    ahead, back = pair.remove, pair.add
    if isinstance(ahead, TableProfile) and isinstance(back, TableProfile):
        total = len(ahead.losses) + len(back.losses)
        if total <= 4 * _KNOTS:
            return np.unique(np.concatenate([-back.losses, ahead.losses]))
    t = coarse_losses(pair)
    return refine(t, np.diff(t), _KNOTS)


@dataclass(frozen=True, eq=False)
class DisjointRemoval(DirectedProfile):
    """E_Q[(q L1 + (1-q) L2 - exp(e))+] plus the infinite masses."""

    tune: ProfilePair
    base: ProfilePair
    rate: float
    upper: bool

    @cached_property
    def _grid(self) -> tuple[Array, Array, Array]:
        t = _ratio_losses(self.base, self.upper)
        return np.append(0.0, np.exp(t)), np.append(1.0, self.base.delta(t)), t

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).reshape(-1, 1), _LARGEST))
        ratio, profile, _ = self._grid
        left = (a - (1.0 - self.rate) * ratio) / self.rate
        inside = left > 0.0
        value = np.where(inside, self.tune.delta(np.log(np.where(inside, left, 1.0))), 1.0 - left)
        value *= self.rate
        slope = np.clip(np.diff(value, axis=1) / np.diff(ratio), 0.0, 1.0 - self.rate)
        if self.upper:  # an upper bound on the tuning may not be quite convex; a convex function above it is
            slope = np.maximum.accumulate(slope, axis=1)
        total = value[:, 0] + slope @ -np.diff(profile) + (1.0 - self.rate) * profile[-1]
        if not self.upper:
            total = total - _lost(value, ratio) @ -np.diff(profile)
        return _answered(total, e, self.upper)

    @property
    def end(self) -> float:
        return max(self.tune.remove.end, self.base.remove.end)


@dataclass(frozen=True, eq=False)
class DisjointAddition(DirectedProfile):
    """E_Q[(1 - exp(e) (q L1 + (1-q) L2))+]."""

    tune: ProfilePair
    base: ProfilePair
    rate: float
    upper: bool

    @cached_property
    def _grid(self) -> tuple[Array, Array]:
        t = _ratio_losses(self.base, self.upper)
        ratio = np.append(0.0, np.exp(t))
        puts = np.append(0.0, np.exp(t) * self.base.flip().delta(-t))  # E_Q[(ratio - L2)+]
        return ratio, puts

    def delta(self, e: Array) -> Array:
        a = np.exp(np.minimum(np.asarray(e, dtype=float).reshape(-1, 1), _LARGEST))
        ratio, puts = self._grid
        left = 1.0 - a * (1.0 - self.rate) * ratio
        inside = left > 0.0
        safe = np.where(inside, left, 1.0)
        value = np.where(inside, safe * self.tune.flip().delta(np.log(a * self.rate / safe)), 0.0)
        slope = np.maximum(-np.diff(value, axis=1) / np.diff(ratio), 0.0)
        if self.upper:
            slope = np.maximum.accumulate(slope[:, ::-1], axis=1)[:, ::-1]
        total = value[:, -1] + slope @ np.diff(puts)
        if not self.upper:
            total = total - _lost(value, ratio) @ np.diff(puts)
        return _answered(total, e, self.upper)

    @property
    def end(self) -> float:
        return max(self.tune.add.end, self.base.add.end)


def disjoint_pair(tune: ProfilePair, base: ProfilePair, rate: float, upper: bool = True) -> ProfilePair:
    """Tuning on a Poisson part at ``rate``, training on the rest; the profile of both outputs together.

    For lower pairs that are piecewise linear on tables the expectation is exact, not rounded.
    """
    return ProfilePair(DisjointRemoval(tune, base, rate, upper), DisjointAddition(tune, base, rate, upper))
