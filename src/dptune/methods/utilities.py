"""Utilities of candidates: whole numbers, so that exact samplers and integer sensitivities apply to them.

A score in [0, 1] is rounded down to a multiple of 1 / ``UNIT``; the utility of a candidate is the sum over shards
(``docs/theorems/shards.md``). What is priced here (the sensitivity) and what is drawn must come from this file.
"""

from __future__ import annotations

import math

from dptune.methods.validation import PrivateValidation

__all__ = ["UNIT", "sensitivity_of", "total_utility"]

UNIT = 2**20


def sensitivity_of(shards: int, validation: PrivateValidation | None) -> int:
    """The most one record moves a sum of rounded scores."""
    if validation is None:
        return UNIT
    return max(UNIT, shards * (math.ceil(UNIT / validation.denominator) + 1))


def total_utility(scores: list[float]) -> int:
    """The sum over shards of clipped, rounded scores; failures count as 0."""
    return sum(0 if math.isinf(s) and s < 0 else math.floor(min(max(s, 0.0), 1.0) * UNIT) for s in scores)
