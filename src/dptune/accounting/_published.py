"""Published bounds on selection as profiles, so that ours is nowhere above them.

A Renyi curve is a profile: the least of the conversions at its orders, in both directions. A pure epsilon is one too.
:class:`LeastProfile` is the smaller of dptune's own profile and of such a one (``docs/theorems/published.md``). Slow
Renyi curves are computed only where a cheap estimate of what they could prove does not already exceed what is proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptune._typing import Array
from dptune.accounting.profiles import TINY, DirectedProfile, ProfilePair
from dptune.accounting.runs import NegativeBinomial, Poisson, Runs

__all__ = [
    "LeastProfile",
    "PureProfile",
    "RenyiProfile",
    "ShiftedProfile",
    "capped",
    "estimated_curve",
    "log_deltas",
    "own_profile",
    "stopping_estimate",
]

_SURE = 0.5  # own / estimated delta below which the estimate cannot have misled
_ORDERS = np.concatenate([np.linspace(1.1, 4.0, 12), np.geomspace(4.6, 63.0, 16), [90.0, 128.0, 256.0, 512.0, 1024.0]])
_LEAST_ORDER = 1.01  # below it the conversion is not stable
_GRID = 64
_SPACED = np.linspace(0.0, 1.0, 120) ** 2


@dataclass(frozen=True)
class PureProfile(DirectedProfile):
    """Everything that is (top, 0)-DP: the chord from (0, tanh(top / 2)) to (top, 0) in exp(e)."""

    top: float

    def delta(self, e: Array) -> Array:
        left = self.top - np.asarray(e, dtype=float)
        # (exp(top) - exp(e)) / (exp(top) + 1), without overflow.
        return np.asarray(np.maximum(-np.expm1(-left), 0.0) / (1.0 + math.exp(-self.top)) * (1.0 + 1e-15))

    @property
    def end(self) -> float:
        return self.top

    def knots(self) -> Array:
        return np.array([self.top])


def log_deltas(orders: Array, curve: Array, e: Array) -> Array:
    """log of the delta that a Renyi curve proves at each loss: Canonne, Kamath and Steinke's Proposition 12, or the
    bound by Kullback-Leibler divergence."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = 0.5 * np.log(-np.expm1(-np.maximum(curve, 0.0))).min()
        direct = (orders - 1.0) * (curve + np.log1p(-1.0 / orders)) - np.log(orders)
    fine = (orders > _LEAST_ORDER) & np.isfinite(direct)
    logs = direct[fine] - (orders[fine] - 1.0) * np.asarray(e, dtype=float)[..., None]
    return np.asarray(np.minimum(logs.min(axis=-1, initial=0.0), kl))


@dataclass(frozen=True, eq=False)
class RenyiProfile(DirectedProfile):
    """The profile that an upper bound on a Renyi curve implies, rounded up; the same in both directions."""

    orders: Array
    curve: Array

    def delta(self, e: Array) -> Array:
        return np.asarray(np.exp(log_deltas(self.orders, self.curve, e)) * (1.0 + 1e-12))

    def epsilon(self, delta: float) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):
            if (0.5 * np.log(-np.expm1(-np.maximum(self.curve, 0.0)))).min() + 1e-12 <= math.log(delta):
                return 0.0
        a, level = self.orders, math.log(delta) - 1e-12
        fine = (a > _LEAST_ORDER) & np.isfinite(self.curve)
        found = self.curve + np.log1p(-1.0 / a) - (np.log(a) + level) / (a - 1.0)
        return max(0.0, float(found[fine].min(initial=math.inf)))

    @property
    def end(self) -> float:
        return float(np.min(self.curve - math.log(TINY) / (self.orders - 1.0)))


@dataclass(frozen=True, eq=False)
class ShiftedProfile(DirectedProfile):
    """``mean`` d(e - shift) for a base's d: Xiang, Wang, Wang and Wang's Theorem 3, where d is not a table."""

    base: DirectedProfile
    mean: float
    shift: float

    def delta(self, e: Array) -> Array:
        left = np.asarray(e, dtype=float) - self.shift
        found = self.mean * self.base.delta(np.maximum(left, 0.0)) * (1.0 + 1e-12)
        return np.asarray(np.where(left < 0.0, 1.0, np.minimum(found, 1.0)))

    def epsilon(self, delta: float) -> float:
        level = delta * (1.0 - 1e-12) / self.mean
        return (self.base.epsilon(level) if level < 1.0 else 0.0) + self.shift

    @property
    def end(self) -> float:
        return self.base.end + self.shift


