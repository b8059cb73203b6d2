"""Loaders for the benchmark files that ``DPTUNE_DATA`` points to: training parts stand in for private records.

Preprocessing is per record with public constants: pixel range, the categories of ``adult.names``, hashed
words. Nothing here may be fitted on records (no means, no vocabularies): that would be an unpaid release.
"""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune.data import Dataset
from dptune.errors import InvalidInput

__all__ = ["Dataset", "Split", "adult", "cifar_10", "data_root", "digits", "fashion_mnist", "imdb", "load", "mnist",
           "svhn"]  # fmt: skip

_UNIT = (0.0, 1.0)
_PUBLIC = (False, True)  # training parts are treated as private


class Split(NamedTuple):
    """A data set's published parts.

    Args:
        train: Records for training, treated as private.
        test: Records for testing, public.

    Example:
        >>> from dptune.training import load
        >>> split = load("digits")
        >>> split.train.public, split.test.public
        (False, True)
    """

    train: Dataset
    test: Dataset


def data_root() -> Path:
    """The folder that ``DPTUNE_DATA`` names."""
    root = os.environ.get("DPTUNE_DATA", "")
    if not root:
        raise InvalidInput(
            "The environment variable DPTUNE_DATA is not set. Point it to a folder with mnist/, "
            "fashion-mnist/, cifar-10-batches-bin/, adult/ and imdb/ (see docs/training.md for the files in each)."
        )
    return Path(root)


def _open(folder: str, name: str) -> Path:
    path = data_root() / folder / name
    if not path.is_file():
        raise InvalidInput(
            f"There is no file {path}. Put the original {name} into the folder {folder}/ of DPTUNE_DATA."
        )
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


def _images(folder: str, part: str, public: bool) -> Dataset:
    x = _idx(folder, f"{part}-images-idx3-ubyte.gz")
    y = _idx(folder, f"{part}-labels-idx1-ubyte.gz")
    flat = x.reshape(len(x), -1).astype(np.float32)
    flat /= np.float32(255.0)  # the pixel range is public
    return Dataset(flat, y.astype(np.int64), 10, folder, public, feature_range=_UNIT)


def mnist() -> Split:
    """MNIST: 60,000 and 10,000 digits, 784 pixels in [0, 1]."""
    return Split(_images("mnist", "train", False), _images("mnist", "t10k", True))


def fashion_mnist() -> Split:
    """Fashion-MNIST: 60,000 and 10,000 garments, 784 pixels in [0, 1]."""
    return Split(_images("fashion-mnist", "train", False), _images("fashion-mnist", "t10k", True))


def cifar_10() -> Split:
    """CIFAR-10: 50,000 and 10,000 colour images of 32x32 pixels in [0, 1]: 1024 of red, then green, then blue."""
    from dptune.training import _cifar  # noqa: PLC0415 - one loader needs it

    def batch(name: str) -> _cifar.Images:
        binary, python = data_root() / "cifar-10-batches-bin", data_root() / "cifar-10-batches-py"
        for path in (binary / f"{name}.bin", binary / f"{name}.bin.xz"):
            if path.is_file():
                return _cifar.read_binary(path)
        if (python / name).is_file():
            return _cifar.read_pickle(python / name)
        return _cifar.read_binary(_open("cifar-10-batches-bin", f"{name}.bin"))  # says what is missing

    def part(names: list[str], public: bool) -> Dataset:
        batches = [batch(name) for name in names]
        x = np.concatenate([images for images, _ in batches]).astype(np.float32)
        x /= np.float32(255.0)  # the pixel range is public
        y = np.concatenate([labels for _, labels in batches])
        return Dataset(x, y, 10, "cifar-10", public, feature_range=_UNIT)

    return Split(part([f"data_batch_{place}" for place in range(1, 6)], False), part(["test_batch"], True))


def svhn() -> Split:
    """SVHN: 73,257 and 26,032 cropped house numbers of 32x32 pixels in [0, 1]: 1024 of red, then green, then blue."""
    from scipy.io import loadmat  # noqa: PLC0415 - one loader needs it
    from scipy.io.matlab import MatReadError  # noqa: PLC0415 - the same

    def part(name: str, public: bool) -> Dataset:
        path = _open("svhn", f"{name}_32x32.mat")
        try:
            read = loadmat(path, variable_names=("X", "y"))
            x = read["X"].transpose(3, 2, 0, 1).reshape(len(read["y"]), 3072).astype(np.float32)
            y = read["y"].ravel().astype(np.int64) % 10  # the digit 0 is stored as 10
        except (ValueError, KeyError, TypeError, NotImplementedError, MatReadError):
            raise InvalidInput(
                f"{path} does not hold SVHN's cropped digits. Put the original {path.name} there."
            ) from None
        x /= np.float32(255.0)  # the pixel range is public
        return Dataset(x, y, 10, "svhn", public, feature_range=_UNIT)

    return Split(part("train", False), part("test", True))


def digits() -> Split:
    """The 1,797 small digits that scikit-learn ships: every fifth record is for testing."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow import, one loader needs it

    bunch = load_digits()
    x = (bunch.data / 16.0).astype(np.float32)  # the pixel range is public
    test = np.arange(len(x)) % 5 == 4
    y = bunch.target.astype(np.int64)
    return Split(*(Dataset(x[part], y[part], 10, "digits", part is test, _UNIT) for part in (~test, test)))


def adult() -> Split:
    """Adult: 32,561 and 16,281 census rows; categories from ``adult.names``, public ranges."""
    from dptune.training import _tabular  # noqa: PLC0415 - one loader needs it

    names = _open("adult", "adult.names")
    parts = [_tabular.adult(_open("adult", f"adult.{part}"), names) for part in ("data", "test")]
    return Split(*(Dataset(x, y, 2, "adult", public, _UNIT) for (x, y), public in zip(parts, _PUBLIC, strict=True)))


def imdb(buckets: int = 8192) -> Split:
    """IMDB: 25,000 and 25,000 film reviews as hashed bags of words of unit length.

    How many buckets is a public constant, chosen by ``benchmarks/choose_constants.py``.
    """
    from dptune.training import _text  # noqa: PLC0415 - one loader needs it

    parts = [_text.reviews(_open("imdb", f"imdb_{part}.tsv.bz2"), buckets) for part in ("train", "test")]
    ends = (-1.0, 1.0)
    return Split(*(Dataset(x, y, 2, "imdb", public, ends) for (x, y), public in zip(parts, _PUBLIC, strict=True)))


def load(name: str) -> Split:
    """A benchmark data set by name.

    Args:
        name: "digits" (comes with scikit-learn), or "mnist", "fashion-mnist", "cifar-10", "svhn", "adult", "imdb"
            (files in the folder that the environment variable ``DPTUNE_DATA`` names).

    Returns:
        Its training part, treated as private, and its public test part.

    Raises:
        InvalidInput: If there is no such data set, or a file is missing or not what it should be.

    Example:
        >>> from dptune.training import load
        >>> len(load("digits").test)
        359
    """
    known = {
        "digits": digits,
        "mnist": mnist,
        "fashion-mnist": fashion_mnist,
        "cifar-10": cifar_10,
        "svhn": svhn,
        "adult": adult,
        "imdb": imdb,
    }
    if name not in known:
        raise InvalidInput(f"There is no data set called {name!r}. Choose one of {', '.join(known)}.")
    try:
        return known[name]()
    except InvalidInput:
        raise
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, struct.error) as error:
        # What the error says may quote a record.
        raise InvalidInput(
            f"A file of {name} is cut off or not what it should be ({type(error).__name__}). Put the original there."
        ) from None
