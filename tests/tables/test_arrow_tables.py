"""Arrow tables and Hugging Face data sets: the same bits as from a Parquet file; what is public is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.planner.incoming import Declared, bring_in
from dptune.tables import Category, Encoder, Number, NumberTarget, Schema, Target, draft, infer, read_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SCHEMA = Schema(5, (Number("age", 0, 100, 40), Category("town", ("Ulm", "Bonn")), Target("ill", ("no", "yes"))))
AGES = [30.0, None, float("nan"), float("inf"), -5.0]
TABLE = pa.table({"age": AGES, "town": ["Ulm", "Rome", None, "Bonn", " Ulm "], "ill": ["yes", "no", "?", None, "yes"]})


class Feature:
    """As Hugging Face declares a column of classes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


class Features(dict[str, Any]):
    """The declared columns."""

    arrow_schema: Any


class Stored:
    """A Hugging Face data set as far as it is asked: declared columns, and its rows as an Arrow table."""

    def __init__(self, table: Any, classes: dict[str, Sequence[str]] | None = None) -> None:
        self._table, self._form = table, None
        self.features = Features({name: Feature(names) for name, names in (classes or {}).items()})
        self.features.arrow_schema = table.schema

    def with_format(self, form: str) -> Stored:
        made = Stored(self._table)
        made._form = form  # type: ignore[assignment]
        return made

    def __getitem__(self, place: slice) -> Any:
        assert self._form == "arrow"
        return self._table.slice(*place.indices(self._table.num_rows)[:2])


@pytest.fixture(autouse=True)
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("datasets")
    module.Dataset = Stored  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def _same(one: Any, other: Any) -> bool:
    return bool(one.data.x.tobytes() == other.data.x.tobytes() and one.data.y.tobytes() == other.data.y.tobytes())


@pytest.mark.parametrize("made", [lambda table: table, Stored], ids=["arrow", "hugging face"])
def test_the_same_bits_as_from_a_file(tmp_path: Path, made: Any) -> None:
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    stored = read_table(tmp_path / "t.parquet", SCHEMA)
    found = read_table(made(TABLE), SCHEMA)
    assert _same(stored, found)
    assert stored.repairs == found.repairs
    pieces = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 3), TABLE.slice(4)])
    assert _same(stored, read_table(made(pieces), SCHEMA))
    rows = Encoder(SCHEMA).encode(made(TABLE.drop_columns(["ill"])))
    assert np.array_equal(rows, stored.data.x)
    taken = bring_in(made(TABLE), Declared(schema=SCHEMA), None)
    assert (taken.records, taken.encoder) == (5, Encoder(SCHEMA))


def test_names_of_classes_are_public_and_read_as_declared() -> None:
    places = TABLE.set_column(2, "ill", pa.array([1, 0, -1, None, 9]))
    named = Stored(places, {"ill": ["no", "yes"]})
    assert read_table(named, SCHEMA).data.y.tolist() == [1, 0, 0, 0, 0]
    by_place = Schema(5, (*SCHEMA.columns[:2], Target("ill", ("0", "1"))))
    assert read_table(named, by_place).data.y.tolist() == [1, 0, 0, 0, 0]
    other = Schema(5, (*SCHEMA.columns[:2], Target("ill", ("sick", "well"))))
    with pytest.raises(InvalidInput, match="names the classes of 'ill' no, yes, but the schema declares none"):
        read_table(named, other)
    number = Schema(5, (*SCHEMA.columns[:2], NumberTarget("ill", 0, 1)))
    assert read_table(named, number).data.y.tolist() == [1.0, 0.0, 0.0, 0.5, 1.0]


def test_names_that_are_numbers_are_not_taken_for_places() -> None:
    """Libraries that make classes of texts sort them as texts: "10" comes before "2"."""
    names = sorted(str(one) for one in range(12))
    table = pa.table({"age": [1.0, 2.0] * 6, "digit": [names.index(str(one)) for one in range(12)]})
    schema = Schema(12, (Number("age", 0, 100, 40), Target("digit", tuple(str(one) for one in range(12)))))
    assert read_table(Stored(table, {"digit": names}), schema).data.y.tolist() == list(range(12))
    shown = infer(Stored(table, {"digit": names}), target="digit")
    assert shown.columns[1] == Target("digit", tuple(names))
    assert infer(Stored(table, {"digit": [f"c{one}" for one in names]}), target="age").columns[1] == Category(
        "digit", tuple(f"c{one}" for one in names)
    )


def test_what_cannot_be_read_is_one_line_that_quotes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Stored, place: slice) -> Any:
        raise OSError("row 7: Mr Smith")

    monkeypatch.setattr(Stored, "__getitem__", gone)
    with pytest.raises(InvalidInput, match=r"^The data set is damaged, or its file is \(OSError\); load it again\.$"):
        read_table(Stored(TABLE), SCHEMA)


def test_public_mistakes_are_one_clear_line() -> None:
    with pytest.raises(InvalidInput, match="The data set has no column 'ill', the target"):
        read_table(TABLE.rename_columns(["age", "town", "sick"]), SCHEMA)
    with pytest.raises(InvalidInput, match=r"'town' of the data set holds list.*cannot be encoded"):
        read_table(TABLE.set_column(1, "town", pa.array([[1]] * 5)), SCHEMA)
    with pytest.raises(InvalidInput, match=r"dptune\.tables\.draft\(data\)"):
        bring_in(TABLE, Declared(), None)
    with pytest.raises(InvalidInput, match=r"Hugging Face data set.*got list"):
        bring_in([{"age": 1}], Declared(schema=SCHEMA), None)


def test_drafts_and_public_tables() -> None:
    text = draft(Stored(TABLE), target="ill")
    assert '[columns.age]\nkind = "number"\nrange = []' in text
    assert "30" not in text
    shown = infer(TABLE.slice(0, 2), target="ill")
    assert shown.columns[1] == Category("town", ("Rome", "Ulm"))


def test_rows_of_a_list_may_be_arrays() -> None:
    """They were the missing record, all of them, and the budget was spent."""
    numbers = Schema(3, (Number("a", 0, 1), Number("b", 0, 1), Target("y", ("0", "1"))))
    x = np.array([[0.0, 1.0], [0.5, 0.25], [1.0, 0.0]])
    rows = [*x, np.zeros(3), np.zeros((1, 2)), np.array([1, 2], complex)]
    found = read_table((rows, [0, 1, 0, 1, 1, 1]), numbers).data.x
    assert np.array_equal(found[:3], read_table((x, [0, 1, 0]), numbers).data.x)
    assert np.array_equal(found[3:], np.full((3, 2), 0.5))
