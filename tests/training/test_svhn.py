"""SVHN's files of cropped digits: how they are read, and what is said about other files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dptune.errors import InvalidInput
from dptune.training import load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    (tmp_path / "svhn").mkdir()
    return tmp_path / "svhn"


def test_pixels_by_colour_and_zero_stored_as_ten(folder: Path) -> None:
    x = np.random.default_rng(3).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for part, y in (("train", [[1], [10], [9], [2]]), ("test", [[10], [3], [3], [4]])):
        savemat(folder / f"{part}_32x32.mat", {"X": x, "y": np.array(y, dtype=np.uint8)})
    split = load("svhn")
    assert split.train.y.tolist() == [1, 0, 9, 2]
    assert split.test.y.tolist() == [0, 3, 3, 4]
    assert (split.train.public, split.test.public) == (False, True)
    for record, colour, row, column in ((0, 0, 0, 0), (1, 2, 5, 31), (3, 1, 30, 7)):
        place = 1024 * colour + 32 * row + column
        assert split.train.x[record, place] == pytest.approx(x[row, column, colour, record] / 255)


@pytest.mark.parametrize("raw", [b"", b"x" * 300])
def test_another_file_is_refused_in_one_line(folder: Path, raw: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"no file .*train_32x32\.mat.*folder svhn/ of DPTUNE_DATA"):
        load("svhn")
    (folder / "train_32x32.mat").write_bytes(raw)
    with pytest.raises(InvalidInput, match=r"does not hold SVHN's cropped digits\. Put the original"):
        load("svhn")
    savemat(folder / "train_32x32.mat", {"X": np.zeros((2, 2))})
    with pytest.raises(InvalidInput, match="does not hold SVHN's cropped digits"):
        load("svhn")
