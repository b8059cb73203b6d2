"""An npz file that says whom each row belongs to: units are records, or the file is refused by one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.cli import main
from dptune.cli._job import Job, load_data
from dptune.errors import InvalidInput
from dptune.planner.incoming import Declared, bring_in
from dptune.units import UnitDataset

KEYS = np.array(["ann", "bob", "ann", "", "ann", "bob"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "icu.npz"
    np.savez(found, x=np.arange(12.0).reshape(6, 2), y=np.array([0, 1, 0, 1, 0, 1]), unit=KEYS)
    return found


def test_its_units_are_records(path: Path) -> None:
    data = bring_in(path, Declared(records=2, classes=2, unit_rows=2, unit="patient"), None).data
    assert isinstance(data, UnitDataset)
    assert (data.unit, len(data), data.unit_rows) == ("patient", 2, 2)
    assert data.rows.x[:, 0].tolist() == [0.0, 4.0, 2.0, 10.0]  # the first two of ann, those of bob; nobody's is out
    job: dict[str, Any] = {"file": str(path), "classes": 2, "unit_rows": 2, "unit": "patient"}
    same = load_data(Job({"data": job})).data
    assert np.array_equal(same.rows.x, data.rows.x)
    assert same.unit == "patient"


def test_keys_that_are_given_win(path: Path) -> None:
    data = bring_in(path, Declared(records=6, classes=2, units=np.arange(6), unit_rows=1), None).data
    assert len(data) == 6


def test_a_file_with_units_is_not_taken_for_rows(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match=r"has an array 'unit'.* declare 'unit_rows'"):
        bring_in(path, Declared(records=6, classes=2), None)
    given = ["--classes", "2", "--records", "6", "--epsilon", "1", "--delta", "1e-4", "--out", str(path.parent / "run")]
    assert main(["tune", str(path), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--unit-rows" in line
    assert "ann" not in line.replace("dptune", "")
    assert not (path.parent / "run").exists()


def test_a_file_without_units_says_how_to_add_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.zeros((3, 2)), y=np.zeros(3))
    with pytest.raises(InvalidInput, match="write an array 'unit' into it"):
        bring_in(path, Declared(records=3, classes=2, unit_rows=2), None)
    np.savez(path, x=np.zeros((3, 2)), y=np.zeros(3), unit=np.zeros(2))
    with pytest.raises(InvalidInput, match="one key for each row"):
        bring_in(path, Declared(records=3, classes=2, unit_rows=2), None)


def test_public_validation_needs_no_units(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "public.npz", x=np.zeros((3, 2)), y=np.zeros(3))
    job = {"file": str(path), "classes": 2, "unit_rows": 2, "validation": str(tmp_path / "public.npz")}
    loaded = load_data(Job({"data": job}))
    assert isinstance(loaded.data, UnitDataset)
    assert loaded.public is not None
    assert len(loaded.public) == 3


def test_units_of_a_file_with_numbers_are_records_too(path: Path) -> None:
    """A range instead of classes: rows of one person are still put together, or the file is refused."""
    job: dict[str, Any] = {"file": str(path), "target_range": [0.0, 1.0], "unit_rows": 2, "unit": "patient"}
    data = load_data(Job({"data": job})).data
    assert isinstance(data, UnitDataset)
    assert data.unit == "patient"
    with pytest.raises(InvalidInput, match="unit_rows"):
        load_data(Job({"data": {"file": str(path), "target_range": [0.0, 1.0]}}))
    with pytest.raises(InvalidInput, match="unit_rows"):
        bring_in(path, Declared(records=6, target_range=(0.0, 1.0)), None)


def test_the_command_names_the_unit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--classes", "2", "--records", "2", "--epsilon", "1", "--delta", "1e-4", "--out", str(path.parent / "run")]
    seen: list[Job] = []
    monkeypatch.setattr("dptune.cli.tune.run_job", lambda job, out, quiet: seen.append(job))
    monkeypatch.setattr("dptune.cli.tune.show", lambda release, as_json: 0)
    assert main(["tune", str(path), *given, "--unit-rows", "2", "--unit", "patient"]) == 0
    assert load_data(seen[0]).data.unit == "patient"


def test_a_name_without_units_is_refused(tmp_path: Path) -> None:
    pair = np.zeros((3, 2)), np.zeros(3, int)
    with pytest.raises(InvalidInput, match="'unit' = 'patient' names units of several rows; give 'units'"):
        bring_in(pair, Declared(records=3, classes=2, unit="patient"), None)
    np.savez(tmp_path / "rows.npz", x=pair[0], y=pair[1])
    for read in (
        lambda: bring_in(tmp_path / "rows.npz", Declared(records=3, classes=2, unit="patient"), None),
        lambda: load_data(Job({"data": {"file": str(tmp_path / "rows.npz"), "classes": 2, "unit": "patient"}})),
    ):
        with pytest.raises(InvalidInput, match="'unit' is for rows of units"):
            read()
