"""Random stopping: the best of K runs, K drawn from a public law (Liu and Talwar 2019; Papernot and Steinke 2022).

The cost is ``select(base, runs)`` (``docs/theorems/select.md``). K is drawn first, from the run's own randomness,
and must never be released; K = 0, like a run in which everything failed, releases the public default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dptune._codec import register_tagged
from dptune.accounting import Cost, Runs, select
from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import TrainingCosts
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import BestTrial, Training, default_params, scaled_batch
from dptune.methods.budget import Budget
from dptune.methods.comparison import Entry, Setting
from dptune.methods.lines import Line
from dptune.methods.parts import ALL, DataPart
from dptune.methods.plan import Method, Plan
from dptune.methods.trial import Params, Search
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Candidates, Domain, Space
from dptune.trainer import DeclaresCost

__all__ = ["PUBLIC_SCORE", "RandomStopping", "StoppingPlan", "Tuning"]

ASSUMPTIONS = (
    "Every run costs what the trainer declared for its configuration.",
    "Nothing but the winner leaves: no score, no number of runs, no timing.",
)
PUBLIC_SCORE = "The score is computed from public records, or its cost is part of what the trainer declared."

_TUNINGS: dict[str, type[Tuning]] = {}


@dataclass(frozen=True)
class Tuning(Training):
    """Runs of which the best is chosen: from which space, how many, and how each is trained.

    Args:
        space: what configurations are drawn from.
        runs: the law of their number.
    """

    space: Domain
    runs: Runs

    method: ClassVar[str] = "random-stopping"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _TUNINGS[cls.method] = cls

    def choose(self, base: Cost) -> Cost:
        """The cost of choosing the best among runs that each cost ``base``."""
        return select(base, self.runs)

    @cached_property
    def cost(self) -> Cost:
        """What tuning costs: a training record and, beside it, a validation record."""
        chosen = self.choose(self.base.over(self.space).average)
        held = self.validation
        return chosen if held is None else held.beside(chosen, self.choose(held.cost))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences for the statement."""
        scored = PUBLIC_SCORE if self.validation is None else self.validation.sentence()
        if self.base.line is None:
            return (*ASSUMPTIONS, scored)
        kept = f"Every candidate was kept under one Renyi line, whose cost is charged: {self.base.line}."
        return (*ASSUMPTIONS, scored, kept)

    @property
    def batch(self) -> int | None:
        """How many runs are drawn from one sampling law, where earlier scores steer later draws."""
        return None

    def count(self, randomness: Randomness) -> int:
        """Draw K, which is never released."""
        return self.runs.sample(lambda: randomness.uniform("runs"))

    def start(self, randomness: Randomness, default: Params) -> Search:
        """Begin the search.

        Args:
            randomness: the run's.
            default: what is released if nothing ran or all failed.
        """
        return RandomSearch(self, randomness, default)


_TUNINGS[Tuning.method] = Tuning


register_tagged(Tuning, "method", _TUNINGS)


@dataclass(frozen=True)
class StoppingPlan(Plan):
    """The best of K runs is released.

    Args:
        tuning: the runs, and how their number is drawn.
    """

    tuning: Tuning

    method: ClassVar[str] = "random-stopping"
    theorem: ClassVar[str] = "docs/theorems/select.md"

    def check(self) -> None:
        if self.tuning.part != ALL:
            raise InvalidInput("Tuning on a part of the records is the method 'subset'; plan again.")
        if self.tuning.method != self.method:
            raise InvalidInput(f"A plan of {self.method!r} cannot tune by {self.tuning.method!r}; plan again.")

    @property
    def space(self) -> Domain:
        return self.tuning.space

    @property
    def cost(self) -> Cost:
        return self.budget.covering(self.tuning.cost)

    @property
    def noise(self) -> float | None:
        return self.tuning.base.noise

    @property
    def expected_runs(self) -> float:
        return self.tuning.runs.expected

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.tuning.assumptions

    @property
    def law(self) -> Runs:
        return self.tuning.runs

    @property
    def validation(self) -> PrivateValidation | None:
        return self.tuning.validation

    @property
    def batch(self) -> int | None:
        return self.tuning.batch

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        return self.tuning.base.run_costs or (self.cost,)

    @property
    def published_form(self) -> tuple[Cost, Runs] | None:
        known = self.method == StoppingPlan.method and len(self.run_costs) == 1
        return (self.run_costs[0], self.law) if known else None

    def start(self, randomness: Randomness) -> Search:
        return self.tuning.start(randomness, self.default)


