"""Results that are kept: computed once, found again, and computed again where a line was cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from dptune.errors import InvalidInput
from dptune.reproductions.kept import Kept, cache_folder, keep_in


def test_a_value_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> float:
        made.append(1)
        return 0.1 + 0.2

    first = Kept("cells", tmp_path).get({"a": 1, "b": 0.5}, make)
    assert Kept("cells", tmp_path).get({"b": 0.5, "a": 1}, make) == first  # to the last digit, any order of keys
    assert len(made) == 1
    Kept("cells", tmp_path).get({"a": 2, "b": 0.5}, make)
    assert len(made) == 2


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    kept = Kept("cells", tmp_path)
    for i in range(3):
        kept.get({"i": i}, lambda i=i: float(i))  # type: ignore[misc]
    path = tmp_path / "cells.jsonl"
    path.write_text(path.read_text()[:-9])
    again = Kept("cells", tmp_path)
    assert [again.get({"i": i}, lambda: -1.0) for i in range(3)] == [0.0, 1.0, -1.0]
    assert [Kept("cells", tmp_path).get({"i": i}, lambda: -2.0) for i in range(3)] == [0.0, 1.0, -1.0]


def test_the_folder_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with keep_in(tmp_path / "mine"):
        Kept("cells").get({}, lambda: 1)
        with keep_in(None):
            assert cache_folder() == tmp_path / "mine"
    assert (tmp_path / "mine" / "cells.jsonl").is_file()
    assert cache_folder() == tmp_path / "dptune"
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="--out"):
        Kept("cells", tmp_path / "file")
