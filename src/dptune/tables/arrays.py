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

from dptune._memory import room
from dptune._repairs import hand_over
from dptune._typing import AnyArray, Indices
from dptune._validate import shown
from dptune.data import NO_RECORDS, Dataset
from dptune.errors import InvalidInput
from dptune.regression import RegressionDataset
from dptune.tables._cells import Places, keys, numbers
from dptune.tables.columns import Target, plain_text
from dptune.tables.sources import is_sparse
from dptune.units import UNIT, UnitDataset, check_unit

__all__ = ["array_dataset", "array_regression", "array_units", "check_npz_units", "npz_units", "read_npz"]

_PIECE = 2**20  # bytes that are read at once


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
    x, y = _read(path, ("x", "y"))
    return x, y


def npz_units(path: str | Path) -> Any:
    """Whom each row of an .npz file belongs to: its array 'unit'; None where it has none.

    Args:
        path: The file.

    Returns:
        The array, of numbers or texts, or None.

    Raises:
        InvalidInput: If the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if "unit.npy" not in archive.namelist():
                return None
    except (OSError, zipfile.BadZipFile):
        return None  # what is wrong with it is said when its records are read
    return _read(path, ("unit",))[0]


def _read(path: str | Path, names: Sequence[str]) -> list[AnyArray]:
    """Arrays of an .npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _memory():
                raise MemoryError
            if missing := {f"{name}.npy" for name in names} - set(archive.namelist()):
                raise InvalidInput(f"{path} has no array {min(missing)[0]!r}; it must hold the arrays 'x' and 'y'.")
            return [_member(archive, f"{name}.npy") for name in names]
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


def _member(archive: zipfile.ZipFile, name: str) -> AnyArray:
    """One array of the archive, read into memory that workers can share."""
    form = np.lib.format
    with archive.open(name) as stream:
        read = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}[form.read_magic(stream)]
        shape, fortran, kind = read(stream)
        if kind.hasobject:
            raise ValueError("an array of objects runs code when it is read")
        array = room(shape[::-1] if fortran else shape, kind)
        content, end = array.reshape(-1).view(np.uint8), 0
        while end < len(content):
            piece = stream.read(min(_PIECE, len(content) - end))
            if not piece:
                raise EOFError
            content[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
            end += len(piece)
        stream.read(1)  # its end: now the checksum was compared
        return array.T if fortran else array


def check_npz_units(path: str | Path, unit_rows: object, unit: object = UNIT) -> Any:
    """The units of an .npz file, if it has any; refuses a file that has them and a caller who does not speak of them.

    Args:
        path: The file.
        unit_rows: The most rows of one unit that take part, as the caller declared it; None if not.
        unit: What the caller calls a unit.

    Returns:
        Whom each row belongs to, or None where every row is a record.

    Raises:
        InvalidInput: If the file has an array 'unit' and ``unit_rows`` is not declared, or the other way round.
    """
    found = npz_units(path)
    if found is not None and unit_rows is None:
        raise InvalidInput(
            f"{path} has an array 'unit', whom each row belongs to: declare 'unit_rows' (--unit-rows), the most rows "
            "of one that take part, and all rows of one are one record; or leave the array out of the file."
        )
    if found is None and (unit_rows is not None or unit != UNIT):
        which = "unit_rows" if unit_rows is not None else "unit"
        raise InvalidInput(
            f"{which!r} is for rows of units, and {path} does not say whom each row belongs to: write an array "
            "'unit' into it, with one entry for each row, or give arrays and 'units'."
        )
    return found


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
    dense = hand_over(x.toarray()) if is_sparse(x) else x
    if isinstance(classes, int | np.integer):
        return Dataset(dense, y, int(classes), name, public, **rules)
    if not isinstance(classes, list | tuple | np.ndarray):
        raise InvalidInput(f"'classes' must be how many there are, or a list of them; got {shown(classes)}.")
    named = Target("y", tuple(plain_text(one) for one in classes), rules.pop("unknown", None))
    known = Places(named.classes, len(named.classes))
    labels: Indices = known.find(y if isinstance(y, np.ndarray) else list(y))
    if public and (labels == len(named.classes)).any():
        raise InvalidInput(f"'y' holds labels that are none of the {len(named.classes)} declared classes.")
    rules.setdefault("unknown_label", named.unknown_label)
    return Dataset(dense, labels, len(named.classes), name, public, **rules)


def array_regression(
    x: Any, y: Any, target_range: tuple[float, float], *, name: str = "data", public: bool = False, **rules: Any
) -> RegressionDataset:
    """Records from arrays, dense or sparse, with targets that are numbers in a declared range.

    Args:
        x: A numpy array or a scipy sparse matrix of numbers, one row for each record.
        y: One target for each record; what is not a number is missing.
        target_range: The smallest and the largest target.
        name: What messages and folders call the data.
        public: Whether these records may be shown to anybody.
        rules: How private records are repaired: ``feature_range``, ``missing``, ``missing_target`` of
            :class:`~dptune.regression.RegressionDataset`.

    Returns:
        The data set.

    Raises:
        InvalidInput: If types or shapes do not fit, or a public record is invalid.

    Example:
        >>> import numpy as np
        >>> from dptune.tables import array_regression
        >>> array_regression(np.zeros((3, 2)), ["1.5", "?", 99], (0, 10)).y
        array([ 1.5,  5. , 10. ])
    """
    dense = hand_over(x.toarray()) if is_sparse(x) else x
    plain = isinstance(y, np.ndarray) and y.dtype.kind in "fiub"
    cells = y if plain else numbers(y if isinstance(y, np.ndarray | list) else list(y))
    return RegressionDataset(dense, cells, name, public, target_range=target_range, **rules)


def array_units(rows: Dataset, units: Any, unit_rows: int | None, *, unit: str = UNIT) -> UnitDataset:
    """Records that are units of several rows, from rows and whom each of them belongs to.

    Keys are compared as the texts that a table would hold: 7, 7.0 and "7" are the same. A row whose key is missing
    (None, NaN, an empty text) belongs to nobody and is left out.

    Args:
        rows: The rows, one record each.
        units: A list or an array with one key for each row.
        unit_rows: The most rows of one unit that take part: the first ones in the order of the rows.
        unit: What statements call a unit.

    Returns:
        The data set, whose records are units.

    Raises:
        InvalidInput: If there is not one key for each row, no row at all, or ``unit_rows`` is missing or out of range.

    Example:
        >>> import numpy as np
        >>> from dptune.tables import array_dataset, array_units
        >>> rows = array_dataset(np.zeros((4, 2)), np.array([0, 1, 0, 1]), 2)
        >>> len(array_units(rows, np.array([7, 7, 8, 7]), unit_rows=2, unit="patient"))
        2
    """
    if isinstance(units, str | bytes) or not hasattr(units, "__len__") or getattr(units, "ndim", 1) != 1:
        raise InvalidInput(f"'units' must be a list or an array with one key for each row; got {type(units).__name__}.")
    if not len(rows):  # of rows that are there, perhaps none belongs to anybody: that is private
        raise InvalidInput(NO_RECORDS)
    cells = units if isinstance(units, np.ndarray) else units.tolist() if hasattr(units, "tolist") else list(units)
    return UnitDataset(rows, keys(cells), check_unit(unit, unit_rows), unit)
