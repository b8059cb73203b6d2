"""Random stopping: the best of K runs, K drawn from a public law (Liu and Talwar 2019; Papernot and Steinke 2022).

The cost is ``select(base, runs)`` (``docs/theorems/select.md``). K is drawn first, from the run's own randomness,
and must never be released; K = 0, like a run in which everything failed, releases the public default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dptune.accounting import Cost, Runs, cost_from_json, parallel, select
from dptune.accounting.runs import runs_from_json
from dptune.errors import InvalidInput
from dptune.methods._costs import Bases, Priced, calibrated
from dptune.methods._kinds import costs_of, noise_of
from dptune.methods._search import BestTrial, default_params, make_trial, scaled_batch
from dptune.methods.base import (
    Budget,
    Meaning,
    Params,
    Plan,
    Randomness,
    plan_of,
    register_search,
)
from dptune.methods.lines import Line
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.spaces import Candidates, Domain, Space, space_from_json

__all__ = ["RandomStopping"]

ASSUMPTIONS = (
    "Every run costs what the trainer declared for its configuration.",
    "Nothing but the winner leaves: no score, no number of runs, no timing.",
)
PUBLIC_SCORE = "The score is computed from public records, or its cost is part of what the trainer declared."


@dataclass(frozen=True)
class RandomStopping:
    """Draw K from ``runs``, train K configurations drawn from the space's prior, release the best.

    ``default`` is released if nothing ran or all failed; ``validation`` scores on private records. ``costs`` says
    how configurations of different cost are put together: "average", "largest", or "line" (or a ``Line``), which also
    takes costs that follow a continuous parameter.
    """

    space: Domain
    runs: Runs
    default: Params | None = None
    validation: PrivateValidation | None = None
    costs: str | Line = "average"

    name = "random-stopping"
    theorem = "docs/theorems/select.md"

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space | Candidates):
            raise InvalidInput(f"'space' must be a Space or a list of candidates (Space.of); got {self.space!r}.")
        if not isinstance(self.runs, Runs):
            raise InvalidInput(f"'runs' must be a law such as Geometric(10) or Poisson(15); got {self.runs!r}.")
        default_params(self.space, self.default)

    # What Subset reuses.

    def choose(self, base: Cost) -> Cost:
        """The cost of choosing among runs of a base mechanism."""
        return select(base, self.runs)

    def validated(self, budget: Budget, trainer: Any) -> PrivateValidation | None:
        """The private validation with its noise, if there is one."""
        validation = validation_of(trainer, self.validation)
        return None if validation is None else validation.chosen(budget, self.choose)

    def tuning_cost(self, base: Cost, validation: PrivateValidation | None) -> Cost:
        """The cost of tuning: for a training record and, on the side, for a validation record."""
        chosen = self.choose(base)
        return chosen if validation is None else parallel(chosen, self.choose(validation.cost))

    def settings(self, priced: Priced, validation: PrivateValidation | None, trainer: Any, share: float) -> Params:
        """What the search needs; the part is everything until a method around this one narrows it."""
        kept = share * (1.0 if validation is None else 1.0 - validation.fraction)
        return {
            "space": self.space.describe(),
            "runs": self.runs.describe(),
            "base": priced.settings,
            "part": [],
            "fixed": scaled_batch(trainer, self.space, kept),
            "validation": None if validation is None else validation.describe(),
        }

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise whose total cost stays within the budget."""
        bases = Bases(trainer, self.space, budget, self.costs)
        validation = self.validated(budget, trainer)
        priced, _ = calibrated(
            bases,
            lambda at: self.tuning_cost(at.base, validation),
            budget,
            f"Tuning with {self.runs} runs",
            guide=lambda at: self.choose(at.base),
        )
        default, _ = default_params(self.space, self.default)
        return plan_of(self.name, self.settings(priced, validation, trainer, 1.0), budget, default)

    def with_runs(self, runs: Runs) -> RandomStopping:
        """The same with another law."""
        return replace(self, runs=runs)


class RandomSearch(BestTrial):
    """K independent draws from the prior, all of which may run at once."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        settings = plan.settings
        space = space_from_json(settings["space"])
        count = runs_from_json(settings["runs"]).sample(lambda: randomness.uniform("runs"))
        trials = []
        for j in range(count):
            if isinstance(space, Candidates):
                place = space.place(randomness.uniform("candidate", j, 0))
                params = dict(space.items[place])
            else:
                place, params = None, space.draw(lambda i, j=j: randomness.uniform("candidate", j, i))  # type: ignore[misc]
            trials.append(make_trial(settings, j, params, ("trial", j), place=place))
        super().__init__(trials, randomness, plan.default)


def tuning_of(method: RandomStopping, settings: Params) -> Cost:
    """What tuning with these settings costs."""
    priced = costs_of(settings["base"], method.space)
    return method.tuning_cost(priced.base, PrivateValidation.from_json(settings["validation"]))


def tuning_assumptions(settings: Params) -> tuple[str, ...]:
    """Sentences for the statement."""
    validation = PrivateValidation.from_json(settings["validation"])
    scored = PUBLIC_SCORE if validation is None else validation.sentence()
    line = settings["base"]["line"]
    if line is None:
        return (*ASSUMPTIONS, scored)
    kept = cost_from_json(line)
    return (*ASSUMPTIONS, scored, f"Every candidate was kept under one Renyi line, whose cost is charged: {kept}.")


def stopping_from(settings: Params) -> RandomStopping:
    """The method that has these settings."""
    return RandomStopping(space_from_json(settings["space"]), runs_from_json(settings["runs"]))


def meaning_from(method: RandomStopping, settings: Params) -> Meaning:
    """The meaning of a method's own settings."""
    if settings["part"]:
        raise InvalidInput("Tuning on a part of the records is the method 'subset'; plan again.")
    return Meaning(
        tuning_of(method, settings),
        noise_of(settings["base"]),
        method.runs.expected,
        method.theorem,
        tuning_assumptions(settings),
        method.space,
    )


register_search(RandomStopping.name, lambda settings: meaning_from(stopping_from(settings), settings))(RandomSearch)
