"""Parts of large data as places: to everybody the records that a copy would hold."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from dptune import _memory, data
from dptune._places import Part, origin
from dptune.data import Dataset
from dptune.methods.blank import blank_records


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr(_memory, "MANY", 1)
    monkeypatch.setattr(data, "_FEW", 2)
    rng = np.random.default_rng(0)
    return Dataset(rng.random((50, 3)), rng.integers(0, 3, 50), 3, "records", feature_range=(0.0, 1.0))


INDEX = np.array([4, 40, 7, 7, 0, 12])


def test_a_part_holds_what_a_copy_would(whole: Dataset) -> None:
    part, copy = whole.take(INDEX), whole.holding(whole.x[INDEX], whole.y[INDEX])
    assert isinstance(part, Part)
    assert not isinstance(copy, Part)
    assert origin(part)[0] is whole
    assert "_x" not in vars(part)
    assert len(part) == len(copy)
    assert part.features == copy.features
    assert part.classes == copy.classes
    assert "_x" not in vars(part)
    assert "_y" not in vars(part)
    assert np.array_equal(part.x, copy.x)
    assert np.array_equal(part.y, copy.y)
    assert (part.name, part.feature_range, part.public) == (copy.name, copy.feature_range, copy.public)
    assert part.x is part.x


@pytest.mark.parametrize("used", [False, True])
def test_parts_of_parts(whole: Dataset, used: bool) -> None:
    part = whole.take(INDEX)
    if used:
        part.x.sum()
    for again in ([5, 0, 2], [1], np.array([True, False, True, True, True, False])):
        index = np.array(again)
        assert np.array_equal(part.take(index).x, whole.x[INDEX][index])
        assert np.array_equal(part.take(index).y, whole.y[INDEX][index])


@pytest.mark.parametrize("index", [np.arange(50) % 3 == 0, np.array([-1, -2, 3, 4]), np.arange(5, 20, dtype=np.int32)])
def test_places_of_every_kind_mean_what_they_mean_to_numpy(whole: Dataset, index: Any) -> None:
    part = whole.take(index)
    assert np.array_equal(part.x, whole.x[index])
    assert np.array_equal(part.y, whole.y[index])
    places = vars(part)["places"]
    assert places.dtype == np.int64
    assert places.min() >= 0


def test_places_beyond_the_end_are_an_error_as_before(whole: Dataset) -> None:
    with pytest.raises(IndexError):
        whole.take(np.array([1, 2, 3, 50]))


def test_what_trainers_do_with_a_data_set_works_with_a_part(whole: Dataset) -> None:
    part = whole.take(INDEX)
    other = pickle.loads(pickle.dumps(part))
    assert np.array_equal(other.x, whole.x[INDEX])
    assert np.array_equal(part.map(lambda x: x * 2, (0.0, 3.0)).x, whole.x[INDEX] * 2)
    renamed = dataclasses.replace(whole.take(INDEX), name="other")
    assert renamed.name == "other"
    assert np.array_equal(renamed.x, whole.x[INDEX])
    assert len(renamed) == 6
    held = part.holding(whole.x[:4], whole.y[:4])
    assert np.array_equal(held.x, whole.x[:4])
    assert not isinstance(held, Part)
    assert len(blank_records(whole.take(INDEX)).x) == 16
    assert sum(len(one) for one in whole.shards(2, _Key())) == 50


class _Key:
    def child(self, label: str) -> Any:
        return self

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(1)
