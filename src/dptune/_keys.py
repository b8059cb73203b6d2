"""Values as they are compared: as texts, one way for every kind of source.

Two rows are of one unit if their keys are equal here. A key that is taken for another merges two people into one unit,
and one that is written in two ways splits a person: both give a guarantee for somebody else than was said.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from numbers import Number
from typing import Any
from uuid import UUID

import numpy as np

__all__ = ["plain_key", "plain_text"]

_TEXTS = (str, Number, UUID, date, time, timedelta)  # one text for one value
_DIGITS = 4300  # longer whole numbers have no text in Python
_MARK = "\0"  # before the digits of bytes that are no text


def plain_text(value: object) -> str:
    """A value as the text by which it is compared: whole numbers without a fraction, truth in lower case, no spaces
    around. The same value gives the same text whatever type its column has.

    Args:
        value: A cell, a key, a declared value.

    Returns:
        The text.

    Example:
        >>> plain_text(7.0), plain_text(" 7"), plain_text(True)
        ('7', '7', 'true')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex) and value.imag == 0:  # one complex number makes a whole column of them
        value = value.real
    if isinstance(value, Decimal) and value.is_finite():
        return _plain_decimal(value)
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value):
        return str(int(value))
    return str(value).strip()


def _plain_decimal(value: Decimal) -> str:
    """Without zeros at the end of a fraction, and never rounded."""
    exact = Context(prec=len(value.as_tuple().digits), Emax=MAX_EMAX, Emin=MIN_EMIN)
    short = value.normalize(exact)
    return str(int(short)) if short == short.to_integral_value() and short.adjusted() < _DIGITS else str(short)


def plain_key(key: Any) -> Hashable | None:
    """A key as it is compared, one way for every kind of source.

    Texts, numbers, truth, dates, times and UUIDs are compared as texts. Bytes are the text that they are in UTF-8;
    those that are none are equal to the same bytes alone. A tuple is compared by its members, anything else as it is.

    Args:
        key: Whom a row belongs to.

    Returns:
        A value by which rows are put together; None for nobody: a missing value, an empty text, or something that
        cannot be compared.

    Example:
        >>> plain_key(b"7 "), plain_key(7.0), plain_key(b"\\xff"), plain_key("")
        ('7', '7', '\\x00ff', None)
    """
    try:
        if isinstance(key, np.generic):
            key = key.item()
        if key is None or key != key:  # noqa: PLR0124 - what is not equal to itself is no key
            return None
        if isinstance(key, bytes | bytearray | memoryview):
            try:
                key = bytes(key).decode("utf-8")
            except UnicodeDecodeError:
                return _MARK + bytes(key).hex()
        if isinstance(key, tuple):
            return tuple(plain_key(member) for member in key)
        if isinstance(key, datetime) and key.tzinfo is not None:
            key = key.astimezone(UTC)
        if isinstance(key, _TEXTS):
            text = str.__getitem__(plain_text(key), slice(None))  # nothing of a class of its own is left
            return (_MARK + text if text.startswith(_MARK) else text) or None  # no text is the digits of bytes
        hash(key)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a key that cannot be compared, whatever its own methods raise
        return None
    return key  # type: ignore[no-any-return]
