"""Joining costs: composition, public mixtures, disjoint parts.

``compose`` is for mechanisms on the same records whose costs were fixed in advance (budgets that are chosen
adaptively go through the ledger's filter instead); see ``docs/theorems/compose.md``, ``mixture.md``, ``parallel.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dptune._validate import real
from dptune.accounting._pld import compose_pairs
from dptune.accounting._published import LeastProfile, PureProfile, capped, own_profile
from dptune.accounting.cost import Cost, cost_from_json, fast_profile, is_free, lower_pair, profile
from dptune.accounting.mechanisms import DpSgd, Gaussian, Gdp
from dptune.accounting.neighbours import Neighbours, only_added_or_removed, same_relation
from dptune.accounting.profiles import (
    DirectedProfile,
    MaxProfile,
    MixtureProfile,
    ProfilePair,
    TableProfile,
    gaussian_pair,
    solve,
)
from dptune.errors import InvalidInput

__all__ = ["Compose", "Mixture", "Parallel", "certified", "check_cost", "compose", "mixture", "parallel", "worst"]


def check_cost(name: str, value: object) -> Cost:
    """Return ``value`` if it is a Cost, or say what was expected."""
    if not isinstance(value, Cost):
        raise InvalidInput(f"'{name}' must be a cost such as DpSgd(...) or select(...); got {value!r}.")
    return value


def certified(pair: ProfilePair, delta: float) -> float:
    """The epsilon that a lower pair proves at this delta."""
    return max(solve(pair.remove, delta, upward=False), solve(pair.add, delta, upward=False))


def _children(fields: dict[str, object], key: str) -> list[Cost]:
    items = fields[key]
    if not isinstance(items, list):
        raise TypeError(f"'{key}' is not a list")
    if not items:
        raise TypeError(f"'{key}' is empty")
    return [cost_from_json(item) for item in items]


@dataclass(frozen=True)
class Compose(Cost):
    """All of these on the same records; made by :func:`compose`."""

    kind: ClassVar[str] = "compose"
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        same_relation(self.kind, *self.parts)

    @property
    def neighbours(self) -> Neighbours:
        return self.parts[0].neighbours

    def _fields(self) -> dict[str, object]:
        return {"parts": [part.describe() for part in self.parts]}

    @classmethod
    def _from_fields(cls, fields: dict[str, object]) -> Self:
        return cls(tuple(_children(fields, "parts")))

    def _pure(self) -> float:
        return math.fsum(part._pure() for part in self.parts) * (1.0 + 1e-15)

    def _gaussian(self) -> float | None:
        """The joint mu if every part is Gaussian: then composition is exact and closed."""
        total = 0.0
        for part in self.parts:
            if not isinstance(part, Gaussian | Gdp):
                return None
            total += part.mu**2
        return math.sqrt(total) if total <= 400 else None

    def _profile(self) -> ProfilePair:
        mu = self._gaussian()
        if mu is not None:
            return gaussian_pair(mu)
        from dptune.accounting._procedures import capped_pair  # noqa: PLC0415 - it knows all kinds of costs, this too

        composed = compose_pairs([(fast_profile(part), n) for part, n in Counter(self.parts).items()])
        return capped_pair(self, self._capped(composed))

    def _fast_profile(self) -> ProfilePair:
        whole = profile(self)
        if not isinstance(whole.remove, LeastProfile):
            return whole
        remove = _table(whole.remove)
        return ProfilePair(remove, remove if whole.symmetric else _table(whole.add))

    def _capped(self, pair: ProfilePair) -> ProfilePair:
        """The pair nowhere above that of the sum of the parts' pure epsilons, if they have some."""
        top = self._pure()
        if top == math.inf:
            return pair
        limit = PureProfile(top)
        kept = [
            TableProfile(directed.losses, np.minimum(directed.values, limit.delta(directed.losses)), directed.step)
            for directed in (pair.remove, pair.add)
            if isinstance(directed, TableProfile)
        ]
        return ProfilePair(kept[0], kept[0] if pair.symmetric else kept[1])

    def _lower(self, delta: float) -> ProfilePair:
        mu = self._gaussian()
        if mu is not None:
            return gaussian_pair(mu, below=True)
        counted = Counter(self.parts).items()
        # A part that is bad near a larger delta may hurt the whole more: try a few, keep the worst.
        found = [
            compose_pairs([(lower_pair(part, hint), n) for part, n in counted], upper=False)
            for hint in sorted({min(delta * k, max(delta, 0.05)) for k in (1.0, 30.0, 1000.0)})
        ]
        return max(found, key=lambda pair: certified(pair, delta))


