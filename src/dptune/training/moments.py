"""Second moments of records, exactly: the sum of their outer products, which one record moves by a known length.

Records are rounded to a grid, so that products are whole numbers that are added without an error and no record decides
another's rounding (``docs/theorems/whitening.md``). What is done with the sum: :mod:`dptune.training.whitening`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dptune._memory import blocks
from dptune._places import origin
from dptune._typing import Array, Floats
from dptune.data import Dataset
from dptune.units import UnitDataset

__all__ = ["in_parts", "second_moments"]

_GRID = 2.0**14  # steps along a feature of length one; products of two are at most 2^28
_FARTHEST = 64.0  # radii; squares of 2048 features of that size are whole numbers that add up exactly
_SHORTER = 1.0 - 2.0**-40  # rounding in doubles cannot make a record longer than it may be


def in_parts(rows: Dataset) -> Iterator[tuple[slice, Floats]]:
    """The rows, a few megabytes at a time: of a part of large records no copy is made.

    Args:
        rows: records.

    Yields:
        Which of them, and their features.

    Example:
        >>> import numpy as np
        >>> [x.shape for _, x in in_parts(Dataset(np.zeros((3, 2)), np.zeros(3, np.int64), 2))]
        [(3, 2)]
    """
    whole, places = origin(rows)
    for part in blocks(len(rows), 8 * rows.features):
        yield part, whole.x[part] if places is None else whole.x[places[part]]


def second_moments(data: Dataset | UnitDataset, radius: float, length: float, *, constant: bool = False) -> Array:
    """The sum of outer products of all records, exactly: one record more or less moves it by at most ``length``.

    A record is divided by ``radius``, shortened so that its squared length is at most ``length``, and rounded towards
    zero to a grid. Of a unit the squared lengths of its rows are added. What is not finite adds nothing.

    Args:
        data: The records.
        radius: Their usual length.
        length: How far one of them may move the sum, in the norm that counts every entry of the matrix.
        constant: Whether every record has one more number, a one, behind its features.

    Returns:
        A symmetric matrix.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset
        >>> two = Dataset(np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([0, 1]), classes=2)
        >>> second_moments(two, 1.0, 1.0).round(2)
        array([[1.  , 0.  ],
               [0.  , 0.25]])
    """
    rows = (data.rows if isinstance(data, UnitDataset) else data).flat
    total = np.zeros(2 * (rows.features + constant,), np.int64)
    with np.errstate(all="ignore"):  # about no record more than about another
        factors = _factors(data, rows, radius, length, constant)
        for part, x in in_parts(rows):
            steps = np.trunc(_steps(x, radius, constant) * factors[part, None])
            total += (steps.T @ steps).astype(np.int64)
    return total / _GRID**2


def _steps(x: Floats, radius: float, constant: bool) -> Array:
    """Rows in whole steps of the grid, element by element; one that is not finite becomes zero."""
    steps = np.ones((len(x), x.shape[1] + constant))
    steps[:, : x.shape[1]] = x
    steps /= radius
    steps[~np.isfinite(steps).all(axis=1)] = 0.0
    np.clip(steps, -_FARTHEST, _FARTHEST, out=steps)
    steps *= _GRID
    return np.trunc(steps, out=steps)


def _factors(data: Dataset | UnitDataset, rows: Dataset, radius: float, length: float, constant: bool) -> Array:
    """What every row is multiplied by, so that its record's squared length is at most ``length``."""
    squares = np.empty(len(rows))
    for part, x in in_parts(rows):
        squares[part] = np.square(_steps(x, radius, constant)).sum(axis=1)  # whole numbers below 2^53: in any order
    if isinstance(data, UnitDataset):
        owners = data.row_units
        squares = np.bincount(owners, squares, len(data)).astype(np.float64)[owners]  # in the order of a unit's rows
    most = length * _GRID**2
    return np.where(squares <= most, 1.0, _SHORTER * np.sqrt(most / np.maximum(squares, most)))
