"""Mechanisms that other libraries declare as events: discrete Laplace, mixtures of Gaussians, truncated batches, and
many runs of one mechanism.

Profiles are exact at the points of a table, whose chords are above a convex profile (``docs/theorems/events.md``); one
of them is dp-accounting's own, which is rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr, logsumexp

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import _solvers
from dptune.accounting._checks import only_added_or_removed
from dptune.accounting._combined import Compose
from dptune.accounting.atoms import atoms_below, pair_from_atoms
from dptune.accounting.cost import Cost
from dptune.accounting.mechanisms import _Leaf
from dptune.accounting.neighbours import Neighbours
from dptune.accounting.profiles import ProfilePair, TableProfile
from dptune.errors import InvalidInput

__all__ = ["DiscreteLaplace", "GaussianMixture", "Repeated", "TruncatedDpSgd"]

_POINTS = 4000
_REACH = 9.5  # standard deviations: what lies beyond has probability 1e-21, and stays in the table's last value
_ROUND = 1e-12  # of a tail, beyond the roundoff of differences of tails
_CONVERT = "Convert it: replaced(...) or grouped(..., k)."


def _nothing() -> ProfilePair:
    nothing = TableProfile(np.zeros(1), np.zeros(1))
    return ProfilePair(nothing, nothing)


@dataclass(frozen=True)
class DiscreteLaplace(_Leaf):
    """Integer noise with probabilities proportional to exp(-a |x|) on an integer query: the geometric mechanism.

    Args:
        parameter: a.
        sensitivity: the largest change of the query, in the L1 norm.
        neighbours: the relation under which the sensitivity was taken.

    Raises:
        InvalidInput: a figure is outside of its range.

    Example:
        >>> DiscreteLaplace(0.5, 2).epsilon(1e-9) <= 1.0  # at most a times the sensitivity
        True
    """

    kind: ClassVar[str] = "discrete-laplace"
    parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sensitivity", integer("sensitivity", self.sensitivity, 1, 10**5))
        hint = "It is the decay of the noise; times the sensitivity it is the pure epsilon."
        object.__setattr__(self, "parameter", real("parameter", self.parameter, 1e-6, 20, hint=hint))

    def _atoms(self) -> tuple[Array, Array]:
        a, shift = self.parameter, self.sensitivity
        x = np.arange(shift + 1, dtype=float)  # all at most 0, each between, all from the shift on
        logs = np.full(shift + 1, math.log(math.tanh(a / 2.0)))
        logs[[0, -1]] = -math.log1p(math.exp(-a))
        return np.exp(logs - a * (shift - x)), np.exp(logs - a * x)

    def _profile(self) -> ProfilePair:
        return pair_from_atoms(*self._atoms(), 1e-15, symmetric=True)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        below = atoms_below(*self._atoms())
        return ProfilePair(below, below)

    def _pure(self) -> float:
        return self.parameter * self.sensitivity * (1.0 + 1e-15)

    def __str__(self) -> str:
        return f"DiscreteLaplace({self.parameter:g}, sensitivity {self.sensitivity})"


@dataclass(frozen=True)
class GaussianMixture(_Leaf):
    """Normal noise on a query whose change is random: N(0, s^2) against a mixture of N(c_i, s^2).

    The pair of amplified matrix mechanisms (Choquette-Choo, Ganesh, Steinke and Thakurta 2023), the norms of whose
    sensitivities are the c_i.

    Args:
        noise: the standard deviation s.
        sensitivities: the c_i, at least 0.
        probabilities: one for each, with the sum 1.
        neighbours: one record added or removed.

    Raises:
        InvalidInput: a figure is outside of its range, or the probabilities do not sum to 1.

    Example:
        >>> from dptune.accounting import DpSgd
        >>> one = GaussianMixture(1.0, (0.0, 1.0), (0.9, 0.1))  # a step of DP-SGD
        >>> abs(one.epsilon(1e-5) - DpSgd(0.1, 1.0, 1).epsilon(1e-5)) < 1e-4
        True
    """

    kind: ClassVar[str] = "gaussian-mixture"
    noise: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        only_added_or_removed("GaussianMixture", self, _CONVERT)
        noise = real("noise", self.noise, 0, 1e9, low_open=True)
        changes = tuple(real("sensitivity", c, 0, 1e9) for c in _numbers("sensitivities", self.sensitivities))
        chances = tuple(real("probability", p, 0, 1) for p in _numbers("probabilities", self.probabilities))
        if len(changes) != len(chances) or abs(math.fsum(chances) - 1.0) > 1e-9:
            raise InvalidInput("'probabilities' must sum to 1, with one for each of 'sensitivities'.")
        kept = [(c, p) for c, p in zip(changes, chances, strict=True) if p > 0.0]
        top = max(c for c, _ in kept)
        if not noise / 1e6 <= top <= noise / 0.05:
            raise InvalidInput(f"The largest sensitivity must be 1e-6 to 20 times the noise {noise:g}; got {top:g}.")
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "sensitivities", tuple(c for c, _ in kept))
        object.__setattr__(self, "probabilities", tuple(p for _, p in kept))

    def _losses(self, x: Array) -> Array:
        """The log of the likelihood ratio of the mixture at outcomes in units of the noise; it grows with them."""
        c = np.array(self.sensitivities) / self.noise
        return np.asarray(logsumexp(np.log(self.probabilities) + c * x[:, None] - 0.5 * c**2, axis=1))

    def _profile(self) -> ProfilePair:
        c, weights = np.array(self.sensitivities) / self.noise, np.log(self.probabilities)
        low, high = -_REACH, float(c.max()) + _REACH
        middle = float(_solvers.brentq(lambda x: self._losses(np.array([x]))[0], low, high, xtol=1e-13))

        def side(end: float, sign: float) -> TableProfile:
            x = np.linspace(middle, end, _POINTS)
            e = np.maximum(sign * self._losses(x), 0.0)
            e[0] = 0.0
            tails = log_ndtr(-sign * x), logsumexp(weights + log_ndtr(-sign * (x[:, None] - c)), axis=1)
            ours, theirs = tails[::-1] if sign > 0 else tails
            above = np.exp(ours)
            values = np.maximum(above - np.exp(e + theirs), 0.0) + _ROUND * above
            values = np.minimum(np.maximum.accumulate(values[::-1])[::-1], 1.0)
            kept = np.concatenate([[True], np.diff(np.maximum.accumulate(e)) > 1e-12])
            return TableProfile(e[kept], values[kept])

        return ProfilePair(side(high, 1.0), side(low, -1.0))

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return _nothing()

    def __str__(self) -> str:
        return f"GaussianMixture(noise {self.noise:g}, {len(self.sensitivities)} sensitivities)"


def _numbers(name: str, given: object) -> tuple[float, ...]:
    if not isinstance(given, tuple | list) or not given:
        raise InvalidInput(f"'{name}' must be a list of numbers; got {given!r:.80}.")
    return tuple(given)


@dataclass(frozen=True)
class TruncatedDpSgd(_Leaf):
    """One step of DP-SGD on a Poisson batch that is cut to a largest size, at random (Ganesh et al. 2025).

    Args:
        records: how many records there are.
        sampling_rate: the probability that a record is drawn.
        batch: the largest size of a batch.
        noise_multiplier: the standard deviation of the noise on the sum, relative to the clipping norm.
        neighbours: one record added or removed.

    Raises:
        InvalidInput: a figure is outside of its range.

    Example:
        >>> from dptune.accounting import DpSgd
        >>> TruncatedDpSgd(1000, 0.1, 120, 1.0).epsilon(1e-5) > DpSgd(0.1, 1.0, 1).epsilon(1e-5)
        True
    """

    kind: ClassVar[str] = "truncated-dpsgd"
    records: int
    sampling_rate: float
    batch: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        only_added_or_removed("TruncatedDpSgd", self, _CONVERT)
        object.__setattr__(self, "records", integer("records", self.records, 1, 10**12))
        object.__setattr__(self, "batch", integer("batch", self.batch, 1, 10**12))
        object.__setattr__(self, "sampling_rate", real("sampling_rate", self.sampling_rate, 0, 1, low_open=True))
        object.__setattr__(self, "noise_multiplier", real("noise_multiplier", self.noise_multiplier, 0.1, 1e4))

    def _profile(self) -> ProfilePair:
        from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow import

        figures = self.records, self.sampling_rate, self.batch, self.noise_multiplier
        # No loss exceeds the largest of the step that swaps two records of a full batch.
        top = 2.0 * (2.0 / self.noise_multiplier) * (_REACH + 1.0 / self.noise_multiplier)
        made = pld.from_truncated_subsampled_gaussian_mechanism(*figures, value_discretization_interval=top / 1e4)
        losses = np.linspace(0.0, top, _POINTS)
        values = np.array(made.get_delta_for_epsilon(losses.tolist())) * (1.0 + 1e-9) + 1e-15
        both = TableProfile(losses, np.minimum(values, 1.0))
        return ProfilePair(both, both)

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return _nothing()


@dataclass(frozen=True)
class Repeated(Cost):
    """Many runs of one mechanism on the same records: the composition of so many equal costs, described shortly.

    Args:
        inner: the cost of one.
        count: how many there are.

    Raises:
        InvalidInput: ``count`` is not a whole number from 1 to a million.

    Example:
        >>> from dptune.accounting import Laplace, compose
        >>> Repeated(Laplace(10.0), 3).epsilon(1e-5) == compose(*[Laplace(10.0)] * 3).epsilon(1e-5)
        True
    """

    kind: ClassVar[str] = "repeated"
    inner: Cost
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", integer("count", self.count, 1, 10**6))

    @property
    def _whole(self) -> Compose:
        return Compose((self.inner,) * self.count)

    @property
    def neighbours(self) -> Neighbours:
        """That of one of them."""
        return self.inner.neighbours

    def _profile(self) -> ProfilePair:
        return self._whole._profile()

    def _lower(self, delta: float) -> ProfilePair:
        return self._whole._lower(delta)

    def _pure(self) -> float:
        return self.inner._pure() * self.count * (1.0 + 1e-15)

    def __str__(self) -> str:
        return f"{self.count} times {self.inner}"