def _table(directed: DirectedProfile) -> DirectedProfile:
    """A table under a published bound as a table again: the least of both at its knots."""
    own = own_profile(directed)
    if not isinstance(own, TableProfile):
        return directed
    return TableProfile(own.losses, capped(directed, own.losses, own.values), own.step)


@dataclass(frozen=True)
class Mixture(Cost):
    """One of these, chosen by public chance and named in the output; made by :func:`mixture`."""

    kind: ClassVar[str] = "mixture"
    weights: tuple[float, ...]
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        same_relation(self.kind, *self.parts)

    @property
    def neighbours(self) -> Neighbours:
        return self.parts[0].neighbours

    def _fields(self) -> dict[str, object]:
        return {"weights": list(self.weights), "parts": [part.describe() for part in self.parts]}

    @classmethod
    def _from_fields(cls, fields: dict[str, object]) -> Self:
        weights = fields["weights"]
        if not isinstance(weights, list):
            raise TypeError("'weights' is not a list")
        shares, parts = tuple(real("weight", w, 0, 1) for w in weights), tuple(_children(fields, "parts"))
        if len(shares) != len(parts) or abs(math.fsum(shares) - 1.0) > 1e-9:
            raise TypeError("'weights' is not one probability for each part")
        return cls(shares, parts)

    def _mix(self, pairs: list[ProfilePair]) -> ProfilePair:
        remove = MixtureProfile(self.weights, tuple(pair.remove for pair in pairs))
        if all(pair.symmetric for pair in pairs):
            return ProfilePair(remove, remove)
        return ProfilePair(remove, MixtureProfile(self.weights, tuple(pair.add for pair in pairs)))

    def _pure(self) -> float:
        return max(part._pure() for part in self.parts)

    def _profile(self) -> ProfilePair:
        return self._mix([profile(part) for part in self.parts])

    def _fast_profile(self) -> ProfilePair:
        return self._mix([fast_profile(part) for part in self.parts])

    def _lower(self, delta: float) -> ProfilePair:
        return self._mix([lower_pair(part, delta) for part in self.parts])


@dataclass(frozen=True)
class Parallel(Cost):
    """Each of these on its own part of the records, or any one of them; made by :func:`parallel` and :func:`worst`."""

    kind: ClassVar[str] = "parallel"
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        same_relation(self.kind, *self.parts)

    @property
    def neighbours(self) -> Neighbours:
        return self.parts[0].neighbours

    def _fields(self) -> dict[str, object]:
        return {"parts": [part.describe() for part in self.parts]}

    @classmethod
    def _from_fields(cls, fields: dict[str, object]) -> Self:
        return cls(tuple(_children(fields, "parts")))

    def _highest(self, pairs: list[ProfilePair]) -> ProfilePair:
        remove = MaxProfile(tuple(pair.remove for pair in pairs))
        if all(pair.symmetric for pair in pairs):
            return ProfilePair(remove, remove)
        return ProfilePair(remove, MaxProfile(tuple(pair.add for pair in pairs)))

    def _pure(self) -> float:
        return max(part._pure() for part in self.parts)

    def _profile(self) -> ProfilePair:
        return self._highest([profile(part) for part in self.parts])

    def _fast_profile(self) -> ProfilePair:
        return self._highest([fast_profile(part) for part in self.parts])

    def _lower(self, delta: float) -> ProfilePair:
        # One real mechanism: the part that is worst at this delta.
        return max((lower_pair(part, delta) for part in self.parts), key=lambda pair: certified(pair, delta))

    def epsilon(self, delta: float) -> float:
        return max(part.epsilon(delta) for part in self.parts)


