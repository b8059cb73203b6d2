"""Exact sums of gradients that are computed one record at a time (docs/theorems/exact_sums.md).

A record that is computed alone cannot depend on its peers; rounded to the lattice of the noise, its share is a vector
of whole numbers, and those add up exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_share"]

Floats = NDArray[np.floating[Any]]
Doubles = NDArray[np.float64]

_SMALL = 200  # gradients below 2^-200 are shorter than any clip norm and any lattice


def add_share(steps: Doubles, gradient: Floats, clip: float, lattice: float) -> None:
    """Add one record's gradient, clipped to norm ``clip`` and rounded, to ``steps``, which counts in lattice steps.

    ``gradient`` is overwritten. One that is not finite contributes nothing.
    """
    top = float(np.max(np.abs(gradient), initial=0.0))
    if top == 0.0 or not math.isfinite(top):
        return
    # Brought to size one before it is squared, so that no square overflows or vanishes.
    exponent = max(math.frexp(top)[1], -_SMALL)
    np.ldexp(gradient, -exponent, out=gradient)
    length = math.sqrt(float(gradient @ gradient))
    factor = clip / length if length > 0.0 else math.inf
    if exponent < _SMALL:  # beyond, the gradient is longer than any clip norm
        factor = min(factor, math.ldexp(1.0, exponent))
    np.multiply(gradient, factor, out=gradient)
    np.multiply(gradient, 1.0 / lattice, out=gradient)
    np.rint(gradient, out=gradient)
    np.add(steps, gradient, out=steps)
