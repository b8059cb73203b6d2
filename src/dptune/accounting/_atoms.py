"""Pairs with finitely many outcomes: their profile is exactly piecewise linear in exp(e)."""

from __future__ import annotations

import numpy as np

from dptune.accounting._profiles import Array, Half, Pair, TableHalf

__all__ = ["pair_from_atoms"]


def _half(p: Array, q: Array, extra: float) -> Half:
    """sum (p - exp(e) q)+ + extra, with kinks at the positive losses."""
    never = float(p[q <= 0.0].sum())
    seen = (q > 0.0) & (p > 0.0)
    p, q = p[seen], q[seen]
    loss = np.log(p) - np.log(q)
    order = np.argsort(-loss)
    loss, p, q = loss[order], p[order], q[order]
    knots = np.unique(np.concatenate([[0.0], loss[loss > 0.0]]))
    # Mass strictly above each knot, from the top, so that small tails keep their digits.
    count = np.searchsorted(-loss, -knots, side="left")
    above_p = np.concatenate([[0.0], np.cumsum(p)])[count]
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.concatenate([[0.0], np.cumsum(q)])[count]
        values = above_p - np.exp(np.minimum(knots, 700.0)) * scaled
    return TableHalf(knots, np.clip(values, 0.0, 1.0) + never + extra)


def pair_from_atoms(p: Array, q: Array, extra: float = 0.0, symmetric: bool = False) -> Pair:
    """The exact pair of two laws on the same outcomes; ``extra`` is added to both profiles (truncation)."""
    remove = _half(p, q, extra)
    return Pair(remove, remove if symmetric else _half(q, p, extra))
