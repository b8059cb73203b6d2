"""Permute-and-flip on shard utilities: the recommended way to choose among a list when shards can be afforded.

Every candidate is trained on k disjoint shards; one record moves an average score by at most 1/k, so the choice costs
a small pure epsilon however many candidates there are (``docs/theorems/shards.md``). Then one private training on
everything. Utilities must never be released.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from dptune._validate import integer, real
from dptune.accounting import Cost
from dptune.accounting.shards import permute_and_flip
from dptune.methods._machinery.search import FixedTrials
from dptune.methods._machinery.shards import ChoicePlan, Choosing, check_candidates
from dptune.methods.budget import Budget
from dptune.methods.comparison import TOP, Entry, Setting
from dptune.methods.exact import Bits
from dptune.methods.models import flip_choices, top_share
from dptune.methods.parts import Shard
from dptune.methods.plan import Method
from dptune.methods.trial import Params, Search, Selection
from dptune.methods.utilities import total_utility
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Candidates
from dptune.trainer import DeclaresCost

__all__ = ["NoisyBest", "NoisyBestPlan"]

SHARD_ASSUMPTIONS = (
    "A record belongs to one shard, by an independent label; a training sees the records of its shard alone.",
    "Scores are between 0 and 1, from public records or from held-back records each of which is judged on its own.",
    "The final training costs no more than the trainer declared, whatever was chosen.",
)


@dataclass(frozen=True)
class NoisyBestPlan(ChoicePlan):
    """Permute-and-flip on the utilities of shards, then one training on everything.

    Args:
        epsilon: the pure epsilon of the choice.
    """

    epsilon: float

    method: ClassVar[str] = "noisy-best"
    theorem: ClassVar[str] = "docs/theorems/shards.md"
    assumptions: ClassVar[tuple[str, ...]] = SHARD_ASSUMPTIONS

    @property
    def choice(self) -> Cost:
        return permute_and_flip(self.epsilon)

    def start(self, randomness: Randomness) -> Search:
        return FlipSearch(self, randomness)


@dataclass(frozen=True)
class NoisyBest(Method):
    """Choose by permute-and-flip on scores that are averaged over shards, then train once on everything.

    Args:
        candidates: what is tried, all of it.
        shards: how many disjoint parts the records are split into; one record moves a score by at most 1 / shards.
        share: the share of the budget's epsilon that pays for the choice.
        private: train the shards with noise, too (not needed for privacy: their models are never released).
        validation: private records that score the trainings.
        default: what is released if everything failed.

    Raises:
        InvalidInput: an argument is not what it must be, or there are fewer than two candidates.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.PureDp(0.5))(lambda params, data, rng: (None, 0.0))
        >>> method = dpt.NoisyBest(dpt.Space.of([{"layers": 1}, {"layers": 2}]), shards=10)
        >>> plan = method.plan(dpt.Budget(1, 1e-5), train)
        >>> plan.epsilon, plan.expected_runs  # a tenth of the budget chooses; 2 x 10 trainings and the final one
        (0.1, 21.0)
    """

    candidates: Candidates
    shards: int
    share: float = 0.1
    private: bool = False
    validation: PrivateValidation | None = None
    default: Params | None = None

    name: ClassVar[str] = "noisy-best"
    usual: ClassVar[Mapping[str, Any]] = {"shards": 50}
    place: ClassVar[int] = 7

    def __post_init__(self) -> None:
        check_candidates(self.candidates)
        integer("shards", self.shards, 1, 10**6)
        real("share", self.share, 0, 1, low_open=True, high_open=True)

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one, with a chance from the stated model of utilities."""

        def chance(_: Any) -> tuple[float, None]:
            chosen = flip_choices(setting.utilities, setting.k_epsilon, setting.rng)
            return top_share(setting.utilities, chosen, TOP), None

        method = cls(setting.candidates, setting.shards, share=setting.share)
        return (Entry("noisy best", method, len(setting.candidates) + 1.0, chance, "model"),)

    def plan(self, budget: Budget, trainer: DeclaresCost) -> NoisyBestPlan:
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
        validation, epsilon = validation_of(trainer, self.validation), self.share * budget.epsilon
        choosing = Choosing(self.candidates, self.default, self.shards, self.private, validation)
        return choosing.planned(
            budget,
            trainer,
            permute_and_flip(epsilon),
            lambda default, parts, final: NoisyBestPlan(budget, default, parts, final, epsilon),
        )


class ShardSearch(FixedTrials):
    """All candidates on all shards, then a choice; subclasses say which."""

    def __init__(self, plan: ChoicePlan, randomness: Randomness) -> None:
        self._parts, self._final, self._default, self._randomness = plan.parts, plan.final, plan.default, randomness
        k = plan.parts.count
        super().__init__(
            plan.parts.trial(s * k + i, item, Shard(k, i))
            for s, item in enumerate(plan.parts.candidates.items)
            for i in range(k)
        )

    def utilities(self) -> list[int]:
        """Sums of rounded scores, one for each candidate; never released."""
        k, scores = self._parts.count, self._outcomes.scores
        return [total_utility([scores[s * k + i] for i in range(k)]) for s in range(len(self._trials) // k)]

    @abstractmethod
    def choose(self) -> int | None:
        """The index of the chosen candidate; None for the public default."""

    def _select(self) -> Selection:
        chosen, space = self.choose(), self._parts.candidates
        params: Params = dict(self._default if chosen is None else space.items[chosen])
        final = self._final.final_trial(space, params)
        return Selection(dict(final.params), final=final)


class FlipSearch(ShardSearch):
    """Permute-and-flip among the candidates."""

    def __init__(self, plan: NoisyBestPlan, randomness: Randomness) -> None:
        self._epsilon = plan.epsilon
        super().__init__(plan, randomness)

    def choose(self) -> int | None:
        """An index by permute-and-flip; some candidate is always chosen."""
        bits = Bits(self._randomness, "choice")
        return bits.permute_and_flip(self.utilities(), self._parts.sensitivity, Fraction(self._epsilon))
