"""Records as the numpy engine and its kernel read them, made once for a data set and kept as long as that exists.

Several engines may be bound to one data set (a stack of candidates, a sequence of trials): what they share is here.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dptune import _memory
from dptune._typing import AnyArray, Floats, Indices
from dptune.data import Dataset
from dptune.regression import RegressionDataset, scaled
from dptune.training._compiled import kernel

__all__ = ["complete_records", "complete_rows", "kept_whole", "packed_records", "targets_of"]

# Records with at most this share of nonzero features are packed: the kernel then leaves the zeros out.
_SPARSE = 0.35
_ROWS = 2**12  # that are gathered at once, inside the caches
# What is computed once for a data set, for as long as that exists.
_KEPT: WeakKeyDictionary[Dataset, dict[Any, Any]] = WeakKeyDictionary()


def targets_of(data: Dataset) -> AnyArray:
    """What an engine learns: classes by number, or real targets as shares of their range."""
    return np.ascontiguousarray(data.scaled if isinstance(data, RegressionDataset) else data.y)


def kept_whole(data: Dataset) -> bool:
    """Whether something may be made of all records beforehand. Of a large data set it is made for each batch: the same
    numbers, without a copy of the records in every worker."""
    return data.x.nbytes < _memory.MANY


def packed_records(data: Dataset, x: Floats, y: Indices) -> Any:
    """The nonzero features of every record, for the kernel; None where most are not zero. Made once for a data set."""
    kept = _KEPT.setdefault(data, {})
    if "packed" not in kept:
        kept["packed"] = kernel.pack(x, y, _SPARSE)
    return kept["packed"]


def complete_records(data: Dataset, dtype: type[np.floating[Any]]) -> Floats:
    """Records with all that a step needs of them in one place: features, a one for the biases, the squared norm of
    both, and the label or scaled target. Made once for a data set."""
    kept = _KEPT.setdefault(data, {})
    if dtype not in kept:
        x = np.empty((len(data), data.x.shape[1] + 3), dtype)
        _complete(data.x, targets_of(data), x)
        kept[dtype] = x
    found: Floats = kept[dtype]
    return found


def complete_rows(data: Dataset, places: Indices, out: Floats) -> None:
    """Write into ``out`` what :func:`complete_records` holds at these places."""
    for first in range(0, len(places), _ROWS):
        some = places[first : first + _ROWS]
        targets = scaled(data.y[some], data.target_range) if isinstance(data, RegressionDataset) else data.y[some]
        _complete(data.x[some], targets, out[first : first + len(some)])


def _complete(features: Floats, targets: AnyArray, out: Floats) -> None:
    with np.errstate(all="ignore"):  # a record that is too large will be dropped
        out[:, :-3] = features
        out[:, -3] = 1.0
        out[:, -2] = np.einsum("nd,nd->n", out[:, :-2], out[:, :-2])
    out[:, -1] = targets
