"""How features of private records are repaired, each on its own, by a public rule, a few megabytes at a time.

What is allocated and computed is the same whatever the records hold: if memory runs out, no record decided it.
"""

from __future__ import annotations

import math
import weakref

import numpy as np

from dptune import _memory
from dptune._typing import AnyArray, Floats

__all__ = ["FEATURE_RANGE", "hand_over", "held", "repaired_features"]

# Wide enough for any measurement; squares of it, summed over a million features, are finite in single precision.
FEATURE_RANGE = (-1e12, 1e12)

_HANDED_OVER: set[int] = set()  # where arrays are that nobody else holds


def hand_over(x: AnyArray) -> AnyArray:
    """Say that nobody else holds an array, so that the next private data set made of it repairs it in place.

    Args:
        x: An array that was made or read here; it must not be used for anything else.

    Returns:
        The same array.

    Example:
        >>> x = np.array([[np.nan, 1e30]])
        >>> repaired_features(hand_over(x), (0.0, 1.0), 0.5) is x
        True
        >>> x
        array([[0.5, 1. ]])
    """
    if id(x) not in _HANDED_OVER:
        _HANDED_OVER.add(id(x))
        weakref.finalize(x, _HANDED_OVER.discard, id(x)).atexit = False
    return x


def held(x: AnyArray) -> None:
    """Say that a data set holds an array from now on: nothing may change it any more, whoever handed it over."""
    _HANDED_OVER.discard(id(x))


def repaired_features(x: Floats, ends: tuple[float, float], missing: float, *, own: bool = False) -> Floats:
    """Features with ``missing`` for what is not a number, clipped to the range.

    Args:
        x: One row of features, or one image, for each record.
        ends: The smallest and the largest value that a feature keeps.
        missing: What replaces a feature that is not a number.
        own: Whether nobody else holds the array.

    Returns:
        The same array, changed, if nobody else holds it (``own``, or :func:`hand_over`); otherwise a copy, also of
        features that are all valid. A large copy lies where workers can map it, so that they need no other.
    """
    own = own or id(x) in _HANDED_OVER
    held(x)
    made = x if own else _memory.room(x.shape, x.dtype)
    low, high, filling = (x.dtype.type(one) for one in (*ends, missing))
    with np.errstate(all="ignore"):  # no warning may tell of a record
        for part in _memory.blocks(len(x), x.itemsize * math.prod(x.shape[1:])):
            block = made[part]
            if not own:
                block[...] = x[part]
                _memory.let_go(x)
            np.copyto(block, filling, where=np.isnan(block))
            np.clip(block, low, high, out=block)
    return made
