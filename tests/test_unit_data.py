"""Records that are units: what becomes of a unit follows from its own rows, and everything goes by unit."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import Dataset, UnitDataset
from dptune.data import size, take
from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.methods.parts import ALL, Client, Coin, Shard, records
from dptune.randomness import Randomness
from dptune.tables import array_units
from dptune.units import Grouping

KEYS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=30)


def _made(keys: list[Any], most: int = 3) -> UnitDataset:
    """Rows that know their own place."""
    x = np.arange(len(keys), dtype=float)[:, None]
    return UnitDataset(Dataset(x, np.arange(len(keys)) % 2, 2), keys, most, "patient")


def _parts(data: UnitDataset) -> list[list[float]]:
    return [data.rows.x[a:b, 0].tolist() for a, b in zip(data.starts[:-1], data.starts[1:], strict=True)]


@given(KEYS, st.integers(1, 4))
def test_a_unit_is_the_first_rows_with_its_key(keys: list[str | None], most: int) -> None:
    data = _made(keys, most)
    order = list(dict.fromkeys(key for key in keys if key is not None))
    expected = [[float(i) for i, key in enumerate(keys) if key == one][:most] for one in order]
    assert _parts(data) == expected
    assert len(data) == size(data) == len(order)
    assert data.row_units.tolist() == [number for number, rows in enumerate(expected) for _ in rows]


@given(KEYS, st.integers(1, 3), st.sampled_from("abcd"))
def test_taking_a_unit_away_leaves_the_others_as_they_are(keys: list[str | None], most: int, gone: str) -> None:
    rows = np.arange(len(keys), dtype=float)[:, None]
    stay = np.array([key != gone for key in keys], bool)
    made = [
        UnitDataset(
            Dataset(rows[keep], np.zeros(int(keep.sum()), np.int64), 2),
            [k for k, kept in zip(keys, keep, strict=True) if kept],
            most,
        )
        for keep in (np.ones(len(keys), bool), stay)
    ]
    owner = [keys[int(part[0])] for part in _parts(made[0])]
    others = [place for place, one in enumerate(owner) if one != gone]
    assert _parts(made[0].take(np.array(others, np.int64))) == _parts(made[1])


def test_a_row_beyond_the_last_changes_nothing() -> None:
    assert _parts(_made(["a", "b", "a", "a"])) == _parts(_made(["a", "b", "a", "a", "a", "a"]))


@pytest.mark.parametrize("key", [None, float("nan"), np.nan, ["no key"], {}, np.zeros(3), np.datetime64("NaT")])
def test_a_row_of_nobody_is_left_out(key: Any) -> None:
    assert _parts(_made(["a", key, "a", key, "b"])) == [[0.0, 2.0], [4.0]]


ONE_UNIT: list[list[Any]] = [
    ["7", " 7", 7, 7.0, b"7 ", np.int8(7), Decimal("7.00"), Fraction(7), bytearray(b"7")],
    [Decimal("7.50"), Decimal("7.5"), 7.5],
    [(1, "a"), (1.0, b"a ")],
    [UUID(int=5), str(UUID(int=5))],
    [date(2020, 1, 1), "2020-01-01"],
    [datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(2020, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))],
    [frozenset([1]), frozenset([1])],
]
MANY_UNITS: list[list[Any]] = [
    [b"\xff", b"\\xff", "ff", "0xff", "\0ff", b"\0\0ff", b"\xff ", b" \xff"],
    [Decimal("1e400"), Decimal("1e401"), Decimal("1e999999"), Decimal("1." + "0" * 40 + "1"), Decimal(1)],
    ["A", "a", "7.0", "7"],
    [(1, 2), "(1, 2)", (1, (2,))],
]


@pytest.mark.parametrize("keys", [*ONE_UNIT, *MANY_UNITS], ids=str)
def test_keys_are_compared_one_way_wherever_they_come_from(keys: list[Any]) -> None:
    rows = Dataset(np.arange(len(keys), dtype=float)[:, None], np.zeros(len(keys), np.int64), 2)
    units = 1 if keys in ONE_UNIT else len(keys)
    assert len(UnitDataset(rows, keys, 20)) == len(array_units(rows, keys, 20, unit="patient")) == units


@pytest.mark.parametrize("key", [None, float("nan"), Decimal("NaN"), "", " ", b" ", [1], {}])
def test_nobody_is_nobody_everywhere(key: Any) -> None:
    rows = Dataset(np.zeros((2, 1)), np.zeros(2, np.int64), 2)
    assert len(UnitDataset(rows, [key, key], 2)) == len(array_units(rows, [key, key], 2, unit="patient")) == 0


def test_rows_are_put_together_over_several_calls() -> None:
    grouping = Grouping(2)
    assert [grouping.keep(keys).tolist() for keys in (["a", None], np.array(["b", "a"]), ["a", "b"])] == [
        [0],
        [0, 1],
        [1],
    ]
    assert grouping.numbers().tolist() == [0, 1, 0, 1]
    assert (grouping.nobodys, grouping.beyond) == (1, 1)


def test_units_are_taken_whole() -> None:
    data = _made(["a", "b", "a", "c", "b", "b"])
    assert _parts(data.take(np.array([2, 0, 0]))) == [[3.0], [0.0, 2.0], [0.0, 2.0]]
    assert _parts(take(data, np.empty(0, np.int64))) == []
    again = pickle.loads(pickle.dumps(data))
    assert _parts(again) == _parts(data)
    assert (again.unit, again.unit_rows, again.classes, again.features, again.name) == ("patient", 3, 2, 1, "data")


@pytest.mark.parametrize(
    "part",
    [ALL.narrowed(Coin(0.5)), ALL.narrowed(Shard(3, 1)), ALL.narrowed(Client(3, 0)), ALL.narrowed(Client(3, 1, 0.5))],
)
def test_parts_hold_whole_units_and_follow_the_number_of_units(part: Any) -> None:
    keys = [key for key in range(200) for _ in range(1 + key % 4)]
    some = records(part, _made(keys, 4), Randomness.rehearsal(1))
    assert 20 < len(some) < 180
    assert all(len(one) == 1 + keys[int(one[0])] % 4 for one in _parts(some))
    if part.conditions[0] != Client(3, 1, 0.5):  # by one coin for each unit, as for as many records
        alone = records(part, np.arange(200), Randomness.rehearsal(1))
        assert [keys[int(one[0])] for one in _parts(some)] == alone.tolist()


class _Parity:
    """Says that a row is right if its number is even, or by its class."""

    def predict(self, x: Any) -> Any:
        return (x[:, 0] % 3 == 0).astype(int)


class _Promising(_Parity):
    judges_each_record_alone = True


class _Liar:
    """Gives every row far more than one."""

    def correct(self, data: Any) -> Any:
        return np.full(len(data), 1e9)


@pytest.mark.parametrize("model", [_Parity(), _Promising()])
@given(KEYS)
def test_a_unit_counts_as_the_mean_of_its_rows(model: Any, keys: list[str | None]) -> None:
    data, expected = _made(keys), Fraction(0)
    for part in _parts(data):
        right = sum((row % 3 == 0) == (row % 2 == 1) for row in part)
        expected += Fraction(right * 2**20 // len(part), 2**20)
    assert correct(model, data) == expected


@pytest.mark.parametrize("model", [_Parity(), _Promising(), _Liar()])
@given(KEYS, st.sampled_from("abcd"))
def test_a_unit_moves_a_count_by_at_most_one(model: Any, keys: list[str | None], gone: str) -> None:
    data = _made(keys)
    owner = [keys[int(part[0])] for part in _parts(data)]
    without = data.take(np.array([place for place, one in enumerate(owner) if one != gone], np.int64))
    moved = correct(model, data) - correct(model, without)
    assert 0 <= moved <= 1
    assert 0 <= int(correct(model, data)) - int(correct(model, without)) <= 1  # as noise is added to it


def test_blank_units_show_nothing_but_public_things() -> None:
    blanks = [_made(keys, most).blank() for keys, most in ((["a"], 3), (["a", "b", "b"] * 9, 3))]
    assert _parts(blanks[0]) == _parts(blanks[1])
    assert {len(part) for part in _parts(blanks[0])} == {2}
    assert set(blanks[0].rows.y) == {0, 1}
    assert {len(part) for part in _parts(_made(["a"], 1).blank())} == {1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"keys": ["a"]}, "one key for each row"),
        ({"keys": "ab"}, "'keys' must be a list or an array"),
        ({"keys": np.zeros((2, 2))}, "'keys' must be a list or an array"),
        ({"unit_rows": 0}, "unit_rows"),
        ({"unit_rows": 5000}, "unit_rows"),
        ({"unit_rows": None}, "need 'unit_rows'"),
        ({"unit": ""}, "needs a name"),
        ({"unit": "a|b"}, "needs a name"),
        ({"unit": "record"}, "cannot be called 'record'"),
        ({"rows": np.zeros((2, 2))}, "'rows' must be a Dataset"),
    ],
)
def test_what_is_public_and_wrong_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"rows": Dataset(np.zeros((2, 1)), np.array([0, 1]), 2), "keys": ["a", "b"], "unit_rows": 2}
    with pytest.raises(InvalidInput, match=said):
        UnitDataset(**{**given, **change})
