"""Tables whose unit is a column: rows are put together by it, and a unit's encoding follows from its own rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import UnitDataset
from dptune.errors import InvalidInput
from dptune.tables import (
    Category,
    Encoder,
    Ignored,
    Number,
    Schema,
    Target,
    array_dataset,
    array_units,
    draft,
    read_table,
    schema_from_toml,
    schema_to_toml,
)

COLUMNS = (Ignored("patient_id"), Number("age", 0, 100), Category("ward", ("A", "B")), Target("ill", ("no", "yes")))
SCHEMA = Schema(1000, COLUMNS, "patient_id", unit_rows=2)
HEADER = "patient_id,age,ward,ill"
ROWS = ["p1,10,A,no", "p2,20,B,yes", "p1,30,A,yes", "p3,40,C,no", "p2,50,A,no", "p1,60,B,no", "p4,70,A,yes"]


def _read(path: Path, rows: list[str], schema: Schema = SCHEMA) -> UnitDataset:
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    data = read_table(path, schema).data
    assert isinstance(data, UnitDataset)
    return data


def _bits(data: UnitDataset) -> list[tuple[bytes, bytes]]:
    """The rows of every unit, to the last bit."""
    cuts = zip(data.starts[:-1], data.starts[1:], strict=True)
    return [(data.rows.x[a:b].tobytes(), data.rows.y[a:b].tobytes()) for a, b in cuts]


def test_rows_with_the_same_value_are_one_record(tmp_path: Path) -> None:
    data = _read(tmp_path / "icu.csv", ROWS)
    assert len(data) == 4
    assert np.diff(data.starts).tolist() == [2, 2, 1, 1]
    assert np.allclose(data.rows.x[:, 0], [0.1, 0.3, 0.2, 0.5, 0.4, 0.7])
    assert data.rows.y.tolist() == [0, 1, 1, 0, 0, 1]
    assert (data.unit, data.unit_rows, data.column, data.name) == ("patient", 2, "patient_id", "icu")


SPACED = ["a", "a ", " a", "\ta", "A", "a b", "", " ", "7", " 7", "7.0"]
NUMBERS = [0, 0, 0, 0, 1, 2, None, None, 3, 3, 4]  # the unit of each; None is nobody


def _spaced(path: Path, kind: str) -> UnitDataset:
    """One row for each key, from one kind of source."""
    count, schema = len(SPACED), Schema(1000, COLUMNS, "patient_id", unit_rows=9)
    columns = {"patient_id": SPACED, "age": list(range(count)), "ward": ["A"] * count, "ill": ["no"] * count}
    if kind == "csv":
        rows = [f"{key},{place},A,no" for place, key in enumerate(SPACED)]
        return _read(path / "icu.csv", rows, schema)
    if kind == "parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table(columns), path / "icu.parquet")
        found = read_table(path / "icu.parquet", schema).data
    elif kind == "frame":
        found = read_table(pytest.importorskip("pandas").DataFrame(columns), schema).data
    else:
        rows_of = array_dataset(np.arange(count)[:, None] / 100, np.zeros(count, np.int64), 2)
        found = UnitDataset(rows_of, SPACED, 9) if kind == "own" else array_units(rows_of, SPACED, 9)
    assert isinstance(found, UnitDataset)
    return found


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "array", "own"])
def test_spaces_around_a_key_are_not_part_of_it_whatever_the_source(tmp_path: Path, kind: str) -> None:
    data = _spaced(tmp_path, kind)
    places = np.rint(100 * data.rows.x[:, 0]).astype(int)
    units = [part.tolist() for part in np.split(places, data.starts[1:-1])]
    assert units == [[at for at, one in enumerate(NUMBERS) if one == number] for number in range(5)]


def test_long_decimal_keys_of_a_parquet_file_stay_apart(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    keys = [Decimal(2**60), Decimal(2**60 + 1), Decimal(2**60), None]
    columns = {"patient_id": pa.array(keys, pa.decimal128(38, 2)), "age": [1, 2, 3, 4]}
    table = pa.table({**columns, "ward": ["A"] * 4, "ill": ["no"] * 4})
    parquet.write_table(table, tmp_path / "icu.parquet")
    assert np.diff(read_table(tmp_path / "icu.parquet", SCHEMA).data.starts).tolist() == [2, 1]


@pytest.mark.parametrize("gone", ["p1", "p2", "p3", "p4"])
def test_taking_a_unit_out_of_the_file_leaves_the_others_bit_for_bit(tmp_path: Path, gone: str) -> None:
    whole = _bits(_read(tmp_path / "a.csv", ROWS))
    without = _bits(_read(tmp_path / "b.csv", [row for row in ROWS if not row.startswith(gone)]))
    del whole[int(gone[1]) - 1]
    assert without == whole


@pytest.mark.parametrize(
    "row",
    [
        "p1,99,A,no",
        "p9,99,A,no",
        ",99,A,no",
        "p9",
        "p9,1,2,3,4,5",
        '"p9,99,A,no',
        "p1,x,y,z",
        "p9,nan,\x00,?",
        "\ufffd,1,A,no",
    ],
)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_one_row_more_changes_its_own_unit_alone(tmp_path: Path, row: str, place: int) -> None:
    """Whatever it holds: at most the unit that it names differs, or one that is new."""
    before = _bits(_read(tmp_path / "a.csv", ROWS))
    after = _bits(_read(tmp_path / "b.csv", [*ROWS[:place], row, *ROWS[place:]]))
    own = row.startswith("p1")
    others = before[1:] if own else before
    assert all(one in after for one in others)
    assert len(after) <= len(before) + (not own)
    if own and place == 7:  # beyond the first two of its unit
        assert after == before


def test_a_row_without_an_owner_is_left_out_and_noted_for_the_vault(tmp_path: Path) -> None:
    path = tmp_path / "icu.csv"
    path.write_text("\n".join([HEADER, *ROWS, " ,1,A,no", "broken"]), encoding="utf-8")
    read = read_table(path, SCHEMA)
    assert _bits(read.data) == _bits(_read(tmp_path / "b.csv", ROWS))
    assert (read.repairs["rows of nobody"], read.repairs["rows beyond unit_rows"]) == (2, 1)


def test_no_owner_at_all_is_no_refusal(tmp_path: Path) -> None:
    assert len(_read(tmp_path / "icu.csv", [",1,A,no", ",2,B,yes"])) == 0


def test_a_frame_and_a_parquet_file_give_the_same_units(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = _bits(_read(tmp_path / "icu.csv", ROWS))
    frame = pandas.read_csv(tmp_path / "icu.csv")
    frame.to_parquet(tmp_path / "icu.parquet")
    for source in (frame, tmp_path / "icu.parquet", (frame.drop(columns="ill"), frame["ill"])):
        assert _bits(read_table(source, SCHEMA).data) == expected
    with pytest.raises(InvalidInput, match="no column 'patient_id', the unit of the schema"):
        read_table((frame[["age", "ward"]], frame["ill"]), SCHEMA)
    with pytest.raises(InvalidInput, match="no column 'patient_id'"):
        read_table((np.zeros((3, 2)), np.zeros(3)), SCHEMA)


def test_numbers_are_keys_whatever_their_type(tmp_path: Path) -> None:
    rows = array_dataset(np.arange(5.0)[:, None], np.zeros(5), 2)
    keys: list[Any] = [np.array([7, 8, 7, 9, 7]), np.array([7.0, 8.0, 7.0, 9.0, 7.0]), ["7", 8, " 7", 9.0, 7]]
    made = [array_units(rows, units, 2) for units in keys]
    assert {tuple(_bits(one)) for one in made} == {tuple(_bits(made[0]))}
    assert len(array_units(rows, [None, "", float("nan"), 1, 1], 2)) == 1


def test_the_column_may_be_learnt_from_too(tmp_path: Path) -> None:
    columns = (Category("patient_id", ("p1", "p2")), *COLUMNS[1:])
    data = _read(tmp_path / "icu.csv", ROWS, Schema(1000, columns, "patient_id", unit_rows=2, unit_name="person"))
    assert (len(data), data.features, data.unit) == (4, 7, "person")


def test_prediction_needs_no_unit() -> None:
    assert Encoder(SCHEMA).encode([{"age": 50, "ward": "A"}]).tolist() == [[0.5, 1.0, 0.0, 0.0]]
    assert Encoder.from_json(Encoder(SCHEMA).describe()) == Encoder(SCHEMA)


def test_a_schema_with_a_unit_is_written_and_read() -> None:
    for schema in (SCHEMA, Schema(1000, COLUMNS, "patient_id", unit_rows=5, unit_name="person")):
        assert schema_from_toml(schema_to_toml(schema)) == schema
        assert Schema.from_json(schema.describe()) == schema
    assert SCHEMA.unit_called == "patient"


def test_a_draft_asks_for_the_rows_of_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "icu.csv"
    path.write_text(f"{HEADER}\np1,10,A,no\n", encoding="utf-8")
    text = draft(path, target="ill", unit="patient_id")
    assert 'unit = "patient_id"\nunit_rows = 0  # FILL IN: ' in text
    assert 'unit_name = "patient"' in text
    assert '[columns.patient_id]\nkind = "ignore"' in text
    with pytest.raises(InvalidInput, match="is not filled in"):
        schema_from_toml(text.replace("records = 0", "records = 9"))
    for wrong in ("nobody", "ill"):
        with pytest.raises(InvalidInput, match="There is no column"):
            draft(path, target="ill", unit=wrong)
