"""What users bring, as what trainers take: tables and arrays become a :class:`~dptune.data.Dataset`, by public figures.

Figures about private data (how many records, which classes, which ranges) are declared, never counted or inferred:
private data without them is refused here. Public data may be inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune._repairs import hand_over
from dptune._typing import AnyArray
from dptune._validate import integer
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.tables import (
    Encoder,
    NumberTarget,
    Schema,
    array_dataset,
    array_regression,
    array_units,
    infer,
    read_npz,
    read_schema,
    read_table,
)
from dptune.tables.arrays import check_npz_units
from dptune.tables.drafting import is_regression
from dptune.tables.map_style import is_torch_data, read_map_style, record_shape
from dptune.tables.sources import is_sparse, is_tabular, named_kind, table_kind, tensor_pair
from dptune.trainer import DeclaresForm, TakesDatasets
from dptune.training import Cnn, DpSgdTrainer
from dptune.units import UNIT, UnitDataset

__all__ = ["Declared", "Incoming", "bring_in", "schema_of_public"]

_BOTH = "'classes' and 'target_range' contradict each other; give a range to predict a number."


@dataclass(frozen=True)
class Declared:
    """What the caller declares about the data; all of it is public."""

    schema: Schema | str | Path | None = None
    target: str | None = None
    records: int | None = None
    classes: int | Sequence[object] | None = None
    public: bool = False
    units: Any = None
    unit_rows: int | None = None
    unit: str = UNIT
    target_range: tuple[float, float] | None = None
    task: str | None = None
    shape: Any = None


@dataclass(frozen=True, eq=False)
class Incoming:
    """The records as trainers take them, their public number where it is declared, repairs for the vault, and how rows
    of a table were encoded."""

    data: Any
    records: int | None
    repairs: Mapping[str, int] = field(default_factory=dict, repr=False)
    encoder: Encoder | None = None


def bring_in(data: Any, declared: Declared, trainer: object | None) -> Incoming:
    """The data in the form that the trainer takes.

    Tables and arrays are converted for built-in trainers, and wherever a schema, classes or a range of targets are
    given. Other data for a trainer of the user's own is handed on as it is.
    """
    built_in = trainer is None or isinstance(trainer, DpSgdTrainer)
    built_in |= isinstance(trainer, TakesDatasets) and trainer.takes_datasets
    declared = _with_form(data, declared, trainer)
    if built_in and (pair := tensor_pair(data)) is not None:
        data, declared = pair, _with_shape(pair[0], declared)
    if built_in and is_torch_data(data):
        return _map_style(data, declared, trainer)
    if declared.shape is not None:
        raise InvalidInput(
            f"'shape' is for torch data sets whose records are read one by one, other data has its own; got "
            f"{named_kind(data)}."
        )
    if declared.units is None and declared.unit_rows is not None and not _is_npz(data):
        raise InvalidInput("'unit_rows' is for rows with 'units', whom each row belongs to; give both, or a schema.")
    if declared.units is None and declared.unit != UNIT and not _is_npz(data):
        raise InvalidInput(
            f"'unit' = {declared.unit!r:.60} names units of several rows; give 'units' and 'unit_rows', or a schema."
        )
    if declared.schema is not None or (built_in and _is_table(data)):
        return _table(data, declared)
    said = isinstance(data, tuple) and (declared.classes is not None or declared.target_range is not None)
    if (built_in or said) and _is_arrays(data):
        return _arrays(data, declared, needed=trainer is None)
    if declared.units is not None:
        raise InvalidInput(
            "'units' is for arrays (X, y) and the built-in trainer; for other data give a dptune UnitDataset."
        )
    if built_in and not isinstance(data, Dataset | UnitDataset):
        raise InvalidInput(
            "'data' is the path of a CSV, Parquet or npz file, a DataFrame, an Arrow table, a Hugging Face data set, a "
            f"pair (X, y), a torch data set of pairs (x, y), or a dptune Dataset; got {named_kind(data)}. For other "
            "records give a 'trainer' of your own."
        )
    if declared.classes is not None:
        raise InvalidInput("'classes' is for arrays (X, y); this data says itself what its classes are.")
    if declared.target_range is not None:
        raise InvalidInput("'target_range' is for arrays (X, y); this data says itself what its targets are.")
    records = declared.records
    if records is None and trainer is None:
        records = len(data) if declared.public else _undeclared("'records', about how many there are")
    return Incoming(data, records)


def _with_form(data: Any, declared: Declared, trainer: object | None) -> Declared:
    """What the trainer declares of its records, where the caller does not: classes, and a torch data set's shape."""
    if not isinstance(trainer, DeclaresForm):
        return declared
    torch_data = is_torch_data(data) or tensor_pair(data) is not None
    if declared.classes is None and declared.target_range is None and (torch_data or _is_arrays(data)):
        declared = replace(declared, classes=trainer.declared_classes)
    return replace(declared, shape=trainer.declared_shape) if declared.shape is None and torch_data else declared


def _with_shape(x: AnyArray, declared: Declared) -> Declared:
    """What is declared of tensors, whose own shape is public: one that is declared, too, must be the same."""
    if declared.shape is None:
        return declared
    if (said := record_shape(declared.shape)) != x.shape[1:]:
        raise InvalidInput(f"'shape' says {said}, but the records of the tensors have the shape {x.shape[1:]}.")
    return replace(declared, shape=None)


def _undeclared(what: str) -> int:
    raise InvalidInput(f"Private data needs {what}: a public figure that you declare; it is never counted or inferred.")


