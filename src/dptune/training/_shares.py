"""Exact sums of gradients whose shares are whole numbers of lattice steps (docs/theorems/exact_sums.md).

A record that is computed alone cannot depend on its peers; rounded to the lattice of the noise, its share is a vector
of whole numbers, and those add up exactly. However many records there are, nothing here may fail or round because of
their number, which is private: sums are taken modulo 2^53, and so are they when the noise is added to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dptune._typing import AnyArray, Array, Floats, Indices

__all__ = ["VANISHED", "add_share", "total_steps", "wrapped"]


# More than what a sum of up to 2^16 squares in single precision may lose to numbers too small for it. A layer's norm is
# a product of two such sums: the other factor may be so large that what vanished in this one exceeds the clip norm.
VANISHED = 2.0**-110
_PART = 2**20  # shares of at most 2^31 steps a coordinate, so that their sum is below 2^52
_HALF = 2**52
_SMALL = 200  # gradients below 2^-200 are shorter than any clip norm and any lattice


def wrapped(steps: AnyArray) -> Array:
    """Whole numbers modulo 2^53, between -2^52 and 2^52: noise can be added to them exactly."""
    within: Array = ((steps + _HALF) % (2 * _HALF) - _HALF).astype(np.float64)
    return within


def total_steps(batch: Indices, add: Callable[[Indices], Array]) -> Array:
    """The sum of a batch in lattice steps; ``add`` sums the shares of some of its records."""
    if len(batch) <= _PART:
        return add(batch)
    total = add(batch[:_PART]).astype(np.int64)
    for first in range(_PART, len(batch), _PART):
        total += add(batch[first : first + _PART]).astype(np.int64)  # may wrap around
    return wrapped(total)


def add_share(steps: Array, gradient: Floats, clip: float, lattice: float) -> None:
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
