"""Profiles of data sets that are several steps apart: the ROC curves of the steps, one applied after the other.

If U and V are the ROC curves of two steps, the whole has the curve U(V(x)); in profiles that is the least of
``d_U(s) + exp(s) d_V(e - s)`` over s (``docs/theorems/relations.md``). Every s gives an upper bound, so searching it
can only round outward. Steps are not independent outputs: composing them as such would claim too little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile

__all__ = ["LowestProfile", "SteppedProfile", "power_of", "stepped"]

_EPS = float(np.finfo(float).eps)
_SPLITS = 192  # places at which a loss is split, before the search narrows
_NARROW = 33
_ROUNDS = 3
_FEW = 40  # kinks up to which every split at one of them is tried, too
_POINTS = 2400  # of a table
_CHUNK = 4000
_LARGEST = 600.0


@dataclass(frozen=True, eq=False)
class SteppedProfile(DirectedProfile):
    """The profile of two steps for e >= 0, rounded up: ``first`` compares the start with the middle, ``second`` the
    middle with the end."""

    first: ProfilePair
    second: ProfilePair

    def delta(self, e: Array) -> Array:
        e = np.asarray(e, dtype=float)
        flat = e.reshape(-1)
        parts = [self._least(flat[i : i + _CHUNK]) for i in range(0, len(flat), _CHUNK)]
        return np.concatenate(parts).reshape(e.shape) if parts else e.copy()

    def _least(self, e: Array) -> Array:
        """The least bound at each loss over the ways to split it between the two steps."""
        low = np.maximum(-self.first.add.end, e - self.second.remove.end)
        high = np.minimum(self.first.remove.end, e + self.second.add.end)
        # Where one step can explain no more, the rest is the other's.
        low, high = np.minimum(low, high), np.maximum(low, high)
        splits = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _SPLITS)
        best = np.minimum(self._at_kinks(e), 1.0)
        for _ in range(_ROUNDS):
            found = self._value(e[:, None], splits)
            place = found.argmin(axis=1)
            best = np.minimum(best, np.take_along_axis(found, place[:, None], 1)[:, 0])
            # The bound is convex in exp(s): the least lies beside the least that was seen.
            last = splits.shape[1] - 1
            sides = [np.take_along_axis(splits, np.clip(place + step, 0, last)[:, None], 1) for step in (-1, 1)]
            splits = sides[0] + (sides[1] - sides[0]) * np.linspace(0.0, 1.0, _NARROW)
        return best

    def _at_kinks(self, e: Array) -> Array:
        """The least over splits at kinks: exact where both steps have finitely many outcomes."""
        ahead = np.concatenate([self.first.remove.knots(), -self.first.add.knots(), [0.0]])
        back = np.concatenate([self.second.remove.knots(), -self.second.add.knots(), [0.0]])
        if len(ahead) > _FEW or len(back) > _FEW:
            return np.ones_like(e)
        splits = np.concatenate([np.broadcast_to(ahead, (len(e), len(ahead))), e[:, None] - back], axis=1)
        return np.asarray(self._value(e[:, None], splits).min(axis=1))

    def _value(self, e: Array, s: Array) -> Array:
        """d_first(s) + exp(s) d_second(e - s), rounded up."""
        s = np.minimum(s, _LARGEST)  # exp stays finite, and any split is allowed
        rest, scale = e - s, np.exp(s)
        value = self.first.delta(s) + scale * self.second.delta(rest)
        # Behind 0 a profile is a difference of numbers near 1, whose last digit is absolute.
        guard = np.where(s < 0.0, 1.0, 0.0) + np.where(rest < 0.0, scale, 0.0)
        return np.asarray(value * (1.0 + 16.0 * _EPS * (1.0 + np.abs(s))) + 4.0 * _EPS * guard)

    @property
    def end(self) -> float:
        # Far losses of one step are made by moderate ones of the other, so the sum is not far enough.
        return min(1.7 * (self.first.remove.end + self.second.remove.end), _LARGEST)

    def knots(self) -> Array:
        ahead, back = self.first.remove.knots(), self.second.remove.knots()
        if not len(ahead) or not len(back) or len(ahead) > _FEW or len(back) > _FEW:
            return np.empty(0)
        behind = [-self.first.add.knots(), [0.0]], [-self.second.add.knots(), [0.0]]
        sums = np.add.outer(np.concatenate([ahead, *behind[0]]), np.concatenate([back, *behind[1]])).ravel()
        return np.unique(sums[sums > 0.0])


@dataclass(frozen=True, eq=False)
class LowestProfile(DirectedProfile):
    """The smaller of two upper bounds on one profile."""

    one: DirectedProfile
    two: DirectedProfile

    def delta(self, e: Array) -> Array:
        return np.minimum(self.one.delta(e), self.two.delta(e))

    @property
    def end(self) -> float:
        return min(self.one.end, self.two.end)

    def knots(self) -> Array:
        return np.unique(np.concatenate([self.one.knots(), self.two.knots()]))


def stepped(first: ProfilePair, second: ProfilePair) -> ProfilePair:
    """The pair of two steps, both ways: from the end back to the start the second step comes first."""
    ahead = SteppedProfile(first, second)
    if first.symmetric and second is first:
        return ProfilePair(ahead, ahead)
    return ProfilePair(ahead, SteppedProfile(second.flip(), first.flip()))


def table(directed: DirectedProfile) -> TableProfile:
    """A profile at many losses; chords between upper bounds of a convex function are above it."""
    if isinstance(directed, TableProfile):
        return directed
    even = directed.end * np.linspace(0.0, 1.0, _POINTS) ** 1.5  # most of a profile lies near 0
    losses = np.unique(np.concatenate([[0.0], even, directed.knots()]))
    values = np.minimum(directed.delta(losses), 1.0)
    return TableProfile(losses, np.minimum.accumulate(values))


def tabled(pair: ProfilePair) -> ProfilePair:
    """The pair with both directions as tables."""
    remove = table(pair.remove)
    return ProfilePair(remove, remove if pair.symmetric else table(pair.add))


def power_of(pair: ProfilePair, count: int) -> ProfilePair:
    """The pair of ``count`` equal steps, by repeated doubling."""
    made: ProfilePair | None = None
    power, left = pair, count
    while True:
        if left & 1:
            made = power if made is None else stepped(power, made)
        left >>= 1
        if not left:
            break
        made = made if made is None else tabled(made)
        power = tabled(stepped(power, power))
    if made is None:
        raise ValueError("At least one step is needed; got none.")
    return made
