"""The same records from every kind of source give the same bits; public mistakes are one clear line each."""

from __future__ import annotations

import datetime
import decimal
import gzip
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dptune.errors import InvalidInput
from dptune.tables import Category, CsvFormat, Encoder, Number, Schema, Target, Text, array_dataset, read_table

SCHEMA = Schema(
    100,
    (
        Number("age", 0, 120, 40),
        Category("town", ("Ulm", "Bonn", "7", "true")),
        Text("note", 16),
        Target("ill", ("no", "yes")),
    ),
)
NUMBERS = Schema(100, (Number("a", -1, 1, 0), Number("b", 0, 10, 0, "log"), Target("y", (0, 1))))  # type: ignore[arg-type] # as TOML gives them
RULES: list[tuple[Any, Any, Any, Any]] = [
    (30, "Ulm", "one two", "yes"),
    (121.5, "Rome", "", "no"),
    (None, 7, None, "maybe"),
    (float("nan"), 7.0, "two two", None),
    (float("inf"), True, 5, "yes"),
    ("42", " Bonn ", "x", " yes "),
    (10**400, None, "x", 3),
    (-(10**400), ["Ulm"], [1], [1]),
    (datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1), {}, object()),
    (decimal.Decimal("7.5"), b"Ulm", b"one", b"no"),
    (1 + 2j, np.float64(7), np.str_("one"), np.bool_(True)),
    (np.complex128(1 + 2j), np.array([7]), np.array(["one"]), np.array([1.0])),
    (np.longdouble("1e4000"), np.datetime64("2026"), np.timedelta64(1), np.void(b"x")),
]


