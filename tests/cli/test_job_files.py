"""Records from files: what cannot be read is one clear line before anything is charged, and no line quotes a record."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dptune.cli import main
from dptune.cli._job import Job, load_data
from dptune.errors import InvalidInput
from dptune.training import Dataset

SECRET = 31337


def _saved(path: Path, **arrays: object) -> bytes:
    np.savez(path, **arrays)  # type: ignore[arg-type] # arrays, whatever they hold
    return path.read_bytes()


def _claims(shape: tuple[int, ...]) -> bytes:
    """An archive whose header claims more than there is."""
    header, labels, archive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    np.save(labels, np.zeros(3, int))
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("x.npy", header.getvalue() + bytes(64))
        stream.writestr("y.npy", labels.getvalue())
    return archive.getvalue()


def _broken(folder: Path) -> dict[str, bytes]:
    whole = _saved(folder / "whole.npz", x=np.full((50, 3), SECRET), y=np.full(50, SECRET))
    flipped = bytearray(whole)
    flipped[300] ^= 255
    return {
        "cut off": whole[: len(whole) // 2],
        "one bit": bytes(flipped),
        "empty": b"",
        "no archive": b"hello" * 100,
        "too large": _claims((10**9, 10**4)),
        "too short": _claims((100, 3)),
        "objects": _saved(folder / "objects.npz", x=np.array([[SECRET, None]], object), y=np.zeros(1, int)),
        "one array": _saved(folder / "one.npz", x=np.zeros((3, 2))),
        "words": _saved(folder / "words.npz", x=np.array([[str(SECRET)]]), y=np.zeros(1, int)),
        "flat": _saved(folder / "flat.npz", x=np.full(3, SECRET), y=np.zeros(3, int)),
        "lengths": _saved(folder / "lengths.npz", x=np.full((3, 2), SECRET), y=np.zeros(4, int)),
    }


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "records.npz", tmp_path / "run"
    stated = ["--classes", "2", "--records", "50", "--epsilon", "1", "--delta", "1e-5", "--out", str(out)]
    for name, content in _broken(tmp_path).items():
        path.write_bytes(content)
        assert main(["tune", "--data", str(path), *stated]) == 2, name
        shown = capsys.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1, name
        assert str(SECRET) not in shown.err
        assert not out.exists()


def test_private_files_are_repaired_and_public_ones_refused(tmp_path: Path) -> None:
    """By the rules that the job declares; a public file, or a validation file, says what is wrong with it."""
    path = tmp_path / "records.npz"
    np.savez(path, x=np.array([[0.5, np.nan], [7.0, -np.inf]]), y=np.array([1.0, -3.5]))
    given = {"file": str(path), "classes": 3, "feature_range": [0, 1], "missing": 0.25, "unknown_label": 2}
    data, held = load_data(Job({"data": given}))[:2]
    assert isinstance(data, Dataset)
    assert held is None
    assert data.x.tolist() == [[0.5, 0.25], [1.0, 0.0]]
    assert data.y.tolist() == [1, 2]
    for public in ({"kind": "public"}, {"validation": str(path)}):
        with pytest.raises(InvalidInput, match="NaN or infinite"):
            load_data(Job({"data": {**given, **public}}))


def test_unknown_names_come_with_the_nearest_known_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("[data]\nvalidaton = 1\n", "'validation'"), ("[budgt]\nepsilon = 1\n", "'budget'")):
        (tmp_path / "job.toml").write_text(text)
        assert main(["tune", str(tmp_path / "job.toml"), "--out", str(tmp_path / "run")]) == 2
        assert f"did you mean {said}?" in capsys.readouterr().err


def test_a_folder_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["tune", str(tmp_path), "--epsilon", "1", "--delta", "1e-5", "--out", str(tmp_path / "run")]
    assert main(given) == 2
    assert "is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["tune"], ["price"], ["ledger"], ["ledger", "show"]])
def test_a_short_h_asks_for_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "-h"]) == 0
    assert "Usage:" in capsys.readouterr().out
