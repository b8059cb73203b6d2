"""DP-Hype in one process: parts of the data vote for their best candidates; only the noisy sum decides.

Every record belongs to one client, so replacing a client's vote covers changing any of its records. Exactly k votes a
client, one discrete Gaussian on every candidate's sum, the exact account of ``RingVote`` (``docs/theorems/voting.md``).
Local scores and votes must never be released. Then one private training on everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dptune._validate import integer, real
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.voting import RingVote, vote_sensitivity
from dptune.errors import InvalidInput
from dptune.methods._search import FixedTrials, final_trial
from dptune.methods._shards import Shared, check_candidates, part_trial, shared_meaning
from dptune.methods.base import Budget, Meaning, Params, Plan, Randomness, Selection, register_search
from dptune.methods.exact import Bits, short_fraction
from dptune.methods.parts import Client
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.spaces import Candidates, space_from_json

__all__ = ["Vote", "utility_bound"]

ASSUMPTIONS = (
    "A record belongs to one client; a client's vote depends on its own records alone.",
    "Every client casts exactly the stated number of votes.",
    "The final training costs no more than the trainer declared, whatever was chosen.",
)


@dataclass(frozen=True)
class Vote:
    """``clients`` parts each vote for their ``votes`` best candidates; ``alpha`` skews classes among them (Dirichlet).

    The vote gets the share ``share`` of the budget's epsilon (and of delta), the final training the rest.
    """

    candidates: Candidates
    votes: int
    clients: int = 100
    alpha: float | None = None
    share: float = 0.1
    private: bool = False
    validation: PrivateValidation | None = None
    default: Params | None = None

    name = "vote"

    def __post_init__(self) -> None:
        check_candidates(self.candidates)
        integer("clients", self.clients, 2, 10**6)
        vote_sensitivity(len(self.candidates), self.votes)
        real("share", self.share, 0, 1, low_open=True, high_open=True)
        if self.alpha is not None:
            real("alpha", self.alpha, 0, 1e6, low_open=True)

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise of the final training whose total stays within the budget."""
        validation = validation_of(trainer, self.validation)
        p, k = len(self.candidates), integer("votes", self.votes, 1)
        least = calibrate_noise(
            lambda level: _noisy_vote(p, k, level), self.share * budget.epsilon, self.share * budget.delta
        )
        settings = {"clients": self.clients, "votes": k, "alpha": self.alpha, "sigma": short_fraction(least)}
        shared = Shared(self.name, self.candidates, self.default, self.clients, self.private, validation)
        return shared.plan(budget, trainer, _choice(settings, self.candidates), settings)


class VoteSearch(FixedTrials):
    """Every client tries every candidate; then the vote."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        self._settings, self._randomness = plan.settings, randomness
        space = space_from_json(plan.settings["space"])
        if not isinstance(space, Candidates):
            raise InvalidInput("A vote needs a list of candidates.")
        self._space = space
        n, alpha = int(plan.settings["clients"]), plan.settings["alpha"]
        self._clients = n
        super().__init__(
            part_trial(self._settings, s * n + i, item, Client(n, i, alpha))
            for s, item in enumerate(space.items)
            for i in range(n)
        )

    def totals(self) -> list[int]:
        """The sum of exact votes; never released without noise."""
        p, n, scores = len(self._space), self._clients, self._told.scores
        sums = [0] * p
        for i in range(n):
            ties = self._randomness.generator("vote tie", i).random(p)
            ranked = sorted(range(p), key=lambda s: (scores[s * n + i], ties[s]), reverse=True)
            for s in ranked[: self._settings["votes"]]:
                sums[s] += 1
        return sums

    def _select(self) -> Selection:
        bits = Bits(self._randomness, "choice")
        sigma = Fraction(self._settings["sigma"])
        noisy = [total + bits.discrete_gaussian(sigma) for total in self.totals()]
        order = bits.permutation(len(noisy))
        chosen = max(range(len(noisy)), key=lambda s: (noisy[s], order[s]))
        final = final_trial(self._settings["final"], self._space, dict(self._space.items[chosen]))
        return Selection(None, dict(final.params), final)


def utility_bound(bad: int, gap: float, sigma: float) -> float:
    """The least probability that a good candidate wins, if the best leads every bad one by ``gap`` votes."""
    lead = real("gap", gap, 0, low_open=True)
    loss = bad * sigma / (lead * math.sqrt(math.pi)) * math.exp(-(lead**2) / (4.0 * sigma**2))
    return max(0.0, 1.0 - loss)


def _noisy_vote(candidates: int, votes: int, sigma: float) -> RingVote:
    """The cost of sums of votes to each of which one discrete Gaussian is added, as :class:`VoteSearch` does."""
    return RingVote(candidates, votes, scale=1, sigma=sigma, shares=1)


def _choice(settings: Params, candidates: Candidates) -> RingVote:
    return _noisy_vote(len(candidates), settings["votes"], settings["sigma"])


def _meaning(settings: Params) -> Meaning:
    def choice(candidates: Candidates) -> RingVote:
        return _choice(settings, candidates)

    return shared_meaning(settings, choice, "clients", "docs/theorems/voting.md", ASSUMPTIONS)


register_search(Vote.name, _meaning)(VoteSearch)
