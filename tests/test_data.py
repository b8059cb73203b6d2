"""Data sets: private records are repaired one by one by public rules, public ones are refused, and nothing is told."""

from __future__ import annotations

import doctest
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dptune import _memory, data
from dptune._repairs import hand_over
from dptune.data import FEATURE_RANGE, Dataset
from dptune.errors import InvalidInput

X = np.array([[0.25, -3.0], [0.5, 2.0], [0.75, 0.0]])
Y = np.array([0, 1, 2])
ODD_FEATURES = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e13]
ODD_LABELS = [np.nan, np.inf, -np.inf, 0.5, -1.0, 3.0, 1e300, -1e-300]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("odd", ODD_FEATURES)
def test_an_odd_feature_is_repaired_and_changes_no_other_record(odd: float, kind: Any) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        values = np.vstack([X.astype(kind), np.full((1, 2), odd).astype(kind)])
        found = Dataset(values, np.append(Y, 0), 3, feature_range=(-2, 1), missing=0.125)
    clean = Dataset(X.astype(kind), Y, 3, feature_range=(-2, 1), missing=0.125)
    assert found.x.dtype == clean.x.dtype
    assert found.x.flags.c_contiguous
    assert np.array_equal(found.x[:3], clean.x)
    expected = 0.125 if np.isnan(odd) else (1.0 if odd > 0 else -2.0)
    assert np.array_equal(found.x[3], [expected, expected])
    assert np.array_equal(clean.x, [[0.25, -2.0], [0.5, 1.0], [0.75, 0.0]])


@pytest.mark.parametrize("odd", ODD_LABELS)
def test_an_odd_label_becomes_the_declared_class(odd: float) -> None:
    found = Dataset(np.vstack([X, X[:1]]), np.append(Y.astype(float), odd), 3, unknown_label=2)
    assert found.y.tolist() == [0, 1, 2, 2]
    assert found.y.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (np.array([0, 255, 2], np.uint8), [0, 1, 2]),
        (np.array([0, 2**64 - 1, 2], np.uint64), [0, 1, 2]),
        (np.array([-(2**63), 2**63 - 1, 2], np.int64), [1, 1, 2]),
        (np.array([True, False, True]), [1, 0, 1]),
        (np.array([2.0, -0.0, 65504.0], np.float16), [2, 0, 1]),
    ],
)
def test_labels_of_every_type(labels: np.ndarray[Any, Any], kept: list[int]) -> None:
    assert Dataset(X, labels, 3, unknown_label=1).y.tolist() == kept


def test_more_classes_than_the_labels_type_can_count() -> None:
    assert Dataset(X, np.array([0, 200, 2], np.uint8), 100_000).y.tolist() == [0, 200, 2]
    assert Dataset(X, np.array([0, 200, 2], np.float16), 100_000).y.tolist() == [0, 200, 2]


