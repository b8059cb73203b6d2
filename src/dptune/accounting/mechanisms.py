"""The building blocks: mechanisms whose profile is known exactly, or as a loss distribution.

Noise is always relative to the sensitivity of the query under the mechanism's neighbouring relation, ``neighbours``:
one record added or removed, unless another is given. See ``docs/theorems/mechanisms.md`` and ``relations.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dptune._codec import stored_as
from dptune._validate import integer, real
from dptune.accounting._checks import only_added_or_removed
from dptune.accounting._pld import compose_pairs
from dptune.accounting._subsampled import subsampled
from dptune.accounting.atoms import pair_from_atoms
from dptune.accounting.cost import Cost
from dptune.accounting.neighbours import ADDED_OR_REMOVED, Neighbours, check_relation
from dptune.accounting.profiles import LaplaceProfile, ProfilePair, TableProfile, gaussian_pair

__all__ = ["DiscreteGaussian", "DpSgd", "Gaussian", "Gdp", "Laplace", "PureDp"]

_NO_PRIVACY = "Noise below 0.05 leaves no privacy to account for (epsilon above 200)."
_TOO_LARGE = "Check the unit: noise is relative to the sensitivity."


def _noise(value: object) -> float:
    hint = _TOO_LARGE if isinstance(value, int | float) and value > 1 else _NO_PRIVACY
    return real("noise_multiplier", value, 0.05, 1e6, hint=hint)


@dataclass(frozen=True)
class _Leaf(Cost):
    """Costs with plain fields, and an exact profile unless they say otherwise."""

    neighbours: Neighbours = field(default=ADDED_OR_REMOVED, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_relation(self.neighbours)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return self._profile()


@dataclass(frozen=True, init=False, repr=False)
class Gdp(_Leaf):
    """Gaussian differential privacy: no easier to tell apart than N(mu, 1) from N(0, 1).

    Args:
        mu: the distance of the two normal laws; one over the noise multiplier of a Gaussian mechanism.
        neighbours: what the cost is a guarantee about.

    Raises:
        InvalidInput: ``mu`` is outside of [1e-6, 20].

    Example:
        >>> Gdp(0.5).epsilon(1e-5) == Gaussian(2.0).epsilon(1e-5)
        True
    """

    kind: ClassVar[str] = "gdp"
    distance: float = field(metadata=stored_as("mu"))

    def __init__(self, mu: float, *, neighbours: Neighbours = ADDED_OR_REMOVED) -> None:
        # The field has another name than the argument because every cost has a method ``mu``.
        object.__setattr__(self, "distance", real("mu", mu, 1e-6, 20, hint="mu is 1 / noise multiplier."))
        object.__setattr__(self, "neighbours", neighbours)
        self.__post_init__()

    def _profile(self) -> ProfilePair:
        return gaussian_pair(self.distance)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return gaussian_pair(self.distance, below=True)

    def __repr__(self) -> str:
        return f"Gdp(mu={self.distance!r})"

    def __str__(self) -> str:
        return f"{self.distance:g}-GDP"


@dataclass(frozen=True)
class Gaussian(_Leaf):
    """The Gaussian mechanism: normal noise on a query.

    Args:
        noise_multiplier: the standard deviation of the noise, relative to the L2 sensitivity of the query.
        neighbours: the relation under which the sensitivity was taken.

    Raises:
        InvalidInput: the noise is outside of [0.05, 1e6].

    Example:
        >>> round(Gaussian(1.0).epsilon(1e-5), 3)
        4.377
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))

    @property
    def distance(self) -> float:
        """The parameter of Gaussian differential privacy: one over the noise multiplier."""
        return 1.0 / self.noise_multiplier

    def _profile(self) -> ProfilePair:
        return gaussian_pair(self.distance)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return gaussian_pair(self.distance, below=True)

    def __str__(self) -> str:
        return f"Gaussian(noise {self.noise_multiplier:g})"


@dataclass(frozen=True)
class Laplace(_Leaf):
    """The Laplace mechanism: Laplace noise on a query.

    Args:
        noise_multiplier: the scale of the noise, relative to the L1 sensitivity of the query.
        neighbours: the relation under which the sensitivity was taken.

    Raises:
        InvalidInput: the noise is outside of [0.05, 1e6].

    Example:
        >>> round(Laplace(2.0).epsilon(1e-5), 4)  # at most 1 / 2, whatever delta
        0.5
    """

    kind: ClassVar[str] = "laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))

    def _profile(self) -> ProfilePair:
        both = LaplaceProfile(1.0 / self.noise_multiplier)
        return ProfilePair(both, both)

    def _pure(self) -> float:
        return 1.0 / self.noise_multiplier

    def __str__(self) -> str:
        return f"Laplace(scale {self.noise_multiplier:g})"


