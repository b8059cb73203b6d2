"""Every kind of table as batches of cells: paths, DataFrames, Arrow tables, arrays, pairs (X, y), lists of mappings.

What kind a source is, its columns and their declared types are public. Nothing here looks at a cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import AnyArray
from dptune.errors import InvalidInput
from dptune.tables._batches import Batch, check_names, unit_names, wanted_names
from dptune.tables._cells import Cells
from dptune.tables.arrow_tables import arrow_batches, is_arrow, types_of
from dptune.tables.csv_files import csv_batches, csv_names
from dptune.tables.schema import CsvFormat, Schema

__all__ = ["batches", "is_frame", "is_sparse", "is_tabular", "named_kind", "names_of", "table_kind", "tensor_pair"]

_ROWS = 1 << 16
_CSV = (".csv", ".tsv", ".txt", ".data")
_PARQUET = (".parquet", ".pq")


def table_kind(path: Path) -> str | None:
    """What a path is by its ending, which is public: "csv", "parquet", "npz", or None for something else."""
    ending = path.suffix.lower()
    return "csv" if ending in _CSV else "parquet" if ending in _PARQUET else "npz" if ending == ".npz" else None


def is_frame(source: object) -> bool:
    """Whether this is a pandas DataFrame; pandas is not loaded for the question."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, pandas.DataFrame)


def is_sparse(source: object) -> bool:
    """Whether this is a scipy sparse matrix or array; scipy is not loaded for the question."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(source))


def tensor_pair(source: object) -> tuple[AnyArray, AnyArray] | None:
    """The columns of a torch ``TensorDataset``, or of a pair of tensors, as arrays; None for anything else.

    Torch is not loaded for the question. Images stay images.
    """
    torch, data = sys.modules.get("torch"), sys.modules.get("torch.utils.data")
    if torch is None or data is None:
        return None
    columns = source.tensors if isinstance(source, data.TensorDataset) else source
    if not isinstance(columns, tuple) or len(columns) != 2 or not all(isinstance(one, torch.Tensor) for one in columns):
        return None
    x, y = (_array(tensor.detach().cpu()) for tensor in columns)
    return (x[:, None] if x.ndim == 1 else x), y


def _array(tensor: Any) -> AnyArray:
    """A tensor's numbers; numpy has no bfloat16."""
    found: AnyArray = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return found


def named_kind(source: object) -> str:
    """What somebody brought that is not taken, and what to give instead where that is known; types are public."""
    kind = type(source)
    known = {
        ("torch", "DataLoader"): "give its data set, loader.dataset",
        ("polars", "DataFrame"): "give data.to_arrow()",
        ("polars", "LazyFrame"): "give data.collect().to_arrow()",
        ("datasets", "DatasetDict"): "give one of its splits, such as data['train']",
        ("datasets", "IterableDataset"): "it has no records by place; load it without streaming",
    }
    root = kind.__module__.partition(".")[0]
    name = kind.__name__ if root in ("builtins", "__main__") else f"{root}'s {kind.__name__}"
    hint = known.get((root, kind.__name__))
    return name if hint is None else f"{name}: {hint}"


def is_tabular(source: object) -> bool:
    """Whether this is a table in memory whose columns have names: a DataFrame, an Arrow table, a Hugging Face one."""
    return is_frame(source) or is_arrow(source)


def names_of(source: object, form: CsvFormat | None = None) -> list[str]:
    """The names of a table's columns."""
    if is_frame(source):
        return [str(name) for name in source.columns]  # type: ignore[attr-defined] # a DataFrame
    if is_arrow(source):
        return [name for name, _ in types_of(source)]
    path = _file(source)
    if table_kind(path) == "parquet":
        from dptune.tables.parquet_files import parquet_names  # noqa: PLC0415 - optional dependency

        return parquet_names(path)
    return csv_names(path, form or CsvFormat())


def batches(source: Any, schema: Schema, *, labelled: bool) -> Iterator[Batch]:
    """The rows of a table, in batches.

    Args:
        source: The table.
        schema: Its public schema.
        labelled: Whether the target is read, and so must be there.

    Raises:
        InvalidInput: If the source is of no known kind, or its columns are not the schema's.
    """
    if isinstance(source, str | Path):
        yield from _path_batches(_file(source), schema, labelled)
    elif is_frame(source):
        yield from _frame_batches(source, schema, labelled)
    elif is_arrow(source):
        yield from arrow_batches(source, schema, labelled=labelled)
    elif labelled:
        yield from _pair_batches(source, schema)
    else:
        yield from _row_batches(source, None, schema)


def _file(source: object) -> Path:
    path = Path(str(source))
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder; give one CSV or Parquet file.")
    return path