def _csv(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    lines = ["age,town,note,ill", *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _plain(count: int = 50) -> list[tuple[Any, ...]]:
    towns = ("Ulm", "Bonn", "Rome")
    return [(18 + i, towns[i % 3], f"word{i % 5} and", ("no", "yes")[i % 2]) for i in range(count)]


def test_every_source_gives_the_same_bits(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = _plain()
    frame = pandas.DataFrame(rows, columns=["age", "town", "note", "ill"])
    frame.to_parquet(tmp_path / "icu.parquet")
    frame.astype({"town": "category", "age": "float32"}).to_parquet(tmp_path / "typed.parquet")
    expected = read_table(_csv(tmp_path / "icu.csv", rows), SCHEMA).data
    table = np.array([row[:3] for row in rows], dtype=object)
    labels = np.array([row[3] for row in rows])
    shuffled = frame[["ill", "note", "town", "age"]]
    sources: list[Any] = [
        tmp_path / "icu.parquet",
        str(tmp_path / "typed.parquet"),
        frame,
        shuffled,
        frame.astype({"town": "category", "age": "Int64", "note": "string"}),
        (frame.drop(columns="ill"), frame["ill"]),
        (table, labels),
        (table.tolist(), labels.tolist()),
    ]
    for place, source in enumerate(sources):
        found = read_table(source, SCHEMA).data
        assert found.x.tobytes() == expected.x.tobytes(), place
        assert found.y.tobytes() == expected.y.tobytes(), place


def test_numbers_from_arrays_sparse_matrices_and_files(tmp_path: Path) -> None:
    x = np.array([[0.5, 2], [0, 0], [-3, 11]])
    y = np.array([1, 0, 5])
    np.savez(tmp_path / "records.npz", x=x, y=y)
    expected = read_table((x, y), NUMBERS).data
    assert expected.x[:, 0].tolist() == [0.75, 0.5, 0]
    assert expected.y.tolist() == [1, 0, 0]
    for source in (
        tmp_path / "records.npz",
        (sparse.csc_matrix(x), y),
        (sparse.coo_array(x), y.astype(float)),
        (x.tolist(), y),
    ):
        found = read_table(source, NUMBERS).data
        assert found.x.tobytes() == expected.x.tobytes()
        assert found.y.tobytes() == expected.y.tobytes()


@pytest.mark.parametrize("place", range(len(RULES)))
def test_one_object_changes_no_other_row(place: int) -> None:
    """In a DataFrame and in a list: whatever a cell holds, the other rows keep their bits."""
    pandas = pytest.importorskip("pandas")
    names = ["age", "town", "note", "ill"]
    expected = read_table(pandas.DataFrame(_plain(), columns=names, dtype=object), SCHEMA).data
    for column in range(4):
        rows = [list(row) for row in _plain()]
        rows[7][column] = RULES[place][column]
        frame = pandas.DataFrame({name: pandas.Series([row[i] for row in rows]) for i, name in enumerate(names)})
        others = np.arange(len(rows)) != 7
        for source in (frame, ([row[:3] for row in rows], [row[3] for row in rows])):
            found = read_table(source, SCHEMA).data
            assert len(found) == len(rows)
            assert found.x[others].tobytes() == expected.x[others].tobytes()
            assert found.y[others].tobytes() == expected.y[others].tobytes()


def test_objects_are_repaired_by_the_schema() -> None:
    rows = [row[:3] for row in RULES]
    data = read_table((rows, [row[3] for row in RULES]), SCHEMA).data
    ages = [30, 120, 40, 40, 120, 42, 120, 0, 40, 7.5, 40, 40, 120]
    assert data.x[:, 0].tolist() == pytest.approx([age / 120 for age in ages], abs=1e-7)
    assert data.x[:, 1:6].argmax(axis=1).tolist() == [0, 4, 2, 2, 3, 1, 4, 4, 4, 0, 2, 4, 4]
    assert data.y.tolist() == [1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_nobody_is_warned_of_a_value() -> None:
    """Whatever filter the caller's warnings have: no warning, and the same numbers."""
    rows = [[1.0, 2.0], [np.complex128(5 + 1j), np.array([3.0])]]
    wide = np.array([[1.0, np.longdouble("1e4000")]], np.longdouble)
    for action in ("error", "always"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter(action)
            found = read_table((rows, [0, 1]), NUMBERS).data.x
            large = read_table((wide, [0]), NUMBERS).data.x
        assert not told
        assert found[1].tolist() == [0.5, 0.0]
        assert large.tolist() == [[1.0, 1.0]]


def test_a_parquet_text_that_is_no_utf8_is_repaired(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - optional dependency

    bad = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(np.array([0, 2, 5], np.int32)), pyarrow.py_buffer(b"\xff\xfeUlm")]
    )
    whole = [1, None]
    table = pyarrow.table({"age": pyarrow.array(whole), "town": bad, "note": ["", ""], "ill": ["yes", "no"]})
    parquet.write_table(table, tmp_path / "bad.parquet")
    data = read_table(tmp_path / "bad.parquet", SCHEMA).data
    assert data.x[:, 1:6].argmax(axis=1).tolist() == [4, 0]
    assert data.x[:, 0].tolist() == pytest.approx([1 / 120, 40 / 120])


def test_an_encoder_takes_rows_without_the_target(tmp_path: Path) -> None:
    rows = _plain()
    data = read_table(_csv(tmp_path / "icu.csv", rows), SCHEMA).data
    encoder = Encoder.from_json(Encoder(SCHEMA).describe())
    (tmp_path / "new.csv").write_text("note,extra,town,age\n" + "".join(f"{n},?,{t},{a}\n" for a, t, n, _ in rows))
    assert encoder.encode(tmp_path / "new.csv").tobytes() == data.x.tobytes()
    assert encoder.encode([{"age": a, "town": t, "note": n} for a, t, n, _ in rows]).tobytes() == data.x.tobytes()
    assert encoder.encode(np.array([row[:3] for row in rows], dtype=object)).tobytes() == data.x.tobytes()
    one = [encoder.encode([{"age": a, "town": t, "note": n}]) for a, t, n, _ in rows]
    assert np.concatenate(one).tobytes() == data.x.tobytes()
    assert encoder.named(np.array([1, 0])) == ["yes", "no"]
    assert encoder.encode([]).shape == (0, SCHEMA.width)


def _packed(path: Path) -> None:
    path.write_bytes(gzip.compress(b"age,town,note,ill\n1,Ulm,,no\n"))


_BAD: dict[str, tuple[str, Any, str]] = {
    "missing target": ("icu.csv", b"age,town,note\n1,Ulm,\n", "no column 'ill', the target"),
    "missing column": ("icu.csv", b"age,note,ill\n1,x,no\n", "no column 'town', the column of the schema"),
    "unknown column": ("icu.csv", b"age,town,note,ill,zip\n", "a column 'zip' that the schema does not declare"),
    "duplicate column": ("icu.csv", b"age,town,note,ill,age\n", "has the column 'age' twice"),
    "empty file": ("icu.csv", b"", "is empty"),
    "header only": ("icu.csv", b"age,town,note,ill\n", "holds no rows"),
    "wrong delimiter": ("icu.csv", b"age;town;note;ill\n1;Ulm;;no\n", "write delimiter = ';'"),
    "no header": ("icu.csv", b"1,Ulm,,no\n2,Bonn,,no\n", "has none of the schema's columns"),
    "gzip by name": ("icu.csv.gz", _packed, "is packed (gzip)"),
    "gzip by content": ("icu.csv", _packed, "is not CSV text but gzip"),
    "Excel": ("icu.csv", b"PK\x03\x04zip", "zip or Excel"),
    "UTF-16": ("icu.csv", "age,town,note,ill\n".encode("utf-16"), "UTF-16"),
    "old line ends": ("icu.csv", b"age,town,note,ill\r1,Ulm,,no\r", "is not the header"),
    "NUL in the header": ("icu.csv", b"age,town\0,note,ill\n", "is not the header"),
    "no file": ("icu.csv", None, "cannot be read (No such file"),
    "no Parquet": ("icu.parquet", b"age,town,note,ill\n", "not a Parquet file"),
    "a cut-off npz": ("icu.npz", b"PK\x03\x04", "must be a whole .npz file"),
}


@pytest.mark.parametrize("name", _BAD)
def test_a_public_mistake_is_one_clear_line(name: str, tmp_path: Path) -> None:
    file, content, said = _BAD[name]
    path = tmp_path / file
    if callable(content):
        content(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as error:
        read_table(path, SCHEMA)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a folder"):
        read_table(tmp_path, SCHEMA)


def test_a_parquet_type_that_cannot_be_encoded_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - optional dependency

    days = pyarrow.array([datetime.date(2026, 1, 1)])
    table = pyarrow.table({"age": days, "town": ["Ulm"], "note": [""], "ill": ["no"]})
    parquet.write_table(table, tmp_path / "days.parquet")
    with pytest.raises(InvalidInput, match=r"column 'age' of .* holds date32"):
        read_table(tmp_path / "days.parquet", SCHEMA)


@pytest.mark.parametrize(
    "source", [5, (np.zeros((2, 3)),), (np.zeros((2, 3)), np.zeros(1)), (np.zeros((2, 2)), np.zeros(2))]
)
def test_things_that_are_no_table_are_refused(source: Any) -> None:
    with pytest.raises(InvalidInput):
        read_table(source, SCHEMA)


def test_other_delimiters_and_encodings(tmp_path: Path) -> None:
    schema = Schema(
        9, (Category("stadt", ("Köln",)), Target("krank", ("ja", "nein"))), csv=CsvFormat(";", True, "latin-1")
    )
    path = tmp_path / "daten.csv"
    path.write_bytes('stadt;krank\nKöln;nein\n"Köln";"ja"\n'.encode("latin-1"))
    data = read_table(path, schema).data
    assert data.x.tolist() == [[1, 0], [1, 0]]
    assert data.y.tolist() == [1, 0]


def test_arrays_with_declared_classes() -> None:
    x = sparse.csr_matrix(np.array([[0.0, np.nan], [2.0, 0.0]]))
    data = array_dataset(x, np.array(["b", "c"], dtype=object), ["a", "b"], feature_range=(0, 1), unknown="b")
    assert data.x.tolist() == [[0, 0], [1, 0]]
    assert data.y.tolist() == [1, 1]
    with pytest.raises(InvalidInput, match="none of the 2 declared classes"):
        array_dataset(np.zeros((1, 1)), np.array(["c"]), ["a", "b"], public=True)


def test_csv_files_need_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    _csv(tmp_path / "icu.csv", _plain())
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None\n"
        "from dptune.tables import Category, CsvFormat, Number, Schema, Target, Text, read_table\n"
        f"print(len(read_table('icu.csv', {SCHEMA!r}).data))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "50", done.stderr
