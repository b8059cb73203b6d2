"""Blank records: made-up ones of the same form as private ones, on which a run is tried before it is charged.

Only what is public is looked at: types, dimensions, declared classes. Blank records are the same whatever the private
ones hold, and however many there are. Labels cover all declared classes; where none are declared, two.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dptune._typing import AnyArray, Indices
from dptune.data import Dataset, take

__all__ = ["NoBlank", "SupportsBlank", "blank_records"]

_COUNT = 16
_SEED = 0  # public


@runtime_checkable
class SupportsBlank(Protocol):
    """Records of a kind of your own that know what blank ones look like."""

    def blank(self) -> Any:
        """A few made-up records in the same form; a function of public things alone."""


class NoBlank(Exception):
    """Data of a kind of which nothing is known: it cannot be tried."""


def blank_records(data: Any) -> Any:
    """Made-up records of the same form.

    Args:
        data: the private records; no value of them is looked at.

    Returns:
        Some records where the form says what they look like: a :class:`Dataset`, arrays, tuples of them, torch tensors
        and a ``TensorDataset``, objects with ``blank()``. For anything else, no records at all, in the same form.

    Raises:
        NoBlank: nothing can be made of such data, nor a part of it be taken.

    Example:
        >>> made = blank_records((np.full((100, 2), 7.0), np.full(100, 1)))
        >>> made[0].shape, made[1].tolist()[:4]
        ((16, 2), [0, 1, 0, 1])
    """
    if isinstance(data, SupportsBlank):
        return data.blank()
    if isinstance(data, Dataset):
        return _dataset(data)
    found = _form(data, last=False)
    if found is not None:
        return found
    try:
        return take(data, np.empty(0, dtype=np.int64))
    except Exception:
        raise NoBlank from None


def _dataset(data: Dataset) -> Dataset:
    count = max(_COUNT, 2 * data.classes)
    low, high = data.feature_range
    x = np.clip(_numbers((count, *data.x.shape[1:]), data.x.dtype), low, high).astype(data.x.dtype)
    made = object.__new__(type(data))  # rules and declared facts are the same; they were checked before
    for key, value in {**vars(data), "x": x, "y": data.blank_targets(count)}.items():
        object.__setattr__(made, key, value)
    return made


def _form(data: Any, last: bool) -> Any:
    """Blank records of a known form, or None; ``last`` says that it is the column of labels."""
    if type(data) is np.ndarray and data.ndim > 0 and data.dtype.kind in "fiubc":
        return _labels(_COUNT).astype(data.dtype) if last and data.ndim == 1 else _array(data)
    if type(data) is tuple and data:
        columns = [_form(one, last=place == len(data) - 1 > 0) for place, one in enumerate(data)]
        return None if any(one is None for one in columns) else tuple(columns)
    return _tensors(data, last)


def _tensors(data: Any, last: bool) -> Any:
    torch = sys.modules.get("torch")  # who has tensors has imported it
    if torch is None:
        return None
    if type(data) is torch.Tensor and data.ndim > 0:
        if last and data.ndim == 1:
            return torch.from_numpy(_labels(_COUNT)).to(data.dtype)
        if not data.dtype.is_floating_point:
            return torch.zeros((_COUNT, *data.shape[1:]), dtype=data.dtype)
        return torch.from_numpy(_numbers((_COUNT, *data.shape[1:]), np.dtype(np.float64))).to(data.dtype)
    if type(data) is torch.utils.data.TensorDataset:
        columns = [_tensors(one, place == len(data.tensors) - 1 > 0) for place, one in enumerate(data.tensors)]
        return None if any(one is None for one in columns) else torch.utils.data.TensorDataset(*columns)
    return None


def _array(data: AnyArray) -> AnyArray:
    return _numbers((_COUNT, *data.shape[1:]), data.dtype)


def _numbers(shape: tuple[int, ...], kind: Any) -> AnyArray:
    """Numbers from 0 to 1 that are not all the same, so that nothing divides by their spread; whole ones are 0."""
    if kind.kind not in "fc":
        return np.zeros(shape, kind)
    return np.random.default_rng(_SEED).random(shape).astype(kind)


def _labels(count: int) -> Indices:
    return np.arange(count) % 2
