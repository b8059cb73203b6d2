"""The smallest mu-GDP that lies above a profile up to a slack, checked at every loss and not on a grid alone.

Between two losses a profile is below its chord in exp(loss), for it is convex there; a Gaussian's profile minus a
chord is convex too, and its minimum is known in closed form. So a chord is either covered everywhere or it is not.
Losses below 0 follow from those above in the other direction (``docs/theorems/readings.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dptune._typing import Array
from dptune.accounting._directed import DirectedProfile
from dptune.accounting.profiles import GaussianProfile, ProfilePair

__all__ = ["cover"]

_POINTS = 250
_ROUNDS = 12
_CLOSE = 1e-5
_LARGEST = 200.0  # beyond it no attack is bounded in any useful way


@dataclass(frozen=True)
class _Chords:
    """A profile's upper bound as chords in exp(loss) between increasing losses."""

    losses: Array
    values: Array

    def excess(self, mu: float, slack: float) -> Array:
        """By how much each chord is above the Gaussian and the slack at its worst place."""
        left, right = self.losses[:-1], self.losses[1:]
        width = np.exp(left) * np.expm1(right - left)
        slope = np.clip((self.values[1:] - self.values[:-1]) / width, -1.0, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = np.clip(-mu * (ndtri(-slope) + mu / 2.0), left, right)
        worst = np.where(np.isnan(worst), right, worst)
        chord = self.values[:-1] + slope * np.exp(left) * np.expm1(worst - left)
        # The ends too: the place of the minimum is rounded, and the ends are where a clipped one lies.
        gaussian = GaussianProfile(mu, below=True)
        places = [(left, self.values[:-1]), (worst, chord), (right, self.values[1:])]
        return np.asarray(np.max([value * (1.0 + 1e-12) - gaussian.delta(at) for at, value in places], axis=0)) - slack

    def finer(self, profile: DirectedProfile, where: npt.NDArray[np.intp]) -> _Chords:
        """The same with more points inside of the chords where it matters; known values are kept."""
        left, right = self.losses[:-1][where], self.losses[1:][where]
        extra = (left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, 8)[1:-1]).ravel()
        losses = np.concatenate([self.losses, extra])
        order = np.argsort(losses)
        return _Chords(losses[order], np.concatenate([self.values, profile.delta(extra)])[order])


def cover(pair: ProfilePair, slack: float) -> float:
    """The smallest mu with d(e) <= d_mu(e) + slack for every e in both directions, rounded up; infinite if none."""
    sides = [pair.remove] if pair.symmetric else [pair.remove, pair.add]
    return max(_cover_one(side, slack) for side in sides)


def _cover_one(profile: DirectedProfile, slack: float) -> float:
    """The smallest mu for one direction, losses from 0 on."""
    top = profile.epsilon(slack)  # from here on the slack alone is enough, for profiles fall
    if not math.isfinite(top):
        return math.inf
    knots = profile.knots()
    grid = np.linspace(0.0, top, _POINTS) if top > 0.0 else np.zeros(1)
    losses = np.unique(np.concatenate([grid, knots[(knots > 0.0) & (knots < top)]]))
    if len(losses) == 1:
        return 0.0
    chords = _Chords(losses, profile.delta(losses))
    found = _smallest(chords, slack)
    for _ in range(_ROUNDS):
        if not math.isfinite(found) or found <= 0.0:
            break
        # Chords that stand in the way of a slightly smaller mu, the worst ones first.
        excess = chords.excess(found * (1.0 - _CLOSE), slack)
        where = np.argsort(excess)[::-1][:12]
        chords = chords.finer(profile, where[excess[where] > 0.0])
        last, found = found, min(found, _smallest(chords, slack))
        if found > last * (1.0 - 1e-7):
            break
    return found


def _smallest(chords: _Chords, slack: float) -> float:
    """The smallest mu that covers these chords, to 1e-10, from above."""
    low, high = 0.0, 1e-3
    while np.max(chords.excess(high, slack)) > 0.0:
        low, high = high, high * 2.0
        if high > _LARGEST:
            return math.inf
    while high - low > 1e-10 * high + 1e-13:
        middle = (low + high) / 2.0
        if np.max(chords.excess(middle, slack)) > 0.0:
            low = middle
        else:
            high = middle
    return high
