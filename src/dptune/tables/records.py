"""A table and its schema as a :class:`~dptune.data.Dataset`, with what had to be repaired, which nobody is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Floats, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.tables.encoder import Encoder
from dptune.tables.schema import Schema
from dptune.tables.sources import batches

__all__ = ["Records", "read_table"]


@dataclass(frozen=True, eq=False)
class Records:
    """A table that was read: its records, how rows are encoded, and how often something was repaired.

    Args:
        data: The encoded records.
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

    data: Dataset
    encoder: Encoder
    repairs: Mapping[str, int] = field(repr=False)


def read_table(source: Any, schema: Schema, *, name: str | None = None, public: bool = False) -> Records:
    """Read a table by its schema, record by record.

    Args:
        source: The path of a CSV or Parquet file, a DataFrame, or a pair (X, y).
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
    labels: list[Indices] = []
    for batch in batches(source, schema, labelled=True):
        features.append(encoder.features(batch, repairs))
        labels.append(encoder.labels(batch, repairs))
        repairs["malformed rows"] += batch.malformed
    if not features:
        raise InvalidInput(f"{_called(source)} holds no rows.")
    title = name or (Path(source).stem if isinstance(source, str | Path) else "data")
    x, y = _joined(features), np.concatenate(labels)
    data = Dataset(x, y, len(schema.target.classes), title, public, feature_range=(-1.0, 1.0))
    return Records(data, encoder, dict(repairs))


def _joined(parts: list[Floats]) -> Floats:
    """The parts as one array; each is let go when it is copied, so that the records are not in memory twice."""
    whole = np.empty((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def _called(source: object) -> str:
    return str(source) if isinstance(source, str | Path) else "The table"
