"""The noise that makes trainings of different cost fit one budget.

Each kind's noise is calibrated to one common epsilon and the profiles are put together (``docs/theorems/mixture.md``).
A cost that changes with a continuous parameter cannot be enumerated; it is refused unless every candidate is kept under
a line (Koskela and Kulkarni 2023, appendix D; :mod:`dptune.methods.lines`). Costs stay live values throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dptune.accounting import Cost
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods._machinery.costs import Kind, TrainingCosts, combinations
from dptune.methods._machinery.declared import NOISE, declared_cost, tunable_noise
from dptune.methods.budget import Budget
from dptune.methods.lines import Line
from dptune.methods.trial import Params
from dptune.spaces import Candidates, Domain, Float, Space
from dptune.trainer import DeclaresCost

__all__ = ["Pricing", "calibrated"]

_MOST_KINDS = 256
_INNER_TOLERANCE = 1e-4
_OUTER_TOLERANCE = 2e-3  # where kinds are matched to each other, whose own tolerance must stay far below
_PROBES = (0.02, 0.37, 0.98)


@dataclass(frozen=True)
class _Example:
    """Configurations of equal cost: one of them, and what they have in common."""

    params: Params
    when: Params


class Pricing:
    """The costs of a trainer over a space, as a function of one level of noise."""

    def __init__(self, trainer: DeclaresCost, space: Domain, budget: Budget, costs: str | Line = "average") -> None:
        line = Line() if costs == "line" else costs if isinstance(costs, Line) else None
        if line is None and costs not in ("average", "largest"):
            raise InvalidInput(f"'costs' must be 'average', 'largest', 'line' or Line(...); got {costs!r}.")
        self._trainer, self._budget, self._costs = trainer, budget, costs
        self._line = None if line is None else line.for_budget(budget)
        self.tunable = tunable_noise(trainer, space.default)
        self._of: tuple[int, ...] | None = None
        self._names: tuple[str, ...] = ()
        self._examples: list[_Example] = []
        if self._line is not None:
            self._line.check(trainer, space, self.tunable)
        else:
            self._examples = self._listed(space) if isinstance(space, Candidates) else self._enumerated(space)
        self._guess: dict[int, float] = {}
        self._known: dict[float | None, TrainingCosts] = {}

    # Which configurations cost the same.

    def _probe(self, params: Params) -> Cost:
        """The cost of a configuration at some noise: equal for configurations of one kind."""
        return declared_cost(self._trainer, {**params, NOISE: 2.0} if self.tunable else params)

    def _listed(self, space: Candidates) -> list[_Example]:
        """One example of every kind in a list of candidates, and the kind of each candidate."""
        found: dict[Cost, int] = {}
        examples: list[_Example] = []
        of: list[int] = []
        for item in space.items:
            cost = self._probe(item)
            if cost not in found:
                found[cost] = len(found)
                examples.append(_Example(item, {}))
            of.append(found[cost])
        self._of = tuple(of) if len(found) > 1 else None
        return examples

    def _enumerated(self, space: Space) -> list[_Example]:
        """One example of every kind in a product space; refuses a cost that follows a continuous parameter."""
        middle = space.default
        usual = self._probe(middle)
        names: list[str] = []
        for name, one in space.dimensions:
            values = [one.at(u) for u in _PROBES] if isinstance(one, Float) else [value for value, _ in one.law()]
            if all(self._probe({**middle, name: value}) == usual for value in values):
                continue
            if isinstance(one, Float):
                raise InvalidInput(
                    f"The cost of a run changes with {name!r}, which is continuous, so its average cannot be computed. "
                    f"Make {name!r} a Choice or an Int, tune over space.grid(...), or keep every candidate under "
                    "a line (costs='line')."
                )
            names.append(name)
        self._names = tuple(names)
        examples = [_Example({**middle, **when}, when) for when, _ in combinations(space, self._names)]
        if len(examples) > _MOST_KINDS:
            raise InvalidInput(
                f"{len(examples)} combinations of {', '.join(names)} differ in cost, more than {_MOST_KINDS}. "
                "Offer fewer values of them."
            )
        return examples

    @property
    def tolerance(self) -> float:
        """How finely the level of noise can be calibrated."""
        return _INNER_TOLERANCE if len(self._examples) <= 1 else _OUTER_TOLERANCE

    @property
    def adjustable(self) -> bool:
        """Whether there is anything that a budget can set."""
        return self.tunable if self._line is None else self._line.slope is None

    # Their costs at one level of noise.

    def at(self, level: float | None) -> TrainingCosts:
        """Costs when the first kind has this noise and all others the same epsilon; None if noise is not tunable."""
        if level not in self._known:
            self._known[level] = self._at(level)
        return self._known[level]

    def _at(self, level: float | None) -> TrainingCosts:
        """The costs at one level of noise, computed."""
        if self._line is not None:
            return TrainingCosts("line", (), line=self._line.cost(level))
        kinds = tuple(
            Kind(example.when, noise, self._cost(example, noise))
            for example, noise in zip(self._examples, self._noises(level), strict=True)
        )
        return TrainingCosts(str(self._costs), kinds, self._names, self._of)

    def _noises(self, level: float | None) -> list[float | None]:
        """The noise of every kind, given that of the first."""
        noises: list[float | None] = [level if self.tunable else None]
        if level is not None and self.tunable and len(self._examples) > 1:
            target = self._cost(self._examples[0], level).epsilon(self._budget.delta)
            return noises + [self._matched(i, target) for i in range(1, len(self._examples))]
        return noises + [None] * (len(self._examples) - 1)

    def _cost(self, example: _Example, noise: float | None) -> Cost:
        """The declared cost of a kind at its noise."""
        return declared_cost(self._trainer, example.params if noise is None else {**example.params, NOISE: noise})

    def _matched(self, place: int, target: float) -> float:
        """The noise at which a kind costs the target epsilon."""
        example = self._examples[place]
        noise = calibrate_noise(
            lambda level: self._cost(example, level),
            target,
            self._budget.delta,
            tolerance=_INNER_TOLERANCE,
            start=self._guess.get(place, 1.0),
        )
        self._guess[place] = noise
        return noise


class Priced(Protocol):
    """What has a cost, as every plan does."""

    @property
    def cost(self) -> Cost:
        """The cost of everything that leaves."""


P = TypeVar("P", bound=Priced)


def calibrated(
    pricing: Pricing,
    planned: Callable[[TrainingCosts], P],
    budget: Budget,
    what: str,
    guide: Callable[[TrainingCosts], Cost] | None = None,
) -> P:
    """The plan with the smallest noise whose cost stays within the budget.

    Args:
        pricing: the trainer's costs as a function of the noise.
        planned: the plan, given the costs of trainings.
        budget: what the plan's cost must stay within.
        what: how a refusal calls the plan.
        guide: the part of the cost that the noise moves, if the rest is known to fit; the whole is verified.

    Returns:
        The very plan that was verified, so what it says about its cost is not computed again.

    Raises:
        BudgetExceeded: no noise brings the total within the budget, or there is none to set.
    """
    if not pricing.adjustable:
        fixed = planned(pricing.at(None))
        price = fixed.cost.epsilon(budget.delta)
        if price > budget.epsilon:
            raise BudgetExceeded(
                f"{what} costs epsilon {price:.4g} at delta {budget.delta:g}, more than the budget {budget.epsilon:g}, "
                "and the trainer's noise is not tunable (its cost does not follow 'noise_multiplier') or the line is "
                "fixed. Raise the budget, expect fewer runs, or declare a smaller cost per run."
            )
        return fixed

    def moved(costs: TrainingCosts) -> Cost:
        return planned(costs).cost if guide is None else budget.covering(guide(costs))

    level = calibrate_noise(
        lambda noise: moved(pricing.at(noise)), budget.epsilon, budget.delta, tolerance=pricing.tolerance
    )
    plan = planned(pricing.at(level))
    if plan.cost.epsilon(budget.delta) > budget.epsilon:
        raise BudgetExceeded(f"{what} could not be brought within epsilon {budget.epsilon:g}; raise the budget.")
    return plan
