"""The public schema of a table: all that may be known of private records without looking at them.

About how many there are, what their columns are, which one is the target, what one unit of the guarantee is, and how a
CSV file is written. A schema is decided by people who have not counted; whatever a record holds, it is repaired to fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dptune import _validate
from dptune._codec import from_json, to_values
from dptune.errors import InvalidInput
from dptune.tables.columns import Column, Ignored, NumberTarget, Target
from dptune.units import check_unit

__all__ = ["ROW", "VERSION", "CsvFormat", "Schema"]

VERSION = 1
ROW = "row"
_TARGETS = (Target, NumberTarget)
_MOST_WIDTH = 65_536
_ENCODINGS = ("utf-8", "latin-1", "cp1252")


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written. Every line is one record; nothing here is guessed.

    Args:
        delimiter: The one character between fields.
        header: Whether the first line holds the names of the columns; without one, columns are in the schema's order.
        encoding: "utf-8", "latin-1" or "cp1252"; bytes that do not fit are replaced.

    Raises:
        InvalidInput: If the delimiter is not one plain character, or the encoding is not known.

    Example:
        >>> from dptune.tables import CsvFormat
        >>> CsvFormat(delimiter=";").header
        True
    """

    delimiter: str = ","
    header: bool = True
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not isinstance(self.delimiter, str) or len(self.delimiter) != 1 or self.delimiter in '"\r\n\0':
            raise InvalidInput(f"'delimiter' must be one character such as ',' or ';'; got {self.delimiter!r}.")
        if not isinstance(self.header, bool):
            raise InvalidInput(f"'header' must be true or false; got {self.header!r}.")
        if self.encoding not in _ENCODINGS:
            raise InvalidInput(f"'encoding' must be one of {', '.join(_ENCODINGS)}; got {self.encoding!r}.")


@dataclass(frozen=True)
class Schema:
    """What is public about a table of private records.

    Args:
        records: About how many records there are. Decided, never counted.
        columns: Every column of the file, exactly one of them the target.
        unit: What one unit of the guarantee is: "row", or the column that says whose row it is. All rows with the same
            value in it are one record then, and ``records`` counts units.
        csv: How a CSV file is written.
        version: The version of this form.
        unit_rows: The most rows of one unit that take part, where a unit is not a row; more are left out.
        unit_name: What statements call a unit; None: the name of its column, without "_id" at the end.

    Raises:
        InvalidInput: If there is no target or more than one, a column twice, no feature, or the unit is no column or
            lacks its number of rows.

    Example:
        >>> from dptune.tables import Ignored, Number, Schema, Target
        >>> schema = Schema(1000, (Number("age", 0, 100), Target("ill", ("no", "yes"))))
        >>> schema.width, schema.target.classes
        (1, ('no', 'yes'))
        >>> columns = (Ignored("patient_id"), Number("age", 0, 100), Target("ill", ("no", "yes")))
        >>> Schema(1000, columns, unit="patient_id", unit_rows=5).unit_called
        'patient'
    """

    records: int
    columns: tuple[Column, ...]
    unit: str = ROW
    csv: CsvFormat = CsvFormat()
    version: int = VERSION
    unit_rows: int | None = None
    unit_name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "records", _validate.integer("records", self.records, 1, 10**12))
        _check_version(self.version)
        for column in self.columns:
            if not isinstance(column, Column):
                raise InvalidInput(f"'columns' must be columns such as Number(...); got {column!r}.")
        twice = [name for name, times in Counter(column.name for column in self.columns).items() if times > 1]
        if twice:
            raise InvalidInput(f"The schema has the column {twice[0]!r} twice; keep one.")
        self._check_unit()
        self._check_roles()

    def _check_unit(self) -> None:
        if self.unit == ROW:
            for field, value in (("unit_rows", self.unit_rows), ("unit_name", self.unit_name)):
                if value is not None:
                    raise InvalidInput(
                        f"The schema's {field} = {value!r} is for units of several rows; name their column too, "
                        "unit = 'COLUMN'."
                    )
            return
        found = next((column for column in self.columns if column.name == self.unit), None)
        if found is None or isinstance(found, _TARGETS):
            what = "is the target" if found else "is no column of the schema"
            raise InvalidInput(
                f"The schema's unit = {self.unit!r} {what}; name the column that says whose row it is (declare it "
                "with kind = 'ignore' if nothing is learnt from it), or write unit = 'row'."
            )
        check_unit(self.unit_called, self.unit_rows)

    @property
    def by_unit(self) -> bool:
        """Whether a record is a unit of several rows."""
        return self.unit != ROW

    @property
    def unit_called(self) -> str:
        """What statements call a unit."""
        return self.unit.removesuffix("_id") if self.unit_name is None else self.unit_name

    def _check_roles(self) -> None:
        targets = [column.name for column in self.columns if isinstance(column, _TARGETS)]
        if not targets:
            raise InvalidInput("The schema has no target: give one column kind = 'target' with its classes or range.")
        if len(targets) > 1:
            raise InvalidInput(f"The schema has {len(targets)} targets ({targets[0]!r}, {targets[1]!r}); keep one.")
        if not self.features:
            raise InvalidInput("The schema has no column to learn from: declare a number, a category or a text.")
        if self.width > _MOST_WIDTH:
            raise InvalidInput(
                f"The schema makes {self.width:,} features of a record, more than {_MOST_WIDTH:,}; declare fewer "
                "values, or narrower texts."
            )

    @property
    def target(self) -> Target | NumberTarget:
        """The column that is predicted: a class, or a number in a range."""
        return next(column for column in self.columns if isinstance(column, _TARGETS))

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that are learnt from, in the schema's order."""
        return tuple(column for column in self.columns if not isinstance(column, (*_TARGETS, Ignored)))

    @property
    def width(self) -> int:
        """How many features a record has when it is encoded."""
        return sum(column.size for column in self.features)

    def describe(self) -> dict[str, Any]:
        """The schema as plain values of JSON, for :meth:`from_json`."""
        described: dict[str, Any] = to_values(self)
        return described

    @classmethod
    def from_json(cls, data: str | Mapping[str, Any]) -> Schema:
        """The schema that :meth:`describe` described."""
        return from_json(data, cls, "a schema")


def _check_version(version: object) -> None:
    if version != VERSION or isinstance(version, bool):
        raise InvalidInput(
            f"The schema has version {version!r}; this dptune reads version {VERSION}. Draft it again with "
            "'dptune schema draft FILE'."
        )
