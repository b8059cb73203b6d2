"""CIFAR-10 from small files of the published formats; a pickle runs nothing."""

from __future__ import annotations

import lzma
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.training import load
from dptune.training._cifar import read_pickle

NAMES = [*(f"data_batch_{place}" for place in range(1, 6)), "test_batch"]


def images(count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), np.arange(count) % 10


def old_pickle(x: np.ndarray, y: np.ndarray) -> bytes:
    """A batch as Python 2 wrote it, instruction by instruction."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def small(value: int) -> bytes:
        return b"K" + bytes([value])

    shape = small(len(x)) + b"M" + struct.pack("<H", x.shape[1]) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + small(0) + b"\x85" + text(b"b") + b"\x87R"
    )
    kind = b"cnumpy\ndtype\n" + text(b"u1") + small(0) + small(1) + b"\x87R"
    kind += b"(" + small(3) + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff" + small(0) + b"tb"
    content = b"T" + struct.pack("<i", x.size) + x.tobytes()
    state = b"(" + small(1) + shape + kind + b"\x89" + content + b"tb"
    labels = b"](" + b"".join(small(int(label)) for label in y) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + state + text(b"labels") + labels + b"u."


@pytest.mark.parametrize("form", ["bin", "bin.xz", "python"])
def test_all_published_forms_are_read(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    x, y = images()
    rows = np.concatenate([y[:, None].astype(np.uint8), x], axis=1).tobytes()
    content = {"bin": rows, "bin.xz": lzma.compress(rows), "python": old_pickle(x, y)}[form]
    folder = tmp_path / ("cifar-10-batches-py" if form == "python" else "cifar-10-batches-bin")
    folder.mkdir()
    for name in NAMES:
        (folder / (name if form == "python" else f"{name}.{form}")).write_bytes(content)
    split = load("cifar-10")
    assert (len(split.train), len(split.test), split.train.public, split.test.public) == (20, 4, False, True)
    assert np.array_equal(split.test.x, (x / np.float32(255)).astype(np.float32))
    assert np.array_equal(split.train.y, np.tile(y, 5))


def test_newer_pickles_of_arrays_are_read(tmp_path: Path) -> None:
    x, y = images()
    (tmp_path / "new").write_bytes(pickle.dumps({b"data": x, b"labels": y.tolist()}, protocol=4))
    found, labels = read_pickle(tmp_path / "new")
    assert np.array_equal(found, x)
    assert np.array_equal(labels, y)


class Acts:
    """Does something when it is unpickled."""

    def __init__(self, call: Any, *given: Any) -> None:
        self.call, self.given = call, given

    def __reduce__(self) -> Any:
        return self.call, self.given


@pytest.mark.parametrize("call", [os.mkdir, np.save, np.fromfile])
def test_a_pickle_that_acts_is_refused_and_does_nothing(call: Any, tmp_path: Path) -> None:
    mark, file = tmp_path / "mark", tmp_path / "batch"
    given = (str(mark), b"x") if call is np.save else (str(mark),)
    file.write_bytes(pickle.dumps({b"data": Acts(call, *given), b"labels": [1]}))
    with pytest.raises(InvalidInput, match="python version"):
        read_pickle(file)
    assert [path.name for path in tmp_path.iterdir()] == ["batch"]


def test_damage_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"Put the original data_batch_1.bin into the folder cifar-10-batches-bin/"):
        load("cifar-10")
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in (("bin", b"123"), ("bin.xz", b"no xz")):
        (folder / f"data_batch_1.{name}").write_bytes(content)
        with pytest.raises(InvalidInput, match="not"):
            load("cifar-10")
        (folder / f"data_batch_1.{name}").unlink()
    x, y = images()
    for place in (5, 40, 200, -20):
        (tmp_path / "cut").write_bytes(old_pickle(x, y)[:place])
        with pytest.raises(InvalidInput, match="python version"):
            read_pickle(tmp_path / "cut")
    (tmp_path / "label").write_bytes(pickle.dumps({b"data": x, b"labels": [2**80] * len(y)}))
    (tmp_path / "length").write_bytes(
        b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b"x."
    )  # bytes that are not there
    for name in ("label", "length"):
        with pytest.raises(InvalidInput, match="python version"):
            read_pickle(tmp_path / name)
