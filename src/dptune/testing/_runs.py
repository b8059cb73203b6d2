"""Single runs of a trainer, and the data sets on which it must not fail.

Part of :mod:`dptune.testing.trainers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dptune.data import Dataset, size, take
from dptune.executors.models import open_model, pack_model

__all__ = ["odd_data", "packed", "parts", "rng"]

DataT = TypeVar("DataT")


def rng(seed: int) -> np.random.Generator:
    """The generator of one run."""
    return np.random.default_rng(seed)


def packed(outcome: object) -> tuple[bytes, float]:
    """The model as bytes and the score, of what a run returned."""
    assert isinstance(outcome, tuple), f"A run returns (model, score); got {type(outcome).__name__}."
    assert len(outcome) == 2, f"A run returns (model, score); got {len(outcome)} values."
    score = float(outcome[1])
    content = pack_model(outcome[0], pickle=True)
    open_model(content, pickle=True)
    return content, score


def parts(data: DataT) -> Iterator[DataT]:
    """No record, one record, and all but one at the front, in the middle and at the end."""
    count = size(data)
    for places in ([], [0], *([i for i in range(count) if i != gone] for gone in (0, count // 2, count - 1))):
        yield take(data, np.array(places, dtype=np.int64))


def odd_data(data: DataT) -> Iterator[DataT]:
    """Data sets with a record that is invalid, or as large as it may be; private records are repaired, not refused."""
    if not isinstance(data, Dataset) or not len(data):
        return
    for value in (math.nan, math.inf, -math.inf, data.feature_range[1], 0.0):
        x = data.x.copy()
        x[0] = value
        yield replace(data, x=x, public=False)
    for label in (-1, data.classes, 2**40):
        y = data.y.copy()
        y[-1] = label
        yield replace(data, y=y, public=False)
