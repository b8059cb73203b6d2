"""Costs of several mechanisms together: all on the same records, one of them by public chance, one for each part.

:mod:`dptune.accounting.combination` makes them; see ``docs/theorems/compose.md``, ``mixture.md``, ``parallel.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dptune._validate import real
from dptune.accounting._checks import same_relation
from dptune.accounting._epsilon import certified
from dptune.accounting._pld import compose_pairs
from dptune.accounting._published import LeastProfile, PureProfile, capped, own_profile
from dptune.accounting.cost import Cost, fast_profile, lower_pair, profile
from dptune.accounting.mechanisms import Gaussian, Gdp
from dptune.accounting.neighbours import Neighbours
from dptune.accounting.profiles import (
    DirectedProfile,
    MaxProfile,
    MixtureProfile,
    ProfilePair,
    TableProfile,
    gaussian_pair,
)
from dptune.errors import InvalidInput

__all__ = ["Compose", "Mixture", "Parallel"]

_Profiles = tuple[DirectedProfile, ...]


class _Several(Cost):
    """What costs of several mechanisms share: at least one part, and one relation for all of them."""

    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput(f"'{self.kind}' needs at least one part; got none.")
        same_relation(self.kind, *self.parts)

    @property
    def neighbours(self) -> Neighbours:
        return self.parts[0].neighbours

    @staticmethod
    def _joined(pairs: Iterable[ProfilePair], join: Callable[[_Profiles], DirectedProfile]) -> ProfilePair:
        """The profiles of the parts joined in each direction; once where both are the same."""
        found = list(pairs)
        remove = join(tuple(pair.remove for pair in found))
        if all(pair.symmetric for pair in found):
            return ProfilePair(remove, remove)
        return ProfilePair(remove, join(tuple(pair.add for pair in found)))


@dataclass(frozen=True)
class Compose(_Several):
    """Several mechanisms on the same records; made by :func:`~dptune.accounting.combination.compose`."""

    kind: ClassVar[str] = "compose"
    parts: tuple[Cost, ...]

    def _pure(self) -> float:
        return math.fsum(part._pure() for part in self.parts) * (1.0 + 1e-15)

    def _gaussian(self) -> float | None:
        """The joint mu if every part is Gaussian: then composition is exact and closed."""
        total = 0.0
        for part in self.parts:
            if not isinstance(part, Gaussian | Gdp):
                return None
            total += part.distance**2
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
class Mixture(_Several):
    """One of several mechanisms, chosen by public chance and named in the output; made by ``mixture``."""

    kind: ClassVar[str] = "mixture"
    weights: tuple[float, ...]
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        total = math.fsum(real("weight", w, 0, 1) for w in self.weights)
        if len(self.weights) != len(self.parts) or abs(total - 1.0) > 1e-9:
            raise InvalidInput(
                f"The weights of a mixture are one probability for each part and must sum to 1; got {self.weights!r}."
            )

    def _mix(self, pairs: Iterable[ProfilePair]) -> ProfilePair:
        return self._joined(pairs, partial(MixtureProfile, self.weights))

    def _pure(self) -> float:
        return max(part._pure() for part in self.parts)

    def _profile(self) -> ProfilePair:
        return self._mix(map(profile, self.parts))

    def _fast_profile(self) -> ProfilePair:
        return self._mix(map(fast_profile, self.parts))

    def _lower(self, delta: float) -> ProfilePair:
        return self._mix(lower_pair(part, delta) for part in self.parts)


@dataclass(frozen=True)
class Parallel(_Several):
    """Each mechanism on its own part of the records, or any one of them; made by ``parallel`` and ``worst``."""

    kind: ClassVar[str] = "parallel"
    parts: tuple[Cost, ...]

    def _pure(self) -> float:
        return max(part._pure() for part in self.parts)

    def _profile(self) -> ProfilePair:
        return self._joined(map(profile, self.parts), MaxProfile)

    def _fast_profile(self) -> ProfilePair:
        return self._joined(map(fast_profile, self.parts), MaxProfile)

    def _lower(self, delta: float) -> ProfilePair:
        # One real mechanism: the part that is worst at this delta.
        return max((lower_pair(part, delta) for part in self.parts), key=lambda pair: certified(pair, delta))

    def epsilon(self, delta: float) -> float:
        return max(part.epsilon(delta) for part in self.parts)
