"""Cost: what a mechanism pays, as an expression that can be priced, stored and compared.

A Cost is a frozen description (``docs/theorems/README.md`` lists the operations). Pricing it builds numerical profiles
that are cached by description; the description itself goes to JSON and back without loss. A Cost never
claims less than it can prove: ``epsilon`` and ``delta`` are upper bounds, ``epsilon_lower`` a certificate that
some mechanism and score admitted by the description really costs that much.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dptune._codec import from_json, register_tagged, to_json, to_values
from dptune._validate import real
from dptune.accounting._epsilon import certified, larger_epsilon
from dptune.accounting.neighbours import ADDED_OR_REMOVED, Neighbours
from dptune.accounting.profiles import ProfilePair
from dptune.accounting.readings import Readings
from dptune.errors import InvalidInput

__all__ = [
    "Cost",
    "check_cost",
    "completed",
    "cost_from_json",
    "fast_profile",
    "lower_pair",
    "profile",
]

_KINDS: dict[str, type[Cost]] = {}


class Cost(Readings):
    """What a mechanism pays: an upper bound on its privacy profile, in both directions. Immutable and hashable.

    Costs are made by mechanisms (:class:`~dptune.accounting.Gaussian`, :class:`~dptune.accounting.DpSgd`) and by
    operations on costs (:func:`~dptune.accounting.compose`, :func:`~dptune.accounting.select`). ``epsilon`` and
    ``delta`` never claim less than is proven; ``epsilon_lower`` says how much of the claim is really needed.

    A new kind of cost is a frozen dataclass with a class attribute ``kind`` by which JSON knows it, its relation
    (``neighbours``), its upper profile and a lower one; all of them are functions of the fields alone. Its constructor
    refuses what is not such a cost, for stored costs are read by it.

    Example:
        >>> from dptune.accounting import Gaussian, compose
        >>> cost = compose(Gaussian(2.0), Gaussian(2.0))
        >>> round(cost.epsilon(1e-5), 3), round(cost.delta(1.0), 4)
        (2.943, 0.0396)
        >>> 0 <= cost.epsilon(1e-5) - cost.epsilon_lower(1e-5) < 1e-6
        True
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    # What a kind of cost must say.

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """Which data sets the profile compares: what this cost is a guarantee about."""

    @abstractmethod
    def _profile(self) -> ProfilePair:
        """The upper profile in both directions, as exact as this library knows it."""

    @abstractmethod
    def _lower(self, delta: float) -> ProfilePair:
        """The profile of one real mechanism that the description admits, bad near ``delta``."""

    def _fast_profile(self) -> ProfilePair:
        """The upper profile in a form that is cheap to evaluate at many losses."""
        return profile(self)

    def _pure(self) -> float:
        """An epsilon that holds with delta 0, if one is known."""
        return math.inf

    def _both(self) -> ProfilePair:
        return profile(self)

    def _both_fast(self) -> ProfilePair:
        return fast_profile(self)

    # What users call, beside the readings.

    def epsilon(self, delta: float) -> float:
        """The smallest proven epsilon at this delta, rounded up.

        Args:
            delta: in (0, 1); a common choice is 1e-5.

        Returns:
            Epsilon; ``inf`` if none can be proven.

        Raises:
            InvalidInput: delta is not a number in (0, 1).
        """
        return solved(self, _delta(delta))

    def delta(self, epsilon: float) -> float:
        """The smallest proven delta at this epsilon.

        Args:
            epsilon: at least 0.

        Returns:
            Delta, rounded up.

        Raises:
            InvalidInput: epsilon is not a number from 0 on.
        """
        e = np.array([real("epsilon", epsilon, 0)])
        pair = profile(self)
        return float(max(pair.remove.delta(e)[0], pair.add.delta(e)[0]))

    def epsilon_lower(self, delta: float) -> float:
        """A certificate from below: something that the description admits really costs at least this.

        Args:
            delta: in (0, 1).

        Returns:
            Epsilon, rounded down and at most :meth:`epsilon`; 0 if nothing is known.

        Raises:
            InvalidInput: delta is not a number in (0, 1).
        """
        level = _delta(delta)
        found = certified(lower_pair(self, level), level)
        # Proven to be below the upper bound already (docs/theorems/roundoff.md); a belt.
        return min(found, self.epsilon(level)) if found > 0.0 else 0.0

    def to_json(self) -> str:
        """The description as text, from which :func:`cost_from_json` makes an equal cost."""
        return to_json(self)

    def describe(self) -> dict[str, object]:
        """The description as plain JSON values."""
        described: dict[str, object] = to_values(self)
        return described


def check_cost(name: str, value: object) -> Cost:
    """A value that must be a cost; InvalidInput names the argument if it is something else."""
    if not isinstance(value, Cost):
        raise InvalidInput(f"'{name}' must be a cost such as DpSgd(...) or select(...); got {value!r}.")
    return value


def _delta(delta: float) -> float:
    """A delta that a user asked about, checked."""
    return real("delta", delta, 0, 1, low_open=True, high_open=True, hint="A common choice is 1e-5.")


# Built once for each description, by which the caches are keyed.


@lru_cache(maxsize=96)
def profile(cost: Cost) -> ProfilePair:
    """The upper profile of a cost, cached."""
    return cost._profile()


@lru_cache(maxsize=96)
def solved(cost: Cost, delta: float) -> float:
    """The epsilon of a cost, cached: whoever plans, charges or states a cost asks for the same one."""
    return min(larger_epsilon(profile(cost), delta), cost._pure())


@lru_cache(maxsize=96)
def fast_profile(cost: Cost) -> ProfilePair:
    """The upper profile of a cost in a cheap form, cached."""
    return cost._fast_profile()


@lru_cache(maxsize=96)
def lower_pair(cost: Cost, delta: float) -> ProfilePair:
    """The lower profile of a cost, cached."""
    return cost._lower(delta)


def cost_from_json(text: str | dict[str, object]) -> Cost:
    """A cost from the text that :meth:`Cost.to_json` wrote.

    Args:
        text: the text, or the parsed object.

    Returns:
        An equal cost.

    Raises:
        InvalidInput: it describes no cost.

    Example:
        >>> cost_from_json('{"cost": "gaussian", "noise_multiplier": 2.0}')
        Gaussian(noise_multiplier=2.0)
    """
    return from_json(text, Cost, "a cost")  # type: ignore[type-abstract]  # a family


def completed(data: object) -> object:
    """Stored values whose costs all name their relation, as :meth:`Cost.describe` writes them now.

    Args:
        data: parsed JSON of any depth.

    Returns:
        The same values; costs that do not say it are about one record added or removed.

    Example:
        >>> completed({"cost": "pure", "epsilon": 1.0})
        {'neighbours': 'one record added or removed', 'cost': 'pure', 'epsilon': 1.0}
    """
    if isinstance(data, list):
        return [completed(item) for item in data]
    if not isinstance(data, Mapping):
        return data
    whole = {key: completed(value) for key, value in data.items()}
    kind = data.get("cost")
    return {"neighbours": str(ADDED_OR_REMOVED), **whole} if isinstance(kind, str) and kind in _KINDS else whole


# Files that were written before costs named their relation hold costs of one record added or removed.
register_tagged(Cost, "cost", _KINDS, stated={"neighbours": str(ADDED_OR_REMOVED)})
