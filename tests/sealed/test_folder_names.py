"""A data set's name never leads out of the folder of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sealed.toy import DATA, ToyTrainer, toy_plan

from dptune.errors import InvalidInput
from dptune.sealed import run

NAMES = ["../x", "a/b", "/tmp/x", "..", ".hidden", "a\\b", "a\nb", "a\x00b", "\udce9", " x", "x" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_plain_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with pytest.raises(InvalidInput, match=r"cannot name a folder|half a character"):
        run(toy_plan(), ToyTrainer(), DATA, dataset=name)
    assert list(tmp_path.rglob("*")) == [inside]
