"""Pairs with finitely many outcomes: their profile is exactly piecewise linear in exp(e)."""

from __future__ import annotations

import numpy as np

from dptune._typing import Array
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile

__all__ = ["atoms_below", "pair_from_atoms"]

_EPS = float(np.finfo(float).eps)


def _one_way(p: Array, q: Array, extra: float, below: bool = False) -> TableProfile:
    """sum (p - exp(e) q)+ + extra, with kinks at the positive losses; rounded down if it is to stand ``below``."""
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
    if below:
        values = np.where(knots > 700.0, 0.0, values - _EPS * (8.0 + 2.0 * count) * above_p)
    return TableProfile(knots, np.clip(values, 0.0, 1.0) + extra)


def pair_from_atoms(p: Array, q: Array, extra: float = 0.0, symmetric: bool = False) -> ProfilePair:
    """The exact pair of two laws on the same outcomes; ``extra`` is added to both profiles (truncation)."""
    remove = _one_way(p, q, extra + float(p[q <= 0.0].sum()))
    return ProfilePair(remove, remove if symmetric else _one_way(q, p, extra + float(q[p <= 0.0].sum())))


def atoms_below(p: Array, q: Array, never: float = 0.0, lost: float = 0.0) -> DirectedProfile:
    """The profile of p against q rounded down: that of a certificate.

    P-mass without Q-mass is taken for roundoff; ``never`` is what Q really never shows. ``lost`` is how far the
    masses of either law may be from the truth, all together.
    """
    table = _one_way(p, q, never, below=True)
    if lost == 0.0:
        return table
    values = table.values - lost * (1.0 + np.exp(np.minimum(table.losses, 700.0)))
    return TableProfile(table.losses, np.maximum(np.minimum.accumulate(values), 0.0))
