"""From cells to features by public rules: scaled numbers, one-hot categories, hashed words.

Nothing is fitted. Each record is encoded on its own and has the same bits whatever batch it is encoded in: numpy does
only what is exact for each element; logarithms and lengths are computed one record at a time.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dptune._codec import from_json, to_values
from dptune._typing import AnyArray, Array, Floats, Mask
from dptune.tables._batches import Batch
from dptune.tables._cells import Cells, Places, numbers, texts
from dptune.tables.columns import Category, Number, NumberTarget, Text
from dptune.tables.schema import Schema
from dptune.tables.sources import batches

__all__ = ["Encoder"]

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Encoder:
    """Turns raw rows into the features that a model was trained on. It follows from the schema alone.

    Args:
        schema: The public schema of the rows.

    Example:
        >>> from dptune.tables import Category, Encoder, Number, Schema, Target
        >>> schema = Schema(1000, (Number("age", 0, 100), Category("sex", ("f", "m")), Target("ill", ("no", "yes"))))
        >>> Encoder(schema).encode([{"age": "25", "sex": "m"}, {"age": "unknown", "sex": "?"}])
        array([[0.25, 0.  , 1.  , 0.  ],
               [0.5 , 0.  , 0.  , 1.  ]], dtype=float32)
    """

    schema: Schema

    def encode(self, rows: Any) -> Floats:
        """The features of raw rows, without labels.

        Args:
            rows: A path of a CSV or Parquet file, a DataFrame, an Arrow table, an array with the features' columns in
                the schema's order, or a list of mappings from names to values. The target may be missing.

        Returns:
            One row of features in [-1, 1] for each, in single precision.

        Raises:
            InvalidInput: If the rows lack a column; never for what a row holds.
        """
        parts = [self.features(batch) for batch in batches(rows, self.schema, labelled=False)]
        return np.concatenate(parts) if parts else np.zeros((0, self.schema.width), np.float32)

    def features(self, batch: Batch, repairs: Counter[str] | None = None) -> Floats:
        """The features of one batch of cells.

        Args:
            batch: The cells.
            repairs: Is told how many cells were repaired, by column; private.

        Returns:
            One row of features for each record.
        """
        features = np.zeros((batch.size, self.schema.width), np.float32)
        place = 0
        for column in self.schema.features:
            block = features[:, place : place + column.size]
            cells = batch.cells[column.name]
            if isinstance(column, Number):
                block[:, 0] = _scaled(column, cells, repairs)
            elif isinstance(column, Category):
                places = self._places[column.name].find(cells)
                block[np.arange(batch.size), places] = 1.0
                _note(repairs, column.name, places == len(column.values))
            elif isinstance(column, Text):
                _hash_words(texts(cells), block)
            place += column.size
        return features

    def labels(self, batch: Batch, repairs: Counter[str] | None = None) -> AnyArray:
        """The targets of one batch of cells: classes as whole numbers, unknown ones the target's ``unknown``; or real
        numbers, clipped to the declared range, missing ones the target's ``missing``.

        Args:
            batch: The cells.
            repairs: Is told how many targets were repaired; private.

        Returns:
            A number for each record.
        """
        target = self.schema.target
        if isinstance(target, NumberTarget):
            values = numbers(batch.cells[target.name])
            _note(repairs, target.name, ~((values >= target.low) & (values <= target.high)))
            values[np.isnan(values)] = target.missing
            return np.clip(values, target.low, target.high)
        labels = self._places[target.name].find(batch.cells[target.name])
        unknown = labels == len(target.classes)
        _note(repairs, target.name, unknown)
        labels[unknown] = target.unknown_label
        return labels

    @cached_property
    def _places(self) -> dict[str, Places]:
        target = self.schema.target
        found = {
            one.name: Places(one.values, len(one.values)) for one in self.schema.columns if isinstance(one, Category)
        }
        if isinstance(target, NumberTarget):
            return found
        return {**found, target.name: Places(target.classes, len(target.classes))}

    def named(self, found: AnyArray) -> list[Any]:
        """What a model predicts, as the table has it: classes by name as the schema declares them, numbers as they are.

        Args:
            found: One prediction for each row.

        Returns:
            A text or a number for each.
        """
        target = self.schema.target
        if isinstance(target, NumberTarget):
            return [float(value) for value in found]
        return [target.classes[int(label)] for label in found]

    def describe(self) -> dict[str, Any]:
        """The encoder as plain values of JSON, for :meth:`from_json`; they are public."""
        described: dict[str, Any] = to_values(self)
        return described

    @classmethod
    def from_json(cls, data: str | Mapping[str, Any]) -> Encoder:
        """The encoder that :meth:`describe` described."""
        return from_json(data, cls, "an encoder")


def _note(repairs: Counter[str] | None, name: str, repaired: Mask) -> None:
    if repairs is not None:
        repairs[name] += int(np.count_nonzero(repaired))


def _scaled(column: Number, cells: Cells, repairs: Counter[str] | None) -> Array:
    """Numbers from their range to [0, 1]."""
    values = numbers(cells)
    _note(repairs, column.name, ~((values >= column.low) & (values <= column.high)))
    values[np.isnan(values)] = column.missing
    inside = np.minimum(np.maximum(values, column.low), column.high) - column.low
    span = column.high - column.low
    if column.scale == "linear":
        return inside / span
    top = math.log1p(span)
    return np.array([math.log1p(value) / top for value in inside.tolist()], np.float64)


def _hash_words(found: list[str], block: Floats) -> None:
    """The words of each text, hashed to signed buckets, damped by a square root, scaled to length one."""
    width = block.shape[1]
    for row, text in zip(block, found, strict=True):
        sums: dict[int, float] = {}
        for word, count in sorted(Counter(_WORD.findall(text.lower())).items()):
            code = zlib.crc32(word.encode("utf-8", "replace"))
            bucket = (code >> 1) % width
            sums[bucket] = sums.get(bucket, 0.0) + (math.sqrt(count) if code & 1 else -math.sqrt(count))
        length = math.sqrt(math.fsum(value * value for value in sums.values()))
        for bucket, value in sums.items():
            row[bucket] = value / length if length > 0 else 0.0
