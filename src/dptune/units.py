"""Records that are units of several rows: all rows of one patient, one user, one household are one record.

Whatever samples, splits, counts or judges records does so by their place, and here a place is a unit: so it treats the
rows of a unit together without knowing of it (``docs/tables.md``). A :class:`UnitDataset` has neither ``x`` nor ``y``:
nothing can take its rows for records by mistake. What becomes of a unit follows from its own rows alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from dptune import _validate
from dptune._keys import plain_key, plain_text
from dptune._typing import AnyArray, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput

__all__ = ["MOST_ROWS", "UNIT", "Grouping", "UnitDataset", "check_unit", "plain_text"]

MOST_ROWS = 4096  # sums of squared lengths are exact enough for so many: docs/theorems/whitening.md
"""The most rows of one unit that may take part: so many can be added exactly (``docs/theorems/exact_sums.md``)."""

UNIT = "unit"
"""What statements call a unit of arrays to which nobody gave a name."""

_BLANK = 16
_ROWS = ("row", "record")


def check_unit(unit: str, unit_rows: object) -> int:
    """Refuse a unit without a name, or without a public number of rows.

    Args:
        unit: What one unit is called.
        unit_rows: The most rows of one that take part.

    Returns:
        The number of rows.

    Raises:
        InvalidInput: If the name is empty, or the number is not between 1 and 4096.

    Example:
        >>> check_unit("patient", 5)
        5
    """
    if not isinstance(unit, str) or not unit.strip() or not unit.isprintable() or "|" in unit:
        raise InvalidInput(f"A unit needs a name for statements, such as 'patient'; got {unit!r}.")
    if unit in _ROWS:
        raise InvalidInput(f"A unit of several rows cannot be called {unit!r}: ledgers mean one row by it.")
    if unit_rows is None:
        raise InvalidInput(
            f"Units of several rows ({unit}) need 'unit_rows': the most rows of one that take part, a public figure "
            "that you decide; more are left out."
        )
    return _validate.integer("unit_rows", unit_rows, 1, MOST_ROWS)


class Grouping:
    """Puts rows to the units that they belong to, in the order in which they come, and keeps the first few of each.

    Which rows of a unit are kept follows from the order of that unit's own rows: others in between change nothing.
    Keys are compared as :func:`~dptune._keys.plain_key` says: "7", " 7", 7 and 7.0 are the same. A row without a
    key (None, NaN, an empty text, or something that cannot be compared) belongs to nobody and is left out, so that
    taking somebody away takes nothing from anybody else's unit.

    Args:
        unit_rows: How many rows of a unit are kept.

    Example:
        >>> grouping = Grouping(2)
        >>> grouping.keep(["ann", "bob", "ann", None, "ann"]).tolist()
        [0, 1, 2]
        >>> grouping.keep(["bob"]).tolist(), grouping.numbers().tolist()
        ([0], [0, 1, 0, 1])
    """

    def __init__(self, unit_rows: int) -> None:
        self._most = unit_rows
        self._numbers: dict[Hashable, int] = {}
        self._counts: list[int] = []
        self._kept: list[Indices] = []
        self.nobodys, self.beyond = 0, 0

    def keep(self, keys: Sequence[Any] | AnyArray) -> Indices:
        """The places of the rows that are kept, out of the next few.

        Args:
            keys: Whom each row belongs to.

        Returns:
            Places in ``keys``, in their order.
        """
        places, numbers = [], []
        for place, key in enumerate(keys.tolist() if isinstance(keys, np.ndarray) else keys):
            number = self._number(key)
            if number is None:
                self.nobodys += 1
            elif self._counts[number] == self._most:
                self.beyond += 1
            else:
                self._counts[number] += 1
                places.append(place)
                numbers.append(number)
        self._kept.append(np.array(numbers, np.int64))
        return np.array(places, np.int64)

    def _number(self, key: Any) -> int | None:
        try:
            key = plain_key(key)
            if key is None:
                return None
            number = self._numbers.setdefault(key, len(self._counts))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a key that cannot be compared
            return None
        if number == len(self._counts):
            self._counts.append(0)
        return number

    def numbers(self) -> Indices:
        """The number of the unit of every row that was kept, in the order of the rows."""
        return np.concatenate([np.empty(0, np.int64), *self._kept])


@dataclass(frozen=True, eq=False)
class UnitDataset:
    """Records that are units of one to ``unit_rows`` rows: each is taken, counted and clipped as a whole.

    Rows beyond the first ``unit_rows`` of a unit are left out, and so is a row that belongs to nobody. Units are in the
    order of their first rows. Adding or removing a unit changes nothing about the others but their places.

    Args:
        rows: The rows, as records of one row each.
        keys: Whom each row belongs to: rows with equal keys are one unit. Texts, numbers and dates are equal if they
            are as texts without spaces around; None, NaN and an empty text are nobody.
        unit_rows: The most rows of a unit that take part; public, at most 4096.
        unit: What statements call a unit.
        column: The column of a table that holds the keys, for statements.

    Raises:
        InvalidInput: If there is not one key for each row, or a public figure is out of range.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset, UnitDataset
        >>> rows = Dataset(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1]), classes=2)
        >>> patients = UnitDataset(rows, ["ann", "bob", "ann", "ann"], unit_rows=2, unit="patient")
        >>> len(patients), patients.take(np.array([0])).rows.x.ravel()
        (2, array([0., 2.]))
    """

    rows: Dataset = field(repr=False)
    keys: InitVar[Sequence[Any] | AnyArray]
    unit_rows: int
    unit: str = UNIT
    column: str | None = None
    starts: Indices = field(init=False, repr=False)
    """Where the rows of each unit begin, and where the last one's end."""

    def __post_init__(self, keys: Sequence[Any] | AnyArray) -> None:
        if not isinstance(self.rows, Dataset):
            raise InvalidInput(
                f"'rows' must be a Dataset with one record for each row; got {type(self.rows).__name__}."
            )
        object.__setattr__(self, "unit_rows", check_unit(self.unit, self.unit_rows))
        if isinstance(keys, str | bytes) or not hasattr(keys, "__len__") or getattr(keys, "ndim", 1) != 1:
            raise InvalidInput(
                f"'keys' must be a list or an array with one entry for each row; got {type(keys).__name__}."
            )
        if len(keys) != len(self.rows):
            raise InvalidInput("There must be one key for each row: as many as 'rows' has records.")
        grouping = Grouping(self.unit_rows)
        kept = grouping.keep(keys)
        numbers = grouping.numbers()
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers) if len(numbers) else np.empty(0, np.int64)
        object.__setattr__(self, "starts", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
        # also where all rows stay in their order: whether memory is taken must not depend on whose rows they are
        object.__setattr__(self, "rows", self.rows.take(kept[order]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def name(self) -> str:
        """What messages and folders call the data."""
        return self.rows.name

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.rows.classes

    @property
    def features(self) -> int:
        """How many features a row has."""
        return self.rows.features

    @property
    def row_units(self) -> Indices:
        """The place of every row's unit, for trainers of your own."""
        numbers: Indices = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return numbers

    @property
    def first_labels(self) -> Indices:
        """The label of every unit's first row."""
        return self.rows.y[self.starts[:-1]]

    def take(self, index: Indices) -> UnitDataset:
        """The units at the given places, as a data set with the same rules."""
        first, counts = self.starts[:-1][index], np.diff(self.starts)[index]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
        return self._with(self.rows.take(places), starts)

    def with_rows(self, rows: Dataset) -> UnitDataset:
        """The same units, made of other rows.

        Args:
            rows: As many rows in the same order; they obey the rules already.

        Returns:
            Units under the same rules.
        """
        return self._with(rows, self.starts)

    def means(self, values: Indices) -> Indices:
        """The mean over every unit's rows of a whole number for each row, rounded down.

        Args:
            values: One whole number for each row.

        Returns:
            One whole number for each unit, never above the largest of its rows.
        """
        if not len(self):
            return np.empty(0, np.int64)
        return np.asarray(np.add.reduceat(values, self.starts[:-1]) // np.diff(self.starts), dtype=np.int64)

    def blank(self) -> UnitDataset:
        """A few made-up units with every class; a function of what is public alone."""
        count = max(_BLANK, 2 * self.classes)
        low, high = self.rows.feature_range
        x = np.random.default_rng(0).random((count, *self.rows.shape)).clip(low, high).astype(self.rows.x.dtype)
        starts = np.arange(0, count + 1, min(2, self.unit_rows), dtype=np.int64)
        return self._with(self.rows.holding(x, self.rows.blank_targets(count)), starts)

    def _with(self, rows: Dataset, starts: Indices) -> UnitDataset:
        """Units under the same rules, made of other rows; they obey the rules already."""
        part = object.__new__(UnitDataset)
        for key, value in {**self.__dict__, "rows": rows, "starts": starts}.items():
            object.__setattr__(part, key, value)
        return part
