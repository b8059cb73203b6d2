"""Profiles of private selection, ready to be solved, tabulated and certified.

Joins the tight bound (``_hull``), the exact programme (``interleave``) and the certificates from below. The programme
is used where the tight bound leaves a gap: for Poisson and binomial laws, at deltas above 1e-4, and in tables that
other operations use. For truncated negative binomial laws at smaller deltas the tight bound alone answers, in
milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dptune._typing import Array
from dptune.accounting._dots import grid_below
from dptune.accounting._hull import HullProfile, hull_profile
from dptune.accounting._polygon import attained_points
from dptune.accounting._published import capped, own_profile
from dptune.accounting.atoms import atoms_below
from dptune.accounting.interleave import LowerProgramme, UpperProgramme, inward, lower_programme, upper_programme
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile
from dptune.accounting.runs import NegativeBinomial, Runs

__all__ = ["SelectedProfile", "certify", "selected_profile", "tabulate", "three_blocks"]

_KNOTS = 900
_FEW = 45  # losses at which the programme is run for a table
_SMALL = 1e-4  # delta below which the tight bound is within a third of a percent for negative binomial laws
_KEPT = 3  # programmes held for one direction
_LOST = 1e-13  # of probability, in a difference of sums of a thousand masses


@dataclass(frozen=True, eq=False)
class SelectedProfile(DirectedProfile):
    """The smaller of the tight bound and, where it helps, the exact programme rounded outward."""

    hull: HullProfile
    runs: Runs
    programmes: dict[int, UpperProgramme] = field(default_factory=dict)

    def refines(self, delta: float) -> bool:
        """Whether the programme is worth its time near this delta."""
        if isinstance(self.runs, NegativeBinomial):
            return delta > _SMALL and self.runs.expected > 1.0
        return self.runs.expected > 0.05

    def programme(self, e: float) -> UpperProgramme:
        """The programme resolved for losses from e upwards; a few are kept."""
        level = math.floor(4.0 * math.log1p(max(e, 0.0)))
        if level not in self.programmes:
            while len(self.programmes) >= _KEPT:
                self.programmes.pop(next(iter(self.programmes)))
            self.programmes[level] = upper_programme(self.hull.base, self.runs, math.expm1(level / 4.0))
        return self.programmes[level]

    def delta(self, e: Array) -> Array:
        bound = self.hull.delta(e)
        if not self.refines(float(np.max(bound))):
            return bound
        least = float(np.min(e))
        for start in (0.8 * least, least, 1.33 * least):  # each resolution is sound; the smallest value is best
            bound = np.minimum(bound, self.programme(start).delta(e))
        return bound

    @property
    def end(self) -> float:
        return self.hull.end

    def quick_epsilon(self, delta: float) -> float | None:
        return self.hull.epsilon(delta) if self.refines(delta) else None

    def epsilon(self, delta: float) -> float:
        bound = self.hull.epsilon(delta)
        if not self.refines(delta) or not 0.0 < bound < 500.0:
            return bound
        programme = self.programme(0.8 * bound)
        low, high = 0.6 * bound, bound
        for points in (8, 8):
            e = np.linspace(low, high, points)
            d = programme.delta(e)
            if not d[-1] <= delta:  # not "greater": a value that is not a number proves nothing
                return bound
            k = int(np.argmax(d <= delta))
            if k == 0:
                return float(e[0])
            low, high = float(e[k - 1]), float(e[k])
        # The programme is convex in exp(e), being a maximum of lines, and so is the worst case: a chord is above both.
        share = (d[k - 1] - delta) / (d[k - 1] - d[k])
        return min(bound, low + math.log1p(share * math.expm1(high - low)) + 1e-9 * max(1.0, low))

    def keeps(self, e: float, delta: float) -> bool:
        return self.refines(delta) and bool(self.programme(0.8 * e).delta(np.array([e]))[0] <= delta)


def selected_profile(pair: ProfilePair, runs: Runs, density: tuple[float, float] = (1.0, 1.0)) -> DirectedProfile:
    """The upper profile of selection in the removal direction of ``pair``."""
    hull = hull_profile(pair, runs, density)
    return SelectedProfile(hull, runs) if density == (1.0, 1.0) else hull


def tabulate(directed: DirectedProfile) -> TableProfile:
    """An upper bound as a table: values at knots, chords between them (sound: the truth is convex)."""
    whole, directed = directed, own_profile(directed)
    hull = directed.hull if isinstance(directed, SelectedProfile) else directed
    end = max(directed.end, 1e-6)
    near = np.linspace(0.0, end, _KNOTS)
    values = hull.delta(near)
    # Spend the knots where the profile lives.
    last = int(np.argmax(values <= 1e-17)) or _KNOTS - 1
    knots = np.linspace(0.0, near[last], _KNOTS)
    values = hull.delta(knots)
    if isinstance(directed, SelectedProfile) and directed.refines(1.0):
        # Composition and subsampling look at the profile far above delta, where the programme gains most.
        few = near[last] * np.linspace(0.0, 1.0, _FEW) ** 1.5
        groups = np.array_split(few, _KEPT)
        fine = np.concatenate([directed.programme(float(group[0])).delta(group) for group in groups])
        values = np.minimum(values, TableProfile(few, fine).delta(knots))
    return TableProfile(knots, capped(whole, knots, values))


def three_blocks(q: Array, p: Array, runs: Runs, e: float) -> float:
    """The best three-block score on the given ROC points: low ratios on top, then S, then the rest."""
    few = np.unique(np.linspace(0, len(q) - 1, 900).astype(np.int64))
    q, p = q[few], p[few]
    gain_p = runs.gain(p[None, :], np.minimum(p[:, None], p[None, :]))
    gain_q = runs.gain(q[None, :], np.minimum(q[:, None], q[None, :]))
    allowed = np.triu(np.ones_like(gain_p, dtype=bool))
    return float(np.where(allowed, gain_p - math.exp(min(e, 600.0)) * gain_q, 0.0).max())


@dataclass(frozen=True, eq=False)
class Certificate:
    """A loss that selection really reaches, and the programme on which some score reaches it."""

    epsilon: float
    programme: LowerProgramme
    runs: Runs

    def pair(self) -> ProfilePair:
        """The pair of that score's selected output, the tested world first, rounded down in both directions."""
        (p, q), (nodes_q, nodes_p) = self.programme.score(self.epsilon), self.programme.nodes
        u, x = np.concatenate([[0.0], np.cumsum(p)]), np.concatenate([[0.0], np.cumsum(q)])
        won_p, won_q = self._won(u, p, -1.0), self._won(x, q, 1.0)
        # A mass is a difference of sums; without Q-mass it is roundoff, unless it comes from the ROC curve's first arc.
        hidden = np.diff(nodes_p)[nodes_q[1:] == 0.0]
        never = float(won_p[:-1][(q <= 0.0) & (p > 0.0) & np.isin(p, hidden)].sum())
        # Backwards small P-masses count, which are known up to what the sums lost.
        lost = _LOST + 2.0 * (abs(1.0 - float(u[-1])) + abs(1.0 - float(x[-1])))
        more_p, less_q = self._won(u, p + lost, 1.0), self._won(x, q - lost, -1.0)
        back = atoms_below(less_q, more_p, lost=4.0 * self.runs.expected * lost)
        return ProfilePair(atoms_below(won_p, won_q, never), back)

    def _won(self, below: Array, mass: Array, outward: float) -> Array:
        """The probability that each piece wins, and that none runs, rounded as asked; ``below`` adds up the masses."""
        top = np.minimum(below[1:], 1.0)
        won = self.runs.gain(top, np.clip(mass, 0.0, top))
        return np.append(won, self.runs.never) * (1.0 + outward * inward(self.runs))


def certify(pair: ProfilePair, runs: Runs, delta: float, near: float) -> Certificate:
    """The largest loss that the grid programme proves from below at this delta (removal direction).

    ``near`` is the upper bound, which sets the resolution. The result is rounded down.
    """
    q, p = roc_points(pair)
    programme = lower_programme(q, p, runs, 0.8 * min(near, 500.0))
    low, high = 0.0, min(near, 500.0)
    for points in (17, 17, 17):
        e = np.linspace(low, high, points)
        d = programme.delta(e)
        k = int(np.argmax(d <= delta))
        if d[k] > delta:
            low = high
            break
        if k == 0:
            high = low
            break
        low, high = float(e[k - 1]), float(e[k])
    return Certificate(low, programme, runs)


@lru_cache(maxsize=16)
def roc_points(pair: ProfilePair) -> tuple[Array, Array]:
    """Points of a ROC curve below the pair's, for a pair that is exact or a lower bound."""
    return attained_points(*grid_below(pair))
