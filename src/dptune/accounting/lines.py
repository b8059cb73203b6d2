"""A line above Renyi curves: everything that is known of a mechanism is D_a <= slope * a at finitely many orders.

This is how Koskela and Kulkarni (2023, appendix D.1) keep candidates under one cost that cannot be enumerated
(``docs/theorems/line.md``). The profile is the least of the conversions at the orders, made convex: an upper bound for
every mechanism under the line, hence looser than a profile that is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.accounting._convex import joined
from dptune.accounting._published import LeastProfile, RenyiProfile
from dptune.accounting.cost import Cost, fast_profile
from dptune.accounting.neighbours import ADDED_OR_REMOVED, Neighbours, check_relation
from dptune.accounting.profiles import TINY, ProfilePair, TableProfile, gaussian_pair
from dptune.errors import InvalidInput

__all__ = ["ORDERS", "RenyiLine", "converted_pair", "line_orders"]

# Whole numbers: at fractional orders dp-accounting's curves of subsampled mechanisms are loose.
ORDERS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0, 96.0)
_LEAST_TOP = 4.0
_POINTS = 3000
_GUARD = 1e-12
_LARGEST = 300.0  # divergences and losses beyond which squares of ratios overflow


def line_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Orders for a budget: up to the one that a Gaussian mechanism of this budget would use.

    A subsampled Gaussian leaves every line at large orders, so each order more than needed is paid in noise.
    """
    log = math.log(1.0 / delta)
    mu = math.sqrt(2.0 * log + 2.0 * epsilon) - math.sqrt(2.0 * log)
    top = max(math.sqrt(2.0 * log) / mu, _LEAST_TOP)
    return tuple(a for i, a in enumerate(ORDERS) if i == 0 or ORDERS[i - 1] < top)


def _deltas(orders: Array, curve: Array, e: Array) -> Array:
    """The least conversion of a curve at each loss (``docs/theorems/line.md``)."""
    a = orders[:, None]
    logs = (a - 1.0) * (curve[:, None] - e[None, :] + np.log1p(-1.0 / a)) - np.log(a)
    # Divergences grow with the order: Kullback-Leibler is at most the first, chi-square follows from the second.
    kl = float(curve[0])
    apart = min(math.sqrt(kl / 2.0), math.sqrt(-math.expm1(-kl)))  # Pinsker; Bretagnolle and Huber
    best = np.minimum(np.exp(np.minimum(logs.min(axis=0), 0.0)), apart)
    second = float(curve[orders >= 2.0].min(initial=math.inf))
    if second <= _LARGEST:
        spread, past = math.expm1(second), np.expm1(np.minimum(e, _LARGEST))
        # Scarf: E(L - x)+ for a law of mean 1 and this variance; no cancellation
        scarf = 0.5 * spread / (np.sqrt(spread + past**2) + past)
        best = np.minimum(best, np.where(e <= _LARGEST, scarf, 1.0))
    return np.asarray(np.minimum(best, 1.0) * (1.0 + _GUARD))


def converted_pair(orders: Array, curve: Array) -> ProfilePair:
    """A table above every mechanism whose Renyi divergences are at most a curve, both ways."""
    end = float(np.min(curve + math.log(1.0 / TINY) / (orders - 1.0)))
    losses = np.linspace(0.0, end, _POINTS)
    table = TableProfile(losses, _deltas(orders, curve, losses))
    both = joined(table, table)
    return ProfilePair(both.remove, both.remove)


@dataclass(frozen=True)
class RenyiLine(Cost):
    """The cost of any mechanism whose Renyi divergence of order a is at most ``slope * a``, both ways, at some orders.

    Args:
        slope: a Gaussian mechanism with noise multiplier s has the slope 1 / (2 s^2).
        orders: above 1, increasing.
        neighbours: what the divergences compare.

    Raises:
        InvalidInput: the slope is outside of its range, or the orders are not above 1 and increasing.

    Example:
        >>> line = RenyiLine(0.125, (2.0, 4.0, 8.0, 16.0, 32.0))
        >>> round(line.epsilon(1e-5), 3)  # Gaussian(2.0), which is one of those under the line, costs 1.993
        2.214
    """

    kind: ClassVar[str] = "renyi-line"
    slope: float
    orders: tuple[float, ...]
    neighbours: Neighbours = field(default=ADDED_OR_REMOVED, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_relation(self.neighbours)
        hint = "A Gaussian mechanism with noise multiplier s has the slope 1 / (2 s^2)."
        object.__setattr__(self, "slope", real("slope", self.slope, 1e-12, 200, hint=hint))
        if isinstance(self.orders, str) or not isinstance(self.orders, Sequence) or not self.orders:
            raise InvalidInput(f"'orders' must be numbers above 1, increasing; got {self.orders!r}.")
        checked = tuple(real("order", a, 1, 1e4, low_open=True) for a in self.orders)
        if any(b <= a for a, b in itertools.pairwise(checked)):
            raise InvalidInput(f"'orders' must be numbers above 1, increasing; got {self.orders!r}.")
        object.__setattr__(self, "orders", checked)

    def curve(self, orders: Array) -> Array:
        """What is known of the divergence at any orders.

        Divergences grow with the order: between two orders the line holds at the next one, beyond the last nothing.

        Args:
            orders: above 1.

        Returns:
            An upper bound on the divergence at each of them, perhaps infinite.
        """
        known = np.append(np.array(self.orders), np.inf)
        return np.asarray(self.slope * known[np.searchsorted(known[:-1], orders)])

    def _profile(self) -> ProfilePair:
        # The table's chords are above the conversions between its points.
        both = LeastProfile(fast_profile(self).remove, self._converted)
        return ProfilePair(both, both)

    def _converted(self) -> RenyiProfile:
        """The conversions themselves, at the line's orders and at the usual ones between them."""
        from dptune.accounting.renyi import ORDERS as USUAL  # noqa: PLC0415 - it reads lines itself

        orders = np.union1d(self.orders, [a for a in USUAL if a <= self.orders[-1]])
        return RenyiProfile(orders, self.curve(orders) * (1.0 + _GUARD))

    def _fast_profile(self) -> ProfilePair:
        a = np.array(self.orders)
        return converted_pair(a, self.slope * a)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        # The Gaussian mechanism on the line is one of those admitted.
        return gaussian_pair(min(math.sqrt(2.0 * self.slope), 20.0), below=True)

    def __str__(self) -> str:
        return f"RenyiLine(slope {self.slope:g}, orders {self.orders[0]:g} to {self.orders[-1]:g})"
