"""The cost of a noisy vote (DP-Hype): n clients vote for their k best of p candidates, only the noisy sum is seen.

Secure sums live in a finite ring, so every client adds integer noise to scaled votes; the account is the exact
convolution of these noises (``docs/theorems/voting.md``). Only the noise of clients that are honest and still there may
be counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import _solvers
from dptune.accounting._pld import compose_pairs
from dptune.accounting.atoms import pair_from_atoms
from dptune.accounting.cost import Cost
from dptune.accounting.mechanisms import Gdp
from dptune.accounting.neighbours import ADDED_OR_REMOVED, CLIENT_REPLACED, Neighbours
from dptune.accounting.profiles import GaussianProfile, ProfilePair
from dptune.errors import BudgetExceeded, InvalidInput

__all__ = ["RingVote", "calibrate_vote", "continuous_vote", "vote_sensitivity", "votes_sigma"]

_REACH = 13.0  # standard deviations kept of every partial sum; what is cut is below 1e-36
_CUT = 1e-16
_WORTH = 1.02  # a larger scale is not worth its ring if the noise is this close to the continuous one


def _changed(candidates: int, votes: int, exactly: bool) -> int:
    """How many coordinates of the vote one client's replacement can change, each by at most one vote."""
    p = integer("candidates", candidates, 2, 10**6)
    k = integer("votes", votes, 1, p, hint="A client votes for its k best candidates.")
    if not exactly:
        return min(2 * k, p)
    if k == p:
        raise InvalidInput(
            f"'votes' must be below 'candidates'; got {k} of {p}. "
            "A vote for every candidate says nothing, whatever the noise; ask for fewer votes."
        )
    return 2 * min(k, p - k)


def vote_sensitivity(candidates: int, votes: int, *, exactly: bool = True) -> float:
    """L2 sensitivity of the sum of votes when one client is replaced.

    ``exactly`` says that every client casts exactly k votes and that this is enforced.
    """
    return math.sqrt(_changed(candidates, votes, exactly))


def continuous_vote(candidates: int, votes: int, sigma: float, *, exactly: bool = True) -> Gdp:
    """The vote with one continuous Gaussian of standard deviation sigma on every coordinate of the sum."""
    scale = real("sigma", sigma, 1e-3, 1e9)
    return Gdp(vote_sensitivity(candidates, votes, exactly=exactly) / scale, neighbours=CLIENT_REPLACED)


def votes_sigma(epsilon: float, delta: float, *, candidates: int, votes: int, exactly: bool = True) -> float:
    """The smallest continuous sigma whose exact account meets the budget (analytic Gaussian), rounded up."""
    e = real("epsilon", epsilon, 0, 100, low_open=True)
    d = real("delta", delta, 0, 1, low_open=True, high_open=True)

    def excess(log_mu: float) -> float:
        return float(GaussianProfile(math.exp(log_mu)).delta(np.array([e]))[0]) - d

    mu = math.exp(_solvers.brentq(excess, math.log(1e-6), math.log(40.0), xtol=1e-12))
    return vote_sensitivity(candidates, votes, exactly=exactly) / mu * (1.0 + 1e-9)


@lru_cache(maxsize=64)
def _summed_noise(sigma: float, shares: int) -> tuple[int, tuple[float, ...]]:
    """Probabilities of the sum of ``shares`` discrete Gaussians on -reach .. reach, by direct convolution.

    All terms are positive, so even the far tail keeps its relative accuracy; no FFT.
    """
    reach = max(2, math.ceil(_REACH * sigma) + 1)
    x = np.arange(-reach, reach + 1, dtype=float)
    one = np.exp(-(x**2) / (2.0 * sigma**2))
    one /= one.sum()
    variance = float(one @ x**2)
    total: Array | None = None
    power, held, left = one, 1, shares
    count = 0
    while left:
        if left & 1:
            count += held
            total = power if total is None else _trimmed(np.convolve(total, power), count * variance)
        left >>= 1
        if left:
            held *= 2
            power = _trimmed(np.convolve(power, power), held * variance)
    if total is None:
        raise InvalidInput(f"'shares' must be at least 1; got {shares}.")
    return (len(total) - 1) // 2, tuple(total.tolist())


