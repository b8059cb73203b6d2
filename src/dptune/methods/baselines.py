"""What tuning is compared with: every candidate paid for, a random guess, and the optimum that nobody may release.

``Naive`` composes all runs, ``RandomGuess`` pays for one. ``NonPrivateOptimum`` leaves the tuning unpaid: its plan is
marked as not guaranteed, its price is infinite, and it must never run on private data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dptune.accounting import Cost, compose
from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import Costs, TrainingCosts
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import BestTrial, Training, default_params
from dptune.methods._machinery.shards import check_candidates
from dptune.methods.budget import Budget
from dptune.methods.comparison import TOP, Entry, Setting
from dptune.methods.parts import ALL
from dptune.methods.plan import Method, Plan
from dptune.methods.random_stopping import PUBLIC_SCORE, draw
from dptune.methods.trial import Params, Search
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Candidates, Domain, Space
from dptune.trainer import DeclaresCost

__all__ = ["GuessPlan", "Naive", "NaivePlan", "NonPrivateOptimum", "OptimumPlan", "RandomGuess"]


@dataclass(frozen=True)
class _ListedPlan(Plan):
    """A public number of trainings on every record, of which the best is released.

    Args:
        offered: what is tried.
        training: how.
    """

    offered: Domain
    training: Training

    def check(self) -> None:
        if self.training.part != ALL:
            raise InvalidInput("This method trains on every record; plan again.")

    @property
    def space(self) -> Domain:
        return self.offered

    @property
    def noise(self) -> float | None:
        return self.training.base.noise

    @property
    def validation(self) -> PrivateValidation | None:
        return self.training.validation

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        return self.training.base.run_costs or (self.cost,)

    def _search(self, randomness: Randomness, chosen: list[tuple[int | None, Params]]) -> Search:
        trials = [self.training.trial(j, params, ("trial", j), place) for j, (place, params) in enumerate(chosen)]
        return BestTrial(trials, randomness, self.default)


@dataclass(frozen=True)
class NaivePlan(_ListedPlan):
    """Every candidate is trained once and paid for."""

    offered: Candidates

    method: ClassVar[str] = "naive"
    theorem: ClassVar[str] = "docs/theorems/compose.md"

    def check(self) -> None:
        super().check()
        check_candidates(self.offered)

    @staticmethod
    def paid(costs: Costs) -> Cost:
        """The cost of all runs: each is paid for."""
        return compose(*costs.each)

    @cached_property
    def cost(self) -> Cost:
        trained, validation = self.paid(self.training.base.over(self.space)), self.validation
        if validation is None:
            return self.budget.covering(trained)
        return self.budget.covering(validation.beside(trained, self.paid(_held(validation.cost, len(self.offered)))))

    @property
    def expected_runs(self) -> float:
        return float(len(self.offered))

    @property
    def assumptions(self) -> tuple[str, ...]:
        scored = PUBLIC_SCORE if self.validation is None else self.validation.sentence()
        return ("Every run costs what the trainer declared for its configuration.", scored)

    def start(self, randomness: Randomness) -> Search:
        return self._search(randomness, [(place, dict(item)) for place, item in enumerate(self.offered.items)])


@dataclass(frozen=True)
class OptimumPlan(NaivePlan):
    """The best of all candidates with only one run paid for: NOT private."""

    method: ClassVar[str] = "non-private-optimum"
    guaranteed: ClassVar[bool] = False

    @staticmethod
    def paid(costs: Costs) -> Cost:
        """The cost of one run only, as if the choice were free: no guarantee."""
        return costs.worst


@dataclass(frozen=True)
class GuessPlan(_ListedPlan):
    """One configuration from the prior, trained once."""

    method: ClassVar[str] = "random-guess"
    theorem: ClassVar[str] = "docs/theorems/mixture.md"
    assumptions: ClassVar[tuple[str, ...]] = ("The run costs what the trainer declared for its configuration.",)
    expected_runs: ClassVar[float] = 1.0
    scored: ClassVar[bool] = False

    @cached_property
    def cost(self) -> Cost:
        return self.budget.covering(self.training.base.over(self.space).average)

    def start(self, randomness: Randomness) -> Search:
        return self._search(randomness, [draw(self.space, randomness, 0)])


def _held(score: Cost, count: int) -> Costs:
    """The costs of every candidate's score, to a validation record."""
    return Costs(score, score, (score,) * count)


