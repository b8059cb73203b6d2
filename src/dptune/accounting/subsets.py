"""Costs on random subsets of the data: Poisson subsampling, and tuning on a part, training on the rest.

Implements ``docs/theorems/subsample.md`` and ``docs/theorems/disjoint.md`` (Koskela and Kulkarni 2023, with exact
profiles in place of their Renyi bounds). The subset must be drawn by independent coins, and neither its size
nor its members may be released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dptune._validate import real
from dptune.accounting._checks import only_added_or_removed
from dptune.accounting._disjoint import disjoint_pair
from dptune.accounting._dots import grid_below
from dptune.accounting._epsilon import certified
from dptune.accounting._subsampled import subsampled
from dptune.accounting.cost import Cost, check_cost, fast_profile, lower_pair, profile
from dptune.accounting.mechanisms import DpSgd, Gaussian, Gdp
from dptune.accounting.neighbours import Neighbours
from dptune.accounting.profiles import ProfilePair
from dptune.accounting.selected_profile import tabulate

__all__ = ["Disjoint", "Subsample", "disjoint", "subsample"]

_INSTEAD = (
    "Sample first and convert the whole afterwards (replaced, grouped); sampling a fixed number of clients, or whole "
    "groups, is given no amplification."
)


def _mean_loss(one: float, other: float, rate: float) -> float:
    """log(q exp(one) + (1 - q) exp(other)): the largest loss of a mixed likelihood ratio, either way (AM >= HM)."""
    return float(np.logaddexp(math.log(rate) + one, math.log1p(-rate) + other)) + 1e-15 if rate < 1.0 else one


def _published(cost: Cost, pair: ProfilePair) -> ProfilePair:
    """The pair nowhere above what the published theorems on subsets prove."""
    from dptune.accounting._procedures import capped_pair  # noqa: PLC0415 - it knows all kinds of costs, these too

    return capped_pair(cost, pair)


@dataclass(frozen=True)
class Subsample(Cost):
    """A mechanism on a Poisson subsample; made by :func:`subsample`."""

    kind: ClassVar[str] = "subsample"
    inner: Cost
    rate: float

    def __post_init__(self) -> None:
        only_added_or_removed("subsample", self.inner, _INSTEAD)
        object.__setattr__(self, "rate", real("rate", self.rate, 0, 1, low_open=True))

    @property
    def neighbours(self) -> Neighbours:
        return self.inner.neighbours

    def _pure(self) -> float:
        return _mean_loss(self.inner._pure(), 0.0, self.rate)

    def _profile(self) -> ProfilePair:
        return _published(self, subsampled(profile(self.inner), self.rate))

    def _fast_profile(self) -> ProfilePair:
        return subsampled(fast_profile(self.inner), self.rate)

    def _lower(self, delta: float) -> ProfilePair:
        return subsampled(lower_pair(self.inner, min(delta / self.rate, 0.5)), self.rate)


@dataclass(frozen=True)
class Disjoint(Cost):
    """Tuning on a Poisson part, training on the rest; made by :func:`disjoint`."""

    kind: ClassVar[str] = "disjoint"
    tune: Cost
    base: Cost
    rate: float

    def __post_init__(self) -> None:
        only_added_or_removed("disjoint", self.tune, _INSTEAD)
        only_added_or_removed("disjoint", self.base, _INSTEAD)
        object.__setattr__(self, "rate", real("rate", self.rate, 0, 1, low_open=True, high_open=True))

    @property
    def neighbours(self) -> Neighbours:
        return self.base.neighbours

    def _pure(self) -> float:
        return _mean_loss(self.tune._pure(), self.base._pure(), self.rate)

    def _profile(self) -> ProfilePair:
        return _published(self, disjoint_pair(fast_profile(self.tune), fast_profile(self.base), self.rate))

    def _fast_profile(self) -> ProfilePair:
        exact = profile(self)
        return ProfilePair(tabulate(exact.remove), tabulate(exact.add))

    def _lower(self, delta: float) -> ProfilePair:
        base = ProfilePair(*grid_below(lower_pair(self.base, delta), few=True))
        hints = sorted({min(delta * k / self.rate, 0.3) for k in (1.0, 30.0, 1000.0)})
        tunes = [ProfilePair(*grid_below(lower_pair(self.tune, hint), few=True)) for hint in hints]
        found = [disjoint_pair(tune, base, self.rate, upper=False) for tune in tunes]
        return max(found, key=lambda pair: certified(pair, delta))


def subsample(cost: Cost, rate: float) -> Cost:
    """The cost of running a mechanism on a Poisson subsample of the records.

    Args:
        cost: of the mechanism on the sample, for one record added or removed.
        rate: the probability that a record is in the sample, by a coin of its own.

    Returns:
        The cost for the whole data.

    Raises:
        InvalidInput: the rate is not in (0, 1], or the cost is about other neighbours.

    Example:
        >>> round(Gaussian(2.0).epsilon(1e-5), 3), round(subsample(Gaussian(2.0), 0.1).epsilon(1e-5), 3)
        (1.993, 0.369)
    """
    only_added_or_removed("subsample", check_cost("cost", cost), _INSTEAD)
    q = real("rate", rate, 0, 1, low_open=True, hint="It is the probability that a record is in the sample.")
    if q == 1.0:
        return cost
    if isinstance(cost, Subsample):
        return Subsample(cost.inner, cost.rate * q)
    if isinstance(cost, Gaussian):
        return DpSgd(q, cost.noise_multiplier, 1)
    if isinstance(cost, Gdp) and cost.distance <= 20:
        return DpSgd(q, 1.0 / cost.distance, 1)
    return Subsample(cost, q)


def disjoint(tune: Cost, base: Cost, rate: float) -> Cost:
    """The cost of tuning on a Poisson part of the records and training on the rest.

    ``base`` must dominate the final training for every outcome of the tuning, warm starts included.

    Args:
        tune: the cost of tuning on the part.
        base: the cost of training on the rest.
        rate: the probability that a record is used for tuning.

    Returns:
        The cost of both outputs together.

    Raises:
        InvalidInput: the rate is not in [0, 1], or a cost is about other neighbours.

    Example:
        >>> round(disjoint(Gaussian(1.0), Gaussian(2.0), 0.1).epsilon(1e-5), 3)  # below Gaussian(2.0) alone: 1.993
        1.941
    """
    only_added_or_removed("disjoint", check_cost("tune", tune), _INSTEAD)
    only_added_or_removed("disjoint", check_cost("base", base), _INSTEAD)
    q = real("rate", rate, 0, 1, hint="It is the probability that a record is used for tuning.")
    if q == 0.0:
        return base
    return tune if q == 1.0 else Disjoint(tune, base, q)
