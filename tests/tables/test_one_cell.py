"""One cell of one row is changed in every nasty way: no other row's encoding moves by a bit, and none is lost."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.tables import Category, CsvFormat, Ignored, Number, Schema, Target, Text, csv_files, read_table

SCHEMA = Schema(
    40,
    (
        Ignored("id"),
        Number("age", 0, 120, 40),
        Number("income", -10, 1e6, 0, "log"),
        Category("town", ("Ulm", "Bonn", "São Paulo")),
        Text("note", 32),
        Target("ill", ("no", "yes"), "no"),
    ),
)
HEADER = b"id,age,income,town,note,ill\n"
ROWS = 40

NASTY = {
    "empty": b"",
    "spaces": b"   ",
    "a quote": b'"',
    "a quote in front": b'"abc',
    "a quote behind": b'abc"',
    "quotes all around": b'""""""',
    "an open quote and a delimiter": b'"a,b',
    "a quoted delimiter": b'"a,b"',
    "a quote closed too early": b'"a"b,c',
    "apostrophe": b"'",
    "backslash": b"\\",
    "backslash quote": b'\\"',
    "NUL": b"\0",
    "NULs": b"1\x002",
    "control characters": bytes(range(1, 10)) + bytes(range(11, 32)),
    "carriage return": b"a\rb",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode(),
    "huge": b"1e400",
    "huge below": b"-1e400",
    "thousands of digits": b"9" * 100_000,
    "nan": b"nan",
    "NaN": b"-NaN",
    "infinite": b"inf",
    "infinite below": b"-Infinity",
    "date": b"2026-11-17",
    "time": b"17/11/2026 23:59",
    "hex": b"0x1F",
    "underscores": b"1_000",
    "comma number": b"1,5",
    "currency": "€ 5".encode(),
    "truth": b"TRUE",
    "a formula": b"=1+1",
    "latin-1": "São Paulo".encode("latin-1"),
    "cut-off UTF-8": b"\xe2\x82",
    "a leading byte at the end": b"x\xf0",
    "no UTF-8": b"\xff\xfe\xfa",
    "UTF-16": "Ulm".encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbfUlm",
    "surrogate": b"\xed\xa0\x80",
    "too many fields": b"a,b,c,d,e,f,g,h",
    "thousands of fields": b"," * 10_000,
    "a hash": b"#",
    "wide": "\uff35\uff4c\uff4d\uff11\uff12".encode(),
    "long": b"word " * 20_000,
    "many quotes": b'""' * 20_001 + b'"',
}


def _row(place: int, cells: dict[int, bytes] | None = None) -> bytes:
    towns = ("Ulm", "Bonn", "São Paulo", "Rome")
    plain = [
        f"c{place}",
        f"{20 + place}",
        f"{place * 1000}",
        towns[place % 4],
        f"note {place} of many",
        ("no", "yes")[place % 2],
    ]
    fields = [field.encode() for field in plain]
    for column, cell in (cells or {}).items():
        fields[column] = cell
    return b",".join(fields)


def _read(path: Path, rows: list[bytes], end: bytes = b"\n", schema: Schema = SCHEMA) -> Dataset:
    path.write_bytes(HEADER + end.join(rows) + end)
    data = read_table(path, schema).data
    assert isinstance(data, Dataset)
    return data


@pytest.fixture
def reference(tmp_path: Path) -> Dataset:
    return _read(tmp_path / "reference.csv", [_row(place) for place in range(ROWS)])


@pytest.mark.parametrize("name", NASTY)
def test_one_cell_changes_no_other_row(name: str, reference: Dataset, tmp_path: Path) -> None:
    for column, place in itertools.product(range(6), (0, 17, ROWS - 1)):
        rows = [_row(i, {column: NASTY[name]} if i == place else None) for i in range(ROWS)]
        found = _read(tmp_path / "changed.csv", rows)
        assert len(found) == ROWS, (column, place)
        others = np.arange(ROWS) != place
        assert found.x[others].tobytes() == reference.x[others].tobytes(), (column, place)
        assert found.y[others].tobytes() == reference.y[others].tobytes(), (column, place)
        assert np.isfinite(found.x).all()
        assert found.x.min() >= -1
        assert found.x.max() <= 1
        assert set(found.y) <= {0, 1}


@pytest.mark.parametrize("cell", [b"a\nb", b'"a\nb"', b"\n", b"a\r\nb", b'"\n\n\n"', b'x,"y\nz'])
def test_a_line_is_a_record_whatever_quotes_say(cell: bytes, reference: Dataset, tmp_path: Path) -> None:
    """A line break inside of a cell makes more lines of one row; no other row is touched."""
    for column, place in itertools.product(range(6), (0, 17, ROWS - 1)):
        rows = [_row(i, {column: cell} if i == place else None) for i in range(ROWS)]
        lines = [line for line in rows[place].split(b"\n") if line.strip()]
        found = _read(tmp_path / "changed.csv", rows)
        assert len(found) == ROWS - 1 + len(lines)
        kept = np.r_[0:place, place + len(lines) : len(found)]
        others = np.arange(ROWS) != place
        assert found.x[kept].tobytes() == reference.x[others].tobytes()
        assert found.y[kept].tobytes() == reference.y[others].tobytes()


@pytest.mark.parametrize("row", [b"", b" ", b"x", b",", b",,,,,,", b'"', b"\0" * 9, b",".join(NASTY.values())])
def test_a_row_that_is_none_changes_no_other(row: bytes, reference: Dataset, tmp_path: Path) -> None:
    rows = [row if i == 17 else _row(i) for i in range(ROWS)]
    found = _read(tmp_path / "changed.csv", rows)
    blank = not row.strip()
    assert len(found) == ROWS - blank
    kept = np.arange(len(found)) != 17 if not blank else np.ones(len(found), bool)
    others = np.arange(ROWS) != 17
    assert found.x[kept].tobytes() == reference.x[others].tobytes()
    assert found.y[kept].tobytes() == reference.y[others].tobytes()
    if not blank and row.count(b",") != 5:  # the missing record
        missing = _read(tmp_path / "missing.csv", [b",,,,,"])
        assert found.x[17].tobytes() == missing.x[0].tobytes()
        assert found.y[17] == 0


def test_cells_are_repaired_by_the_schema(tmp_path: Path) -> None:
    rows = [
        b"1,130,2000000,Rome,,yes",
        b"2,-5,-1e9,Ulm,,YES",
        b"3,nan,x,S\xe3o Paulo,,",
        b'4," 60 ","0","Bonn"," ","yes"',
    ]
    data = _read(tmp_path / "rows.csv", rows)
    assert data.x[:, 0].tolist() == pytest.approx([1, 0, 1 / 3, 0.5])
    zero = np.log1p(10) / np.log1p(1e6 + 10)
    assert data.x[:, 1].tolist() == pytest.approx([1, 0, zero, zero])
    assert data.x[:, 2:6].argmax(axis=1).tolist() == [3, 0, 3, 1]  # other, Ulm, other, Bonn
    assert not data.x[:, 6:].any()
    assert data.y.tolist() == [1, 0, 0, 1]


def test_a_record_has_the_same_bits_in_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_row(place, {4: NASTY[name]}) for place, name in enumerate(NASTY)]
    whole = _read(tmp_path / "whole.csv", rows)
    alone = np.concatenate([_read(tmp_path / "one.csv", [row]).x for row in rows])
    assert whole.x.tobytes() == alone.tobytes()
    for size in (1, 7, 100, 4096):  # blocks that end anywhere
        monkeypatch.setattr(csv_files, "_BLOCK", size)
        found = _read(tmp_path / "blocks.csv", rows)
        assert found.x.tobytes() == whole.x.tobytes()
        assert found.y.tobytes() == whole.y.tobytes()


def test_ends_of_lines_do_not_matter(reference: Dataset, tmp_path: Path) -> None:
    rows = [_row(place) for place in range(ROWS)]
    assert _read(tmp_path / "dos.csv", rows, b"\r\n").x.tobytes() == reference.x.tobytes()
    path = tmp_path / "open.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER + b"\n".join(rows))
    assert read_table(path, SCHEMA).data.x.tobytes() == reference.x.tobytes()


def test_no_line_is_quoted_by_an_error(tmp_path: Path) -> None:
    """A file without a header, where one is expected: its first record is not shown."""
    path = tmp_path / "headless.csv"
    path.write_bytes(_row(0) + b"\n" + _row(1))
    with pytest.raises(InvalidInput) as error:
        read_table(path, SCHEMA)
    assert "c0" not in str(error.value)
    headless = Schema(SCHEMA.records, SCHEMA.columns, csv=CsvFormat(header=False))
    assert len(read_table(path, headless).data) == 2


def test_repairs_are_counted_for_the_vault(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(HEADER + b"1,200,0,Rome,,yes\n2,x,0,Ulm,,yes\nbroken\n")
    records = read_table(path, SCHEMA)
    assert records.repairs == {"age": 3, "income": 1, "town": 2, "ill": 1, "malformed rows": 1}
    assert "200" not in repr(records)
