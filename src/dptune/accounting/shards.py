"""The cost of choosing by low-sensitivity utilities over shards (Ding et al.), made sound; and the noise that is drawn.

Every figure that is both charged and drawn (scales of noise, splits of epsilon, the elastic step) is computed here, in
exact fractions, for the account, for the searches and for simulations.

With k shards by a keyed hash of a stable record id, one record moves a utility in [0, 1] by at most 1/k. The budget is
declared first and charged whole; see ``docs/theorems/shards.md``, which also says why Ding et al.'s Theorem 3 is
not a privacy guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dptune._validate import integer, real
from dptune.accounting.mechanisms import PureDp

__all__ = [
    "AboveThreshold",
    "ElasticRounds",
    "ElasticStep",
    "SparseVector",
    "above_threshold",
    "filtered_rounds",
    "flip_rate",
    "permute_and_flip",
    "sparse_vector",
]

Number = int | float | Fraction


@dataclass(frozen=True)
class ElasticRounds:
    """The elastic step of Ding et al., Algorithm 1: proposals rise from ``start`` by doubling multiples of
    ``granularity`` and fall back after a fail. Everything here is public arithmetic."""

    start: float
    granularity: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", real("start", self.start, 0, 1, high_open=True))
        object.__setattr__(self, "granularity", real("granularity", self.granularity, 0, 1, low_open=True))

    def steps(self, best: float = 1.0) -> int:
        """N: multiples of the granularity between the start and a best utility (1 if unknown: public)."""
        top = real("best", best, 0, 1)
        return max(0, math.floor((top - self.start) / self.granularity + 1e-9))

    def doublings(self, best: float = 1.0) -> int:
        """How often the step doubles before it exceeds the steps that are left."""
        return (self.steps(best) + 1).bit_length() - 1

    def rounds(self, best: float = 1.0) -> int:
        """T: rounds until the threshold settles, without noise."""
        m = self.doublings(best)
        rest = self.steps(best) + 1 - 2**m
        return int(2 * (m + rest.bit_count()) + 1)

    def most_passes(self) -> int:
        """The most passes among noise-free rounds, and at least one."""
        return max(1, 2 * self.doublings())

    def weight(self) -> float:
        """What the noise-free rounds up to utility 1 cost in units of e: a pass 1, a fail 1/2; at least one round."""
        passes = (self.rounds() - 1) // 2
        return max(1.0, passes + (passes + 1) / 2.0)


class ElasticStep:
    """Where the threshold is after every answer: public arithmetic on passes and fails.

    A step of 0 means that the threshold has settled.
    """

    def __init__(self, start: float, granularity: float) -> None:
        self.start, self.granularity = start, granularity
        self.steps, self.step = 0, 1

    def proposal(self) -> float:
        """The next threshold."""
        return self.start + (self.steps + self.step) * self.granularity

    @property
    def impossible(self) -> bool:
        """Whether the next threshold is above every utility: it fails, publicly and at no cost."""
        return beyond(self.proposal())

    def answer(self, passed: bool) -> None:
        """Go up twice as far after a pass; after a fail try half as far."""
        if passed:
            self.steps += self.step
            self.step *= 2
        else:
            self.step //= 2


def beyond(proposal: float) -> bool:
    """Whether no utility can reach a threshold, because utilities are at most 1."""
    return proposal > 1.0 + 1e-12


@dataclass(frozen=True)
class AboveThreshold:
    """One round: the scales of its noises, and what a pass and a round in which all fail cost."""

    threshold_scale: Fraction
    query_scale: Fraction
    passed: Fraction
    failed: Fraction


def above_threshold(epsilon: Number, sensitivity: Number) -> AboveThreshold:
    """Lap(2D/e) on the threshold, Lap(4D/e) on each utility: a pass costs e, a round in which all fail e/2."""
    e = Fraction(real("epsilon", epsilon, 0, 500, low_open=True))
    d = Fraction(real("sensitivity", sensitivity, 0, low_open=True))
    return AboveThreshold(2 * d / e, 4 * d / e, e, e / 2)


def filtered_rounds(budget: float) -> PureDp:
    """Rounds of AboveThreshold until the next one could exceed the budget: the outcome is budget-DP.

    A round is :func:`above_threshold`. The whole budget is charged, never refunded: how much was used depends on the
    data.
    """
    return PureDp(budget)


def permute_and_flip(budget: float) -> PureDp:
    """Permute-and-flip (McKenna and Sheldon 2020) on utilities of sensitivity D: probabilities proportional to
    exp(budget * u / (2 D)) decide the flips; budget-DP."""
    return PureDp(budget)


def flip_rate(budget: Number, sensitivity: Number) -> Fraction:
    """How fast the probability of a flip falls with the distance from the best utility: budget / (2 D)."""
    return Fraction(budget) / (2 * Fraction(sensitivity))


@dataclass(frozen=True)
class SparseVector:
    """One sparse vector for all proposals: noise scales and cost."""

    threshold_scale: Fraction
    query_scale: Fraction
    passes: int
    cost: PureDp


def sparse_vector(budget: float, sensitivity: Number, passes: int) -> SparseVector:
    """Split a budget over one noisy threshold and ``passes`` answers above it, 1 : (2c)^(2/3)
    (Lyu, Su, Li 2017): Lap(D/e1) once, Lap(2cD/e2) for each query, where e1 + e2 is exactly the budget."""
    total = Fraction(real("budget", budget, 0, 500, low_open=True))
    d = Fraction(real("sensitivity", sensitivity, 0, low_open=True))
    c = integer("passes", passes, 1)
    share = Fraction(1.0 / (1.0 + (2.0 * c) ** (2.0 / 3.0)))
    e1, e2 = total * share, total * (1 - share)
    return SparseVector(d / e1, 2 * c * d / e2, c, PureDp(float(total)))
