"""Conversions between neighbouring relations, each a named function with a theorem (``docs/theorems/relations.md``).

Nothing else in the project changes the relation of a cost. A conversion never claims less than the relation that it
comes from, and no conversion claims amplification by sampling a fixed number of clients.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

from dptune._validate import integer
from dptune.accounting._checks import only_added_or_removed
from dptune.accounting._steps import LowestProfile, power_of, stepped, tabled
from dptune.accounting.cost import Cost, check_cost, fast_profile, lower_pair, profile
from dptune.accounting.mechanisms import DiscreteGaussian, Gaussian, Gdp, Laplace
from dptune.accounting.neighbours import (
    ADDED_OR_REMOVED,
    CLIENT_REPLACED,
    RECORD_REPLACED,
    Neighbours,
)
from dptune.accounting.profiles import LaplaceProfile, ProfilePair, gaussian_pair
from dptune.errors import InvalidInput

__all__ = ["Grouped", "Replaced", "WithinClient", "grouped", "in_relation", "replaced", "within_client"]

_LARGEST_MU = 40.0  # beyond it a Gaussian profile says nothing anyway


def _shifted(cost: Cost, times: int, below: bool = False) -> ProfilePair | None:
    """The exact pair of several steps where noise is added to a query: its shifts add up."""
    if isinstance(cost, Gaussian | Gdp) and cost.distance * times <= _LARGEST_MU:
        return gaussian_pair(cost.distance * times, below)
    if isinstance(cost, Laplace):
        both = LaplaceProfile(times / cost.noise_multiplier)
        return ProfilePair(both, both)
    if isinstance(cost, DiscreteGaussian) and cost.sensitivity * times <= min(cost.sigma / 0.05, 10**6):
        moved = DiscreteGaussian(cost.sigma, cost.sensitivity * times)
        return moved._lower(0.5) if below else moved._profile()
    return None


@dataclass(frozen=True)
class Replaced(Cost):
    """A mechanism on data sets of which one record was replaced; made by :func:`replaced`."""

    kind: ClassVar[str] = "replaced"
    inner: Cost

    def __post_init__(self) -> None:
        only_added_or_removed("replaced", self.inner, "Convert the cost of one record first.")

    @property
    def neighbours(self) -> Neighbours:
        return RECORD_REPLACED

    def _pure(self) -> float:
        return 2.0 * self.inner._pure() * (1.0 + 1e-15)

    def _profile(self) -> ProfilePair:
        exact = _shifted(self.inner, 2)
        if exact is not None:
            return exact
        pair = fast_profile(self.inner)
        if pair.symmetric:
            both = stepped(pair, pair).remove
            return ProfilePair(both, both)
        # Through the data set without either record, or through the one with both; the reverse has the same curve.
        smaller, larger = stepped(pair, pair.flip()).remove, stepped(pair.flip(), pair).remove
        least = LowestProfile(smaller, larger)
        return ProfilePair(least, least)

    def _fast_profile(self) -> ProfilePair:
        return tabled(profile(self))

    def _lower(self, delta: float) -> ProfilePair:
        # A record may be replaced by one that leaves no trace: then it is as if it had been removed.
        return _shifted(self.inner, 2, below=True) or lower_pair(self.inner, delta)


@dataclass(frozen=True)
class Grouped(Cost):
    """A mechanism on data sets that differ by a group; made by :func:`grouped`."""

    kind: ClassVar[str] = "grouped"
    inner: Cost
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", integer("most", self.most, 2, 10**6))
        if self.inner.neighbours.most > 1:
            raise InvalidInput(f"The cost is for '{self.inner.neighbours}' already; group the cost of one change.")

    @property
    def neighbours(self) -> Neighbours:
        return self.inner.neighbours.group(self.most)

    def _pure(self) -> float:
        return self.most * self.inner._pure() * (1.0 + 1e-15)

    def _profile(self) -> ProfilePair:
        return _shifted(self.inner, self.most) or power_of(fast_profile(self.inner), self.most)

    def _fast_profile(self) -> ProfilePair:
        return tabled(profile(self))

    def _lower(self, delta: float) -> ProfilePair:
        # One is a group of at most k.
        return _shifted(self.inner, self.most, below=True) or lower_pair(self.inner, delta)


@dataclass(frozen=True)
class WithinClient(Cost):
    """A mechanism on clients' data, as a guarantee about one of their records; made by :func:`within_client`."""

    kind: ClassVar[str] = "within-client"
    inner: Cost

    def __post_init__(self) -> None:
        _only_clients(self.inner)

    @property
    def neighbours(self) -> Neighbours:
        return ADDED_OR_REMOVED

    def _pure(self) -> float:
        return self.inner._pure()

    def _profile(self) -> ProfilePair:
        return profile(self.inner)

    def _fast_profile(self) -> ProfilePair:
        return fast_profile(self.inner)

    def _lower(self, delta: float) -> ProfilePair:
        return lower_pair(self.inner, delta)


