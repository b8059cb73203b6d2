"""A table and its schema as a :class:`~dptune.data.Dataset`, with what had to be repaired, which nobody is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dptune._memory import room
from dptune._repairs import hand_over
from dptune._typing import AnyArray, Floats
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.regression import RegressionDataset
from dptune.tables._cells import keys
from dptune.tables.columns import NumberTarget
from dptune.tables.encoder import Encoder
from dptune.tables.schema import Schema
from dptune.tables.sources import batches
from dptune.units import Grouping, UnitDataset

__all__ = ["Records", "read_table"]


@dataclass(frozen=True, eq=False)
class Records:
    """A table that was read: its records, how rows are encoded, and how often something was repaired.

    Args:
        data: The encoded records: a :class:`~dptune.data.Dataset`, or a :class:`~dptune.units.UnitDataset` where the
            schema's unit is not a row.
        encoder: What encoded them; public.
        repairs: How many cells were repaired, by column, and how many lines were no rows. Private, for the vault.

    Example:
        >>> import numpy as np
        >>> from dptune.tables import Number, Schema, Target, read_table
        >>> schema = Schema(1000, (Number("age", 0, 100), Target("ill", ("no", "yes"))))
        >>> records = read_table((np.array([[25.0], [400.0]]), np.array(["yes", "no"])), schema)
        >>> records.data.x.ravel(), records.data.y
        (array([0.25, 1.  ], dtype=float32), array([1, 0]))
    """

    data: Any
    encoder: Encoder
    repairs: Mapping[str, int] = field(repr=False)


def read_table(source: Any, schema: Schema, *, name: str | None = None, public: bool = False) -> Records:
    """Read a table by its schema, record by record.

    Args:
        source: The path of a CSV or Parquet file, a DataFrame, an Arrow table, a Hugging Face data set, or a
            pair (X, y).
        schema: What is public about it.
        name: What messages and folders call the data; by default the file's name.
        public: Whether these records may be shown to anybody.

    Returns:
        The records, encoded.

    Raises:
        InvalidInput: If columns are missing or not declared, or there is not a single row; never for what a row holds.

    Example:
        >>> from pathlib import Path
        >>> from dptune.tables import Category, Schema, Target, read_table
        >>> schema = Schema(1000, (Category("sex", ("f", "m")), Target("ill", ("no", "yes"))))
        >>> _ = Path("icu.csv").write_text('sex,ill\\nf,yes\\n"m,no\\n?,no')
        >>> read_table("icu.csv", schema).data.x
        array([[1., 0., 0.],
               [0., 0., 1.],
               [0., 0., 1.]], dtype=float32)
    """
    encoder, repairs = Encoder(schema), Counter[str]()
    features: list[Floats] = []
    labels: list[AnyArray] = []
    grouping = Grouping(schema.unit_rows) if schema.unit_rows is not None else None
    rows = 0
    for batch in batches(source, schema, labelled=True):
        x, y = encoder.features(batch, repairs), encoder.labels(batch, repairs)
        if grouping is not None:  # rows of nobody, and those beyond the first few of their unit, are let go at once
            kept = grouping.keep(keys(batch.cells[schema.unit]))
            x, y = x[kept], y[kept]
        features.append(x)
        labels.append(y)
        repairs["malformed rows"] += batch.malformed
        rows += batch.size
    if not rows:
        raise InvalidInput(f"{_called(source)} holds no rows, so there is nothing to learn from; give the records.")
    title = name or (Path(source).stem if isinstance(source, str | Path) else "data")
    x, y = hand_over(_joined(features)), np.concatenate(labels)
    made = _dataset(x, y, schema, title, public)
    if grouping is None:
        return Records(made, encoder, dict(repairs))
    repairs += Counter({"rows of nobody": grouping.nobodys, "rows beyond unit_rows": grouping.beyond})
    data = UnitDataset(made, grouping.numbers(), schema.unit_rows or 0, schema.unit_called, schema.unit)
    return Records(data, encoder, dict(repairs))


def _dataset(x: Floats, y: AnyArray, schema: Schema, title: str, public: bool) -> Dataset:
    """Encoded rows with their targets, of the kind that the schema declares."""
    target, ends = schema.target, (-1.0, 1.0)
    if isinstance(target, NumberTarget):
        return RegressionDataset(
            x, y, title, public, ends, target_range=target.target_range, missing_target=target.missing
        )
    return Dataset(x, y, len(target.classes), title, public, ends)


def _joined(parts: list[Floats]) -> Floats:
    """The parts as one array; each is let go when it is copied, so that the records are not in memory twice."""
    whole = room((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def _called(source: object) -> str:
    return str(source) if isinstance(source, str | Path) else "The table"
