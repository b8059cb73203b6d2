"""Exact discrete Gaussian noise from the operating system's randomness, by OpenDP's sampler.

Floating-point Gaussians leak through their low bits and do not survive a finite ring; this must stay the only
place where a vote's noise is drawn, and it must never take a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import numpy as np
import opendp.prelude as dp

from dptune import _validate
from dptune._typing import Indices

__all__ = ["discrete_gaussian"]

_Sampler = Callable[[list[int]], list[int]]


@lru_cache(maxsize=32)
def _sampler(sigma: float) -> _Sampler:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return cast(_Sampler, dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), sigma))


def discrete_gaussian(sigma: float, size: int) -> Indices:
    """Draw independent whole numbers x with probability proportional to exp(-x^2 / (2 sigma^2))."""
    width = _validate.real("sigma", sigma, 0, low_open=True)
    count = _validate.integer("size", size, 1)
    return np.asarray(_sampler(width)([0] * count), dtype=np.int64)
