"""Published bounds by Renyi curves: random stopping, DP-HyPO, tuning on a subset.

Part of :mod:`dptune.accounting.literature`, for comparison only. Each raises :class:`NotComparable` outside of its
paper's conditions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dptune._typing import Array
from dptune.accounting._profile_bounds import pure_epsilon
from dptune.accounting.cost import Cost
from dptune.accounting.renyi import (
    adaptive_curve,
    base_curve,
    check_orders,
    disjoint_curve,
    epsilon_of,
    integer_orders,
    stopping_curve,
    subsampled_curve,
)
from dptune.accounting.runs import NegativeBinomial, Poisson, Runs
from dptune.errors import NotComparable

__all__ = [
    "Density",
    "hypo_repaired",
    "hypo_theorem1",
    "hypo_theorem2",
    "koskela_kulkarni_theorem4",
    "koskela_kulkarni_theorem5",
    "koskela_kulkarni_theorem6",
    "papernot_steinke",
    "papernot_steinke_exact",
]


Density = tuple[float, float]


# Random stopping.


def papernot_steinke(base: Cost, runs: Runs, delta: float, *, orders: Sequence[float] | None = None) -> float:
    """Papernot and Steinke's Theorems 2 and 6, evaluated as dp-accounting does (and for shapes below 0 too)."""
    listed = check_orders(orders)
    return epsilon_of(listed, stopping_curve(listed, base_curve(base, listed), runs), delta)


def papernot_steinke_exact(base: Cost, runs: Runs, delta: float, *, orders: Sequence[float] | None = None) -> float:
    """Their Poisson theorem with the exact delta-hat of the base in place of one read off its Renyi curve."""
    if not isinstance(runs, Poisson):
        raise NotComparable(f"Only the Poisson theorem has a delta-hat to make exact; the law is {runs}.")
    listed = check_orders(orders)
    return epsilon_of(listed, stopping_curve(listed, base_curve(base, listed), runs, exact=base), delta)


# DP-HyPO.


def _truncated(runs: Runs) -> NegativeBinomial:
    """The law, if DP-HyPO's theorems know it."""
    if not isinstance(runs, NegativeBinomial):
        raise NotComparable(f"DP-HyPO's theorems are stated for truncated negative binomial laws, not {runs}.")
    return runs


def hypo_theorem1(
    base: Cost, runs: Runs, delta: float, density: Density = (1.0, 1.0), *, orders: Sequence[float] | None = None
) -> float:
    """DP-HyPO's Theorem 1 as printed: true, although its proof has a gap, and loose."""
    law, listed = _truncated(runs), check_orders(orders)
    return epsilon_of(listed, adaptive_curve(listed, base_curve(base, listed), law, density, repaired=False), delta)


def hypo_repaired(
    base: Cost, runs: Runs, delta: float, density: Density = (1.0, 1.0), *, orders: Sequence[float] | None = None
) -> float:
    """Theorem 1 with its proof repaired: c and C enter separately, which is also a little tighter."""
    law, listed = _truncated(runs), check_orders(orders)
    return epsilon_of(listed, adaptive_curve(listed, base_curve(base, listed), law, density, repaired=True), delta)


def hypo_theorem2(base: Cost, runs: Runs, delta: float, density: Density = (1.0, 1.0)) -> float:
    """DP-HyPO's Theorem 2 for pure bases: (2 + shape)(epsilon + log(C/c)), whatever delta."""
    del delta
    return (2.0 + _truncated(runs).shape) * (
        pure_epsilon(base, "DP-HyPO's Theorem 2") + math.log(density[1] / density[0])
    )


# Koskela and Kulkarni.


def _tuned(
    base: Cost, runs: Runs, exact: bool, orders: Sequence[float] | None
) -> tuple[tuple[float, ...], Array, Array]:
    """Integer orders, as the paper keeps them, and the curves of tuning and of one run there."""
    if exact and not isinstance(runs, Poisson):
        raise NotComparable(f"Only the Poisson theorem has a delta-hat to make exact; the law is {runs}.")
    whole = integer_orders(check_orders(orders))
    one = base_curve(base, whole)
    return whole, stopping_curve(whole, one, runs, exact=base if exact else None), one


def koskela_kulkarni_theorem4(
    base: Cost, runs: Runs, delta: float, subset: float, *, exact: bool = False, orders: Sequence[float] | None = None
) -> float:
    """Variant 2 (train on everything): tuning amplified by subsampling, Theorem 4, plus one run of the base."""
    whole, tune, one = _tuned(base, runs, exact, orders)
    return epsilon_of(whole, subsampled_curve(tune, subset) + one, delta)


def koskela_kulkarni_theorem5(
    base: Cost, runs: Runs, delta: float, *, exact: bool = False, orders: Sequence[float] | None = None
) -> float:
    """Their baseline, Poisson tuning on all the data (Papernot and Steinke's Theorem 6)."""
    if not isinstance(runs, Poisson):
        raise NotComparable(f"Theorem 5 is stated for the Poisson law, not {runs}.")
    whole, tune, _ = _tuned(base, runs, exact, orders)
    return epsilon_of(whole, tune, delta)


def koskela_kulkarni_theorem6(
    base: Cost,
    runs: Runs,
    delta: float,
    subset: float,
    *,
    exact: bool = False,
    alone: bool = False,
    orders: Sequence[float] | None = None,
) -> float:
    """Variant 1 (train on the rest): the smaller, order by order, of Theorem 6 and of what variant 2 pays.

    ``alone`` is Theorem 6 without that help, as the paper plots it.
    """
    whole, tune, one = _tuned(base, runs, exact, orders)
    curve = disjoint_curve(tune, one, subset)
    return epsilon_of(whole, curve if alone else np.minimum(curve, subsampled_curve(tune, subset) + one), delta)
