"""Profiles of a mechanism that sees each record with probability q, exact given the base profile.

Removal compares q P + (1 - q) Q with Q, addition the other way round (``docs/theorems/subsample.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune.accounting.profiles import DirectedProfile, ProfilePair

__all__ = ["subsampled"]


@dataclass(frozen=True)
class SubsampledRemoval(DirectedProfile):
    """q d(log(1 + (exp(e) - 1)/q))."""

    base: DirectedProfile
    rate: float

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        return np.asarray(self.rate * self.base.delta(_stretched(e, self.rate)))

    @property
    def end(self) -> float:
        return float(_shrunk(np.array(self.base.end), self.rate))

    def knots(self) -> Array:
        return _shrunk(self.base.knots(), self.rate)


@dataclass(frozen=True)
class SubsampledAddition(DirectedProfile):
    """(1 - a (1 - q)) d(log(a q / (1 - a (1 - q)))) with a = exp(e), and 0 where a (1 - q) >= 1."""

    base: DirectedProfile
    rate: float

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        # 1 - a (1 - q) = q - expm1(e) (1 - q), and the argument's log is e - log1p(-expm1(e) (1-q)/q).
        lost = np.expm1(np.minimum(e, 700.0)) * (1.0 - self.rate)
        left = self.rate - lost
        inside = left > 0.0
        safe = np.where(inside, lost / self.rate, 0.0)
        shifted = np.where(inside, e - np.log1p(-safe), 0.0)
        return np.where(inside, left * self.base.delta(shifted), 0.0)

    @property
    def end(self) -> float:
        return float(_pulled(np.array(self.base.end), self.rate))

    def knots(self) -> Array:
        return _pulled(self.base.knots(), self.rate)


def _stretched(e: Array, rate: float) -> Array:
    """log(1 + (exp(e) - 1) / rate) without overflow."""
    small = np.log1p(np.expm1(np.minimum(e, 600.0)) / rate)
    return np.where(e < 600.0, small, e - math.log(rate))


def _shrunk(t: Array, rate: float) -> Array:
    """The inverse of the stretch: log(1 + rate (exp(t) - 1))."""
    small = np.log1p(rate * np.expm1(np.minimum(t, 600.0)))
    return np.where(t < 600.0, small, t + math.log(rate))


def _pulled(t: Array, rate: float) -> Array:
    """The loss e whose argument is t in the addition direction: -log(1 - q + q exp(-t))."""
    return np.asarray(-np.log1p(rate * np.expm1(-t)))


def subsampled(pair: ProfilePair, rate: float) -> ProfilePair:
    """The pair of the mechanism on a Poisson subsample."""
    if rate == 1.0:
        return pair
    return ProfilePair(SubsampledRemoval(pair.remove, rate), SubsampledAddition(pair.add, rate))