@dataclass(frozen=True, eq=False)
class LeastProfile(DirectedProfile):
    """The smaller of our own profile and of a published one, made only if it may be smaller.

    ``least`` holds losses and the log of the least delta that the published bound could prove there: between them it
    is concave, so interpolation is below it. Without it the published bound is always looked at.
    """

    own: DirectedProfile
    make: Callable[[], DirectedProfile | None]
    least: tuple[Array, Array] | None = None

    @cached_property
    def _made(self) -> DirectedProfile | None:
        return self.make()

    def published(self, e: Array, own: Array) -> DirectedProfile | None:
        """The published profile, if it may be below ``own`` at one of these losses."""
        if self.least is not None:
            losses, logs = self.least
            inside = np.asarray(e) <= losses[-1]
            with np.errstate(divide="ignore"):
                sure = np.log(own) <= np.interp(e, losses, logs) + math.log(_SURE)
            if np.all(np.where(inside, sure, own <= TINY)):
                return None
        return self._made

    def delta(self, e: Array) -> Array:
        own = self.own.delta(e)
        other = self.published(e, own)
        return own if other is None else np.minimum(own, other.delta(e))

    @property
    def end(self) -> float:
        return self.own.end

    def knots(self) -> Array:
        return self.own.knots()

    def epsilon(self, delta: float) -> float:
        found = self.own.epsilon(delta)
        at = np.array([min(found, 1e300)])
        other = self.published(at, np.array([delta]))
        return found if other is None else min(found, other.epsilon(delta))

    def quick_epsilon(self, delta: float) -> float | None:
        return self.own.quick_epsilon(delta)

    def keeps(self, e: float, delta: float) -> bool:
        return self.own.keeps(e, delta)


def own_profile(directed: DirectedProfile) -> DirectedProfile:
    """What dptune itself proves, without the published bounds around it."""
    while isinstance(directed, LeastProfile):
        directed = directed.own
    return directed


def capped(directed: DirectedProfile, e: Array, own: Array) -> Array:
    """The values ``own`` at the losses e, nowhere above the published profiles around ``directed``."""
    while isinstance(directed, LeastProfile):
        other = directed.published(e, own)
        own = own if other is None else np.minimum(own, other.delta(e))
        directed = directed.own
    return own


# An estimate of what a Renyi bound on selection could prove at best.


def estimated_curve(pair: ProfilePair, orders: Array) -> Array:
    """The Renyi curve of an exact profile, to a few percent.

    E_Q[L^a] - 1 is a (a - 1) times the integrals of exp((a - 1) t) d(t) and, in the other direction, exp(-a t) d(t).
    """
    logs = []
    for directed, rates in ((pair.remove, orders - 1.0), (pair.add, -orders)):
        losses = max(directed.end, 1e-9) * _SPACED  # rare large losses leave most of a profile near 0
        gaps = np.diff(losses)
        weights = 0.5 * (np.append(gaps, 0.0) + np.append(0.0, gaps))
        values = directed.delta(losses)
        values = np.where(values > 1e3 * values[-1] + 1e-16, values, 0.0)  # the rest may be what truncation added
        with np.errstate(divide="ignore"):
            logs.append(np.log(values * weights) + rates[:, None] * losses)
    joint = np.concatenate(logs, axis=1)
    top = joint.max(axis=1)
    grown = top + np.log(np.exp(joint - top[:, None]).sum(axis=1)) + np.log(orders * (orders - 1.0))
    return np.asarray(np.logaddexp(0.0, grown) / (orders - 1.0))


def stopping_estimate(pair: ProfilePair, runs: Runs, end: float) -> tuple[Array, Array] | None:
    """Losses and logs of about the least delta that Papernot and Steinke's theorems prove there."""
    a = _ORDERS
    ways = [pair] if pair.symmetric else [pair, pair.flip()]
    curve = np.asarray(np.max([estimated_curve(way, a) for way in ways], axis=0))
    if isinstance(runs, NegativeBinomial):
        inner = (1.0 - 1.0 / a) * curve - math.log(runs.stopping) / a
        curve = curve + (1.0 + runs.shape) * float(np.min(inner)) + math.log(runs.mean) / (a - 1.0)
    elif isinstance(runs, Poisson):
        at = -np.log1p(-1.0 / a)
        hat = np.maximum(pair.remove.delta(at), pair.add.delta(at))
        curve = np.logaddexp(-runs.mean, math.log(runs.mean) + (a - 1.0) * (curve + runs.mean * hat)) / (a - 1.0)
    else:
        return None
    curve = np.minimum.accumulate(curve[::-1])[::-1]  # divergences grow with the order
    losses = np.linspace(0.0, max(end, 1e-9), _GRID)
    return losses, log_deltas(a, np.maximum(curve, 0.0), losses)
