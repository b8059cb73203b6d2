"""Arrow tables in memory, and Hugging Face data sets, which are such tables (extra ``tables``).

Names of columns, declared types and the names of a data set's classes are public. What cells hold is repaired as in a
Parquet file. Neither library is loaded here: who has such data has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dptune.errors import InvalidInput
from dptune.tables._batches import Batch
from dptune.tables._cells import Cells
from dptune.tables.columns import Category, Target, Text
from dptune.tables.parquet_files import BATCH_ROWS, arrow_types, cells_of, readable
from dptune.tables.schema import Schema

__all__ = ["arrow_batches", "is_arrow", "types_of"]

_WHERE = "The data set"


def is_arrow(source: object) -> bool:
    """Whether this is a pyarrow Table or a Hugging Face data set that gives its records by place."""
    return _is(source, "pyarrow", "Table") or _is(source, "datasets", "Dataset")


def types_of(source: Any) -> list[tuple[str, str]]:
    """Names and declared kinds of the columns, as :func:`~dptune.tables.parquet_files.parquet_types` has them."""
    return arrow_types(source.schema if _is(source, "pyarrow", "Table") else source.features.arrow_schema)


def arrow_batches(source: Any, schema: Schema, *, labelled: bool) -> Iterator[Batch]:
    """The rows of a table, in batches.

    A Hugging Face column of classes holds their places, beside their names. Where the schema declares names, or a text,
    cells are read as names.

    Args:
        source: The table or data set.
        schema: Its public schema.
        labelled: Whether the target is read, and so must be there.

    Raises:
        InvalidInput: If its columns, types or names of classes are not those of the schema, or it cannot be read.
    """
    wanted = readable(types_of(source), schema, _WHERE, labelled=labelled)
    called = {name: _class_names(source, schema, name) for name in wanted}
    try:
        table = source if _is(source, "pyarrow", "Table") else source.with_format("arrow")[:]
        for part in table.select(wanted).to_batches(max_chunksize=BATCH_ROWS):
            found = {name: cells_of(part.column(name), name == schema.unit) for name in wanted}
            yield Batch(part.num_rows, {name: _named(cells, called[name]) for name, cells in found.items()})
    except Exception as error:  # its file is gone or damaged; what it says may quote a record
        raise InvalidInput(f"{_WHERE} is damaged, or its file is ({type(error).__name__}); load it again.") from None


def _is(source: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    kind = None if loaded is None else getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(source, kind)


def _class_names(source: Any, schema: Schema, name: str) -> tuple[str, ...] | None:
    """The names by which a column's cells are read; None where they are read as they are.

    Raises:
        InvalidInput: If the schema declares neither the names nor the places of the classes.
    """
    feature = None if _is(source, "pyarrow", "Table") else source.features.get(name)
    names = tuple(str(one) for one in getattr(feature, "names", None) or ())
    column = next(one for one in schema.columns if one.name == name)
    declared = _declared(column)
    if names and (isinstance(column, Text) or (declared and declared <= set(names))):
        return names  # also where names are numbers that are not their places: '10' may stand before '2'
    if not names or not declared or declared <= {str(place) for place in range(len(names))}:
        return None
    if declared & set(names):
        return names
    raise InvalidInput(
        f"{_WHERE} names the classes of {name!r} {', '.join(names[:5])}, but the schema declares none of them; declare "
        "these names, or their places 0, 1, ..."
    )


def _declared(column: object) -> set[str]:
    if isinstance(column, Category):
        return set(column.values)
    return set(column.classes) if isinstance(column, Target) else set()


def _named(cells: Cells, names: Sequence[str] | None) -> Cells:
    """Places of classes as their names; what is no place of one is missing."""
    if names is None:
        return cells
    return [names[one] if isinstance(one, int) and 0 <= one < len(names) else None for one in cells]
