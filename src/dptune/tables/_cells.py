"""Cells to numbers and to texts: what becomes of one cell follows from that cell and the schema, from nothing else.

Whole columns are converted at once where every cell allows it; a cell that does not is converted alone, and the others
keep the same bits. No cell is ever refused or quoted, whatever its own methods raise; Ctrl-C still stops.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dptune._keys import plain_key
from dptune._typing import AnyArray, Array, Indices
from dptune.tables.columns import plain_text

__all__ = ["Cells", "Places", "keys", "numbers", "texts"]

Cells = Sequence[Any] | AnyArray
"""The cells of one column: texts of a CSV file, or values of an array or a DataFrame; None for a missing one."""


def numbers(cells: Cells) -> Array:
    """The cells as numbers; NaN for what is none."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        with np.errstate(all="ignore"):  # no warning may tell of a record
            return cells.astype(np.float64)
    values = _values(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is a number only with a warning is none, and nobody is warned
        try:
            return np.array(list(map(float, values)), np.float64)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return np.array([_number(value) for value in values], np.float64)


def _values(cells: Cells) -> Sequence[Any]:
    return cells.tolist() if isinstance(cells, np.ndarray) else cells


def _number(value: Any) -> float:
    try:
        return float(value.real if isinstance(value, complex) and value.imag == 0 else value)
    except OverflowError:  # a whole number beyond all floats
        return math.nan if type(value) is not int else math.inf if value > 0 else -math.inf
    except KeyboardInterrupt:
        raise
    except BaseException:  # dates, words, an object whose own method raises, anything
        return math.nan


def texts(cells: Cells) -> list[str]:
    """The cells as texts; empty for a missing one."""
    return [_text(value) or "" for value in _values(cells)]


def keys(cells: Cells) -> list[Hashable | None]:
    """The cells as keys by which rows are put together; None for a missing one, which is nobody's."""
    return [plain_key(value) for value in _values(cells)]


def _text(value: Any) -> str | None:
    """A value as the text that it is compared by; None for a missing one."""
    try:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or value != value:  # noqa: PLR0124 - what is not equal to itself is no value
            return None
        if isinstance(value, bytes):
            value = value.decode("utf-8", "backslashreplace")
        return str.__getitem__(plain_text(value), slice(None))  # nothing of a class of its own is left
    except KeyboardInterrupt:
        raise
    except BaseException:  # values of a kind that has no text or no comparison
        return None


class Places(dict[Any, int]):
    """The place of every declared value, and one for whatever else a cell holds."""

    def __init__(self, values: Sequence[str], other: int) -> None:
        super().__init__({value: place for place, value in enumerate(values)})
        self._other = other

    def __missing__(self, cell: Any) -> int:
        text = _text(cell)
        return self._other if text is None else self.get(text, self._other)

    def find(self, cells: Cells) -> Indices:
        """The place of every cell."""
        values = _values(cells)
        try:
            return np.array(list(map(self.__getitem__, values)), np.int64)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a cell that cannot be looked up
            return np.array([self._find_alone(value) for value in values], np.int64)

    def _find_alone(self, value: Any) -> int:
        try:
            return self[value]
        except KeyboardInterrupt:
            raise
        except BaseException:
            return self.__missing__(value)