def compose(*costs: Cost) -> Cost:
    """The cost of releasing the outputs of all these mechanisms, computed on the same records.

    Their costs must be fixed in advance; budgets that are chosen after earlier releases go through a ledger's
    :class:`~dptune.accounting.Filter`.

    Args:
        costs: at least one.

    Returns:
        The cost of all of them together.

    Raises:
        InvalidInput: none was given, or they are about different neighbours.

    Example:
        >>> round(compose(Gaussian(2.0), Gaussian(2.0)).epsilon(1e-5), 3)  # twice Gaussian(2.0) would be 3.986
        2.943
    """
    if not costs:
        raise InvalidInput("'compose' needs at least one cost; got none.")
    same_relation("compose", *(check_cost("costs", cost) for cost in costs))
    flat: list[Cost] = []
    for cost in costs:
        flat.extend(cost.parts if isinstance(cost, Compose) else [cost])
    paid = [cost for cost in flat if not is_free(cost)]
    steps: Counter[tuple[float, float]] = Counter()
    rest: list[Cost] = []
    for cost in paid:
        if isinstance(cost, DpSgd):
            steps[(cost.sampling_rate, cost.noise_multiplier)] += cost.steps
        else:
            rest.append(cost)
    merged = [*rest, *(DpSgd(rate, noise, n) for (rate, noise), n in steps.items())]
    if not merged:
        return flat[0]
    return merged[0] if len(merged) == 1 else Compose(tuple(merged))


def mixture(weighted: Iterable[tuple[float, Cost]]) -> Cost:
    """The cost of one of these mechanisms, chosen with public probabilities, where the choice is part of the output.

    Args:
        weighted: pairs of a probability and a cost; the probabilities sum to 1.

    Returns:
        The average of the profiles.

    Raises:
        InvalidInput: the weights are not probabilities that sum to 1, or the costs are about different neighbours.

    Example:
        >>> round(mixture([(0.9, Gaussian(4.0)), (0.1, Gaussian(2.0))]).epsilon(1e-5), 3)
        1.698
    """
    items = [(real("weight", w, 0, 1), check_cost("cost", c)) for w, c in weighted]
    items = [(w, c) for w, c in items if w > 0]
    total = math.fsum(w for w, _ in items)
    if not items or abs(total - 1.0) > 1e-9:
        raise InvalidInput(f"The weights of a mixture are probabilities and must sum to 1; got {total:g}.")
    same_relation("mixture", *(c for _, c in items))
    gathered: dict[Cost, float] = {}
    for w, c in items:
        gathered[c] = gathered.get(c, 0.0) + w
    if len(gathered) == 1:
        return next(iter(gathered))
    # Divide by the sum but never round a weight down.
    return Mixture(tuple(min(1.0, w / min(total, 1.0)) for w in gathered.values()), tuple(gathered))


def parallel(*costs: Cost) -> Cost:
    """The cost of mechanisms on disjoint parts of the data: the pointwise maximum.

    Which part a record belongs to must depend on that record alone (or on an independent coin). It is a theorem about
    one record added or removed: one that is replaced may leave its part for another, and both change.

    Args:
        costs: at least one.

    Returns:
        The largest of them at every epsilon.

    Raises:
        InvalidInput: none was given, or they are about other neighbours.

    Example:
        >>> parallel(Gaussian(1.0), Gaussian(2.0)).epsilon(1e-5) == Gaussian(1.0).epsilon(1e-5)
        True
    """
    if not costs:
        raise InvalidInput("'parallel' needs at least one cost; got none.")
    checked = [check_cost("costs", cost) for cost in costs]
    same_relation("parallel", *checked)
    if len(checked) > 1:
        instead = "A change of several parts is not one of them: put the parts together first, then convert the whole."
        only_added_or_removed("parallel", checked[0], instead)
    return worst(*checked)


def worst(*costs: Cost) -> Cost:
    """The cost of one mechanism of which it is only known that it is one of these: the pointwise maximum.

    Unlike :func:`parallel` this holds under every relation, since one of them alone sees the data.

    Args:
        costs: at least one, all under the same relation.

    Returns:
        The largest of them at every epsilon.

    Raises:
        InvalidInput: none was given, or they are about different neighbours.

    Example:
        >>> worst(Gaussian(1.0), Gaussian(2.0)).epsilon(1e-5) == Gaussian(1.0).epsilon(1e-5)
        True
    """
    if not costs:
        raise InvalidInput("'worst' needs at least one cost; got none.")
    distinct = tuple(dict.fromkeys(check_cost("costs", cost) for cost in costs))
    same_relation("worst", *distinct)
    return distinct[0] if len(distinct) == 1 else Parallel(distinct)
