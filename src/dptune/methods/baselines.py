"""What tuning is compared with: every candidate paid for, a random guess, and the optimum that nobody may release.

``Naive`` composes all runs, ``RandomGuess`` pays for one. ``NonPrivateOptimum`` leaves the tuning unpaid: its plan is
marked as not guaranteed, its price is infinite, and it must never run on private data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptune.accounting import Cost, compose, parallel
from dptune.errors import InvalidInput
from dptune.methods._costs import Bases, calibrated
from dptune.methods._kinds import costs_of, noise_of
from dptune.methods._search import BestTrial, default_params, make_trial
from dptune.methods._shards import check_candidates
from dptune.methods.base import (
    Budget,
    Meaning,
    Params,
    Plan,
    Randomness,
    plan_of,
    register_search,
)
from dptune.methods.random_stopping import PUBLIC_SCORE
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.spaces import Candidates, Domain, Space, space_from_json

__all__ = ["Naive", "NonPrivateOptimum", "RandomGuess"]


@dataclass(frozen=True)
class Naive:
    """Train every candidate once and release the best; the whole is paid by composition."""

    candidates: Candidates
    validation: PrivateValidation | None = None
    default: Params | None = None

    name = "naive"
    theorem = "docs/theorems/compose.md"
    guaranteed = True

    def __post_init__(self) -> None:
        check_candidates(self.candidates)

    def paid(self, costs: tuple[Cost, ...], worst: Cost) -> Cost:
        """What is paid for all runs."""
        del worst
        return compose(*costs)

    def total(self, costs: tuple[Cost, ...], worst: Cost, validation: PrivateValidation | None) -> Cost:
        """What is paid for all runs, by a training record and, on the side, by a validation record."""
        trained = self.paid(costs, worst)
        if validation is None:
            return trained
        return parallel(trained, self.paid((validation.cost,) * len(self.candidates), validation.cost))

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise whose total cost stays within the budget."""
        bases = Bases(trainer, self.candidates, budget)
        count = len(self.candidates)
        validation = validation_of(trainer, self.validation)
        if validation is not None:
            validation = validation.chosen(budget, lambda one: self.paid((one,) * count, one))
        priced, _ = calibrated(
            bases,
            lambda at: self.total(at.all_candidates, at.worst, validation),
            budget,
            f"Training {count} candidates",
        )
        settings: Params = {
            "space": self.candidates.describe(),
            "base": priced.settings,
            "part": [],
            "fixed": {},
            "validation": None if validation is None else validation.describe(),
        }
        return plan_of(self.name, settings, budget, default_params(self.candidates, self.default)[0])

    @classmethod
    def meaning(cls, settings: Params) -> Meaning:
        """What settings of this method amount to."""
        method = cls(check_candidates(space_from_json(settings["space"])))
        priced, validation = (
            costs_of(settings["base"], method.candidates),
            PrivateValidation.from_json(settings["validation"]),
        )
        if settings["part"]:
            raise InvalidInput("This method trains on every record; plan again.")
        count = len(method.candidates)
        cost = method.total(priced.all_candidates, priced.worst, validation)
        scored = PUBLIC_SCORE if validation is None else validation.sentence()
        return Meaning(
            cost,
            noise_of(settings["base"]),
            float(count),
            method.theorem,
            ("Every run costs what the trainer declared for its configuration.", scored),
            method.candidates,
            method.guaranteed,
        )


@dataclass(frozen=True)
class NonPrivateOptimum(Naive):
    """The best of all candidates with only one run paid for: NOT private, a yardstick for public data."""

    name = "non-private-optimum"
    guaranteed = False

    def paid(self, costs: tuple[Cost, ...], worst: Cost) -> Cost:
        del costs
        return worst


@dataclass(frozen=True)
class RandomGuess:
    """One configuration from the prior, trained once with the whole budget."""

    space: Domain
    default: Params | None = None

    name = "random-guess"

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space | Candidates):
            raise InvalidInput(f"'space' must be a Space or a list of candidates (Space.of); got {self.space!r}.")

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise of one run within the budget."""
        priced, _ = calibrated(Bases(trainer, self.space, budget), lambda at: at.base, budget, "One run")
        settings: Params = {"space": self.space.describe(), "base": priced.settings, "part": [], "fixed": {}}
        return plan_of(self.name, settings, budget, default_params(self.space, self.default)[0])


def _listed(plan: Plan, randomness: Randomness, chosen: list[tuple[int | None, Params]]) -> BestTrial:
    """A public list of trials, all of which run."""
    trials = [
        make_trial(plan.settings, j, params, ("trial", j), place=place) for j, (place, params) in enumerate(chosen)
    ]
    return BestTrial(trials, randomness, plan.default)


@register_search(Naive.name, Naive.meaning)
@register_search(NonPrivateOptimum.name, NonPrivateOptimum.meaning)
def _every(plan: Plan, randomness: Randomness) -> BestTrial:
    space = space_from_json(plan.settings["space"])
    items = space.items if isinstance(space, Candidates) else ()
    return _listed(plan, randomness, [(place, dict(item)) for place, item in enumerate(items)])


def _guess(settings: Params) -> Meaning:
    space = space_from_json(settings["space"])
    if settings["part"]:
        raise InvalidInput("This method trains on every record; plan again.")
    cost, noise = costs_of(settings["base"], space).base, noise_of(settings["base"])
    said = ("The run costs what the trainer declared for its configuration.",)
    return Meaning(cost, noise, 1.0, "docs/theorems/mixture.md", said, space)


@register_search(RandomGuess.name, _guess)
def _one(plan: Plan, randomness: Randomness) -> BestTrial:
    space = space_from_json(plan.settings["space"])
    if isinstance(space, Candidates):
        place = space.place(randomness.uniform("candidate", 0, 0))
        return _listed(plan, randomness, [(place, dict(space.items[place]))])
    return _listed(plan, randomness, [(None, space.draw(lambda i: randomness.uniform("candidate", 0, i)))])
