"""Labelled data sets, and loaders for the benchmark files that ``DPTUNE_DATA`` points to.

Preprocessing is per record with public constants: pixel range, the categories of ``adult.names``, hashed
words. Nothing here may be fitted on records (no means, no vocabularies): that would be an unpaid release.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.training.noise import RunKey

__all__ = ["Dataset", "Split", "adult", "data_root", "digits", "fashion_mnist", "imdb", "load", "mnist"]

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records as rows of ``x`` with labels ``y`` in [0, classes).

    The arrays are not copied, and engines keep what they computed of them: do not change them afterwards.
    """

    x: Floats
    y: NDArray[np.int64]
    classes: int
    name: str = "data"

    def __post_init__(self) -> None:
        x, y = np.asarray(self.x), np.asarray(self.y)
        _validate.integer("classes", self.classes, 2)
        for name, values in (("x", x), ("y", y)):
            if values.dtype.kind not in "fiub":
                raise InvalidInput(
                    f"{name!r} must hold numbers; got {values.dtype}. Encode words and dates by a rule that looks at "
                    "no other record."
                )
        if not np.issubdtype(x.dtype, np.floating):
            x = x.astype(np.float32)
        if x.ndim != 2:
            raise InvalidInput(f"'x' must have one row per record; got shape {x.shape}. Flatten images first.")
        if y.shape != (len(x),):
            raise InvalidInput(f"'y' must hold one label per record ({len(x)}); got shape {y.shape}.")
        if not np.isfinite(x).all():
            raise InvalidInput(
                "'x' holds NaN or infinite features, and one such record would destroy every gradient. "
                "Fill or drop them by a rule that looks at no other record."
            )
        if len(y) and not np.issubdtype(y.dtype, np.integer) and (y != np.floor(y)).any():
            raise InvalidInput("'y' must hold whole numbers (class labels); got fractions. Number the classes from 0.")
        if len(y) and (y.min() < 0 or y.max() >= self.classes):
            raise InvalidInput(
                f"labels must lie in [0, {self.classes}); got values from {y.min()} to {y.max()}. "
                "Renumber them or state the right number of classes."
            )
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y.astype(np.int64))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: NDArray[np.int64]) -> Dataset:
        """The records at the given places."""
        return _trusted(self, self.x[index], self.y[index])

    def map(self, features: Callable[[Floats], Floats]) -> Dataset:
        """The same records with other features; the function must treat every record on its own."""
        return replace(self, x=features(self.x))

    def shards(self, count: int, key: RunKey) -> list[Dataset]:
        """Split by one independent uniform label per record (never by shuffling into equal chunks)."""
        label = key.child("shards").generator().integers(0, count, len(self))
        return [self.take(np.flatnonzero(label == shard)) for shard in range(count)]


class Split(NamedTuple):
    """A data set's published training and test parts."""

    train: Dataset
    test: Dataset


def _trusted(like: Dataset, x: Floats, y: NDArray[np.int64]) -> Dataset:
    """A data set of records that were checked before."""
    part = object.__new__(Dataset)
    for name, value in (("x", x), ("y", y), ("classes", like.classes), ("name", like.name)):
        object.__setattr__(part, name, value)
    return part


def data_root() -> Path:
    """The folder that ``DPTUNE_DATA`` names."""
    root = os.environ.get("DPTUNE_DATA", "")
    if not root:
        raise InvalidInput(
            "the environment variable DPTUNE_DATA is not set. Point it to a folder with mnist/, "
            "fashion-mnist/, adult/ and imdb/ (see docs/training.md for the files in each)."
        )
    return Path(root)


def _open(folder: str, name: str) -> Path:
    path = data_root() / folder / name
    if not path.is_file():
        raise InvalidInput(f"no file {path}. Put the original {name} into the folder {folder}/ of DPTUNE_DATA.")
    return path


def _idx(folder: str, name: str) -> NDArray[np.uint8]:
    """An array in the idx format of the MNIST files."""
    path = _open(folder, name)
    with gzip.open(path, "rb") as stream:
        raw = stream.read()
    if len(raw) < 4 or raw[0] or raw[1] or raw[2] != 8:
        raise InvalidInput(f"{path} is not an idx file of bytes. Put the original {name} there.")
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _images(folder: str, part: str, name: str) -> Dataset:
    x = _idx(folder, f"{part}-images-idx3-ubyte.gz")
    y = _idx(folder, f"{part}-labels-idx1-ubyte.gz")
    flat = x.reshape(len(x), -1).astype(np.float32)
    flat /= np.float32(255.0)  # the pixel range is public
    return Dataset(flat, y.astype(np.int64), 10, name)


def mnist() -> Split:
    """MNIST: 60,000 and 10,000 digits, 784 pixels in [0, 1]."""
    return Split(_images("mnist", "train", "mnist"), _images("mnist", "t10k", "mnist"))


def fashion_mnist() -> Split:
    """Fashion-MNIST: 60,000 and 10,000 garments, 784 pixels in [0, 1]."""
    folder = "fashion-mnist"
    return Split(_images(folder, "train", folder), _images(folder, "t10k", folder))


def digits() -> Split:
    """The 1,797 small digits that scikit-learn ships: every fifth record is for testing."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow import, one loader needs it

    bunch = load_digits()
    x = (bunch.data / 16.0).astype(np.float32)  # the pixel range is public
    test = np.arange(len(x)) % 5 == 4
    y = bunch.target.astype(np.int64)
    return Split(Dataset(x[~test], y[~test], 10, "digits"), Dataset(x[test], y[test], 10, "digits"))


def adult() -> Split:
    """Adult: 32,561 and 16,281 census rows; categories from ``adult.names``, public ranges."""
    from dptune.training import _tabular  # noqa: PLC0415 - one loader needs it

    names = _open("adult", "adult.names")
    parts = [_tabular.adult(_open("adult", f"adult.{part}"), names) for part in ("data", "test")]
    return Split(*(Dataset(x, y, 2, "adult") for x, y in parts))


def imdb(buckets: int = 1024) -> Split:
    """IMDB: 25,000 and 25,000 film reviews as hashed bags of words of unit length."""
    from dptune.training import _text  # noqa: PLC0415 - one loader needs it

    parts = [_text.reviews(_open("imdb", f"imdb_{part}.tsv.bz2"), buckets) for part in ("train", "test")]
    return Split(*(Dataset(x, y, 2, "imdb") for x, y in parts))


def load(name: str) -> Split:
    """A benchmark data set by name."""
    known = {"digits": digits, "mnist": mnist, "fashion-mnist": fashion_mnist, "adult": adult, "imdb": imdb}
    if name not in known:
        raise InvalidInput(f"no data set called {name!r}. Choose one of {', '.join(known)}.")
    return known[name]()
