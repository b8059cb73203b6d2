"""The names of array types: one alias for each kind of array, so that all rooms speak of them alike.

Ground floor: nothing is computed here, and every room may import it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnyArray", "Array", "Floats", "Indices", "Mask"]

AnyArray = NDArray[Any]
"""Numbers of any kind: what users bring, before it is checked."""

Array = NDArray[np.float64]
"""Double precision: what accounting, scores and statistics are computed in."""

Floats = NDArray[np.floating[Any]]
"""Single or double precision: features, parameters and gradients, whose precision the engine chooses."""

Indices = NDArray[np.int64]
"""Whole numbers: places of records, labels, counts."""

Mask = NDArray[np.bool_]
"""Yes or no for each entry."""
