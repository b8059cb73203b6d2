"""A Renyi curve as a cost: for mechanisms of which nothing else is known.

The numbers themselves are stored, so that a cost means the same whichever version of an accountant computed them. The
profile is the least of the conversions at the orders (``docs/theorems/line.md``), hence looser than one that is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.accounting._published import LeastProfile, RenyiProfile
from dptune.accounting.cost import Cost, fast_profile
from dptune.accounting.lines import converted_pair
from dptune.accounting.neighbours import ADDED_OR_REMOVED, Neighbours, check_relation
from dptune.accounting.profiles import ProfilePair, TableProfile
from dptune.errors import InvalidInput

__all__ = ["RenyiCurve"]

_GUARD = 1e-12


@dataclass(frozen=True)
class RenyiCurve(Cost):
    """The cost of any mechanism whose Renyi divergences, both ways, are at most these.

    Args:
        orders: above 1, increasing.
        values: the divergence at each of them.
        neighbours: what the divergences compare.

    Raises:
        InvalidInput: the orders are not above 1 and increasing, or there is not one value for each.

    Example:
        >>> curve = RenyiCurve((2.0, 8.0, 16.0), (0.25, 1.0, 2.0))  # Gaussian(2.0) is one of those under it
        >>> round(curve.epsilon(1e-5), 3)
        2.214
    """

    kind: ClassVar[str] = "renyi-curve"
    orders: tuple[float, ...]
    values: tuple[float, ...]
    neighbours: Neighbours = field(default=ADDED_OR_REMOVED, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_relation(self.neighbours)
        for name in ("orders", "values"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence) or not given:
                raise InvalidInput(f"'{name}' must be a list of numbers; got {given!r}.")
        orders = tuple(real("order", a, 1, 1e4, low_open=True) for a in self.orders)
        values = tuple(real("value", v, 0, 1e6) for v in self.values)
        if len(orders) != len(values) or any(b <= a for a, b in itertools.pairwise(orders)):
            raise InvalidInput("'orders' must be numbers above 1, increasing, with one of 'values' for each.")
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)

    def curve(self, orders: Array) -> Array:
        """What is known of the divergence at any orders: it grows with the order.

        Args:
            orders: above 1.

        Returns:
            An upper bound on the divergence at each of them, perhaps infinite.
        """
        known = np.append(np.minimum.accumulate(np.array(self.values)[::-1])[::-1], np.inf)
        return np.asarray(known[np.searchsorted(np.array(self.orders), orders)])

    def _profile(self) -> ProfilePair:
        both = LeastProfile(fast_profile(self).remove, self._converted)
        return ProfilePair(both, both)

    def _converted(self) -> RenyiProfile:
        orders = np.array(self.orders)
        return RenyiProfile(orders, self.curve(orders) * (1.0 + _GUARD))

    def _fast_profile(self) -> ProfilePair:
        orders = np.array(self.orders)
        return converted_pair(orders, self.curve(orders) * (1.0 + _GUARD))

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        nothing = TableProfile(np.zeros(1), np.zeros(1))  # that some mechanism attains the curve is not claimed
        return ProfilePair(nothing, nothing)

    def __str__(self) -> str:
        return f"RenyiCurve(orders {self.orders[0]:g} to {self.orders[-1]:g})"
