"""How features of private records are repaired, each on its own, by a public rule, a few megabytes at a time."""

from __future__ import annotations

import math

import numpy as np

from dptune import _memory
from dptune._typing import AnyArray, Floats

__all__ = ["FEATURE_RANGE", "repair_in_place", "repaired_features"]

# Wide enough for any measurement; squares of it, summed over a million features, are finite in single precision.
FEATURE_RANGE = (-1e12, 1e12)


def repaired_features(x: Floats, ends: tuple[float, float], missing: float) -> Floats:
    """Features with ``missing`` for what is not a number, clipped to the range; the same array where nothing is."""
    repaired = x
    for part in _memory.blocks(len(x), x.itemsize * math.prod(x.shape[1:])):
        fixed = _repaired_block(x[part], ends, missing)
        if fixed is not None:
            if repaired is x:
                repaired = _memory.room(x.shape, x.dtype)
                repaired[...] = x
            repaired[part] = fixed
    return repaired


def _repaired_block(x: Floats, ends: tuple[float, float], missing: float) -> Floats | None:
    """The same rows, repaired; None where nothing is wrong."""
    low, high = (x.dtype.type(end) for end in ends)
    if ((x >= low) & (x <= high)).all():
        return None
    filled = np.where(np.isnan(x), x.dtype.type(missing), x)
    fixed: Floats = np.clip(filled, low, high)
    return fixed


def repair_in_place(x: AnyArray, feature_range: tuple[float, float] = FEATURE_RANGE, missing: float = 0.0) -> None:
    """Repair features as a private data set would, in an array that nobody else holds: without a copy of it.

    Args:
        x: One row of features for each record. Left alone unless it is of single or double precision, as then it would
            be converted, and so copied, anyway.
        feature_range: The smallest and the largest value that a feature keeps.
        missing: What replaces a feature that is not a number.

    Example:
        >>> x = np.array([[np.nan, 1e30]])
        >>> repair_in_place(x, (0.0, 1.0))
        >>> x
        array([[0., 1.]])
    """
    if x.dtype not in (np.float32, np.float64) or x.ndim != 2:
        return
    with np.errstate(all="ignore"):  # no warning may tell of a record
        for part in _memory.blocks(len(x), x.itemsize * x.shape[1]):
            fixed = _repaired_block(x[part], feature_range, missing)
            if fixed is not None:
                x[part] = fixed
