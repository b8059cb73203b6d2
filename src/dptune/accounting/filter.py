"""The ledger's rule: which charges, chosen after seeing earlier releases, still fit a budget.

Implements ``docs/theorems/filter.md``: every charge carries a Renyi curve, rounded up, and
the mass of its infinite losses; a fixed mixture of Renyi filters (Feldman and Zrnic 2021; Lecuyer 2021) admits it
or not. After a raise that was decided with releases at hand the same mixture is an odometer, with another guarantee.
It must never admit a charge by convolving loss distributions, unless all of them were fixed before the first release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.accounting._charge_renyi import divergences
from dptune.accounting.cost import Cost, check_cost, fast_profile
from dptune.errors import InvalidInput

__all__ = ["Curve", "Filter", "curve_of", "renyi_curve"]

ORDERS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)
_SHARE = 0.01  # of the budget's delta, kept for infinite losses
_CHARGES = 1e4  # how many charges that share should last for
_SPREAD = 0.7  # of the weights, in log(order - 1)
_FLOOR = 0.002  # weight that every order gets
_GUARD = 1e-9  # relative outward step of every stored number


def _up(value: float) -> float:
    return value * (1.0 + _GUARD) if value > 0.0 else 0.0


@dataclass(frozen=True)
class Curve:
    """Renyi divergences at fixed orders, in the worse direction, and the probability of an infinite loss.

    Args:
        values: one divergence for each order.
        infinite: the probability of an infinite loss.
    """

    values: tuple[float, ...]
    infinite: float

    def __add__(self, other: Curve) -> Curve:
        """The curve of both charges together, rounded up."""
        pairs = zip(self.values, other.values, strict=True)
        return Curve(
            tuple(math.nextafter(a + b, math.inf) if b else a for a, b in pairs),
            math.nextafter(self.infinite + other.infinite, math.inf) if other.infinite else self.infinite,
        )


@lru_cache(maxsize=256)
def curve_of(cost: Cost, orders: tuple[float, ...], cut: float) -> Curve:
    """The charge of a cost: an upper bound at every order, infinite losses (and tails below ``cut``) apart."""
    grid = np.array(orders)
    if len(grid) == 0 or grid[0] <= 1.0 or (np.diff(grid) <= 0).any():
        raise InvalidInput(f"Renyi orders must be above 1 and increasing; got {orders!r}.")
    pair = fast_profile(cost)
    found = [divergences(pair, grid, cut)]
    if not pair.symmetric:
        found.append(divergences(pair.flip(), grid, cut))
    worst = np.max([values for values, _ in found], axis=0)
    infinite = max(mass for _, mass in found)
    return Curve(tuple(_up(float(v)) for v in worst), _up(infinite))


def renyi_curve(cost: Cost, orders: Sequence[float], cut: float = 1e-13) -> Curve:
    """Upper bounds on the Renyi divergences of a cost.

    Args:
        cost: any cost.
        orders: above 1, increasing.
        cut: tails of probability below this count as infinite losses.

    Returns:
        The curve: a divergence for each order, in the worse direction, and the probability of an infinite loss.

    Raises:
        InvalidInput: not a cost, orders that are not above 1 and increasing, or a ``cut`` outside of its range.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> curve = renyi_curve(Gaussian(2.0), [2.0, 4.0])
        >>> [round(value, 4) for value in curve.values]  # order / (2 sigma^2)
        [0.25, 0.5]
    """
    return curve_of(check_cost("cost", cost), tuple(float(a) for a in orders), real("cut", cut, 1e-16, 1e-3))


@dataclass(frozen=True)
class Filter:
    """The rule by which a ledger admits charges that are chosen after earlier releases: a mixture of Renyi filters.

    Orders and weights are fixed when the budget is; :meth:`of` chooses them.

    Args:
        epsilon: the budget.
        delta: the budget's delta.
        orders: the Renyi orders, above 1.
        weights: one for each order, positive, with a sum of at most 1.
        infinite: the part of delta that infinite losses may use.
        raised: whether the budget was raised after the first release. Then this is an odometer, which bounds the loss
            with probability 1 - delta at every moment, instead of a filter (``docs/theorems/filter.md``).

    Raises:
        InvalidInput: the weights are not such numbers.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> rule = Filter.of(3.0, 1e-5)
        >>> one = rule.curve(Gaussian(2.0))
        >>> rule.admits(one), rule.admits(one + one + one)
        (True, False)
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...]
    weights: tuple[float, ...]
    infinite: float  # the part of delta that infinite losses may use
    raised: bool = False

    @classmethod
    def of(cls, epsilon: float, delta: float) -> Filter:
        """The filter of a budget: weight near the order that Gaussian charges would use best.

        Args:
            epsilon: the budget, in (0, 500].
            delta: in [1e-9, 1); a common choice is 1e-5.

        Returns:
            The filter.

        Raises:
            InvalidInput: a figure is outside of its range.
        """
        epsilon = real("epsilon", epsilon, 0, 500, low_open=True)
        delta = real("delta", delta, 1e-9, 1, high_open=True, hint="A common choice is 1e-5.")
        log = math.log(1.0 / delta)
        mu = math.sqrt(2.0 * log + 2.0 * epsilon) - math.sqrt(2.0 * log)
        best = math.sqrt(2.0 * log) / mu
        distance = np.log((np.array(ORDERS) - 1.0) / best) / _SPREAD
        weights = np.exp(-0.5 * distance**2)
        weights = weights / max(weights.sum(), 1e-300) + _FLOOR
        weights /= weights.sum() * (1.0 + 1e-12)
        return cls(epsilon, delta, ORDERS, tuple(float(w) for w in weights), _SHARE * delta)

    def raised_to(self, epsilon: float, delta: float) -> Filter:
        """The rule after the budget was raised with releases at hand: an odometer with the orders and weights of the
        opening, since new ones could be chosen to fit what was seen.

        Args:
            epsilon: the new budget, not below this one.
            delta: the new delta, not below this one.

        Returns:
            The odometer.

        Raises:
            InvalidInput: a figure is outside of its range, or would lower the budget.

        Example:
            >>> rule = Filter.of(1.0, 1e-5).raised_to(2.0, 1e-5)
            >>> rule.raised, rule.weights == Filter.of(1.0, 1e-5).weights
            (True, True)
        """
        wanted = Filter.of(epsilon, delta)  # checks both figures
        if wanted.epsilon < self.epsilon or wanted.delta < self.delta:
            raise InvalidInput(
                f"A budget of epsilon {self.epsilon:g}, delta {self.delta:g} cannot be lowered to epsilon {epsilon:g}, "
                f"delta {delta:g}: releases were made under it. Give figures that are not smaller."
            )
        share = self.infinite * (wanted.delta / self.delta)
        return Filter(wanted.epsilon, wanted.delta, self.orders, self.weights, share, raised=True)

    def __post_init__(self) -> None:
        if math.fsum(self.weights) > 1.0 or min(self.weights) <= 0.0 or len(self.weights) != len(self.orders):
            raise InvalidInput("The weights of a filter must be positive, one for each order, with a sum of at most 1.")

    @property
    def cut(self) -> float:
        """Tails of this probability may count as infinite in one charge."""
        return max(self.infinite / _CHARGES, 1e-15)

    @property
    def nothing(self) -> Curve:
        """The curve of no charge at all."""
        return Curve((0.0,) * len(self.orders), 0.0)

    def curve(self, cost: Cost) -> Curve:
        """The curve that a cost adds to what was spent here."""
        return curve_of(cost, self.orders, self.cut)

    @cached_property
    def _shift(self) -> Array:
        return np.array(self.orders) - 1.0

    def delta_at(self, spent: Curve, epsilon: float) -> float:
        """What charges with this sum may have cost in delta at an epsilon (infinite losses: the whole share).

        With M(l) = sum_a w_a exp((a - 1)(l - R_a)), a supermartingale along every adaptive sequence, the finite
        losses contribute at most sup over l >= epsilon of (1 - exp(epsilon - l)) / M(l). After a raise it is the
        probability that the loss exceeds epsilon at some moment: by Ville's inequality at most 1 / M(epsilon).

        Args:
            spent: the sum of the charges' curves.
            epsilon: where delta is asked for.

        Returns:
            Delta, rounded up.
        """
        sums = np.array(spent.values)
        logs = np.log(np.array(self.weights))
        if self.raised:
            log = float(np.logaddexp.reduce(logs + self._shift * (epsilon - sums)))
            return self.infinite + math.exp(-max(log, -700.0)) * (1.0 + _GUARD)
        # Above ``top`` one order alone makes 1 / M smaller than anything anyone asks for.
        top = float(np.min(sums + (700.0 - logs) / self._shift))
        top = max(top, epsilon + 1e-6)
        near = epsilon + np.geomspace(1e-6, max(top - epsilon, 2e-6), 1500)
        edges = np.concatenate([[epsilon], near])
        terms = logs + self._shift * (edges[:, None] - sums)
        largest = terms.max(axis=1)
        growth = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
        # Between two edges: the numerator at the right one, the denominator at the left one.
        bounds = -np.expm1(epsilon - edges[1:]) * np.exp(-np.maximum(growth[:-1], -700.0))
        beyond = math.exp(-max(float(growth[-1]), -700.0))
        return self.infinite + max(float(bounds.max()), beyond) * (1.0 + _GUARD)

    def admits(self, spent: Curve) -> bool:
        """Whether a sum of charges stays within the budget."""
        return spent.infinite <= self.infinite and self.delta_at(spent, self.epsilon) <= self.delta

    def epsilon_spent(self, spent: Curve) -> float:
        """The epsilon that the filter, or the odometer, answers for so far, at its delta; 0 if nothing was charged."""
        if not any(spent.values) and spent.infinite == 0.0:
            return 0.0
        if spent.infinite > self.infinite:
            return math.inf
        low, high = 0.0, 1.0
        while self.delta_at(spent, high) > self.delta:
            low, high = high, 2.0 * high
            if high > 1e4:
                return math.inf
        while high - low > 1e-5 * high:  # what is returned was itself evaluated: never too small
            middle = 0.5 * (low + high)
            if self.delta_at(spent, middle) > self.delta:
                low = middle
            else:
                high = middle
        return high
