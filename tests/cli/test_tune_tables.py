"""``dptune tune FILE --schema SCHEMA``: from a table to a release, and one line for everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dptune.cli import main
from dptune.cli.predict import rows_of
from dptune.errors import InvalidInput
from dptune.sealed import _under_way, load_release
from dptune.tables import Encoder, schema_from_toml

SCHEMA = """
version = 1
records = 1000
[columns.a]
kind = "number"
range = [-3, 3]
[columns.town]
kind = "category"
values = ["Ulm", "Bonn"]
[columns.y]
kind = "target"
classes = ["no", "yes"]
"""
BUDGET = ["--epsilon", "3", "--delta", "1e-4"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    rows = [
        f"{a:.3f},{('Ulm', 'Bonn', '?')[i % 3]},{'yes' if a > 0 else 'no'}" for i, a in enumerate(rng.normal(size=1100))
    ]
    (tmp_path / "icu.csv").write_text("a,town,y\n" + "\n".join(rows) + "\n")
    (tmp_path / "icu.toml").write_text(SCHEMA)
    return tmp_path / "icu.csv"


def test_a_table_is_tuned_in_one_command(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "icu"
    given = ["tune", str(table), "--schema", str(tmp_path / "icu.toml"), *BUDGET, "--out", str(out), "--json"]
    assert main(given) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["dataset"] == str(table.resolve())
    assert shown["epsilon"] <= 3
    release = load_release(out)
    assert release.predict([{"a": 2.5, "town": "Ulm"}, {"a": "-2.5", "town": "Rome"}]) == ["yes", "no"]
    (tmp_path / "new.csv").write_text("town,a\nUlm,3\nBonn,-3\n")
    assert release.predict(tmp_path / "new.csv") == ["yes", "no"]
    assert repr(release).startswith(f"Release({str(out / 'release')!r}: model.npz by ")
    found = tmp_path / "predictions.csv"
    assert main(["predict", str(out), str(tmp_path / "new.csv"), "--out", str(found)]) == 0
    lines = [line.split(",") for line in found.read_text().splitlines()]
    assert lines[0] == ["prediction", "probability_no", "probability_yes"]
    assert [line[0] for line in lines[1:]] == ["yes", "no"]
    assert float(lines[1][2]) > 0.5 > float(lines[2][2])
    capsys.readouterr()
    assert main(["vault", "show", str(out), "--reason", "repairs"]) == 0
    assert '"town": 366' in capsys.readouterr().out
    (tmp_path / "icu.csv").unlink()
    assert main(given) == 2  # said before the records are read
    assert "already a run" in (said := capsys.readouterr().err)
    assert "it is finished: see" in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", None, "none.csv"),
        ("rows.json", "{}", "must be a .csv, a .parquet or an .npz"),
        ("other.csv", "b,town\n1,Ulm\n", "'a'"),
    ],
)
def test_raw_rows_that_are_no_table_are_one_line(tmp_path: Path, name: str, content: str | None, said: str) -> None:
    encoder = Encoder(schema_from_toml(SCHEMA))
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput) as refused:
        rows_of(tmp_path / name, encoder)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_job_file_may_name_a_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        '[data]\nfile = "icu.csv"\nschema = "icu.toml"\nvalidation = "icu.csv"\nkind = "public"\n'
        '[model]\nsteps = 20\n[space]\nlearning_rate = [0.5, 1.0]\n[method]\nname = "random-stopping"\n'
        'runs = "geometric:2"\n[budget]\nepsilon = 3.0\ndelta = 1e-4\n[run]\nseed = 1\nworkers = 1\n'
    )
    assert main(["tune", str(job), "--out", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["params"]["learning_rate"] in (0.5, 1.0)


def test_a_resumed_run_keeps_its_schema(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the schema may change or vanish: the run goes on under the one that it began with."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(_under_way.UnderWay, "_train", stop)
        assert main(["tune", str(table), "--schema", str(tmp_path / "icu.toml"), *BUDGET, "--out", str(out)]) == 2
    assert "dptune resume" in capsys.readouterr().err
    (tmp_path / "icu.toml").write_text(SCHEMA.replace("records = 1000", "records = 50"))
    code = main(["resume", str(out)])
    said = capsys.readouterr()
    assert code == 0, said.err
    encoder = load_release(out).encoder
    assert encoder is not None
    assert encoder.schema == schema_from_toml(SCHEMA)


def test_a_table_without_a_schema_says_how_to_draft_one(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["tune", str(table), *BUDGET, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "dptune schema draft" in said
    assert len(said.splitlines()) == 1
    assert not out.exists()
    public = ["--data-is", "public", "--seed", "1", "--out", str(out)]
    assert main(["tune", str(table), *BUDGET, *public]) == 2
    assert "--target" in capsys.readouterr().err
    assert main(["tune", str(table), *BUDGET, *public, "--target", "y"]) == 0


_WRONG = {
    "no target": ("icu.csv", "a,town\n1,Ulm\n", SCHEMA, "no column 'y', the target"),
    "unknown column": ("icu.csv", "a,town,y,z\n1,Ulm,no,1\n", SCHEMA, "'z' that the schema does not declare"),
    "column twice": ("icu.csv", "a,town,y,y\n1,Ulm,no,no\n", SCHEMA, "'y' twice"),
    "empty": ("icu.csv", "", SCHEMA, "is empty"),
    "header only": ("icu.csv", "a,town,y\n", SCHEMA, "no rows"),
    "wrong delimiter": ("icu.csv", "a;town;y\n1;Ulm;no\n", SCHEMA, "delimiter = ';'"),
    "packed": ("icu.csv.gz", "", SCHEMA, "unpack it first"),
    "misspelt kind": ("icu.csv", "a,town,y\n", SCHEMA.replace('"number"', '"numbr"'), "did you mean 'number'"),
    "older schema": ("icu.csv", "a,town,y\n", SCHEMA.replace("version = 1", "version = 0"), "version 0"),
    "unit": ("icu.csv", "a,town,y\n", SCHEMA.replace("records", 'unit = "a"\nrecords'), "need 'unit_rows'"),
    "no range": ("icu.csv", "a,town,y\n", SCHEMA.replace('classes = ["no", "yes"]', "range = [1, 1]"), "not one value"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_what_is_wrong_in_public_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, schema, said = _WRONG[name]
    (tmp_path / file).write_text(content)
    (tmp_path / "icu.toml").write_text(schema)
    out = tmp_path / "run"
    assert main(["tune", str(tmp_path / file), "--schema", str(tmp_path / "icu.toml"), *BUDGET, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not out.exists()


def test_a_folder_and_two_sources_are_one_line(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--schema", str(tmp_path / "icu.toml"), *BUDGET, "--out", str(tmp_path / "run")]
    for arguments, said in (
        ([str(tmp_path)], "is a folder"),
        ([str(table), "--data", "digits"], "Give one of the two"),
        (["--data", "digits"], "A schema is for the records of a file"),
        ([str(table), "--records", "7"], "'records' is the schema's to say"),
    ):
        assert main(["tune", *arguments, *given]) == 2
        assert said in capsys.readouterr().err


def test_a_table_of_patients_is_tuned_by_patient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the header to the release: a draft with a unit, filled in; the statement and the ledger name it."""
    rng = np.random.default_rng(2)
    lines = [f"p{rng.integers(500)},{a:.3f},{'yes' if a > 0 else 'no'}" for a in rng.normal(size=1500)]
    (tmp_path / "icu.csv").write_text("patient_id,a,y\n" + "\n".join([*lines, ",9,no", "broken"]) + "\n")
    path = tmp_path / "icu.toml"
    drafted = ["schema", "draft", str(tmp_path / "icu.csv"), "--target", "y", "--unit", "patient_id"]
    assert main([*drafted, "--out", str(path)]) == 0
    filled = path.read_text().replace("records = 0", "records = 480").replace("unit_rows = 0", "unit_rows = 4")
    filled = filled.replace('kind = "?"', 'kind = "number"\nrange = [-3, 3]')
    path.write_text(filled.replace("classes = []", 'classes = ["no", "yes"]'))
    out, book = tmp_path / "run", tmp_path / "h.ledger"
    run = ["tune", str(tmp_path / "icu.csv"), "--schema", str(path), *BUDGET, "--out", str(out), "--ledger", str(book)]
    opened = ["ledger", "add", str(book), "icu", "--epsilon", "10", "--delta", "1e-4"]
    assert main([*opened]) == 0
    assert main(run) == 2  # opened for records
    assert "The ledger protects each record of 'icu', and here a record is a patient" in capsys.readouterr().err
    book.unlink()
    assert main([*opened, "--unit", "patient"]) == 0
    capsys.readouterr()
    assert main([*run, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["unit"], shown["unit_rows"], shown["unit_column"]) == ("patient", 4, "patient_id")
    assert shown["neighbours"] == "add or remove one patient"
    release = load_release(out)
    assert "of which at most 4 take part" in release.statement
    assert release.predict([{"a": 2.5}, {"a": -2.5}]) == ["yes", "no"]
    assert "p1" not in json.dumps(shown)
