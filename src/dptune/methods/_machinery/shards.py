"""Utilities of low sensitivity: every candidate trained on k disjoint parts, scores averaged (Ding et al.).

Scores are clipped to [0, 1] and rounded to whole parts of 2^20, so a training record moves a candidate's sum by at
most 2^20 and a private validation record by at most k (2^20 / M + 1): exact integers, no rounding to worry about
(``docs/theorems/shards.md``). A failure, an empty shard too, counts as 0. The utilities must never be released.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from dptune.accounting import Cost, compose
from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import TrainingCosts
from dptune.methods._machinery.declared import NOISE, tunable_noise
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import Training, default_params, scaled_batch
from dptune.methods.budget import Budget
from dptune.methods.parts import ALL, Client, Shard
from dptune.methods.plan import Plan
from dptune.methods.trial import HeldOut, Params, Trial
from dptune.methods.utilities import sensitivity_of
from dptune.methods.validation import PrivateValidation
from dptune.spaces import Candidates
from dptune.trainer import DeclaresCost

__all__ = ["ChoicePlan", "Choosing", "Parts", "check_candidates"]


def check_candidates(candidates: object) -> Candidates:
    """A list of at least two candidates."""
    if not isinstance(candidates, Candidates):
        raise InvalidInput(f"'candidates' must be a list: Space.of([...]) or space.grid(...); got {candidates!r}.")
    if len(candidates) < 2:
        raise InvalidInput("Choosing needs at least two candidates; with one there is nothing to tune.")
    return candidates


@dataclass(frozen=True)
class Parts:
    """Cheap trainings of every candidate on disjoint parts of the records, whose scores alone are used.

    Args:
        candidates: what is tried.
        count: how many parts there are.
        fixed: parameters that the plan sets beside the configuration's own.
        level: the noise of these trainings, for trainers that take one.
        validation: the private records that score them, if any do.
    """

    candidates: Candidates
    count: int
    fixed: Params
    level: Params
    validation: PrivateValidation | None

    def __post_init__(self) -> None:
        check_candidates(self.candidates)

    @property
    def sensitivity(self) -> int:
        """The most one record moves a candidate's sum of rounded scores."""
        return sensitivity_of(self.count, self.validation)

    def trial(self, index: int, params: Params, condition: Shard | Client) -> Trial:
        """The training of a candidate on one part."""
        part, held = ALL.narrowed(condition), None
        if self.validation is not None:
            # Clients validate on their own records; shards on records that no shard trains on.
            source = part if isinstance(condition, Client) else ALL
            part, _ = self.validation.split(part)
            held = HeldOut(self.validation.split(source)[1], self.validation.denominator, 0.0, self.validation.score)
        label = ("part", condition.index, "trial", index)
        full = {**self.fixed, **params, **self.level}
        return Trial(index, full, part, label, candidate=params, validation=held)


@dataclass(frozen=True)
class ChoicePlan(Plan):
    """A choice by cheap trainings on parts, then one training of the chosen candidate on everything.

    Args:
        parts: the cheap trainings.
        final: the training that is released.
    """

    parts: Parts
    final: Training

    def check(self) -> None:
        if self.final.part != ALL or self.final.validation is not None or self.final.fixed:
            raise InvalidInput("The final training of this method sees every record; plan again.")

    @property
    @abstractmethod
    def choice(self) -> Cost:
        """The cost of the choice alone."""

    @property
    def space(self) -> Candidates:
        return self.parts.candidates

    @cached_property
    def cost(self) -> Cost:
        return self.budget.covering(compose(self.choice, self.final.base.over(self.space).worst))

    @property
    def noise(self) -> float | None:
        return self.final.base.noise

    @property
    def expected_runs(self) -> float:
        return len(self.parts.candidates) * self.parts.count + 1.0

    @property
    def validation(self) -> PrivateValidation | None:
        return self.parts.validation

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        return self.final.base.run_costs or (self.cost,)


Chosen = TypeVar("Chosen", bound=ChoicePlan)


@dataclass(frozen=True)
class Choosing:
    """What the methods that choose by parts have in common when they plan."""

    candidates: Candidates
    default: Params | None
    parts: int
    private: bool
    validation: PrivateValidation | None

    def planned(
        self, budget: Budget, trainer: DeclaresCost, choice: Cost, plan: Callable[[Params, Parts, Training], Chosen]
    ) -> Chosen:
        """Pay for a choice, then train the chosen candidate once on everything with what is left.

        Args:
            budget: the total.
            trainer: declares what one training costs.
            choice: what the choice costs, for a refusal to name it.
            plan: makes the plan of the public default, the cheap trainings and the final one.
        """
        what = f"The choice (epsilon {budget.covering(choice).epsilon(budget.delta):.4g}) and one training"
        default = default_params(self.candidates, self.default)
        tunable = tunable_noise(trainer, self.candidates.default)
        fixed = scaled_batch(trainer, self.candidates, 1.0 / self.parts)

        def planned(base: TrainingCosts) -> Chosen:
            # Models of parts are never released: their noise is zero unless it was asked for.
            level = {NOISE: base.noise if self.private else 0.0} if tunable else {}
            parts = Parts(self.candidates, self.parts, fixed, level, self.validation)
            return plan(default, parts, Training(base, ALL, {}, None))

        return calibrated(Pricing(trainer, self.candidates, budget), planned, budget, what)