@dataclass(frozen=True)
class RandomStopping(Method):
    """Draw K from ``runs``, train K configurations drawn from the space's prior, release the best.

    Args:
        space: what may be tried, with its prior.
        runs: the law of the number of runs, for example ``Geometric(10)``.
        default: what is released if nothing ran or all failed; by default the middle of the space.
        validation: scores on private records, noised and paid for.
        costs: how configurations of different cost are put together: "average", "largest", or "line" (or a
            ``Line``), which also takes costs that follow a continuous parameter.

    Raises:
        InvalidInput: an argument is not what it must be, or the default is outside of the space.

    Example:
        >>> import dptune as dpt
        >>> space = dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True))
        >>> dpt.RandomStopping(space, dpt.Geometric(10)).runs.expected
        10.0
    """

    space: Domain
    runs: Runs
    default: Params | None = None
    validation: PrivateValidation | None = None
    costs: str | Line = "average"

    name: ClassVar[str] = "random-stopping"
    usual: ClassVar[Mapping[str, Any]] = {"runs": "geometric:10"}
    place: ClassVar[int] = 3
    planned: ClassVar[type[StoppingPlan]] = StoppingPlan

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space | Candidates):
            raise InvalidInput(f"'space' must be a Space or a list of candidates (Space.of); got {self.space!r}.")
        if not isinstance(self.runs, Runs):
            raise InvalidInput(f"'runs' must be a law such as Geometric(10) or Poisson(15); got {self.runs!r}.")
        default_params(self.space, self.default)

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one, with the chance that a run hits."""
        method, runs = cls(setting.candidates, setting.runs), setting.runs.expected
        return (Entry("random stopping", method, runs, lambda _: (setting.hit, None)),)

    def choose(self, base: Cost) -> Cost:
        """The cost of choosing the best among runs that each cost ``base``."""
        return select(base, self.runs)

    def validated(self, budget: Budget, trainer: DeclaresCost) -> PrivateValidation | None:
        """The private validation with its noise.

        Args:
            budget: what choosing by the noisy counts must stay within.
            trainer: asked whether it has a score of its own.

        Returns:
            None where scores are public.

        Raises:
            InvalidInput: the trainer has no score and the method no private validation.
        """
        validation = validation_of(trainer, self.validation)
        return None if validation is None else validation.chosen(budget, self.choose)

    def tuning(self, base: TrainingCosts, part: DataPart, fixed: Params, validated: PrivateValidation | None) -> Tuning:
        """The runs of this method, given what a training costs.

        Args:
            base: the cost of one training of every configuration.
            part: the records that are tuned on.
            fixed: public parameters of all trainings.
            validated: the private validation with its noise, if there is one.
        """
        return Tuning(base, part, fixed, validated, self.space, self.runs)

    def fixed(self, trainer: DeclaresCost, validated: PrivateValidation | None, share: float) -> Params:
        """Public parameters of trainings on a part of the records.

        Args:
            trainer: asked for its public batch size.
            validated: the private validation, which holds records back.
            share: about what share of the records the part holds.
        """
        return scaled_batch(trainer, self.space, share * (1.0 if validated is None else 1.0 - validated.fraction))

    def plan(self, budget: Budget, trainer: DeclaresCost) -> StoppingPlan:
        """The plan with the smallest noise of a run whose total cost stays within the budget.

        Args:
            budget: the total for tuning and the released model.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        validated = self.validated(budget, trainer)
        fixed, default = self.fixed(trainer, validated, 1.0), default_params(self.space, self.default)
        return calibrated(
            Pricing(trainer, self.space, budget, self.costs),
            lambda base: self.planned(budget, default, self.tuning(base, ALL, fixed, validated)),
            budget,
            f"Tuning with {self.runs} runs",
            guide=lambda base: self.choose(base.over(self.space).average),
        )


class RandomSearch(BestTrial):
    """K independent draws from the prior, all of which may run at once."""

    def __init__(self, tuning: Tuning, randomness: Randomness, default: Params) -> None:
        space, trials = tuning.space, []
        for j in range(tuning.count(randomness)):
            place, params = draw(space, randomness, j)
            trials.append(tuning.trial(j, params, ("trial", j), place))
        super().__init__(trials, randomness, default)


def draw(space: Domain, randomness: Randomness, number: int) -> tuple[int | None, Params]:
    """The configuration of a run, from the prior; in a list of candidates also its place."""
    if isinstance(space, Candidates):
        place = space.place(randomness.uniform("candidate", number, 0))
        return place, dict(space.items[place])
    return None, space.draw(lambda i: randomness.uniform("candidate", number, i))
