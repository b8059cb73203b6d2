"""Which records a training sees, said before any record is looked at.

A :class:`DataPart` is a conjunction of conditions, each decided for every record on its own: by an independent
coin, an independent shard label, or a client label. No condition may look at another record, and neither the
size nor the members of a part may be released (``docs/theorems/parallel.md``, ``disjoint.md``, ``shards.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._codec import register_bare, register_tagged
from dptune._typing import Indices, Mask
from dptune._validate import integer, real
from dptune.data import Labelled, size, take
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.units import UnitDataset

__all__ = ["ALL", "Client", "Coin", "DataPart", "Shard", "places", "records", "size"]


_COINS = 2**16  # that are tossed at once


@dataclass(frozen=True)
class Coin:
    """Records whose coin of the given name shows heads (probability ``rate``), or tails if not ``inside``."""

    rate: float
    inside: bool = True
    name: str = "subset"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", real("rate", self.rate, 0, 1, hint="It is a probability."))

    def mask(self, count: int, labels: Any, randomness: Randomness) -> Mask:
        source, heads = randomness.generator("coin", self.name), np.empty(count, dtype=bool)
        for first in range(0, count, _COINS):  # the same draws as all at once
            some = heads[first : first + _COINS]
            some[:] = source.random(len(some)) < self.rate
        return heads if self.inside else ~heads


@dataclass(frozen=True)
class Shard:
    """Records whose independent uniform label in 0 .. ``count`` - 1 is ``index``."""

    count: int
    index: int
    name: str = "shards"

    def __post_init__(self) -> None:
        integer("count", self.count, 1)
        integer("index", self.index, 0, self.count - 1)

    def mask(self, count: int, labels: Any, randomness: Randomness) -> Mask:
        return np.asarray(randomness.generator("shard", self.name).integers(0, self.count, count) == self.index)


@dataclass(frozen=True)
class Client:
    """Records of client ``index`` of ``count``: i.i.d., or with Dirichlet(``alpha``) shares drawn for every class.

    The shares come from the run's randomness, so a record's client depends on its own class and coin alone.
    """

    count: int
    index: int
    alpha: float | None = None

    def __post_init__(self) -> None:
        integer("count", self.count, 1)
        integer("index", self.index, 0, self.count - 1)
        if self.alpha is not None:
            object.__setattr__(self, "alpha", real("alpha", self.alpha, 0, 1e6, low_open=True))

    def mask(self, count: int, labels: Any, randomness: Randomness) -> Mask:
        if self.alpha is None:
            return np.asarray(randomness.generator("client").integers(0, self.count, count) == self.index)
        if labels is None:
            raise InvalidInput(
                "Dirichlet clients need class labels (data with 'y'); use alpha=None for i.i.d. clients."
            )
        classes = _class_numbers(labels)
        uniforms = randomness.generator("client").random(count)
        chosen = np.zeros(count, dtype=np.int64)
        for one in np.unique(classes):
            shares = randomness.generator("client shares", int(one)).dirichlet(np.full(self.count, self.alpha))
            of_class = classes == one
            places = np.searchsorted(np.cumsum(shares), uniforms[of_class], side="right")
            chosen[of_class] = np.minimum(places, self.count - 1)
        return np.asarray(chosen == self.index)


def _class_numbers(labels: Any) -> Indices:
    """A whole number for every label, from that label alone; what is not a number of this size is -1."""
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    return np.array([_class_number(label) for label in labels], dtype=np.int64)


def _class_number(label: Any) -> int:
    try:
        found = int(label)
    except Exception:  # one odd label must not stop a run
        return -1
    return found if abs(found) < 2**63 else -1


Condition = Coin | Shard | Client
register_tagged(Condition, "kind", {"coin": Coin, "shard": Shard, "client": Client})


@dataclass(frozen=True)
class DataPart:
    """The records that meet every condition; no condition means all of them. Stored as the list of conditions."""

    conditions: tuple[Condition, ...] = ()

    def narrowed(self, *more: Condition) -> DataPart:
        """The records of this part that also meet these conditions."""
        return DataPart((*self.conditions, *more))

    def index(self, count: int, labels: Any, randomness: Randomness) -> Indices:
        """The places of the records, out of ``count``; ``labels`` are the classes, where a condition needs them."""
        keep = np.ones(count, dtype=bool)
        for condition in self.conditions:
            keep &= condition.mask(count, labels, randomness)
        return np.asarray(np.flatnonzero(keep), dtype=np.int64)


ALL = DataPart()
register_bare(DataPart)


def records(part: DataPart, data: Any, randomness: Randomness) -> Any:
    """The records of a part. ``data`` has ``take(index)``, or is an array, a list, or a tuple of equally long ones.

    Classes, for Dirichlet clients, are ``data.y`` or the tuple's last column; that of a unit is its first row's.
    """
    if not part.conditions:
        return data
    return take(data, places(part, data, randomness))


def places(part: DataPart, data: Any, randomness: Randomness) -> Indices:
    """Where the records of a part are."""
    return part.index(size(data), _labels(data), randomness)


def _labels(data: Any) -> Any:
    if isinstance(data, UnitDataset):
        return data.first_labels
    return data[-1] if isinstance(data, tuple) else data.y if isinstance(data, Labelled) else None
