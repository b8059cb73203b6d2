"""Renyi curves of tuning on a subset, from the published theorems, as caps on our own profiles.

Koskela and Kulkarni's theorems take the curves of selection and of one run to that of the whole procedure. As a profile
it caps what dptune computes (``docs/theorems/published.md``), so that no loss by rounding, truncation or tables leaves
our price above theirs. Slow curves are computed only where an estimate does not already exceed what is proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from dptune._typing import Array
from dptune.accounting._published import LeastProfile, RenyiProfile, estimated_curve, log_deltas
from dptune.accounting.combination import Compose, Parallel
from dptune.accounting.cost import Cost, fast_profile
from dptune.accounting.profiles import DirectedProfile, ProfilePair
from dptune.accounting.renyi import (
    ORDERS,
    disjoint_curve,
    integer_orders,
    outward_curve,
    selection_curve,
    subsampled_curve,
)
from dptune.accounting.runs import NegativeBinomial, Poisson
from dptune.accounting.selection import Select, slow_curve
from dptune.accounting.subsets import Disjoint, Subsample
from dptune.errors import NotComparable

__all__ = ["capped_pair", "procedure_curve", "tunes_on_a_subset"]

_WHOLE = integer_orders(ORDERS)
_ROUNDED = 1e-12  # log-gamma functions of sums to 128, and sums of as many terms
_LOWERED = 0.95  # of an estimate, which may be a few percent too high
_GRID = 64

_Curve = Callable[[Cost], Array]


def tunes_on_a_subset(cost: Cost) -> bool:
    """Whether a published theorem on subsets may price this: a part of the records, on which something is selected."""
    if isinstance(cost, Compose):
        return any(map(tunes_on_a_subset, cost.parts))
    inner = cost.inner if isinstance(cost, Subsample) else cost.tune if isinstance(cost, Disjoint) else None
    return isinstance(inner, Select) and isinstance(inner.runs, NegativeBinomial | Poisson)


def procedure_curve(cost: Cost, one: _Curve) -> Array:
    """The curve at orders 2, 3, ... to 128, both ways, from the curves of single runs; NotComparable if none is known.

    Training on the rest is never worse than training on everything after tuning on a subset: given the tuning, the
    likelihood ratio of the latter is the former's, stretched about its mean.
    """
    if isinstance(cost, Compose | Parallel):
        parts = [procedure_curve(part, one) for part in cost.parts]
        return np.asarray(np.sum(parts, axis=0) if isinstance(cost, Compose) else np.max(parts, axis=0))
    if isinstance(cost, Select):
        return selection_curve(cost.base, cost.runs, cost.density, _WHOLE, one(cost.base))
    if isinstance(cost, Subsample):
        return subsampled_curve(procedure_curve(cost.inner, one), cost.rate) + _ROUNDED
    if isinstance(cost, Disjoint):
        tune, base = procedure_curve(cost.tune, one), procedure_curve(cost.base, one)
        apart, together = disjoint_curve(tune, base, cost.rate), subsampled_curve(tune, cost.rate) + base
        return np.asarray(np.minimum(apart, together) + _ROUNDED)
    return one(cost)


def _proven(cost: Cost) -> DirectedProfile | None:
    """The profile of the published theorems, rounded up; None if they do not apply."""
    try:
        curve = procedure_curve(cost, lambda base: outward_curve(base, _WHOLE))
    except NotComparable:
        return None
    return RenyiProfile(np.array(_WHOLE), np.maximum(curve, 0.0) * (1.0 + 1e-11))


def _estimated(base: Cost) -> Array:
    """About the curve of one run, from its own profile where dp-accounting would take long."""
    if not slow_curve(base):
        return outward_curve(base, _WHOLE)
    pair, orders = fast_profile(base), np.array(_WHOLE)
    ways = [pair] if pair.symmetric else [pair, pair.flip()]
    return np.asarray(_LOWERED * np.max([estimated_curve(way, orders) for way in ways], axis=0))


def _least(cost: Cost, end: float) -> tuple[Array, Array] | None:
    """Losses and logs of about the least delta that the theorems prove there."""
    try:
        curve = procedure_curve(cost, _estimated)
    except NotComparable:
        return None
    losses = np.linspace(0.0, min(max(end, 1e-9), 1e3), _GRID)
    return losses, log_deltas(np.array(_WHOLE), np.maximum(curve, 0.0), losses)


def _slow(cost: Cost) -> bool:
    """Whether a single run in it has a curve that takes long."""
    if isinstance(cost, Compose | Parallel):
        return any(map(_slow, cost.parts))
    if isinstance(cost, Subsample):
        return _slow(cost.inner)
    if isinstance(cost, Disjoint):
        return _slow(cost.tune) or _slow(cost.base)
    return slow_curve(cost.base if isinstance(cost, Select) else cost)


def capped_pair(cost: Cost, pair: ProfilePair) -> ProfilePair:
    """The pair of a procedure, nowhere above the published theorems on it."""
    if not tunes_on_a_subset(cost):
        return pair
    made = lru_cache(maxsize=1)(lambda: _proven(cost))
    end = max(pair.remove.end, pair.add.end)
    least = _least(cost, end) if _slow(cost) and math.isfinite(end) else None
    remove = LeastProfile(pair.remove, made, least)
    return ProfilePair(remove, remove if pair.symmetric else LeastProfile(pair.add, made, least))
