"""Numerical profiles: d(e) = sup P(E) - exp(e) Q(E) as functions of the loss e, in both directions.

A :class:`DirectedProfile` answers for e >= 0 in one direction; a :class:`ProfilePair` joins the two directions and
answers for every e by parity (``docs/theorems/profiles.md``). Whether the values bound the truth from above or from
below is the caller's knowledge; nothing here rounds inward on an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from dptune._typing import Array
from dptune.accounting._directed import TINY, DirectedProfile, solve
from dptune.accounting._pair import ProfilePair

__all__ = [
    "TINY",
    "DirectedProfile",
    "GaussianProfile",
    "LaplaceProfile",
    "MaxProfile",
    "MixtureProfile",
    "ProfilePair",
    "TableProfile",
    "gaussian_pair",
    "solve",
]


@dataclass(frozen=True)
class GaussianProfile(DirectedProfile):
    """N(mu, 1) against N(0, 1), exact (Balle and Wang 2018); symmetric, so one direction serves as both.

    Rounded up, or down if it is to stand ``below`` the truth.
    """

    mu: float
    below: bool = False

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        near, far = e / self.mu - self.mu / 2.0, e / self.mu + self.mu / 2.0
        # For positive arguments both terms share the factor phi(near): no overflow, little cancellation.
        scale = np.exp(-0.5 * np.maximum(near, 0.0) ** 2) / 2.0
        root2 = math.sqrt(2.0)
        tail = scale * (erfcx(np.maximum(near, 0.0) / root2) - erfcx(np.maximum(far, 0.0) / root2))
        with np.errstate(over="ignore", under="ignore"):
            # A difference of two numbers below 1: its last digit is absolute, so it is rounded absolutely.
            outward = -1.0 if self.below else 1.0
            body = ndtr(-near) - np.exp(np.minimum(e + log_ndtr(-far), 0.0)) + outward * 6e-16
        guard = 1.0 + outward * 4e-16 * (2.0 + (1.0 + np.abs(far)) / min(self.mu, 1.0))
        return np.asarray(np.clip(np.where(near > 0, tail, body) * guard, 0.0, 1.0))

    @property
    def end(self) -> float:
        return self.mu * (8.8 + self.mu / 2.0)


@dataclass(frozen=True)
class LaplaceProfile(DirectedProfile):
    """The Laplace mechanism that is (top, 0)-DP: d(e) = 1 - exp((e - top)/2) below top."""

    top: float

    def delta(self, e: Array) -> Array:
        below = np.minimum(np.asarray(e, dtype=float) - self.top, 0.0)  # beyond top it is 0, whatever exp overflows to
        return np.asarray(np.abs(np.expm1(below / 2.0)))

    @property
    def end(self) -> float:
        return self.top

    def knots(self) -> Array:
        return np.array([self.top])


@dataclass(frozen=True, eq=False)
class TableProfile(DirectedProfile):
    """Values at given losses, joined by chords in exp(e) (an upper bound between the knots of a convex
    profile, exact for finitely many outcomes) and constant beyond the last one."""

    losses: Array  # increasing, from 0
    values: Array
    step: float = 0.0  # > 0 if the losses are multiples of it

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        last = len(self.losses) - 1
        if last == 0:
            return np.full_like(e, self.values[0])
        inside = np.minimum(e, self.losses[last])
        if self.step > 0.0:
            k = np.minimum((inside / self.step).astype(np.int64), last - 1)
        else:
            k = np.clip(np.searchsorted(self.losses, inside, side="right") - 1, 0, last - 1)
        left, right = self.values[k], self.values[k + 1]
        share = np.expm1(inside - self.losses[k]) / np.expm1(self.losses[k + 1] - self.losses[k])
        return np.asarray(left + np.clip(share, 0.0, 1.0) * (right - left))

    @cached_property
    def _end(self) -> float:
        level = max(TINY, float(self.values[-1]) * (1.0 + 1e-12))
        index = int(np.argmax(self.values <= level))
        return float(self.losses[index])

    @property
    def end(self) -> float:
        return self._end

    def knots(self) -> Array:
        return self.losses[1:] if len(self.losses) <= 512 else np.empty(0)


class _JoinedProfile(DirectedProfile):
    """Profiles joined at every loss: as far as the longest of them, with the knots of all."""

    parts: tuple[DirectedProfile, ...]

    @property
    def end(self) -> float:
        return max(part.end for part in self.parts)

    def knots(self) -> Array:
        return np.unique(np.concatenate([part.knots() for part in self.parts]))


@dataclass(frozen=True)
class MixtureProfile(_JoinedProfile):
    """The average of profiles: the label that says which one ran is public (docs/theorems/mixture.md)."""

    weights: tuple[float, ...]
    parts: tuple[DirectedProfile, ...]

    def delta(self, e: Array) -> Array:
        total = np.zeros_like(np.asarray(e, dtype=float))
        for weight, part in zip(self.weights, self.parts, strict=True):
            total = total + weight * part.delta(e)
        return np.asarray(total)


@dataclass(frozen=True)
class MaxProfile(_JoinedProfile):
    """The pointwise maximum of profiles: disjoint parts of the data (docs/theorems/parallel.md)."""

    parts: tuple[DirectedProfile, ...]

    def delta(self, e: Array) -> Array:
        return np.asarray(np.max([part.delta(e) for part in self.parts], axis=0))


def gaussian_pair(mu: float, below: bool = False) -> ProfilePair:
    """The pair of mu-GDP, rounded up, or down if ``below``."""
    both = GaussianProfile(mu, below)
    return ProfilePair(both, both)
