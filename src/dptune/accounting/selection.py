"""Private selection: the cost of releasing the best of a random number of runs.

``select`` is random stopping (Liu and Talwar 2019; Papernot and Steinke 2022), ``select_adaptive`` lets earlier scores
steer the sampling within a box (DP-HyPO). Both hold only if nothing but the winner leaves: no score, no
count, no timing; see ``docs/theorems/select.md``, ``interleaving.md`` and ``adaptive.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dptune._validate import real
from dptune.accounting._convex import joined
from dptune.accounting._published import LeastProfile, PureProfile, RenyiProfile, ShiftedProfile, stopping_estimate
from dptune.accounting._ratio import log_ratio
from dptune.accounting.combination import Compose, Parallel
from dptune.accounting.cost import Cost, check_cost, fast_profile, lower_pair, profile
from dptune.accounting.lines import RenyiLine
from dptune.accounting.mechanisms import DpSgd
from dptune.accounting.neighbours import Neighbours
from dptune.accounting.profiles import DirectedProfile, ProfilePair
from dptune.accounting.runs import NegativeBinomial, Poisson, Runs
from dptune.accounting.selected_profile import Certificate, certify, selected_profile, tabulate
from dptune.errors import InvalidInput

__all__ = ["Select", "select", "select_adaptive", "slow_curve"]


@dataclass(frozen=True)
class Select(Cost):
    """The best of K runs of ``base``, K drawn from ``runs``; made by :func:`select` and :func:`select_adaptive`.

    ``density`` bounds the sampling law against the prior; (1, 1) is no adaptation.
    """

    kind: ClassVar[str] = "select"
    base: Cost
    runs: Runs
    density: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        check_cost("base", self.base)
        if not isinstance(self.runs, Runs):
            raise InvalidInput(f"'runs' must be a law such as Geometric(10) or Poisson(15); got {self.runs!r}.")
        try:
            low, high = self.density
        except (TypeError, ValueError):
            raise InvalidInput(f"'density' must be a pair (c, C) with 0 < c <= 1 <= C; got {self.density!r}.") from None
        hint = "The sampling law is kept within c and C times the prior, so c <= 1 <= C."
        c = real("density c", low, 0, 1, low_open=True, hint=hint)
        big_c = real("density C", high, 1, 1e6, hint=hint)
        if (c == 1.0) != (big_c == 1.0):
            # A law above c = 1 times the prior everywhere, or below C = 1 times it, is the prior itself.
            c = big_c = 1.0
        object.__setattr__(self, "density", (c, big_c))

    @property
    def neighbours(self) -> Neighbours:
        return self.base.neighbours  # the theorem compares any two data sets on which the base's pair holds

    def _profile(self) -> ProfilePair:
        base = fast_profile(self.base)
        remove = selected_profile(base, self.runs, self.density)
        cap = self._caps(base, remove.end)
        if base.symmetric:
            both = cap(remove)
            return ProfilePair(both, both)
        return ProfilePair(cap(remove), cap(selected_profile(base.flip(), self.runs, self.density)))

    def _pure(self) -> float:
        one = self.base._pure()
        if isinstance(self.runs, NegativeBinomial) and one < math.inf:
            return (2.0 + self.runs.shape) * (one + math.log(self.density[1] / self.density[0])) * (1.0 + 1e-15)
        return math.inf

    def _caps(self, base: ProfilePair, end: float) -> Callable[[DirectedProfile], DirectedProfile]:
        """Puts the published bounds that apply around a profile (``docs/theorems/published.md``)."""
        if isinstance(self.runs, NegativeBinomial) and self.runs.stopping == 1.0 and self.density == (1.0, 1.0):
            return lambda directed: directed  # one certain run is the base itself
        pure, curve, edge = self._pure(), lru_cache(maxsize=1)(self._renyi), lru_cache(maxsize=1)(self._first_edge)
        least = stopping_estimate(base, self.runs, end) if slow_curve(self.base) else None

        def cap(directed: DirectedProfile) -> DirectedProfile:
            if isinstance(self.runs, NegativeBinomial | Poisson):
                directed = LeastProfile(directed, curve, least)
            if isinstance(self.base, RenyiLine) and self.density == (1.0, 1.0):
                directed = LeastProfile(directed, edge)
            return directed if pure == math.inf else LeastProfile(directed, lambda: PureProfile(pure))

        return cap

    def _renyi(self) -> DirectedProfile | None:
        """The profile of Papernot and Steinke's or DP-HyPO's theorems, if the base has a Renyi curve."""
        # dp-accounting takes longer to import than most prices to compute.
        from dptune.accounting.renyi import selected_curve  # noqa: PLC0415

        found = selected_curve(self.base, self.runs, self.density)
        return None if found is None else RenyiProfile(*found)

    def _first_edge(self) -> DirectedProfile | None:
        """Xiang et al., Theorem 3, from the conversions of a line: its table ends where large laws still look."""
        exact = profile(self.base)
        shift = log_ratio(exact, self.runs)
        return ShiftedProfile(exact.remove, self.runs.expected, shift) if shift < math.inf else None

    def _fast_profile(self) -> ProfilePair:
        exact = profile(self)
        remove = tabulate(exact.remove)
        both = joined(remove, remove if exact.symmetric else tabulate(exact.add))
        return ProfilePair(both.remove, both.remove) if exact.symmetric else both

    def _certificate(self, delta: float) -> tuple[Certificate, bool]:
        """The better of the two directions, and whether it is the removal direction.

        Not adapting is allowed whatever the density, so the certificate of plain selection holds throughout.
        """
        base = lower_pair(self.base, delta)
        upper = profile(self)
        found = certify(base, self.runs, delta, upper.remove.epsilon(delta))
        if base.symmetric or (near := upper.add.epsilon(delta)) < found.epsilon:
            return found, True  # a certificate is at most the upper bound of its direction
        other = certify(base.flip(), self.runs, delta, near)
        return (other, False) if other.epsilon > found.epsilon else (found, True)

    def _lower(self, delta: float) -> ProfilePair:
        certificate, forward = self._certificate(delta)
        pair = certificate.pair()
        return pair if forward else pair.flip()


def slow_curve(cost: Cost) -> bool:
    """Whether a Renyi curve takes longer than an estimate from the profile, which must then be exact."""
    if isinstance(cost, Compose | Parallel):
        return any(map(slow_curve, cost.parts)) and not any(isinstance(part, RenyiLine) for part in cost.parts)
    return isinstance(cost, DpSgd)


def select(base: Cost, runs: Runs) -> Select:
    """The cost of releasing the best of K independent runs, where K is drawn from a public law.

    The score must be part of what a run pays for (public validation data, or a noised score); K = 0 releases
    a public default; ties are broken at random; failed runs score minus infinity and are not retried.

    Args:
        base: the cost of one run.
        runs: the law of K, for example ``Geometric(10)``.

    Returns:
        The cost of everything that leaves: the winner.

    Raises:
        InvalidInput: an argument is not a cost or not a law.

    Example:
        >>> from dptune.accounting import Gaussian, Geometric
        >>> round(Gaussian(4.0).epsilon(1e-5), 3), round(select(Gaussian(4.0), Geometric(10)).epsilon(1e-5), 3)
        (0.926, 1.429)
    """
    return select_adaptive(base, runs, (1.0, 1.0))


def select_adaptive(base: Cost, runs: Runs, density: tuple[float, float]) -> Select:
    """The cost of selection whose sampling law may follow earlier scores, within a box around the prior (DP-HyPO).

    Args:
        base: the cost of one run.
        runs: the law of the number of runs.
        density: (c, C) with 0 < c <= 1 <= C: the sampling law is kept within c and C times the prior.

    Returns:
        The cost of the winner.

    Raises:
        InvalidInput: an argument is not a cost, not a law, or not such a pair.

    Example:
        >>> from dptune.accounting import Gaussian, Geometric
        >>> round(select_adaptive(Gaussian(4.0), Geometric(10), (0.75, 2.0)).epsilon(1e-5), 3)
        3.746
    """
    return Select(base, runs, density)
