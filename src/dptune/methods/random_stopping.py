"""Random stopping: the best of K runs, K drawn from a public law (Liu and Talwar 2019; Papernot and Steinke 2022).

The cost is ``select(base, runs)`` (``docs/theorems/select.md``). K is drawn first, from the run's own randomness,
and must never be released; K = 0, like a run in which everything failed, releases the public default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dptune.accounting import Cost, Runs, parallel, select
from dptune.accounting.runs import runs_from_json
from dptune.errors import InvalidInput
from dptune.methods._costs import Bases, Priced, calibrated
from dptune.methods._search import Told, default_params, make_trial, scaled_batch, winner_of
from dptune.methods.base import Budget, Outcome, Params, Plan, Randomness, Selection, Trial, register_search
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
    how configurations of different cost are put together: "average" or "largest".
    """

    space: Domain
    runs: Runs
    default: Params | None = None
    validation: PrivateValidation | None = None
    costs: str = "average"

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

    def assumptions(self, validation: PrivateValidation | None) -> tuple[str, ...]:
        """Sentences for the statement."""
        if validation is None:
            return (*ASSUMPTIONS, PUBLIC_SCORE)
        return (
            *ASSUMPTIONS,
            f"Scores are counts on private records, each held back with probability {validation.fraction:g}, with "
            f"Gaussian noise of deviation {validation.noise:.4g}, over the public constant {validation.denominator:g}.",
        )

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise whose total cost stays within the budget."""
        bases = Bases(trainer, self.space, budget, self.costs)
        validation = self.validated(budget, trainer)
        priced, cost = calibrated(
            bases,
            lambda at: self.tuning_cost(at.base, validation),
            budget,
            f"Tuning with {self.runs} runs",
            guide=lambda at: self.choose(at.base),
        )
        default, _ = default_params(self.space, self.default)
        return Plan(
            method=self.name,
            settings=self.settings(priced, validation, trainer, 1.0),
            cost=cost,
            budget=budget,
            noise_multiplier=priced.noise,
            expected_runs=self.runs.expected,
            theorem=self.theorem,
            assumptions=self.assumptions(validation),
            default=default,
        )

    def with_runs(self, runs: Runs) -> RandomStopping:
        """The same with another law."""
        return replace(self, runs=runs)


class RandomSearch:
    """K independent draws from the prior, all of which may run at once."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        self._randomness, self._default, self._told = randomness, plan.default, Told()
        settings = plan.settings
        space = space_from_json(settings["space"])
        count = runs_from_json(settings["runs"]).sample(lambda: randomness.uniform("runs"))
        self._trials: dict[int, Trial] = {}
        for j in range(count):
            if isinstance(space, Candidates):
                place = space.place(randomness.uniform("candidate", j, 0))
                params = dict(space.items[place])
            else:
                place, params = None, space.draw(lambda i, j=j: randomness.uniform("candidate", j, i))  # type: ignore[misc]
            self._trials[j] = make_trial(settings, j, params, ("trial", j), place=place)

    @property
    def done(self) -> bool:
        return self._told.has(self._trials)

    def ask(self) -> list[Trial]:
        return self._told.ask(self._trials.values())

    def tell(self, outcome: Outcome) -> None:
        self._told.tell(outcome)

    def result(self) -> Selection:
        if not self.done:
            raise InvalidInput("The search is not done; tell every outcome first.")
        return winner_of(self._trials, self._told.scores, self._randomness, self._default)


register_search(RandomStopping.name)(RandomSearch)
