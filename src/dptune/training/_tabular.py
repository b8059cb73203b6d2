"""The Adult census rows as numbers: one column per published category, continuous columns over public ranges.

Categories come from ``adult.names``, ranges from the published codebook; the rows themselves decide nothing: a value
that the codebook does not list becomes zeros, what should be a number and is not becomes zero, a number outside of its
range is cut, and a line without 15 fields is not a record. No line is refused, and none is quoted.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from dptune._typing import Floats, Indices
from dptune.errors import InvalidInput

__all__ = ["adult", "columns"]


# Largest values that the published description allows; gains and losses enter as logarithms.
_RANGES = {
    "age": 100.0,
    "fnlwgt": 1_500_000.0,
    "education-num": 16.0,
    "capital-gain": 99_999.0,
    "capital-loss": 99_999.0,
    "hours-per-week": 100.0,
}
_LOGARITHMIC = {"capital-gain", "capital-loss"}
_FIELDS = 15


def columns(names: Path) -> list[tuple[str, list[str]]]:
    """Column names with their categories (empty for continuous ones), as ``adult.names`` lists them."""
    found = []
    for line in names.read_text(encoding="utf-8").splitlines():
        head, colon, tail = line.partition(":")
        if line.startswith("|") or not colon:
            continue
        values = [value.strip() for value in tail.strip().rstrip(".").split(",")]
        found.append((head.strip(), [] if values == ["continuous"] else values))
    if len(found) != _FIELDS - 1:
        raise InvalidInput(f"{names} lists {len(found)} columns, not {_FIELDS - 1}. Put the original file there.")
    return found


def adult(rows: Path, names: Path) -> tuple[Floats, Indices]:
    """Features in [0, 1] and labels (1 for an income above 50K) of one of the two Adult files."""
    layout = columns(names)
    places: list[dict[str, int]] = []
    width = 0
    for name, categories in layout:
        places.append({value: width + i for i, value in enumerate(categories)} or {name: width})
        width += len(categories) or 1
    features, labels = [], []
    for line in rows.read_text(encoding="utf-8", errors="replace").split("\n"):
        fields = [field.strip() for field in line.rstrip(".").split(",")]
        if len(fields) != _FIELDS:
            continue  # blank lines and the first line of adult.test
        record = np.zeros(width, np.float32)
        for (name, categories), place, value in zip(layout, places, fields, strict=False):
            if not categories:
                record[place[name]] = _scaled(name, _number(value))
            elif value in place:
                record[place[value]] = 1.0
        features.append(record)
        labels.append(int(fields[-1] == ">50K"))
    return np.array(features, np.float32).reshape(-1, width), np.array(labels, dtype=np.int64)


def _number(text: str) -> float:
    """The number, or zero: one row must not stop the reading of the others."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(value) else value


def _scaled(name: str, value: float) -> float:
    top = _RANGES[name]
    value = min(max(value, 0.0), top)
    return math.log1p(value) / math.log1p(top) if name in _LOGARITHMIC else value / top