def _path_batches(path: Path, schema: Schema, labelled: bool) -> Iterator[Batch]:
    kind = table_kind(path)
    if kind == "parquet":
        from dptune.tables.parquet_files import parquet_batches  # noqa: PLC0415 - optional dependency

        yield from parquet_batches(path, schema, labelled=labelled)
    elif kind == "npz":
        from dptune.tables.arrays import read_npz  # noqa: PLC0415 - one kind needs it

        x, y = read_npz(path)
        yield from _pair_batches((x, y), schema) if labelled else _row_batches(x, None, schema)
    else:
        yield from csv_batches(path, schema, labelled=labelled)


def _frame_batches(frame: Any, schema: Schema, labelled: bool, given: Cells | None = None) -> Iterator[Batch]:
    """A DataFrame, by its names; ``given`` is a target that stands beside it."""
    names = [str(name) for name in frame.columns]
    check_names(names, schema, "The DataFrame", labelled)
    wanted = wanted_names(schema, labelled)
    if given is not None:
        wanted += unit_names(schema)
        _check_unit(names, schema, "The DataFrame")
    columns = [(name, names.index(name)) for name in wanted]
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS]
        cells: dict[str, Cells] = {name: _series(part.iloc[:, place]) for name, place in columns}
        if given is not None:
            cells[schema.target.name] = given[start : start + _ROWS]
        yield Batch(len(part), cells)


def _check_unit(names: list[str], schema: Schema, where: str) -> None:
    if schema.by_unit and schema.unit not in names:
        raise InvalidInput(
            f"{where} has no column {schema.unit!r}, the unit of the schema: nobody could tell whose row is whose."
        )


def _series(series: Any) -> Cells:
    """The cells of a column: an array where its type is a plain number, single values otherwise."""
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, np.dtype) and kind in "fiub":
        array: np.ndarray[Any, Any] = series.to_numpy()
        return array
    values: list[Any] = series.tolist()
    return values


def _pair_batches(source: Any, schema: Schema) -> Iterator[Batch]:
    if not isinstance(source, tuple) or len(source) != 2:
        raise InvalidInput(
            "A table is the path of a CSV or Parquet file, a DataFrame, an Arrow table, a Hugging Face data set, or a "
            f"pair (X, y); got {named_kind(source)}."
        )
    x, y = source
    labels: Cells = y if isinstance(y, np.ndarray) else y.tolist() if hasattr(y, "tolist") else list(y)
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise InvalidInput("'y' must hold one label per record, in one dimension.")
    if len(labels) != (x.shape[0] if hasattr(x, "shape") else len(x)):
        raise InvalidInput("'y' must hold one label per record: as many entries as 'X' has rows.")
    if is_frame(x):
        yield from _frame_batches(x, schema, False, labels)
    else:
        yield from _row_batches(x, labels, schema)


def _row_batches(x: Any, y: Cells | None, schema: Schema) -> Iterator[Batch]:
    """Rows whose cells are the schema's features in order: an array, or a list of lists or of mappings."""
    names = [column.name for column in schema.features]
    if y is not None:
        _check_unit(names, schema, "An array of features")
    rows = x.tocsr() if is_sparse(x) else x
    if not isinstance(rows, list):
        _check_array(rows, len(names))
    for start in range(0, len(x) if isinstance(x, list) else x.shape[0], _ROWS):
        part = rows[start : start + _ROWS]
        part = part.toarray() if is_sparse(part) else part
        if isinstance(part, list):
            columns: list[Any] = list(zip(*(_listed(row, names) for row in part), strict=True))
        else:
            columns = [part[:, place] for place in range(len(names))]
        cells: dict[str, Cells] = dict(zip(names, columns, strict=True))
        if y is not None:
            cells[schema.target.name] = y[start : start + _ROWS]
        yield Batch(len(part), cells)


def _check_array(x: Any, width: int) -> None:
    if not hasattr(x, "shape") or not hasattr(x, "dtype") or len(x.shape) != 2 or x.shape[1] != width:
        got = getattr(x, "shape", type(x).__name__)
        raise InvalidInput(
            f"Rows are the path of a CSV or Parquet file, a DataFrame, a list, or an array with the schema's {width} "
            f"feature columns; got {got}."
        )
    if x.dtype.kind not in "fiubOUS":
        raise InvalidInput(f"The rows must be numbers, texts or objects; got an array of {x.dtype}.")


def _listed(row: object, names: list[str]) -> Sequence[Any]:
    """The cells of one row of a list; all are missing where it has another length."""
    if isinstance(row, Mapping):
        return [row.get(name) for name in names]
    if isinstance(row, list | tuple) and len(row) == len(names):
        return row
    if isinstance(row, np.ndarray) and row.shape == (len(names),) and row.dtype.kind in "fiubOUS":
        return list(row)
    return (None,) * len(names)
