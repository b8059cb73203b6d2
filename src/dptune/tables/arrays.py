"""Arrays without a schema: pairs (X, y), dense or sparse, and .npz files with the arrays x and y.

Their figures are declared beside them: how many classes, which range. Types and shapes are public; values are not.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.tables._cells import Places
from dptune.tables.columns import Target, plain_text
from dptune.tables.sources import is_sparse

__all__ = ["array_dataset", "read_npz"]


def read_npz(path: str | Path) -> tuple[Any, Any]:
    """The arrays x and y of an .npz file.

    That a file cannot be read is public; what it holds is not, so nothing of it is quoted.

    Args:
        path: The file, as ``numpy.savez(path, x=..., y=...)`` writes it.

    Returns:
        The two arrays.

    Raises:
        InvalidInput: If the file cannot be read, lacks an array, or does not fit into memory.

    Example:
        >>> import numpy as np
        >>> from dptune.tables import read_npz
        >>> np.savez("records.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 0]))
        >>> read_npz("records.npz")[1]
        array([0, 1, 0])
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _memory():
                raise MemoryError
            if missing := {"x.npy", "y.npy"} - set(archive.namelist()):
                raise InvalidInput(f"{path} has no array {min(missing)[0]!r}; it must hold the arrays 'x' and 'y'.")
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except InvalidInput:
        raise
    except MemoryError:
        raise InvalidInput(f"The records {path} do not fit into this machine's memory.") from None
    except OSError as error:
        raise InvalidInput(f"The records {path} cannot be read ({error.strerror or type(error).__name__}).") from None
    except Exception as error:  # cut off, damaged, or something else: a dozen kinds of errors
        raise InvalidInput(
            f"{path} must be a whole .npz file with arrays of numbers 'x' and 'y' ({type(error).__name__}). Write it "
            "with numpy.savez(path, x=..., y=...)."
        ) from None


def _memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def array_dataset(
    x: Any, y: Any, classes: int | Sequence[object], *, name: str = "data", public: bool = False, **rules: Any
) -> Dataset:
    """Records from arrays, dense or sparse, with declared classes.

    Args:
        x: A numpy array or a scipy sparse matrix of numbers, one row for each record.
        y: One label for each record.
        classes: How many classes there are, labelled from 0; or the labels themselves, in the order of their numbers.
            A label that is none of them becomes the first class.
        name: What messages and folders call the data.
        public: Whether these records may be shown to anybody.
        rules: How private records are repaired: ``feature_range``, ``missing``, ``unknown_label`` of
            :class:`~dptune.data.Dataset`.

    Returns:
        The data set.

    Raises:
        InvalidInput: If types or shapes do not fit, or a public record is invalid.

    Example:
        >>> import numpy as np
        >>> from dptune.tables import array_dataset
        >>> array_dataset(np.zeros((3, 2)), np.array(["no", "yes", "?"]), ["no", "yes"]).y
        array([0, 1, 0])
    """
    dense = x.toarray() if is_sparse(x) else x
    if isinstance(classes, int | np.integer):
        return Dataset(dense, y, int(classes), name, public, **rules)
    named = Target("y", tuple(plain_text(one) for one in classes), rules.pop("unknown", None))
    known = Places(named.classes, len(named.classes))
    labels: Indices = known.find(y if isinstance(y, np.ndarray) else list(y))
    if public and (labels == len(named.classes)).any():
        raise InvalidInput(f"'y' holds labels that are none of the {len(named.classes)} declared classes.")
    rules.setdefault("unknown_label", named.unknown_label)
    return Dataset(dense, labels, len(named.classes), name, public, **rules)
