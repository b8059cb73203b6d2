"""Bad public input, by the command itself: one clear line, exit code 2, nothing charged, nothing made, no traceback."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.cli import main
from dptune.cli._job import SECTIONS, read_job
from dptune.cli._job_types import TYPES
from dptune.errors import InvalidInput
from dptune.methods.registry import known_methods, method_named
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.spaces import Float, Space

SCHEMA = """\
version = 1
records = 400
[columns.a]
kind = "number"
range = [0, 1]
[columns.town]
kind = "category"
values = ["Ulm", "Bonn"]
[columns.y]
kind = "target"
classes = ["no", "yes"]
"""
ROWS = "a,town,y\n" + "0.5,Ulm,no\n0.25,Bonn,yes\n" * 50
SECRET = "31337.25"
"""What a private cell holds in the files below: no line may quote it."""


def _many(count: int) -> str:
    values = ", ".join(f'"v{one}"' for one in range(count))
    return SCHEMA.replace('values = ["Ulm", "Bonn"]', f"values = [{values}]")


_FILES: dict[str, tuple[str, bytes | str | None, str, str]] = {
    "missing target": ("t.csv", f"a,town\n{SECRET},Ulm\n", SCHEMA, "no column 'y', the target"),
    "unknown column": ("t.csv", f"a,town,y,zip\n{SECRET},Ulm,no,1\n", SCHEMA, "'zip' that the schema does not declare"),
    "duplicate columns": ("t.csv", f"a,town,y,a\n1,Ulm,no,{SECRET}\n", SCHEMA, "'a' twice"),
    "empty file": ("t.csv", "", SCHEMA, "is empty"),
    "header only": ("t.csv", "a,town,y\n", SCHEMA, "holds no rows"),
    "wrong delimiter": ("t.csv", f"a;town;y\n{SECRET};Ulm;no\n", SCHEMA, "delimiter = ';'"),
    "a folder": ("t.csv", None, SCHEMA, "is a folder"),
    "gzip by name": ("t.csv.gz", gzip.compress(ROWS.encode()), SCHEMA, "unpack it first"),
    "gzip by content": ("t.csv", gzip.compress(ROWS.encode()), SCHEMA, "is not CSV text but gzip"),
    "a misspelt kind": ("t.csv", ROWS, SCHEMA.replace('"number"', '"numbr"'), "did you mean 'number'"),
    "an older schema": ("t.csv", ROWS, SCHEMA.replace("version = 1", "version = 0"), "version 0"),
    "a newer schema": ("t.csv", ROWS, SCHEMA.replace("version = 1", "version = 7"), "version 7"),
    "no version": ("t.csv", ROWS, SCHEMA.replace("version = 1\n", ""), "version"),
    "10^6 categories": ("t.csv", ROWS, _many(10**6), "at most 10,000 values"),
    "a schema that is none": ("t.csv", ROWS, "hello", "not TOML"),
    "an npz that is none": ("t.npz", b"hello", SCHEMA, "whole .npz file"),
    "a Parquet file that is none": ("t.parquet", b"hello", SCHEMA, "Parquet"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default ledger of the test's own, which must not come to be."""
    path = tmp_path / "home" / "ledger"
    monkeypatch.setenv("DPTUNE_LEDGER", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str], home: Path, out: Path) -> str:
    before = sorted(str(one) for one in home.parent.parent.rglob("*"))
    assert main(["tune", *arguments, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("dptune: ")
    assert line.endswith((".", "?")), line
    assert "Traceback" not in line
    assert SECRET not in line
    assert not out.exists()
    assert sorted(str(one) for one in home.parent.parent.rglob("*")) == before
    return line


@pytest.mark.parametrize("name", _FILES)
def test_a_bad_file_is_one_line(name: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, schema, said = _FILES[name]
    path = tmp_path / file
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    (tmp_path / "t.toml").write_text(schema)
    given = [str(path), "--schema", str(tmp_path / "t.toml"), "--epsilon", "1", "--delta", "1e-4"]
    assert said in _refused(given, capsys, home, tmp_path / "run")


def test_a_name_that_no_file_can_have_is_one_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["x" * 3000 + ".csv", "--epsilon", "1", "--delta", "1e-4"]
    assert len(_refused(given, capsys, home, tmp_path / "run")) < 2000


# Values of every kind that TOML has, as it writes them. A field takes some of them and refuses the rest.
_VALUES: dict[str, Any] = {
    "64": 64,
    "-3": -3,
    "1.5": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "1" + "0" * 400: 10**400,
    "true": True,
    '""': "",
    '"words"': "words",
    "[]": [],
    "[64, 32]": [64, 32],
    '["a"]': ["a"],
    "[[1]]": [[1]],
    "{a = 1}": {"a": 1},
    "2030-01-01": datetime.date(2030, 1, 1),
    "01:02:03": datetime.time(1, 2, 3),
}
_WRONG_RANGES = [text for text in _VALUES if text != "[64, 32]"]  # those are choices
_BASE = {
    "data": {"file": '"t.npz"', "classes": "2", "records": "400"},
    "model": {"kind": '"mlp"'},
    "budget": {"epsilon": "1.0", "delta": "1e-4"},
    "method": {"name": '"random-stopping"'},
}


def _job(section: str, field: str, value: str) -> str:
    sections = {name: dict(fields) for name, fields in _BASE.items()}
    sections.setdefault(section, {})[field] = value
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {one}\n" for key, one in fields.items()) for name, fields in sections.items()
    )


def _wrong() -> Iterator[tuple[str, str, str]]:
    for section, fields in TYPES.items():
        for field, (_, fits) in fields.items():
            yield from ((section, field, text) for text, value in _VALUES.items() if not fits(value))


def test_every_field_of_a_job_has_a_kind() -> None:
    assert {name: set(fields) for name, fields in TYPES.items()} == {
        name: set(fields) for name, fields in SECTIONS.items() if fields
    }


def test_a_wrong_kind_in_a_job_is_one_line(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every field with every kind of value that it does not take, one of each by the command itself."""
    path, count, seen = tmp_path / "job.toml", 0, set()
    for section, field, value in _wrong():
        path.write_text(_job(section, field, value))
        with pytest.raises(InvalidInput) as error:
            read_job(path)
        assert str(error.value).startswith(f"{field!r} of [{section}] must be "), (section, field, value)
        assert len(str(error.value)) < 200
        if (section, field) not in seen:
            assert str(error.value) in _refused([str(path)], capsys, home, tmp_path / "run")
        seen.add((section, field))
        count += 1
    assert count > 30 * 6
    assert len(seen) == sum(map(len, TYPES.values()))
    path.write_text(_job("model", "hidden", "64"))
    line = _refused([str(path)], capsys, home, tmp_path / "run")
    assert line == "dptune: 'hidden' of [model] must be a list of whole numbers, such as [64]; got 64."


def test_a_wrong_section_or_an_unknown_key_is_one_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    for text, said in (
        ("model = 3\n", "[model] must be a section"),
        ("[modle]\nkind = 'mlp'\n", "did you mean 'model'?"),
        ("[model]\nhiden = [64]\n", "did you mean 'hidden'?"),
        ("[data]\nrecord = 3\n", "did you mean 'records'?"),
        ("[run]\nworker = 3\n", "did you mean 'workers'?"),
        ("[budget]\nepsilon = 1.0\ndelta = 1e-4\nepsilonn = 2\n", "did you mean 'epsilon'?"),
        ("[model\n", "is not TOML"),
    ):
        path.write_text(text)
        assert said in _refused([str(path)], capsys, home, tmp_path / "run"), text


@pytest.mark.parametrize(
    "value", [*_WRONG_RANGES, "{low = 1, high = 'x'}", "{low = 1, high = 2, log = 'no'}", "{low = 2.0, high = 1}"]
)
def test_a_wrong_range_is_one_line(value: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _records(tmp_path)
    path = tmp_path / "job.toml"
    path.write_text(_job("space", "learning_rate", value))
    line = _refused([str(path)], capsys, home, tmp_path / "run")
    assert len(line) < 700


def _records(folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(folder / "t.npz", x=rng.random((400, 2)), y=rng.integers(0, 2, 400))


def test_a_wrong_setting_of_a_method_is_one_line() -> None:
    """Every method, a few of its settings, every kind of value: refused by name, or planned."""
    job, refused = Surroundings(Space(lr=Float(0.1, 1.0)), 0.2, 400), []
    for name in known_methods():
        kind = method_named(name)
        for field in {**vars(kind)["__dataclass_fields__"], "grid": None, "inner": None, "runs": None}:
            for value in _VALUES.values():
                try:
                    method_from_settings(kind, {field: value}, job)
                except InvalidInput as error:
                    refused.append(str(error))
    assert len(refused) > 500
    assert not [line for line in refused if "\n" in line]


def test_the_command_says_the_same_to_machines(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(_job("model", "steps", '"many"'))
    assert main(["tune", str(path), "--out", str(tmp_path / "run"), "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "'steps' of [model] must be a whole number; got 'many'." in shown.err
    assert json.dumps(shown.err).count("\\n") == 1