@dataclass(frozen=True)
class Naive(Method):
    """Train every candidate once and release the best; the whole is paid by composition.

    Args:
        candidates: what is tried, all of it.
        validation: scores on private records, noised and paid for.
        default: what is released if all failed.

    Raises:
        InvalidInput: there are fewer than two candidates.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> plan = Naive(dpt.Space.of([{"layers": 1}, {"layers": 2}])).plan(dpt.Budget(1, 1e-5), train)
        >>> plan.expected_runs, round(plan.price(), 3)
        (2.0, 0.497)
    """

    candidates: Candidates
    validation: PrivateValidation | None = None
    default: Params | None = None

    name: ClassVar[str] = "naive"
    place: ClassVar[int] = 2
    planned: ClassVar[type[NaivePlan]] = NaivePlan

    def __post_init__(self) -> None:
        check_candidates(self.candidates)

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one, which tries everything."""
        count = float(len(setting.candidates))
        return (Entry("naive composition", cls(setting.candidates), count, lambda _: (1.0, None)),)

    def plan(self, budget: Budget, trainer: DeclaresCost) -> NaivePlan:
        """The plan with the smallest noise of every training whose total cost stays within the budget.

        Args:
            budget: the total for all trainings and the choice.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        count = len(self.candidates)
        validation = validation_of(trainer, self.validation)
        if validation is not None:
            validation = validation.chosen(budget, lambda one: self.planned.paid(_held(one, count)))
        default = default_params(self.candidates, self.default)

        def planned(base: TrainingCosts) -> NaivePlan:
            return self.planned(budget, default, self.candidates, Training(base, ALL, {}, validation))

        pricing = Pricing(trainer, self.candidates, budget)
        return calibrated(pricing, planned, budget, f"Training {count} candidates")


@dataclass(frozen=True)
class NonPrivateOptimum(Naive):
    """The best of all candidates with only one run paid for: NOT private, a yardstick for public data.

    Args:
        candidates: what is tried, all of it.
        validation: how private records would score the runs.
        default: what is released if all failed.

    Raises:
        InvalidInput: there are fewer than two candidates.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> plan = NonPrivateOptimum(dpt.Space.of([{"layers": 1}, {"layers": 2}])).plan(dpt.Budget(1, 1e-5), train)
        >>> plan.guaranteed, plan.price()
        (False, inf)
    """

    name: ClassVar[str] = "non-private-optimum"
    planned: ClassVar[type[NaivePlan]] = OptimumPlan

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """No rows: it fits no budget."""
        del setting
        return ()  # it fits no budget


@dataclass(frozen=True)
class RandomGuess(Method):
    """One configuration from the prior, trained once with the whole budget.

    Args:
        space: what the configuration is drawn from.
        default: what is released if the training failed.

    Raises:
        InvalidInput: ``space`` is not a space.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=lambda params: dpt.Gaussian(params["noise_multiplier"]))
        ... def train(params, data, rng):
        ...     return None, 0.0
        >>> guess = RandomGuess(dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True)))
        >>> round(guess.plan(dpt.Budget(1, 1e-5), train).noise, 2)
        3.73
    """

    space: Domain
    default: Params | None = None

    name: ClassVar[str] = "random-guess"
    place: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space | Candidates):
            raise InvalidInput(f"'space' must be a Space or a list of candidates (Space.of); got {self.space!r}.")

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one, with the chance that a single draw is good."""
        return (Entry("random guess", cls(setting.candidates), 1.0, lambda _: (TOP, None)),)

    def plan(self, budget: Budget, trainer: DeclaresCost) -> GuessPlan:
        """The plan with the smallest noise of one training whose total cost stays within the budget.

        Args:
            budget: the total for that training.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        default = default_params(self.space, self.default)

        def planned(base: TrainingCosts) -> GuessPlan:
            return GuessPlan(budget, default, self.space, Training(base, ALL, {}, None))

        return calibrated(Pricing(trainer, self.space, budget), planned, budget, "One run")
