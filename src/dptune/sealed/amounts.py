"""How figures are printed in statements: an upper bound is never rounded down, a lower bound never up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

__all__ = ["at_least", "at_most", "whole"]

_PLACES = Decimal("0.0001")


def _shown(value: float | None, rounding: str) -> str:
    if value is None or not math.isfinite(value):
        return "none can be stated"
    return str(Decimal(value).quantize(_PLACES, rounding=rounding))


def at_most(value: float | None) -> str:
    """An upper bound with four places, rounded up.

    Args:
        value: the bound; None or infinite where there is none.

    Returns:
        A number as text, or that none can be stated.

    Example:
        >>> at_most(1.00001), at_most(None)
        ('1.0001', 'none can be stated')
    """
    return _shown(value, ROUND_CEILING)


def at_least(value: float | None) -> str:
    """A lower bound with four places, rounded down.

    Args:
        value: the bound; None or infinite where there is none.

    Returns:
        A number as text, or that none can be stated.

    Example:
        >>> at_least(1.00009)
        '1.0000'
    """
    return _shown(value, ROUND_FLOOR)


def whole(value: float) -> str:
    """A figure that is part of a guarantee, short where that is exact, with all its digits where it is not.

    Args:
        value: the figure: a delta, a budget.

    Returns:
        A number as text that is the figure.

    Example:
        >>> whole(1e-05), whole(1.000004e-05)
        ('1e-05', '1.000004e-05')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
