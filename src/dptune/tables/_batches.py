"""Some rows of a table, column by column: what every kind of source is read as, and how its columns are found.

Names of columns are public: what is wrong with them is refused here, in one place, before any row is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dptune.errors import InvalidInput
from dptune.tables._cells import Cells
from dptune.tables.schema import Schema

__all__ = ["Batch", "check_names", "unit_names", "wanted_names"]


@dataclass(frozen=True)
class Batch:
    """Some rows: how many, their cells by column, and how many of them were not rows of this table at all."""

    size: int
    cells: Mapping[str, Cells]
    malformed: int = 0


def wanted_names(schema: Schema, labelled: bool) -> list[str]:
    """The columns that are read: the features, and for training the target and the one that says whose row it is."""
    names = [column.name for column in schema.features]
    if not labelled:
        return names
    return [*names, schema.target.name, *unit_names(schema)]


def unit_names(schema: Schema) -> list[str]:
    """The column that says whose row it is, where there is one and it is no feature."""
    return [schema.unit] if schema.by_unit and all(one.name != schema.unit for one in schema.features) else []


def check_names(names: Sequence[str], schema: Schema, where: str, labelled: bool) -> None:
    """Refuse a table whose columns are not those of the schema.

    For training every column must be declared: a column that nobody thought of is a mistake. Rows to predict for may
    have others. A name is quoted only if some names are the schema's: else the line is perhaps no header.
    """
    known = {column.name for column in schema.columns}
    if not known & set(names):
        raise InvalidInput(f"{where} has none of the schema's columns. Does its first line hold their names?")
    wanted = wanted_names(schema, labelled)
    twice = [name for name, times in Counter(names).items() if times > 1 and (labelled or name in wanted)]
    if twice:
        raise InvalidInput(f"{where} has the column {twice[0]!r} twice; rename one.")
    needed = [column.name for column in schema.columns] if labelled else wanted
    for name in needed:
        if name not in names:
            what = "the target" if name == schema.target.name else "the column"
            raise InvalidInput(f"{where} has no column {name!r}, {what} of the schema. Rename it in one of the two.")
    for name in names if labelled else ():
        if name not in known:
            raise InvalidInput(
                f"{where} has a column {name!r} that the schema does not declare; declare it, with kind = 'ignore' to "
                "leave it out."
            )
