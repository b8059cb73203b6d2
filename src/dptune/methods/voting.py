"""DP-Hype in one process: parts of the data vote for their best candidates; only the noisy sum decides.

A vote is priced for one client replaced, the final training for one record added or removed. Every record belongs to
one client, so ``within_client`` makes the vote a guarantee about records, too, and the two compose
(``docs/theorems/relations.md``). Exactly k votes a client, one discrete Gaussian on every candidate's sum, the exact
account of ``RingVote`` (``docs/theorems/voting.md``).
Local scores and votes must never be released. Then one private training on everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from dptune._validate import integer, real
from dptune.accounting import Cost, within_client
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.voting import RingVote, vote_sensitivity
from dptune.methods._machinery.search import FixedTrials
from dptune.methods._machinery.shards import ChoicePlan, Choosing, check_candidates
from dptune.methods.budget import Budget
from dptune.methods.comparison import TOP, Entry, Setting
from dptune.methods.exact import Bits, short_fraction
from dptune.methods.models import CLIENT_DEVIATION, top_share, vote_choices
from dptune.methods.parts import Client
from dptune.methods.plan import Method
from dptune.methods.trial import Params, Search, Selection
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Candidates
from dptune.trainer import DeclaresCost

__all__ = ["Vote", "VotePlan"]

ASSUMPTIONS = (
    "A record belongs to one client; a client's vote depends on its own records alone.",
    "Every client casts exactly the stated number of votes.",
    "The final training costs no more than the trainer declared, whatever was chosen.",
)


def _noisy_vote(candidates: int, votes: int, sigma: float) -> Cost:
    """What sums of votes cost one record, where one discrete Gaussian is added to each, as :class:`VoteSearch` does."""
    return within_client(RingVote(candidates, votes, scale=1, sigma=sigma, shares=1))


@dataclass(frozen=True)
class VotePlan(ChoicePlan):
    """A noisy vote of parts of the data, then one training on everything.

    Args:
        votes: how many candidates each client votes for.
        alpha: skews classes among clients (Dirichlet); None for equal shares.
        sigma: the noise on every candidate's sum of votes.
    """

    votes: int
    alpha: float | None
    sigma: float

    method: ClassVar[str] = "vote"
    theorem: ClassVar[str] = "docs/theorems/voting.md"
    assumptions: ClassVar[tuple[str, ...]] = ASSUMPTIONS

    @property
    def choice(self) -> Cost:
        return _noisy_vote(len(self.parts.candidates), self.votes, self.sigma)

    def start(self, randomness: Randomness) -> Search:
        return VoteSearch(self, randomness)


@dataclass(frozen=True)
class Vote(Method):
    """Parts of the data vote for their best candidates, only the noisy sum decides; then train once (DP-Hype).

    Args:
        candidates: what is voted on.
        votes: how many candidates each client votes for.
        clients: how many parts there are.
        alpha: skews classes among them (Dirichlet); None for equal shares.
        share: the share of the budget's epsilon, and of its delta, that pays for the vote.
        private: train the clients' models with noise, too (not needed for privacy: they are never released).
        validation: private records that score the trainings.
        default: what is released if everything failed.

    Raises:
        InvalidInput: an argument is not what it must be, or a client would vote for every candidate.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.PureDp(0.5))(lambda params, data, rng: (None, 0.0))
        >>> method = dpt.Vote(dpt.Space.of([{"layers": n} for n in (1, 2, 3)]), votes=1, clients=100, share=0.5)
        >>> plan = method.plan(dpt.Budget(2, 1e-5), train)
        >>> round(plan.sigma, 2)  # of the noise on every candidate's sum of about 33 votes
        5.49
    """

    candidates: Candidates
    votes: int
    clients: int = 100
    alpha: float | None = None
    share: float = 0.1
    private: bool = False
    validation: PrivateValidation | None = None
    default: Params | None = None

    name: ClassVar[str] = "vote"
    usual: ClassVar[Mapping[str, Any]] = {"votes": lambda candidates: max(1, min(5, candidates - 1))}
    place: ClassVar[int] = 8

    def __post_init__(self) -> None:
        check_candidates(self.candidates)
        integer("clients", self.clients, 2, 10**6)
        vote_sensitivity(len(self.candidates), self.votes)
        real("share", self.share, 0, 1, low_open=True, high_open=True)
        if self.alpha is not None:
            real("alpha", self.alpha, 0, 1e6, low_open=True)

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one, with a chance from the stated model of utilities."""
        count = len(setting.candidates)
        votes = min(setting.votes, count - 1)

        def chance(plan: VotePlan) -> tuple[float, None]:
            chosen = vote_choices(setting.utilities, setting.clients, votes, plan.sigma, CLIENT_DEVIATION, setting.rng)
            return top_share(setting.utilities, chosen, TOP), None

        method = cls(setting.candidates, votes, setting.clients, share=setting.share)
        return (Entry("vote", method, count + 1.0, chance, "model"),)

    def plan(self, budget: Budget, trainer: DeclaresCost) -> VotePlan:
        """The plan with the smallest noise of the final training whose total cost stays within the budget.

        Args:
            budget: the total for the vote and the final training.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        validation = validation_of(trainer, self.validation)
        p, k = len(self.candidates), integer("votes", self.votes, 1)
        least = calibrate_noise(
            lambda level: budget.covering(_noisy_vote(p, k, level)),
            self.share * budget.epsilon,
            self.share * budget.delta,
        )
        sigma = short_fraction(least)
        choosing = Choosing(self.candidates, self.default, self.clients, self.private, validation)
        return choosing.planned(
            budget,
            trainer,
            _noisy_vote(p, k, sigma),
            lambda default, parts, final: VotePlan(budget, default, parts, final, k, self.alpha, sigma),
        )


class VoteSearch(FixedTrials):
    """Every client tries every candidate; then the vote."""

    def __init__(self, plan: VotePlan, randomness: Randomness) -> None:
        self._plan, self._space, self._randomness = plan, plan.parts.candidates, randomness
        n = plan.parts.count
        super().__init__(
            plan.parts.trial(s * n + i, item, Client(n, i, plan.alpha))
            for s, item in enumerate(self._space.items)
            for i in range(n)
        )

    def totals(self) -> list[int]:
        """The sum of exact votes; never released without noise."""
        p, n, scores = len(self._space), self._plan.parts.count, self._outcomes.scores
        sums = [0] * p
        for i in range(n):
            ties = self._randomness.generator("vote tie", i).random(p)
            ranked = sorted(range(p), key=lambda s: (scores[s * n + i], ties[s]), reverse=True)
            for s in ranked[: self._plan.votes]:
                sums[s] += 1
        return sums

    def _select(self) -> Selection:
        """The winner of the noisy vote, and its final training."""
        bits = Bits(self._randomness, "choice")
        noisy = [total + bits.discrete_gaussian(Fraction(self._plan.sigma)) for total in self.totals()]
        order = bits.permutation(len(noisy))
        chosen = max(range(len(noisy)), key=lambda s: (noisy[s], order[s]))
        final = self._plan.final.final_trial(self._space, dict(self._space.items[chosen]))
        return Selection(dict(final.params), final=final)
