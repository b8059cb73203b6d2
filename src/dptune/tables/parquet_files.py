"""Parquet files, record by record, by pyarrow (extra ``tables``).

A file declares the types of its columns, so they are public: one that cannot be encoded is refused. What the cells hold
is not: texts that are no UTF-8 and numbers that do not fit are repaired as in a CSV file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.tables._batches import Batch, check_names, wanted_names
from dptune.tables._cells import Cells
from dptune.tables.schema import Schema

__all__ = [
    "BATCH_ROWS",
    "arrow_types",
    "cells_of",
    "parquet_batches",
    "parquet_names",
    "parquet_types",
    "readable",
]

BATCH_ROWS = 1 << 16


def parquet_names(path: Path) -> list[str]:
    """The names of the columns."""
    return [name for name, _ in parquet_types(path)]


def parquet_types(path: Path) -> list[tuple[str, str]]:
    """Names and declared kinds: "number", "truth", "text", or the file's own word for what cannot be encoded."""
    with _opened(path) as file:
        return arrow_types(file.schema_arrow)


def arrow_types(declared: Any) -> list[tuple[str, str]]:
    """The same of the schema that an Arrow table declares."""
    return [(field.name, _kind(field.type)) for field in declared]


def readable(types: list[tuple[str, str]], schema: Schema, where: str, *, labelled: bool) -> list[str]:
    """The columns that are to be read; refuses names and types that do not fit the schema, all of them public."""
    check_names([name for name, _ in types], schema, where, labelled)
    wanted = wanted_names(schema, labelled)
    for name, kind in types:
        if name in wanted and kind not in ("number", "truth", "text"):
            raise InvalidInput(
                f"The column {name!r} of {where[0].lower() + where[1:]} holds {kind}, which cannot be encoded; store "
                "numbers or texts, or give it kind = 'ignore'."
            )
    return wanted


def parquet_batches(path: Path, schema: Schema, *, labelled: bool) -> Iterator[Batch]:
    """The rows of a file, in batches."""
    wanted = readable(parquet_types(path), schema, str(path), labelled=labelled)
    try:
        with _opened(path) as file:
            for part in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                yield Batch(part.num_rows, {name: cells_of(part.column(name), name == schema.unit) for name in wanted})
    except InvalidInput:
        raise
    except Exception as error:  # cut off or damaged; what it says may quote a record
        raise InvalidInput(f"{path} is cut off or damaged ({type(error).__name__}); write it again.") from None


def _opened(path: Path) -> Any:
    try:
        from pyarrow import parquet  # noqa: PLC0415 - optional dependency
    except ImportError:
        raise InvalidInput("Parquet files need pyarrow: pip install 'dptune[tables]'.") from None
    try:
        return parquet.ParquetFile(path)
    except OSError as error:
        raise InvalidInput(f"The table {path} cannot be read ({error.strerror or 'not Parquet'}).") from None
    except Exception as error:
        raise InvalidInput(f"{path} is not a Parquet file ({type(error).__name__}).") from None


def _kind(declared: Any) -> str:
    from pyarrow import types  # noqa: PLC0415 - optional dependency

    if types.is_dictionary(declared):
        return _kind(declared.value_type)
    if types.is_boolean(declared):
        return "truth"
    if types.is_integer(declared) or types.is_floating(declared) or types.is_decimal(declared):
        return "number"
    if any(
        check(declared) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    ):
        return "text"
    return "text" if types.is_null(declared) else str(declared)


def cells_of(column: Any, exact: bool) -> Cells:
    """The cells of a column; texts as bytes first, because one that is no UTF-8 would stop all others.

    Decimal numbers become floats, unless the cells are keys (``exact``): two long ones must stay two.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional dependency

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_decimal(kind) and not exact:
        column = column.cast(pa.float64())
    elif pa.types.is_string(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif pa.types.is_float64(kind) or pa.types.is_float32(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    return [one.decode("utf-8", "backslashreplace") if isinstance(one, bytes) else one for one in column.to_pylist()]
