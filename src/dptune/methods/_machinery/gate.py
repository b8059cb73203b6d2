"""Noisy comparisons of utilities with rising thresholds: how thresholds rise, what a comparison costs and draws.

Public arithmetic and one stream of exact noise; the theorem is ``docs/theorems/shards.md``. The budget is declared
first and charged whole, and no answer is given that could exceed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dptune.accounting import Cost
from dptune.accounting.shards import (
    above_threshold,
    beyond,
    filtered_rounds,
    sparse_vector,
)
from dptune.errors import InvalidInput
from dptune.methods.exact import Bits
from dptune.methods.utilities import UNIT

__all__ = ["Gate", "Rounds"]


@dataclass(frozen=True)
class Rounds:
    """How thresholds rise, and what every comparison may cost: public arithmetic.

    Args:
        epsilon: the pure epsilon of all comparisons together, charged whole.
        granularity: thresholds move in multiples of this.
        start: the first threshold's base.
        variant: "rounds" (the paper's, filtered) or "sparse" (one sparse vector).
        per_round: the epsilon of one round that passes.
        passes: how many answers above a threshold one sparse vector may give.
    """

    epsilon: float
    granularity: float
    start: float
    variant: str
    per_round: float
    passes: int

    def __post_init__(self) -> None:
        if self.variant not in ("rounds", "sparse"):
            raise InvalidInput(f"'variant' must be 'rounds' or 'sparse'; got {self.variant!r}.")

    @property
    def cost(self) -> Cost:
        """What the choice costs, whatever passed."""
        if self.variant == "rounds":
            return filtered_rounds(self.epsilon)
        return sparse_vector(self.epsilon, 1.0, self.passes).cost


class Gate:
    """Noisy comparisons with thresholds, until the budget is used; the bits that it takes are its noise."""

    def __init__(self, rounds: Rounds, parts: int, sensitivity: int, bits: Bits) -> None:
        self._bits, self._shards = bits, parts
        self._sparse = rounds.variant == "sparse"
        self._left = Fraction(rounds.epsilon)
        self._passes = rounds.passes
        if self._sparse:
            vector = sparse_vector(rounds.epsilon, sensitivity, self._passes)
            self._query = _rounded(vector.query_scale)
            self._shift = bits.discrete_laplace(_rounded(vector.threshold_scale))
        else:
            self._round = above_threshold(rounds.per_round, sensitivity)
            self._query, self._threshold = _rounded(self._round.query_scale), _rounded(self._round.threshold_scale)

    @property
    def open(self) -> bool:
        """Whether one more round, passed at worst, fits."""
        return self._passes > 0 if self._sparse else self._round.passed <= self._left

    def first_above(self, utilities: list[int], proposal: float) -> int | None:
        """The first candidate whose noisy utility reaches the noisy threshold; charges for the answer.

        Args:
            utilities: sums of rounded scores.
            proposal: the threshold, as an average score.

        Returns:
            The candidate's index; None if none reaches it.
        """
        if beyond(proposal):
            return None  # public, free
        level = math.floor(proposal * self._shards * UNIT)
        level += self._shift if self._sparse else self._bits.discrete_laplace(self._threshold)
        for index, utility in enumerate(utilities):
            if utility + self._bits.discrete_laplace(self._query) >= level:
                self._passes -= 1
                if not self._sparse:
                    self._left -= self._round.passed
                return index
        if not self._sparse:
            self._left -= self._round.failed
        return None


def _rounded(scale: Fraction) -> Fraction:
    """A scale with a short denominator, never smaller: scales are in units of 2^-20 of a score, so this is nothing."""
    return Fraction(math.ceil(scale))
