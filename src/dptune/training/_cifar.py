"""CIFAR-10 from its published files: the binary version, or the python version's pickles.

A pickle is a program. These are read by a loader that knows the few instructions that plain arrays, texts and numbers
need, and refuses every other: no name is imported, no function is called but the building of an array of bytes.
"""

from __future__ import annotations

import lzma
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

__all__ = ["read_binary", "read_pickle"]

PIXELS = 3 * 32 * 32
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_binary(path: Path) -> Images:
    """Images and labels of one binary batch: a record is a byte for its class and 3072 for red, green and blue."""
    raw = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    if not raw or len(raw) % (1 + PIXELS):
        raise InvalidInput(f"{path} is not a binary batch of CIFAR-10. Put the original there.")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def read_pickle(path: Path) -> Images:
    """Images and labels of one batch of the python version; runs nothing of what the file says."""
    try:
        with path.open("rb") as stream:
            content = _Plain(stream, encoding="bytes").load()
        x, y = content[b"data"], content[b"labels"]
        images = np.asarray(x if isinstance(x, np.ndarray) else x.made, dtype=np.uint8).reshape(-1, PIXELS)
        labels = np.array(y, dtype=np.int64)
    except (
        pickle.UnpicklingError, KeyError, AttributeError, TypeError, IndexError, EOFError, ValueError, OverflowError,
        MemoryError,
    ):  # fmt: skip
        raise InvalidInput(f"{path} is not a batch of CIFAR-10's python version. Put the original there.") from None
    if labels.shape != (len(images),):
        raise InvalidInput(f"{path} has not one label for each image. Put the original there.")
    return images, labels


class _Bytes:
    """Stands in for an array of bytes while its pickle is read: keeps the shape and the content that it is told."""

    made: NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        if kind is not _BYTE or not isinstance(content, bytes):
            raise pickle.UnpicklingError("not an array of bytes")
        self.made = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Byte:
    """Stands in for numpy's type of a byte, whose state says nothing that is needed."""

    def __setstate__(self, state: Any) -> None:
        pass


_BYTE = _Byte()


def _array(*_: Any) -> _Bytes:
    return _Bytes()


def _dtype(kind: Any, *_: Any) -> _Byte:
    if kind not in (b"u1", "u1"):
        raise pickle.UnpicklingError("not a type of bytes")
    return _BYTE


_KNOWN = {"_reconstruct": _array, "dtype": _dtype, "ndarray": _Bytes}


class _Plain(pickle.Unpickler):
    """A reader of pickles for which the three names of an array are stand-ins, and every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] != "numpy" or name not in _KNOWN:
            raise pickle.UnpicklingError("a name that an array does not need")
        return _KNOWN[name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("a reference to somewhere else")