def _map_style(data: Any, declared: Declared, trainer: object | None) -> Incoming:
    """A torch data set, read record by record. The input of a convolutional network is a declared shape."""
    if declared.units is not None:
        raise InvalidInput("'units' is for arrays (X, y); make a dptune UnitDataset of a torch data set.")
    image = trainer.model.image if isinstance(trainer, DpSgdTrainer) and isinstance(trainer.model, Cnn) else None
    shape = image if declared.shape is None else record_shape(declared.shape)
    records = declared.records
    if not declared.public:
        if shape is None:
            _undeclared("'shape', that of one record, such as (1, 28, 28)")
        if declared.classes is None and declared.target_range is None:
            _undeclared("'classes', their number or a list of them (or 'target_range', to predict a number)")
        if records is None and trainer is None:
            _undeclared("'records', about how many there are")
    if declared.classes is not None and declared.target_range is not None:
        raise InvalidInput(_BOTH)
    ends, public, task = declared.target_range, declared.public, declared.task
    made, repairs = read_map_style(data, declared.classes, shape, public=public, target_range=ends, task=task)
    if declared.public and records is None:
        records = len(made)
    return Incoming(made, None if records is None else integer("records", records, 1, 10**12), repairs)


def _is_table(data: object) -> bool:
    return is_tabular(data) or (isinstance(data, str | Path) and table_kind(Path(data)) != "npz")


def _is_npz(data: object) -> bool:
    return isinstance(data, str | Path) and table_kind(Path(data)) == "npz"


def _is_arrays(data: object) -> bool:
    return isinstance(data, str | Path) or (isinstance(data, tuple) and len(data) == 2)


def _table(data: Any, declared: Declared) -> Incoming:
    schema = declared.schema
    if declared.classes is not None:
        raise InvalidInput("'classes' is for arrays without a schema; declare them in the schema's target.")
    if declared.target_range is not None:
        raise InvalidInput("'target_range' is for arrays without a schema; declare a range in the schema's target.")
    if declared.units is not None:
        raise InvalidInput("'units' is for arrays without a schema; name the column in the schema: unit = 'COLUMN'.")
    if isinstance(schema, str | Path):
        schema = read_schema(schema)
    elif schema is None:
        schema = schema_of_public(data, declared.target, public=declared.public, task=declared.task)
    elif not isinstance(schema, Schema):
        raise InvalidInput(f"'schema' must be a Schema or the path of a TOML file; got {type(schema).__name__}.")
    if declared.records is not None:
        raise InvalidInput("'records' is in the schema already; leave it out.")
    if declared.task not in (None, "regression" if isinstance(schema.target, NumberTarget) else "classification"):
        raise InvalidInput(f"'task' is {declared.task!r}, but the schema's target says another; leave it out.")
    read = read_table(data, schema)
    return Incoming(read.data, schema.records, read.repairs, read.encoder)


def schema_of_public(data: Any, target: str | None, *, public: bool, task: str | None = None) -> Schema:
    """The schema of a public table, read off its records; a private one is refused with what to do."""
    if not public:
        where = data if isinstance(data, str | Path) else None
        if where is not None and Path(where).is_dir():
            raise InvalidInput(f"{where} is a folder; give the CSV, Parquet or npz file in it that has the records.")
        drafts = "dptune.tables.draft(data)" if where is None else f"'dptune schema draft {where} --out schema.toml'"
        raise InvalidInput(
            f"Private records need a public schema: {drafts} drafts one from the names of the columns; fill it in and "
            "give schema='schema.toml' (--schema schema.toml)."
        )
    if target is None:
        raise InvalidInput("A public table without a schema needs its 'target' (--target), the column to predict.")
    return infer(data, target=target, task=task)


def _arrays(data: Any, declared: Declared, *, needed: bool) -> Incoming:
    x, y = read_npz(data) if isinstance(data, str | Path) else data
    if isinstance(data, str | Path) and not declared.public:
        hand_over(x)
    units = declared.units
    if units is None and _is_npz(data):
        units = check_npz_units(data, declared.unit_rows, declared.unit)
    classes, records, ends = declared.classes, declared.records, declared.target_range
    if classes is not None and ends is not None:
        raise InvalidInput(_BOTH)
    if declared.public and classes is None and ends is None:
        classes, ends = _seen(np.asarray(y), declared.task)
    if classes is None and ends is None:
        _undeclared("'classes', their number or a list of them (or 'target_range', to predict a number)")
    if records is None and needed and not declared.public:
        _undeclared("'records', about how many there are")
    dense = x if is_sparse(x) or not declared.public else np.asarray(x)
    name = Path(data).stem if isinstance(data, str | Path) else "data"
    made: Dataset | UnitDataset
    if ends is not None:
        made = array_regression(dense, y, ends, name=name)
    else:
        made = array_dataset(dense, y, classes or 0, name=name)
    if units is not None and isinstance(made, Dataset):
        made = array_units(made, units, declared.unit_rows, unit=declared.unit)
    if declared.public and records is None:
        records = len(made)
    return Incoming(made, None if records is None else integer("records", records, 1, 10**12))


def _seen(y: AnyArray, task: str | None) -> tuple[list[object] | None, tuple[float, float] | None]:
    """What public targets are: the classes that occur, or the range of numbers."""
    if y.dtype.kind in "fiub" and np.isfinite(y).all() and is_regression(y, task):
        low, high = float(y.min()), float(y.max())
        return None, (low, high if high > low else low + 1.0)
    if task == "regression":
        raise InvalidInput("The targets 'y' are not all numbers, so they cannot be a regression's.")
    return np.unique(y).tolist(), None
