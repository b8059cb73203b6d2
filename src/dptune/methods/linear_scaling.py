"""Linear scaling (Panda et al. 2024): tune the learning rate at two small budgets, extrapolate, train once.

The best product of learning rate and steps grows about linearly with the epsilon of a run. Steps are fixed here, so a
line through the winners' learning rates at two small epsilons says which one to train with at the large one. The cost
is ``compose(select(small_1), select(small_2), final)`` (``docs/theorems/compose.md``): noise and steps of all three are
fixed in advance, only the final learning rate follows from what the two selections released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from dptune._validate import real
from dptune.accounting import Cost, Runs, compose, select
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import InvalidInput
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import RATES, FixedTrials, Training, best_of, default_params, scaled_batch
from dptune.methods.budget import Budget
from dptune.methods.parts import ALL
from dptune.methods.plan import Method, Plan
from dptune.methods.random_stopping import Tuning, draw
from dptune.methods.toolkit import TrainingCosts
from dptune.methods.trial import Params, Search, Selection, Trial
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness
from dptune.spaces import Domain, Float, Space
from dptune.trainer import DeclaresCost

__all__ = ["LinearScaling", "LinearScalingPlan"]


@dataclass(frozen=True)
class LinearScalingPlan(Plan):
    """Two selections at small budgets, then one training whose learning rate lies on the line through their winners.

    Args:
        first: the runs at the smaller budget.
        second: the runs at the larger of the two.
        final: the training that is released.
    """

    first: Tuning
    second: Tuning
    final: Training

    method: ClassVar[str] = "linear-scaling"
    theorem: ClassVar[str] = "docs/theorems/compose.md"

    def check(self) -> None:
        rate_of(self.space)
        same = self.first.space == self.second.space
        if not same or any(one.part != ALL for one in (self.first, self.second, self.final)):
            raise InvalidInput("Linear scaling trains on all records, over one space; plan again.")
        if self.final.validation is not None or any(
            len(one.base.kinds) != 1 for one in (self.first, self.second, self.final)
        ):
            raise InvalidInput("The trainings of linear scaling must have one cost each, the last one no score.")

    @property
    def space(self) -> Domain:
        return self.first.space

    @cached_property
    def cost(self) -> Cost:
        # Whatever learning rate the selections lead to, the final training costs the same.
        last = self.final.base.over(self.space).worst
        return self.budget.covering(compose(self.first.cost, self.second.cost, last))

    @property
    def noise(self) -> float | None:
        return self.final.base.noise

    @property
    def expected_runs(self) -> float:
        return self.first.runs.expected + self.second.runs.expected + 1.0

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *dict.fromkeys((*self.first.assumptions, *self.second.assumptions)),
            "The final training costs no more than declared, whatever learning rate the selections led to.",
        )

    @property
    def law(self) -> Runs:
        return self.first.runs

    @property
    def validation(self) -> PrivateValidation | None:
        return self.first.validation

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        return self.final.base.run_costs

    @cached_property
    def epsilons(self) -> tuple[float, float, float]:
        """The epsilon of one run at each of the two small budgets, and of the final one: public."""
        first, second, final = (
            one.base.over(self.space).worst.epsilon(self.budget.delta) for one in (self.first, self.second, self.final)
        )
        return first, second, final

    def start(self, randomness: Randomness) -> Search:
        return LinearSearch(self, randomness)


@dataclass(frozen=True)
class LinearScaling(Method):
    """Tune the learning rate at two small budgets, extrapolate along a line, train once (Panda et al. 2024).

    Args:
        space: the learning rates that are tried: one parameter on a logarithmic scale. The final one stays within it.
        runs: the law of the number of runs of each selection.
        shares: which parts of the total epsilon the two selections may cost, the smaller one first.
        default: what is taken for a selection that had no run or in which all failed.
        validation: scores on private records, noised and paid for.

    Raises:
        InvalidInput: an argument is not what it must be.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=lambda params: dpt.Gaussian(params["noise_multiplier"]))
        ... def train(params, data, rng):
        ...     return None, 0.0
        >>> method = LinearScaling(dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True)), dpt.Geometric(5))
        >>> plan = method.plan(dpt.Budget(1, 1e-5), train)
        >>> plan.expected_runs, plan.price() <= 1
        (11.0, True)
    """

    space: Domain
    runs: Runs
    shares: tuple[float, float] = (0.15, 0.3)
    default: Params | None = None
    validation: PrivateValidation | None = None

    name: ClassVar[str] = "linear-scaling"
    usual: ClassVar[Mapping[str, Any]] = {"runs": "geometric:5"}
    place: ClassVar[int] = 9

    def __post_init__(self) -> None:
        rate_of(self.space)
        if not isinstance(self.runs, Runs):
            raise InvalidInput(f"'runs' must be a law such as Geometric(5); got {self.runs!r}.")
        shares = tuple(self.shares) if isinstance(self.shares, tuple | list) else ()
        if len(shares) != 2:
            raise InvalidInput(f"'shares' must be two parts of the total epsilon; got {self.shares!r}.")
        first, second = (real("shares", one, 0, 1, low_open=True, high_open=True) for one in shares)
        if not first < second or first + second >= 1.0:
            raise InvalidInput(f"'shares' must grow and leave something for the training; got {shares}.")
        object.__setattr__(self, "shares", (first, second))
        default_params(self.space, self.default)

    def plan(self, budget: Budget, trainer: DeclaresCost) -> LinearScalingPlan:
        """The plan with the smallest noise of the final training whose total cost stays within the budget.

        Args:
            budget: the total for both selections and the final training.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer's noise cannot be set, or its cost follows the learning rate.
        """
        pricing = Pricing(trainer, self.space, budget)
        if not pricing.tunable:
            raise InvalidInput(
                "Linear scaling needs a trainer whose cost follows 'noise_multiplier': its runs differ by it."
            )
        first, second = (self._tuning(share, budget, trainer, pricing) for share in self.shares)
        default, space = default_params(self.space, self.default), self.space

        def planned(base: TrainingCosts) -> LinearScalingPlan:
            last = Training(base, ALL, scaled_batch(trainer, space, 1.0), None)
            return LinearScalingPlan(budget, default, first, second, last)

        return calibrated(pricing, planned, budget, "Linear scaling")

    def _tuning(self, share: float, budget: Budget, trainer: DeclaresCost, pricing: Pricing) -> Tuning:
        """The runs of a selection that costs about this share of the total."""
        part = replace(budget, epsilon=share * budget.epsilon)
        validation = validation_of(trainer, self.validation)
        held = None if validation is None else validation.chosen(part, self._choose)
        noise = calibrate_noise(
            lambda level: budget.covering(self._choose(pricing.at(level).over(self.space).average)),
            part.epsilon,
            part.delta,
        )
        fixed = scaled_batch(trainer, self.space, 1.0 if held is None else 1.0 - held.fraction)
        return Tuning(pricing.at(noise), ALL, fixed, held, self.space, self.runs)

    def _choose(self, base: Cost) -> Cost:
        return select(base, self.runs)


class LinearSearch(FixedTrials):
    """The runs of both selections at once; then the line."""

    def __init__(self, plan: LinearScalingPlan, randomness: Randomness) -> None:
        self._plan, self._randomness = plan, randomness
        trials: list[Trial] = []
        for place, tuning in enumerate((plan.first, plan.second)):
            count = tuning.runs.sample(lambda place=place: randomness.uniform("runs", place))  # type: ignore[misc]
            for j in range(count):
                number = 2 * j + place  # of both selections: no two runs share a draw or a label
                _, params = draw(plan.space, randomness, number)
                trials.append(tuning.trial(number, params, ("small", place, j)))
        super().__init__(trials)

    def _select(self) -> Selection:
        plan, rate = self._plan, rate_of(self._plan.space)
        winners = [self._winner(place) for place in (0, 1)]
        found = [plan.default if one is None else one.candidate for one in winners]
        one = dict(plan.space.dimensions)[rate]  # type: ignore[union-attr] # checked: a Space with one logarithmic rate
        assert isinstance(one, Float)
        first, second = (float(params[rate]) for params in found)
        params = {rate: on_line((first, second), plan.epsilons, one.low, one.high)}
        trial = plan.final.final_trial(plan.space, params)
        return Selection(dict(trial.params), winners[1] or winners[0], trial)

    def _winner(self, place: int) -> Trial | None:
        scores = {index: score for index, score in self._outcomes.scores.items() if index % 2 == place}
        best = best_of(scores, self._randomness)
        return None if best is None else self._trials[best]


def on_line(rates: tuple[float, float], epsilons: tuple[float, float, float], low: float, high: float) -> float:
    """The learning rate at the last epsilon, on the line through those at the first two, within the space.

    Less noise never asks for a smaller rate: where the winners fall, which chance alone can do, their geometric mean is
    taken for both.

    Args:
        rates: the winners' learning rates.
        epsilons: of one run at the two small budgets, and of the final one.
        low: the least rate that there is.
        high: the largest.

    Returns:
        A rate from ``low`` to ``high``.

    Example:
        >>> on_line((1.0, 2.0), (0.1, 0.2, 0.5), 0.01, 100.0)
        5.0
        >>> on_line((4.0, 1.0), (0.1, 0.2, 0.5), 0.01, 100.0)
        2.0
    """
    first, second = rates
    if second < first:
        first = second = math.sqrt(first * second)
    one, other, last = epsilons
    slope = (second - first) / (other - one) if other > one else 0.0
    return float(min(max(second + slope * (last - other), low), high))


def rate_of(space: object) -> str:
    """The name of the learning rate, the only parameter of the space."""
    if isinstance(space, Space) and len(space.dimensions) == 1:
        name, one = space.dimensions[0]
        if name in RATES and isinstance(one, Float) and one.log:
            return name
    raise InvalidInput(
        "Linear scaling tunes the learning rate alone: give a Space with one parameter 'learning_rate' (or 'lr') "
        "on a logarithmic scale."
    )
