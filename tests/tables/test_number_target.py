"""Targets that are numbers in tables: schemas, one nasty cell, public tables whose schema is read off them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tables.test_one_cell import NASTY

from dptune.errors import InvalidInput
from dptune.regression import RegressionDataset
from dptune.tables import (
    Number,
    NumberTarget,
    Schema,
    Target,
    array_regression,
    draft,
    infer,
    read_table,
    schema_from_toml,
    schema_to_toml,
)
from dptune.units import UnitDataset

SCHEMA = Schema(40, (Number("age", 0, 100), NumberTarget("cost", -5, 50, 1)))
HEAD = 'version = 1\nrecords = 9\n[columns.age]\nkind = "number"\nrange = [0, 9]\n[columns.cost]\nkind = "target"\n'


@pytest.mark.parametrize("nasty", NASTY)
def test_one_nasty_target_changes_no_other_record(nasty: str, tmp_path: Path) -> None:
    rows = [b"%d,%d" % (i, i) for i in range(9)]
    path = tmp_path / "a.csv"
    path.write_bytes(b"age,cost\n" + b"\n".join(rows))
    plain = read_table(path, SCHEMA).data
    rows[4] = b"4," + NASTY[nasty]
    path.write_bytes(b"age,cost\n" + b"\n".join(rows))
    changed = read_table(path, SCHEMA).data
    assert isinstance(changed, RegressionDataset)
    rest = np.arange(9) != 4
    assert changed.y[rest].tolist() == plain.y[rest].tolist()
    assert changed.x[rest].tolist() == plain.x[rest].tolist()
    assert -5 <= changed.y[4] <= 50


def test_a_schema_with_a_range_survives_its_file() -> None:
    assert schema_from_toml(schema_to_toml(SCHEMA)) == SCHEMA
    assert Schema.from_json(SCHEMA.describe()) == SCHEMA
    shares = Schema(40, (Number("age", 0, 100), Target("ill", ("no", "yes"), shares=(0.9, 0.1))))
    assert schema_from_toml(schema_to_toml(shares)) == shares
    assert Schema.from_json(shares.describe()) == shares
    assert "shares" not in Schema(40, (Number("age", 0, 1), Target("ill", ("a", "b")))).describe()["columns"][1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('range = [0, 1]\nclasses = ["a", "b"]', "classes and a range"),
        ("range = [1]", "lowest, highest"),
        ("range = [3, 1]", "lowest, highest"),
        ("range = [0, 1]\nmissing = 2", "lies in the range"),
        ('range = [0, 1]\nunknown = "a"', "'unknown' is for targets with classes"),
        ('classes = ["a", "b"]\nmissing = 2', "'missing' is for targets with a range"),
        ('classes = ["a", "b"]\nshares = [0.5]', "shares"),
        ('classes = ["a", "b"]\nshares = [0.5, 0.3, 0.2]', "one for each of its classes"),
        ("", "or range = "),
    ],
)
def test_a_contradiction_is_one_clear_line(lines: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        schema_from_toml(HEAD + lines)
    assert "\n" not in str(refused.value)


def test_a_draft_says_how_to_predict_a_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,cost\n1,2\n", encoding="utf-8")
    assert "to predict a number instead: range" in draft(path, target="cost")


def test_public_targets_are_numbers_if_they_look_like_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def target(values: list[object], task: str | None = None) -> object:
        path.write_text("age,cost\n" + "".join(f"1,{value}\n" for value in values), encoding="utf-8")
        return infer(path, target="cost", task=task).target

    assert target([0.5 * i for i in range(30)]) == NumberTarget("cost", 0, 14.5, 7.25)
    assert isinstance(target([0.5 * i for i in range(5)]), Target)
    assert isinstance(target(list(range(60))), Target)
    assert isinstance(target(list(range(200))), NumberTarget)
    assert isinstance(target([0, 1, 2], "regression"), NumberTarget)
    assert isinstance(target([0.5 * i for i in range(30)], "classification"), Target)
    for values, task in (([f"n{i}" for i in range(200)], None), (["a", "b"], "regression"), ([1, 2], "ranking")):
        with pytest.raises(InvalidInput):
            target(list(values), task)


def test_units_and_arrays_have_numbers_too() -> None:
    columns = (Number("who", 0, 9), Number("age", 0, 100), NumberTarget("cost", 0, 10))
    schema = Schema(40, columns, unit="who", unit_rows=2)
    data = read_table((np.array([[1, 5], [1, 6], [2, 7]]), np.array([3, 99, "x"], dtype=object)), schema).data
    assert isinstance(data, UnitDataset)
    assert data.rows.y.tolist() == [3, 10, 5]
    assert array_regression(np.zeros((3, 1)), ["1.5", None, 99], (0, 10)).y.tolist() == [1.5, 5, 10]
