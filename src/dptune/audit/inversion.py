"""The best of K in one draw: the winner's rank z has distribution function f(z) = E[z^K], which is inverted here.

Given a uniform v the functions return c = 1 - z with f(z) = 1 - v, exactly near z = 1 where the winners are. Where
K = 0 (nothing ran, the public default is released) they return NaN. Closed forms only; ``docs/theorems/select.md``.
"""

from __future__ import annotations

import math

import numpy as np

from dptune._typing import Array
from dptune.accounting.runs import Binomial, NegativeBinomial, Poisson, Runs
from dptune.errors import InvalidInput

__all__ = ["winning_complement"]


def winning_complement(runs: Runs, v: Array) -> Array:
    """1 - z for the winner's rank z, from uniforms v in [0, 1)."""
    if isinstance(runs, NegativeBinomial):
        return _negative_binomial(runs, v)
    if isinstance(runs, Poisson):
        c = -np.log1p(-v) / runs.mean
    elif isinstance(runs, Binomial):
        c = -np.expm1(np.log1p(-v) / runs.trials) / runs.probability_each
    else:
        raise InvalidInput(
            f"Audits know the geometric, logarithmic, negative binomial, Poisson and binomial laws; got {runs}."
        )
    return np.where(c <= 1.0, c, np.nan)


def _negative_binomial(runs: NegativeBinomial, v: Array) -> Array:
    gamma, shape = runs.stopping, runs.shape
    if gamma == 1.0:
        return v
    if shape == 1.0:
        return np.asarray(gamma * v / (1.0 - (1.0 - gamma) * v))
    if shape == 0.0:
        return np.asarray(gamma / (1.0 - gamma) * np.expm1(-math.log(gamma) * v))
    span = -math.expm1(shape * math.log(gamma))  # 1 - gamma^shape
    return np.asarray(gamma / (1.0 - gamma) * np.expm1(-np.log1p(-span * v) / shape))
