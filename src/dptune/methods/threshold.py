"""Ding et al.'s Algorithm 1 with its elastic step, as a sound filtered mechanism, and its one-sparse-vector form.

Their Theorem 3 is no privacy guarantee (its epsilon depends on the private best utility), so the budget is declared
first and a filter stops before it could be exceeded (``docs/theorems/shards.md``). The whole budget is charged, never
refunded; if nothing passed, the public default is used. NoisyBest is better where all candidates are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dptune._validate import integer, real
from dptune.accounting import Cost
from dptune.accounting.shards import (
    ElasticRounds,
    ElasticStep,
)
from dptune.errors import InvalidInput
from dptune.methods._machinery.gate import Gate, Rounds
from dptune.methods._machinery.search import Outcomes
from dptune.methods._machinery.shards import ChoicePlan, Choosing, check_candidates
from dptune.methods.budget import Budget
from dptune.methods.comparison import TOP, Entry, Setting
from dptune.methods.exact import Bits
from dptune.methods.models import threshold_choices, top_share
from dptune.methods.noisy_best import SHARD_ASSUMPTIONS, ShardSearch
from dptune.methods.parts import Shard
from dptune.methods.plan import Method
from dptune.methods.trial import Outcome, Params, Search, Selection, Trial
from dptune.methods.utilities import total_utility
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Candidates
from dptune.trainer import DeclaresCost

__all__ = ["Gate", "Rounds", "Threshold", "ThresholdPlan", "register_proposer"]

# What was offered so far, and which of it passed (None: nothing did) -> the next candidates; none to stop.
Proposer = Callable[[list[tuple[list[Params], int | None]]], list[Params]]
_PROPOSERS: dict[str, Proposer] = {}


def register_proposer(name: str, proposer: Proposer) -> None:
    """Give an optimiser that proposes batches of candidates a name, by which ``Threshold(proposer=...)`` refers to it.

    It sees only which candidate passed in every round, which is paid for; it must look at nothing private, and must be
    deterministic, so that a run that was cut off can be resumed.

    Args:
        name: what plans call it.
        proposer: takes the rounds so far, each a list of candidates and the index of the one that passed (or None), and
            returns the next candidates, none to stop. It may offer declared candidates only.

    Example:
        >>> def smallest_first(rounds):
        ...     return [{"layers": 1}] if not rounds else [{"layers": 2}] if len(rounds) == 1 else []
        >>> register_proposer("smallest-first", smallest_first)
    """
    _PROPOSERS[name] = proposer


@dataclass(frozen=True)
class ThresholdPlan(ChoicePlan):
    """Rising thresholds on the utilities of shards, then one training on everything.

    Args:
        rounds: how thresholds rise.
        arrive: how many candidates arrive in one batch; None if all are known from the start.
        proposer: the name of what proposes batches; None for the order given.
    """

    rounds: Rounds
    arrive: int | None
    proposer: str | None

    method: ClassVar[str] = "threshold"
    theorem: ClassVar[str] = "docs/theorems/shards.md"
    assumptions: ClassVar[tuple[str, ...]] = SHARD_ASSUMPTIONS

    @property
    def choice(self) -> Cost:
        return self.rounds.cost

    def gate(self, bits: Bits) -> Gate:
        """The noisy comparisons of one run."""
        return Gate(self.rounds, self.parts.count, self.parts.sensitivity, bits)

    def start(self, randomness: Randomness) -> Search:
        return ThresholdSearch(self, randomness) if self.arrive is None else BatchSearch(self, self.arrive, randomness)


@dataclass(frozen=True)
class Threshold(Method):
    """Raise a noisy threshold on utilities of shards, step by step, and keep who passed last; then train once.

    Args:
        candidates: what is tried.
        shards: how many disjoint parts the records are split into.
        granularity: thresholds rise in elastic multiples of this.
        start: where they start.
        share: the share of the budget's epsilon that pays for the choice.
        variant: "rounds" (Ding et al.'s, filtered) or "sparse" (one sparse vector, less noise).
        private: train the shards with noise, too (not needed for privacy: their models are never released).
        batch: how many candidates arrive in one round, in the order given; None if all are known from the start.
        proposer: with ``batch``, the name of a registered proposer that says which candidates arrive.
        validation: private records that score the trainings.
        default: what is released if nobody passed.

    Raises:
        InvalidInput: an argument is not what it must be, or no proposer of this name is registered.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.PureDp(0.5))(lambda params, data, rng: (None, 0.0))
        >>> method = dpt.Threshold(dpt.Space.of([{"layers": 1}, {"layers": 2}]), shards=10, variant="sparse")
        >>> plan = method.plan(dpt.Budget(1, 1e-5), train)
        >>> plan.rounds.epsilon, plan.rounds.passes  # a tenth of the budget, for at most 10 answers above the threshold
        (0.1, 10)
    """

    candidates: Candidates
    shards: int
    granularity: float = 0.02
    start: float = 0.0
    share: float = 0.1
    variant: str = "rounds"
    private: bool = False
    batch: int | None = None
    proposer: str | None = None
    validation: PrivateValidation | None = None
    default: Params | None = None

    name: ClassVar[str] = "threshold"
    usual: ClassVar[Mapping[str, Any]] = {"shards": 50}
    place: ClassVar[int] = 6

    def __post_init__(self) -> None:
        check_candidates(self.candidates)
        integer("shards", self.shards, 1, 10**6)
        ElasticRounds(self.start, self.granularity)
        real("share", self.share, 0, 1, low_open=True, high_open=True)
        if self.variant not in ("rounds", "sparse"):
            raise InvalidInput(f"'variant' must be 'rounds' or 'sparse'; got {self.variant!r}.")
        if self.batch is not None:
            integer("batch", self.batch, 1)
        if self.proposer is not None and self.proposer not in _PROPOSERS:
            raise InvalidInput(f"No proposer called {self.proposer!r} is registered; call register_proposer.")
        if self.proposer is not None and self.batch is None:
            raise InvalidInput("A proposer needs 'batch', the largest number of candidates in a round.")

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one for each variant, with chances from the stated model."""

        def entry(variant: str) -> Entry:
            method = cls(setting.candidates, setting.shards, share=setting.share, variant=variant)

            def chance(_: Any) -> tuple[float, None]:
                utilities = setting.utilities
                chosen = threshold_choices(utilities, setting.k_epsilon, method.granularity, variant, setting.rng)
                return top_share(utilities, chosen, TOP), None

            return Entry(f"threshold, {variant}", method, len(setting.candidates) + 1.0, chance, "model")

        return entry("rounds"), entry("sparse")

    def plan(self, budget: Budget, trainer: DeclaresCost) -> ThresholdPlan:
        """The plan with the smallest noise of the final training whose total cost stays within the budget.

        Args:
            budget: the total for the choice and the final training.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        validation = validation_of(trainer, self.validation)
        elastic = ElasticRounds(self.start, self.granularity)
        total = self.share * budget.epsilon
        rounds = Rounds(
            total,
            self.granularity,
            self.start,
            self.variant,
            total / elastic.weight(),
            elastic.most_passes(),
        )
        choosing = Choosing(self.candidates, self.default, self.shards, self.private, validation)
        return choosing.planned(
            budget,
            trainer,
            rounds.cost,
            lambda default, parts, final: ThresholdPlan(
                budget, default, parts, final, rounds, self.batch, self.proposer
            ),
        )


class ThresholdSearch(ShardSearch):
    """The search when all candidates are known in advance: every one on every shard, then the comparisons."""

    def __init__(self, plan: ThresholdPlan, randomness: Randomness) -> None:
        self._plan = plan
        super().__init__(plan, randomness)

    def choose(self) -> int | None:
        """The candidate that passed last; None if none did."""
        utilities, rounds = self.utilities(), self._plan.rounds
        gate = self._plan.gate(Bits(self._randomness, "choice"))
        elastic = ElasticStep(rounds.start, rounds.granularity)
        chosen: int | None = None
        while elastic.step > 0 and gate.open:
            passed = gate.first_above(utilities, elastic.proposal())
            chosen = chosen if passed is None else passed
            elastic.answer(passed is not None)
        return chosen


class BatchSearch:
    """Candidates in batches, one round for each: Ding et al., section 4.1."""

    def __init__(self, plan: ThresholdPlan, arrive: int, randomness: Randomness) -> None:
        self._plan, self._outcomes, self._size = plan, Outcomes(), arrive
        self._items, self._shards = plan.parts.candidates.items, plan.parts.count
        self._gate = plan.gate(Bits(randomness, "choice"))
        self._elastic = ElasticStep(plan.rounds.start, plan.rounds.granularity)
        self._history: list[tuple[list[Params], int | None]] = []
        self._chosen: Params | None = None
        self._first = 0
        self._batch = self._next()

    def _next(self) -> list[Params]:
        """The candidates of the next round; none where the budget is used or nothing is left."""
        if not self._gate.open:
            return []
        size, name = self._size, self._plan.proposer
        if name is None:
            done = len(self._history) * size
            return [dict(item) for item in self._items[done : done + size]]
        if name not in _PROPOSERS:
            raise InvalidInput(f"No proposer called {name!r} is registered; call register_proposer before resuming.")
        offered = [dict(item) for item in _PROPOSERS[name](self._history)[:size]]
        unknown = [item for item in offered if item not in self._items]
        if unknown:
            raise InvalidInput(f"A proposer may offer declared candidates only; got {unknown[0]!r}.")
        return offered

    def _indices(self) -> range:
        """The trials of the round that runs."""
        return range(self._first, self._first + len(self._batch) * self._shards)

    @property
    def done(self) -> bool:
        """Whether no round is left."""
        return not self._batch

    def ask(self) -> list[Trial]:
        """The trials of the round that runs: every candidate in it, on every shard."""
        k = self._shards
        return self._outcomes.ask(
            self._plan.parts.trial(self._first + s * k + i, item, Shard(k, i))
            for s, item in enumerate(self._batch)
            for i in range(k)
        )

    def tell(self, outcome: Outcome) -> None:
        """Keep an outcome; the last one of a round decides who passed and begins the next."""
        self._outcomes.tell(outcome)
        if not self._batch or not self._outcomes.has(self._indices()):
            return
        k, scores = self._shards, self._outcomes.scores
        utilities = [
            total_utility([scores[self._first + s * k + i] for i in range(k)]) for s in range(len(self._batch))
        ]
        passed = self._gate.first_above(utilities, self._elastic.proposal())
        if passed is not None:
            self._chosen = self._batch[passed]
        self._elastic.answer(passed is not None)
        self._elastic.step = max(1, self._elastic.step)  # the stream, not the step, ends the search
        self._history.append((self._batch, passed))
        self._first += len(self._batch) * k
        self._batch = self._next()

    def result(self) -> Selection:
        """The final training of the candidate that passed last, or of the public default."""
        if not self.done:
            raise InvalidInput("The search is not done; tell every outcome first.")
        plan = self._plan
        final = plan.final.final_trial(plan.parts.candidates, self._chosen or plan.default)
        return Selection(dict(final.params), final=final)
