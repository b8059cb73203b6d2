"""Checks of user input, with one form of words: what must hold, what was given, what to do.

Every public constructor calls these, so that a value that gets past one of them is usable everywhere.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable

from dptune.errors import InvalidInput

__all__ = ["flag", "integer", "nearest", "real", "shown"]

_LONGEST = 60


def _interval(low: float, high: float, low_open: bool, high_open: bool) -> str:
    left = "(" if low_open or math.isinf(low) else "["
    right = ")" if high_open or math.isinf(high) else "]"
    return f"{left}{low:g}, {high:g}{right}"


def real(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    low_open: bool = False,
    high_open: bool = False,
    hint: str = "",
) -> float:
    """Return ``value`` as a finite float inside the interval, or raise :class:`InvalidInput`."""
    must = f"'{name}' must be a number in {_interval(low, high, low_open, high_open)}"
    tail = f" {hint}" if hint else ""
    if isinstance(value, bool) or not isinstance(value, int | float | numbers.Real):
        raise InvalidInput(f"{must}; got {shown(value)}.{tail}")
    x = _float(value)
    inside = (x > low if low_open else x >= low) and (x < high if high_open else x <= high)
    if not math.isfinite(x) or not inside:
        raise InvalidInput(f"{must}; got {shown(value)}.{tail}")
    return x


def integer(name: str, value: object, low: int, high: int | None = None, *, hint: str = "") -> int:
    """Return ``value`` as an int in [low, high], or raise :class:`InvalidInput`."""
    top = "inf)" if high is None else f"{high}]"
    must = f"'{name}' must be a whole number in [{low}, {top}"
    tail = f" {hint}" if hint else ""
    if isinstance(value, bool) or not isinstance(value, int | float | numbers.Real):
        raise InvalidInput(f"{must}; got {shown(value)}.{tail}")
    x = _float(value)
    if not math.isfinite(x) or x != math.floor(x) or x < low or (high is not None and x > high):
        raise InvalidInput(f"{must}; got {shown(value)}.{tail}")
    return value if isinstance(value, int) else int(x)


def _float(value: int | float | numbers.Real) -> float:
    """As a float; beyond all of them, infinite."""
    try:
        return float(value)
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False, or raise :class:`InvalidInput`."""
    if not isinstance(value, bool):
        raise InvalidInput(f"'{name}' must be true or false; got {shown(value)}.")
    return value


def shown(value: object) -> str:
    """A value as a message shows it: in one line, and what is long is cut.

    Example:
        >>> shown("x" * 100)
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > 10**40 else repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def nearest(name: object, known: Iterable[str]) -> str:
    """The known name that somebody may have meant, as a remark for an error; empty if none is close.

    Example:
        >>> nearest("validaton", ["validation", "records"])
        " (did you mean 'validation'?)"
    """
    found = difflib.get_close_matches(str(name), list(known), 1, 0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""
