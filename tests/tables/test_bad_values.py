"""Bad private values in every kind of source: repaired, never refused or printed, and no other row moves by a bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tables.test_one_cell import NASTY

from dptune.data import Dataset
from dptune.tables import Category, Number, Schema, Target, Text, array_dataset, read_table

SCHEMA = Schema(
    40,
    (
        Number("age", 0, 120, 40),
        Category("town", ("Ulm", "Bonn")),
        Text("note", 16),
        Target("ill", ("no", "yes"), "no"),
    ),
)
NAMES = ("age", "town", "note", "ill")
COUNT, PLACE = 12, 5
OTHERS = np.arange(COUNT) != PLACE


def _rows() -> list[list[bytes]]:
    return [
        [b"%d" % (20 + one), (b"Ulm", b"Bonn")[one % 2], b"word%d" % one, (b"no", b"yes")[one % 2]]
        for one in range(COUNT)
    ]


def _csv(rows: list[list[bytes]], folder: Path) -> Any:
    path = folder / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + b"age,town,note,ill\r\n" + b"".join(b",".join(row) + b"\r\n" for row in rows))
    return path  # with a byte order mark and Windows' ends of lines


def _parquet(rows: list[list[bytes]], folder: Path) -> Any:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        name: arrow.array([row[place] for row in rows], arrow.binary()).view(arrow.string())
        for place, name in enumerate(NAMES)
    }
    parquet.write_table(arrow.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


def _decoded(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")


def _frame(rows: list[list[bytes]], folder: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame([[_decoded(cell) for cell in row] for row in rows], columns=list(NAMES), dtype=object)


def _bytes_frame(rows: list[list[bytes]], folder: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows, columns=list(NAMES), dtype=object)


def _objects(rows: list[list[bytes]], folder: Path) -> Any:
    cells = np.array([[_decoded(cell) for cell in row] for row in rows], dtype=object)
    return cells[:, :3], cells[:, 3]


@pytest.mark.parametrize("source", [_csv, _parquet, _frame, _bytes_frame, _objects])
def test_a_bad_cell_is_repaired_and_moves_no_other_row(
    source: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = read_table(source(_rows(), tmp_path), SCHEMA).data
    assert len(wanted) == COUNT
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name, cell in NASTY.items():
            for column in range(len(NAMES)):
                if source is _csv and b"\r" in cell:
                    continue  # tests/tables/test_one_cell.py has them: here it would be the end of a line
                rows = _rows()
                rows[PLACE][column] = cell
                found = read_table(source(rows, tmp_path), SCHEMA).data
                assert found.x[OTHERS].tobytes() == wanted.x[OTHERS].tobytes(), (name, column)
                assert found.y[OTHERS].tobytes() == wanted.y[OTHERS].tobytes(), (name, column)
                assert np.isfinite(found.x).all()
                assert len(found) == COUNT
    assert not told
    assert capfd.readouterr() == ("", "")


BAD = [np.nan, np.inf, -np.inf, 1e300, -1e300, 2.5, -1.0, 1e9]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_a_bad_number_in_an_array_is_repaired_and_moves_no_other_row(
    kind: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((COUNT, 3)).astype(kind), rng.integers(0, 2, COUNT).astype(kind)

    def read(x: Any, y: Any) -> Dataset:
        return array_dataset(x, y, 2, feature_range=(0.0, 1.0))

    wanted = read(x, y)
    with warnings.catch_warnings(record=True) as told, np.errstate(all="warn"):
        warnings.simplefilter("always")
        for value in BAD:
            with np.errstate(all="ignore"):
                cell = np.array(value).astype(kind)
            for column in range(4):
                changed, labels = x.copy(), y.copy()
                if column < 3:
                    changed[PLACE, column] = cell
                else:
                    labels[PLACE] = cell
                found = read(changed, labels)
                assert found.x[OTHERS].tobytes() == wanted.x[OTHERS].tobytes()
                assert found.y[OTHERS].tobytes() == wanted.y[OTHERS].tobytes()
                assert ((found.x >= 0) & (found.x <= 1)).all()
                assert set(found.y.tolist()) <= {0, 1}
    assert not told
    assert capfd.readouterr() == ("", "")
