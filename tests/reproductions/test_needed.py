"""Missing files are named at once, before anything is computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dptune.cli import main
from dptune.cli.reproduce import FIGURES
from dptune.errors import InvalidInput
from dptune.reproductions.catalogue import EXPERIMENTS
from dptune.reproductions.needed import FILES, require

NEEDY = [name for name, one in EXPERIMENTS.items() if one.needs]


@pytest.mark.parametrize("name", NEEDY)
def test_every_experiment_names_its_missing_file_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(quick: bool, say: object) -> None:
        raise AssertionError("computed before the files were looked for")

    monkeypatch.setitem(FIGURES, name, replace(EXPERIMENTS[name], run=never))  # type: ignore[arg-type]
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    folder = EXPERIMENTS[name].needs.replace(";", ",").split(",")[0]
    assert main(["reproduce", name]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert f"{folder}/{FILES[folder][0]}" in said.err
    assert f"into the folder {folder}/ of DPTUNE_DATA" in said.err
    assert len(said.err.strip().splitlines()) == 1
    monkeypatch.delenv("DPTUNE_DATA")
    assert main(["reproduce", name, "--quick"]) == 2
    assert "DPTUNE_DATA is not set" in capsys.readouterr().err


def test_only_the_full_version_needs_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    for name in FILES["adult"]:
        (tmp_path / "adult" / name).touch()
    require("adult; in full imdb", quick=True)
    with pytest.raises(InvalidInput, match=r"imdb_train.tsv.bz2 into the folder imdb/ .* 1 more are missing"):
        require("adult; in full imdb", quick=False)


def test_compressed_batches_of_cifar_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in FILES["cifar-10-batches-bin"]:
        (folder / f"{name}.xz").touch()
    require("cifar-10-batches-bin", quick=True)


def test_every_folder_of_the_catalogue_is_known() -> None:
    for name in NEEDY:
        folders = EXPERIMENTS[name].needs.replace("; in full", ",").split(",")
        assert {folder.strip() for folder in folders} <= set(FILES), name