@given(
    arrays.arrays(np.float64, (4, 3), elements=st.floats(allow_nan=True, allow_infinity=True)),
    arrays.arrays(np.float64, 4, elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.permutations(range(4)),
)
def test_repair_looks_at_one_record_only(x: Any, y: Any, order: list[int]) -> None:
    """Whatever the records: never refused, always valid, and each as if it were alone."""
    together = Dataset(x, y, 2, feature_range=(-1, 5), missing=3)
    assert ((together.x >= -1) & (together.x <= 5)).all()
    assert set(together.y.tolist()) <= {0, 1}
    for place in order:
        alone = Dataset(x[[place]], y[[place]], 2, feature_range=(-1, 5), missing=3)
        assert np.array_equal(alone.x[0], together.x[place])
        assert alone.y[0] == together.y[place]


def test_without_a_declared_range_features_stay_and_their_squares_are_finite() -> None:
    assert np.array_equal(Dataset(X, Y, 3).x, X)
    wide = Dataset(np.array([[3e38, np.nan]], np.float32), np.array([0]), 2).x
    assert wide.tolist() == [[np.float32(FEATURE_RANGE[1]), 0.0]]
    assert np.isfinite(np.float32(1e6) * wide.max() ** 2)


def test_no_record_decides_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    room = _memory.room

    def noted(shape: tuple[int, ...], kind: Any) -> Any:
        asked.append(shape)
        return room(shape, kind)

    monkeypatch.setattr(_memory, "room", noted)
    for kind in (np.float64, np.float32, np.int64):
        for bad in (0.0, np.nan, np.inf, 1e30):
            x = np.zeros((5, 2))
            x[3, 1] = bad if kind != np.int64 else 0.0
            asked.clear()
            found = Dataset(x.astype(kind), Y[[0, 1, 2, 0, 1]], 3)
            assert asked == [(5, 2), (5,)]  # features and labels, once each
            assert np.isfinite(found.x).all()


def test_public_arrays_are_not_copied_and_private_ones_always_are() -> None:
    x = np.ascontiguousarray(X)
    assert Dataset(x, Y, 3, public=True).x is x
    private = Dataset(x, Y, 3).x
    assert not np.shares_memory(private, x)
    assert np.array_equal(private, x)


def test_an_array_that_was_handed_over_is_repaired_in_place_and_once() -> None:
    x = hand_over(np.array([[np.nan, 1e30], [0.5, -7.0]]))
    first = Dataset(x, np.zeros(2, np.int64), 2, feature_range=(-9.0, 9.0))
    assert first.x is x
    second = Dataset(x, np.zeros(2, np.int64), 2, feature_range=(0.0, 1.0))
    assert first.x.tolist() == [[0.0, 9.0], [0.5, -7.0]]
    assert second.x.tolist() == [[0.0, 1.0], [0.5, 0.0]]


def test_a_public_data_set_keeps_an_array_that_was_handed_over() -> None:
    public = Dataset(hand_over(np.array([[5.0, 0.0], [0.0, 7.0]])), np.array([0, 1]), 2, public=True)
    private = Dataset(public.x, public.y, 2, feature_range=(0.0, 1.0))
    assert private.x is not public.x
    assert public.x.tolist() == [[5.0, 0.0], [0.0, 7.0]]


PUBLIC: list[tuple[Any, Any, str]] = [
    (X, np.array([0, 1, 5]), r"Labels must lie in \[0, 3\); got values from 0 to 5"),
    (X, np.array([0, -1, 1]), "got values from -1 to 1"),
    (np.full((3, 2), np.nan), Y, "NaN or infinite features"),
    (np.full((3, 2), np.inf), Y, "NaN or infinite features"),
    (X, np.array([0.5, 1, 0]), "whole numbers"),
    (X, np.array([np.nan, 1, 0]), "whole numbers"),
]


@pytest.mark.parametrize(("x", "y", "words"), PUBLIC)
def test_public_records_are_refused_and_private_ones_never(x: Any, y: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        Dataset(x, y, 3, public=True)
    assert "\n" not in str(caught.value)
    assert len(Dataset(x, y, 3)) == 3


SHAPES: list[tuple[Callable[[], object], str]] = [
    (lambda: Dataset(X, np.array([0, 1]), 3), "one label per record"),
    (lambda: Dataset(X, np.zeros((3, 1), int), 3), "one label per record"),
    (lambda: Dataset(np.zeros(3), Y, 3), "one row per record"),
    (lambda: Dataset(X, Y, 1), r"'classes' must be a whole number in \[2, inf\); got 1"),
    (lambda: Dataset(X, Y, "2"), "'classes' must be"),  # type: ignore[arg-type] # careless
    (lambda: Dataset(X, np.array(["yes", "no", "no"]), 2), "'y' must hold numbers; got <U3. Encode words"),
    (lambda: Dataset(np.array([["a"]] * 3), Y, 3), "'x' must hold numbers"),
    (lambda: Dataset(X, np.array([0, 1, None]), 3), "'y' must hold numbers; got object"),
    (lambda: Dataset(X.tolist(), Y, 3), "'x' must be a numpy array; got list"),
    (lambda: Dataset(X, Y, 3, unknown_label=3), "unknown_label"),
    (lambda: Dataset(X, Y, 3, feature_range=(1, 1)), "feature_range"),
    (lambda: Dataset(X, Y, 3, feature_range=(0, 1e300)), "feature_range"),
    (lambda: Dataset(X, Y, 3, feature_range=3), "feature_range"),  # type: ignore[arg-type] # careless
    (lambda: Dataset(X, Y, 3, missing=float("nan")), "missing"),
]


@pytest.mark.parametrize(("make", "words"), SHAPES)
def test_what_is_public_of_private_records_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_nothing_shows_a_record() -> None:
    secret = Dataset(np.full((1, 2), 31337.0), np.array([1]), 2)
    assert "31337" not in repr(secret)
    assert "array" not in repr(secret)


def test_parts_keep_what_was_declared() -> None:
    whole = Dataset(X, Y, 3, "mine", True, (-9, 9), 1.0, 2)
    part = whole.take(np.array([2]))
    assert (part.name, part.public, part.feature_range, part.missing, part.unknown_label) == (
        "mine", True, (-9.0, 9.0), 1.0, 2,
    )  # fmt: skip
    assert whole.map(lambda x: x * 100.0).x.max() == 200.0  # another range, unless it is declared
    assert Dataset(X, Y, 3).map(lambda x: x * np.nan, feature_range=(0, 1)).x.max() == 0.0


def test_the_examples_are_true() -> None:
    assert doctest.testmod(data).failed == 0
