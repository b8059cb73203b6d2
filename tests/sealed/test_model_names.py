"""A release's model lies beside its ``release.json``: no name in that file leads anywhere else."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from dptune.errors import Corrupt
from dptune.sealed import Release


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def _release(folder: Path, name: object, content: bytes) -> Release:
    details = {"model": name, "model_sha256": hashlib.sha256(content).hexdigest()}
    return Release(folder, {}, 1.0, 1e-5, None, "subset", "icu", "", details)


@pytest.mark.parametrize("name", ["../evil.pickle", "evil.pickle", "/{}/evil.pickle", "./model.pickle", "", 3, ["a"]])
def test_no_name_leads_out_of_the_release(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    content = pickle.dumps(Planted(tmp_path / "ran"))
    for place in (tmp_path / "evil.pickle", folder / "evil.pickle", folder / "model.pickle"):
        place.write_bytes(content)
    asked = name.format(tmp_path) if isinstance(name, str) else name
    with pytest.raises(Corrupt, match="a release holds one of"):
        _ = _release(folder, asked, content).model
    assert not (tmp_path / "ran").exists()


def test_a_model_with_another_hash_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    with pytest.raises(Corrupt, match="not the one that was released"):
        _ = _release(tmp_path, "model.pickle", b"another").model
    assert not (tmp_path / "ran").exists()
