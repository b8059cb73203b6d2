"""``dptune tune FILE --schema SCHEMA``: from a table to a release, and one line for everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dptune.cli import main
from dptune.sealed import _under_way, load_release
from dptune.tables import schema_from_toml

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
    "unit": ("icu.csv", "a,town,y\n", SCHEMA.replace("records", 'unit = "a"\nrecords'), "not supported yet"),
    "regression": ("icu.csv", "a,town,y\n", SCHEMA.replace('classes = ["no", "yes"]', "range = [0, 1]"), "regression"),
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
