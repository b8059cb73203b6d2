"""How figures are printed in statements: an upper bound is never rounded down, a lower bound never up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

__all__ = ["at_least", "at_most"]

_PLACES = Decimal("0.0001")


def _shown(value: float | None, rounding: str) -> str:
    if value is None or not math.isfinite(value):
        return "none can be stated"
    return str(Decimal(value).quantize(_PLACES, rounding=rounding))


def at_most(value: float | None) -> str:
    """An upper bound with four places, rounded up."""
    return _shown(value, ROUND_CEILING)


def at_least(value: float | None) -> str:
    """A lower bound with four places, rounded down."""
    return _shown(value, ROUND_FLOOR)