@dataclass(frozen=True)
class PureDp(_Leaf):
    """Any mechanism that is (epsilon, 0)-differentially private; its worst case is randomised response.

    Args:
        epsilon: what was proven of it.
        neighbours: what it was proven about.

    Raises:
        InvalidInput: epsilon is outside of [0, 500].

    Example:
        >>> PureDp(0.5).epsilon(1e-9) <= 0.5
        True
    """

    kind: ClassVar[str] = "pure"
    pure_epsilon: float = field(metadata=stored_as("epsilon"))

    def __init__(self, epsilon: float, *, neighbours: Neighbours = ADDED_OR_REMOVED) -> None:
        object.__setattr__(self, "pure_epsilon", real("epsilon", epsilon, 0, 500))
        object.__setattr__(self, "neighbours", check_relation(neighbours))

    def _profile(self) -> ProfilePair:
        if self.pure_epsilon == 0.0:
            both = TableProfile(np.zeros(1), np.zeros(1))
        else:
            top = math.tanh(self.pure_epsilon / 2.0)
            both = TableProfile(np.array([0.0, self.pure_epsilon]), np.array([top, 0.0]))
        return ProfilePair(both, both)

    def _pure(self) -> float:
        return self.pure_epsilon

    def __str__(self) -> str:
        return f"pure({self.pure_epsilon:g})"


@dataclass(frozen=True)
class DiscreteGaussian(_Leaf):
    """Integer noise with probabilities proportional to exp(-x^2 / (2 sigma^2)) (Canonne, Kamath, Steinke 2020).

    Args:
        sigma: the parameter of the noise, in units of the integer query.
        sensitivity: the largest change of the query.
        neighbours: the relation under which the sensitivity was taken.

    Raises:
        InvalidInput: sigma is below 0.05 times the sensitivity, or a figure is not a number of its kind.

    Example:
        >>> round(DiscreteGaussian(2.0).epsilon(1e-5), 3)  # a Gaussian of the same sigma: 1.993
        2.011
    """

    kind: ClassVar[str] = "discrete-gaussian"
    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        shift = integer("sensitivity", self.sensitivity, 1, 10**6)
        hint = "It is the parameter of the discrete Gaussian, at least 0.05 times the sensitivity."
        object.__setattr__(self, "sensitivity", shift)
        object.__setattr__(self, "sigma", real("sigma", self.sigma, 0.05 * shift, 1e6, hint=hint))

    def _profile(self) -> ProfilePair:
        return self._pair(4.0 * math.erfc(9.4 / math.sqrt(2.0)))  # both tails, generously

    def _lower(self, delta: float) -> ProfilePair:
        return self._pair(0.0)

    def _pair(self, outside: float) -> ProfilePair:
        """The pair of the noise, cut where its tails hold ``outside``, which is added to the profiles."""
        reach = math.ceil(self.sigma * 9.5) + self.sensitivity + 1
        x = np.arange(-reach, reach + self.sensitivity + 1, dtype=float)
        q = np.exp(-(x**2) / (2.0 * self.sigma**2))
        p = np.exp(-((x - self.sensitivity) ** 2) / (2.0 * self.sigma**2))
        total = q.sum()
        return pair_from_atoms(p / total, q / total, outside, symmetric=True)

    def __str__(self) -> str:
        return f"DiscreteGaussian(sigma {self.sigma:g}, sensitivity {self.sensitivity})"


@dataclass(frozen=True)
class DpSgd(_Leaf):
    """DP-SGD: noisy sums of clipped gradients, each over a fresh Poisson sample of the records.

    The number of steps and the denominators must be public; a batch of any size, the empty one too, takes a step.

    Args:
        sampling_rate: the probability that a record is in a batch: expected batch size over number of records.
        noise_multiplier: the standard deviation of the noise on a sum, relative to the clipping norm.
        steps: how many batches there are.
        neighbours: one record added or removed; ``replaced`` and ``grouped`` convert the whole.

    Raises:
        InvalidInput: a figure is outside of its range, or another relation was asked for.

    Example:
        >>> round(DpSgd(sampling_rate=0.01, noise_multiplier=1.0, steps=100).epsilon(1e-5), 3)
        0.718
    """

    kind: ClassVar[str] = "dpsgd"
    sampling_rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        only_added_or_removed("DpSgd", self, "Convert it: replaced(DpSgd(...)) or grouped(DpSgd(...), k).")
        hint = "It is the expected batch size divided by the number of records."
        object.__setattr__(
            self, "sampling_rate", real("sampling_rate", self.sampling_rate, 0, 1, low_open=True, hint=hint)
        )
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))
        object.__setattr__(self, "steps", integer("steps", self.steps, 1, 10**7))

    def _built(self, below: bool) -> ProfilePair:
        mu = math.sqrt(self.steps) / self.noise_multiplier
        if self.sampling_rate == 1.0 and mu <= 20:
            return gaussian_pair(mu, below)
        step = subsampled(gaussian_pair(1.0 / self.noise_multiplier, below), self.sampling_rate)
        return step if self.steps == 1 else compose_pairs([(step, self.steps)], upper=not below)

    def _profile(self) -> ProfilePair:
        return self._built(below=False)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return self._built(below=True)

    def __str__(self) -> str:
        return f"DpSgd(rate {self.sampling_rate:g}, noise {self.noise_multiplier:g}, {self.steps} steps)"
