"""A part of a large data set as places in it: nothing is copied until somebody asks for the part's own arrays.

Engines gather the few records of a batch from the whole. A :class:`Part` is a :class:`~dptune.data.Dataset` to
everybody else: its ``x`` and ``y`` are made, once, when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dptune._typing import Floats, Indices
from dptune.data import FEATURE_RANGE, Dataset

__all__ = ["Part", "origin", "part_of"]

_OWN = ("x", "y", "_x", "_y", "whole", "places")  # all else are rules


class Part(Dataset):
    """The records of a data set at some places."""

    whole: Dataset
    places: Indices

    @property
    def x(self) -> Floats:
        own = self.__dict__
        if "_x" not in own:
            own["_x"] = self.whole.x[self.places]
        found: Floats = own["_x"]
        return found

    @x.setter
    def x(self, values: Floats) -> None:
        self.__dict__["_x"] = values  # for dataclasses.replace

    @property
    def y(self) -> Any:
        own = self.__dict__
        if "_y" not in own:
            own["_y"] = self.whole.y[self.places]
        return own["_y"]

    @y.setter
    def y(self, values: Any) -> None:
        self.__dict__["_y"] = values

    def __len__(self) -> int:
        own = self.__dict__
        return len(own["_y"]) if "_y" in own else len(self.places)

    @property
    def features(self) -> int:
        """How many features a record has."""
        return int(self.__dict__["_x"].shape[1]) if "_x" in self.__dict__ else self.whole.features

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record: only of rows are parts made."""
        return (self.features,)

    @property
    def flat(self) -> Dataset:
        """The same records: they are rows."""
        return self

    def take(self, index: Indices) -> Dataset:
        """The records at the given places of this part."""
        return super().take(index) if "_x" in self.__dict__ else self.whole.take(self.places[index])

    def holding(self, x: Floats, y: Any) -> Dataset:
        """A data set of the same name and rules with other records."""
        made = object.__new__(Dataset)
        made.__dict__.update({**_rules(self), "x": x, "y": y})
        return made

    def map(self, features: Callable[[Floats], Floats], feature_range: tuple[float, float] = FEATURE_RANGE) -> Dataset:
        """The records with other features."""
        return self.holding(self.x, self.y).map(features, feature_range)


def part_of(whole: Dataset, places: Indices) -> Part:
    """The records at some places, however they are given, without a copy of them."""
    places = np.arange(len(whole))[places]  # of one kind from here on: not negative, and none beyond the end
    part = object.__new__(Part)
    part.__dict__.update({**_rules(whole), "whole": whole, "places": places})
    return part


def _rules(data: Dataset) -> dict[str, Any]:
    """All that a data set is but its records."""
    return {key: value for key, value in data.__dict__.items() if key not in _OWN}


def origin(data: Dataset) -> tuple[Dataset, Indices | None]:
    """The arrays that hold the records, and where in them these are; None if all of them are."""
    if isinstance(data, Part) and "_x" not in data.__dict__:
        return data.whole, data.places
    return data, None