def _only_clients(cost: Cost) -> None:
    if cost.neighbours != CLIENT_REPLACED:
        raise InvalidInput(f"'within_client' starts from one client replaced; got a cost for '{cost.neighbours}'.")


def replaced(cost: Cost) -> Cost:
    """The cost of a mechanism when one record is replaced by another, from its cost when one is added or removed.

    Replacing is removing and adding: two steps, whose ROC curves are applied one after the other. For a Gaussian
    mechanism that is twice the shift, the sensitivity 2 C of a clipped sum. The two steps are *not* a composition of
    independent outputs, which would be too cheap (``docs/theorems/relations.md``).

    Args:
        cost: a cost for one record added or removed.

    Returns:
        A cost for one record replaced.

    Raises:
        InvalidInput: the cost is about other neighbours.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> abs(replaced(Gaussian(2.0)).epsilon(1e-5) - Gaussian(1.0).epsilon(1e-5)) < 1e-9
        True
    """
    return Replaced(check_cost("cost", cost))


def grouped(cost: Cost, most: int) -> Cost:
    """The cost of a mechanism for groups: at most ``most`` records of one unit added or removed, or replaced.

    Group privacy, tight: the ROC curve of one change applied ``most`` times. A pure epsilon is multiplied, and so is
    the shift of a Gaussian mechanism.

    Args:
        cost: a cost for one change, of records or of clients.
        most: how many may change at once.

    Returns:
        A cost for the group; the cost itself where ``most`` is 1.

    Raises:
        InvalidInput: the cost is one for a group already, or ``most`` is not a whole number from 1 on.

    Example:
        >>> from dptune.accounting import PureDp
        >>> group = grouped(PureDp(0.1), 5)
        >>> print(group.neighbours)
        at most 5 records added or removed
        >>> group.epsilon(1e-9) <= 0.5 * (1 + 1e-12)
        True
    """
    check_cost("cost", cost)
    count = integer("most", most, 1, 10**6, hint="It is the largest number of records that one unit has.")
    return cost if count == 1 else Grouped(cost, count)


def within_client(cost: Cost) -> Cost:
    """The cost of a mechanism for one record added or removed, from its cost for one client replaced.

    A record belongs to one client, by itself or by an independent coin, so adding or removing it replaces the data of
    that client and of no other: the same figures hold.

    Args:
        cost: a cost for one client replaced.

    Returns:
        A cost for one record added or removed.

    Raises:
        InvalidInput: the cost is about other neighbours.

    Example:
        >>> from dptune.accounting.voting import RingVote
        >>> vote = RingVote(10, 2, 1, 9.0, 1)
        >>> print(vote.neighbours, "->", within_client(vote).neighbours)
        one client replaced -> one record added or removed
        >>> within_client(vote).epsilon(1e-5) == vote.epsilon(1e-5)
        True
    """
    _only_clients(check_cost("cost", cost))
    if is_dataclass(cost) and any(field.name == "neighbours" for field in fields(cost)):
        same = copy.copy(cost)
        object.__setattr__(same, "neighbours", ADDED_OR_REMOVED)
        return same
    return WithinClient(cost)


def in_relation(cost: Cost, neighbours: Neighbours) -> Cost:
    """The cost under another relation, by the conversions of this module, one after the other.

    Args:
        cost: what is to be converted.
        neighbours: the relation wanted.

    Returns:
        A cost for that relation; the same cost if it has it.

    Raises:
        InvalidInput: no theorem leads there.

    Example:
        >>> from dptune.accounting import DpSgd
        >>> print(in_relation(DpSgd(0.01, 1.0, 10), RECORD_REPLACED.group(3)).neighbours)
        at most 3 records replaced
    """
    if cost.neighbours == neighbours:
        return cost
    single, one = neighbours.single, cost
    if one.neighbours == CLIENT_REPLACED and single.what == "record":
        one = within_client(one)
    if one.neighbours == ADDED_OR_REMOVED and single == RECORD_REPLACED:
        one = replaced(one)
    if one.neighbours != single:
        raise InvalidInput(
            f"No theorem turns a cost for '{cost.neighbours}' into one for '{neighbours}'. Declare the cost under that "
            "relation, or ask for another guarantee."
        )
    return grouped(one, neighbours.most)