def _trimmed(masses: Array, variance: float) -> Array:
    centre = (len(masses) - 1) // 2
    keep = min(centre, math.ceil(_REACH * math.sqrt(variance)) + 2)
    return masses[centre - keep : centre + keep + 1]


@dataclass(frozen=True)
class RingVote(Cost):
    """Votes times an integer ``scale``, plus one discrete Gaussian of parameter ``sigma`` from each of
    ``shares`` honest clients, summed in a ring; exactly ``votes`` votes a client, one client replaced.

    ``sigma`` is in scaled units: a client that owes sigma_i to the unscaled vote adds scale * sigma_i.
    :func:`~dptune.accounting.conversions.within_client` makes it a guarantee about one record of a client.
    """

    kind: ClassVar[str] = "ring-vote"
    candidates: int
    votes: int
    scale: int
    sigma: float
    shares: int
    neighbours: Neighbours = field(default=CLIENT_REPLACED, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.neighbours not in (CLIENT_REPLACED, ADDED_OR_REMOVED):
            raise InvalidInput(
                f"A vote is priced for one client replaced, which covers one record added or removed; got "
                f"'{self.neighbours}'. Convert it: within_client(...) or grouped(..., k)."
            )
        _changed(self.candidates, self.votes, True)
        object.__setattr__(self, "scale", integer("scale", self.scale, 1, 10**6))
        object.__setattr__(self, "sigma", real("sigma", self.sigma, 0.05, 1e5))
        object.__setattr__(self, "shares", integer("shares", self.shares, 1, 10**7))

    @property
    def total_sigma(self) -> float:
        """Standard deviation of the noise that is counted, in units of one vote."""
        reach, masses = _summed_noise(self.sigma, self.shares)
        x = np.arange(-reach, reach + 1, dtype=float)
        return math.sqrt(float(np.asarray(masses) @ x**2)) / self.scale

    def _coordinate(self, extra: float) -> ProfilePair:
        _, masses = _summed_noise(self.sigma, self.shares)
        pad = np.zeros(self.scale)
        return pair_from_atoms(
            np.concatenate([pad, masses]), np.concatenate([masses, pad]), extra=extra, symmetric=True
        )

    def _profile(self) -> ProfilePair:
        return compose_pairs([(self._coordinate(_CUT), _changed(self.candidates, self.votes, True))])

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return compose_pairs([(self._coordinate(0.0), _changed(self.candidates, self.votes, True))], upper=False)


def _scales() -> Iterator[int]:
    scale = 1
    while scale <= 4096:
        yield scale
        scale = scale + 1 if scale < 4 else math.ceil(scale * 1.4)


def calibrate_vote(
    epsilon: float,
    delta: float,
    *,
    clients: int,
    candidates: int,
    votes: int,
    dropout: float = 0.0,
    colluding: int = 1,
) -> RingVote:
    """Noise shares for a vote in a ring: the smallest scale whose exact account meets the budget with noise
    close to the continuous optimum.

    Only (1 - dropout) * clients - colluding shares count: those that drop out add none, and a curious client
    can subtract its own.
    """
    n = integer("clients", clients, 2, 10**7)
    lost = real("dropout", dropout, 0, 1, high_open=True, hint="It is the share of clients that may vanish.")
    curious = integer("colluding", colluding, 1, n, hint="A curious client can always subtract its own noise.")
    shares = math.floor((1.0 - lost) * n + 1e-9) - curious
    if shares < 1:
        raise InvalidInput(
            f"No honest noise is left: {n} clients, dropout {lost:g}, {curious} colluding. Use more clients."
        )
    target = votes_sigma(epsilon, delta, candidates=candidates, votes=votes)

    def vote(scale: int, sigma: float) -> RingVote:
        return RingVote(candidates, votes, scale, scale * sigma / math.sqrt(shares), shares)

    def fits(scale: int, sigma: float) -> bool:
        return scale * sigma / math.sqrt(shares) >= 0.05 and vote(scale, sigma).epsilon(delta) <= epsilon

    for scale in _scales():
        if not fits(scale, target * _WORTH):
            continue
        low, high = target * 0.98, target * _WORTH
        for _ in range(7):
            middle = (low + high) / 2.0
            low, high = (low, middle) if fits(scale, middle) else (middle, high)
        return vote(scale, high)
    raise BudgetExceeded(f"No scale up to 4096 meets epsilon {epsilon:g} at delta {delta:g}; use a larger budget.")
