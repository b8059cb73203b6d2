"""Every method: fits its budget, survives JSON, resumes to the same trials and result, fails to the default."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dptune.accounting import (
    Binomial,
    DpSgd,
    Geometric,
    Logarithmic,
    Poisson,
    PureDp,
    mixture,
    parallel,
    select,
)
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
    plan_from_json,
    register_proposer,
    register_rule,
)
from dptune.methods.drive import drive
from dptune.methods.plan import Method
from dptune.methods.random_stopping import StoppingPlan
from dptune.methods.trial import Outcome, Trial
from dptune.randomness import Randomness
from dptune.spaces import Choice, Float, Space
from dptune.testing.searches import check_method

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(lr=Float(1e-4, 1, log=True), clip=Choice(0.1, 1, 10))
GRID = SPACE.grid(lr=4)
STEPS = Space(lr=Float(1e-4, 1, log=True), steps=Choice(50, 100))
VALIDATION = PrivateValidation(0.1, 500)


class Toy:
    """DP-SGD's cost without DP-SGD."""

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(0.05, params["noise_multiplier"], int(params.get("steps", 100)))

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, _score(params)


def _score(params: dict[str, Any]) -> float:
    return 1 - abs(math.log10(params["lr"]) + 1) / 4


def score(trial: Trial) -> float:
    """A peak at lr = 0.1, a failure now and then."""
    return -math.inf if trial.index % 7 == 3 else _score(trial.params)


register_rule("prefer first", lambda seen, scores, points: np.linspace(2, 1, len(points)))
register_proposer("two rounds", lambda history: [dict(GRID.items[len(history)])] if len(history) < 2 else [])

METHODS: dict[str, Method] = {
    "geometric": RandomStopping(SPACE, Geometric(6)),
    "poisson": RandomStopping(GRID, Poisson(3)),
    "binomial": RandomStopping(SPACE, Binomial(6, 0.5)),
    "logarithmic, validated": RandomStopping(SPACE, Logarithmic(5), validation=VALIDATION),
    "costs averaged": RandomStopping(STEPS, Geometric(4)),
    "costs largest": RandomStopping(STEPS.grid(lr=3), Geometric(4), costs="largest"),
    "adaptive grid": Adaptive(GRID, Geometric(4), density=(0.9, 1.3)),
    "adaptive continuous": Adaptive(SPACE, Geometric(4), density=(0.9, 1.3), batch=2, points=50),
    "adaptive KL": Adaptive(GRID, Geometric(4), density=(0.9, 1.3), penalty=0.1),
    "adaptive own rule": Adaptive(GRID, Geometric(4), density=(0.9, 1.3), rule="prefer first"),
    "subset 1": Subset(RandomStopping(SPACE, Geometric(8)), 0.1),
    "subset 2": Subset(RandomStopping(GRID, Geometric(8)), 0.1, final="all", warm_start=True),
    "subset validated": Subset(RandomStopping(SPACE, Geometric(8), validation=VALIDATION), 0.2),
    "subset adaptive": Subset(Adaptive(GRID, Geometric(5), density=(0.9, 1.3)), 0.1),
    "subset costs": Subset(RandomStopping(STEPS, Geometric(5)), 0.1),
    "noisy best": NoisyBest(GRID, 8),
    "noisy best validated": NoisyBest(GRID, 8, validation=VALIDATION, private=True),
    "threshold": Threshold(GRID, 8),
    "threshold sparse": Threshold(GRID, 8, variant="sparse", start=0.2),
    "threshold batches": Threshold(GRID, 8, batch=3, share=0.5),
    "threshold proposer": Threshold(GRID, 8, batch=3, proposer="two rounds"),
    "vote": Vote(GRID, 2, 20),
    "vote skewed": Vote(GRID, 1, 20, alpha=0.5, validation=VALIDATION),
    "naive": Naive(GRID, validation=VALIDATION),
    "optimum": NonPrivateOptimum(GRID),
    "guess": RandomGuess(STEPS),
}


@pytest.mark.parametrize("name", METHODS)
def test_conforms(name: str) -> None:
    plan = check_method(METHODS[name], BUDGET, Toy(), score, range(3))
    if plan.guaranteed:
        assert plan.price() > 0.97 * BUDGET.epsilon  # the smallest noise, not just some noise
    else:
        assert plan.price() == math.inf


def test_a_crash_in_the_middle_changes_nothing() -> None:
    plan = Adaptive(GRID, Geometric(4), density=(0.9, 1.3)).plan(BUDGET, Toy())
    plan = replace(plan, tuning=replace(plan.tuning, runs=Binomial(9, 1.0)))
    seen, chosen = drive(plan, Randomness.rehearsal(3), score)
    stored: list[Outcome] = []
    for _ in range(4):  # told two more outcomes, then killed
        search = plan_from_json(plan.to_json()).start(Randomness.rehearsal(3))
        known = {outcome.index: outcome for outcome in stored}
        fresh = 0
        while fresh < 2 and (trials := search.ask()):
            for trial in trials:
                if trial.index not in known:
                    stored.append(Outcome(trial.index, score(trial)))
                    known[trial.index] = stored[-1]
                    fresh += 1
                search.tell(known[trial.index])
    final = plan.start(Randomness.rehearsal(3))
    known = {outcome.index: outcome for outcome in stored}
    while trials := final.ask():
        for trial in trials:
            final.tell(known.get(trial.index, Outcome(trial.index, score(trial))))
    assert final.result() == chosen
    assert len(seen) == 9


def test_told_once_and_only_what_was_asked() -> None:
    plan = RandomStopping(SPACE, Geometric(4)).plan(BUDGET, Toy())
    search = replace(plan, tuning=replace(plan.tuning, runs=Binomial(2, 1.0))).start(Randomness.rehearsal(0))
    with pytest.raises(InvalidInput, match="not asked"):
        search.tell(Outcome(0, 1.0))
    search.ask()
    search.tell(Outcome(0, 1.0))
    with pytest.raises(InvalidInput, match="told before"):
        search.tell(Outcome(0, 1.0))
    with pytest.raises(InvalidInput, match="not done"):
        search.result()


# Costs.


def test_costs_that_differ_are_averaged_under_the_prior() -> None:
    plan = METHODS["costs averaged"].plan(BUDGET, Toy())
    assert isinstance(plan, StoppingPlan)
    kinds = plan.tuning.base.kinds
    assert [kind.when for kind in kinds] == [{"steps": 50}, {"steps": 100}]
    costs = [DpSgd(0.05, kind.noise or 0.0, kind.when["steps"]) for kind in kinds]
    first, second = (cost.epsilon(1e-5) for cost in costs)
    assert first == pytest.approx(second, rel=2e-3)  # one target for all
    assert plan.cost == select(mixture([(0.5, costs[0]), (0.5, costs[1])]), Geometric(4))
    for trial in drive(plan, Randomness.rehearsal(1), score)[0]:
        assert trial.params["noise_multiplier"] == kinds[0 if trial.params["steps"] == 50 else 1].noise


def test_a_cost_that_follows_a_continuous_parameter_is_refused() -> None:
    class Rate(Toy):
        def cost(self, params: dict[str, Any]) -> DpSgd:
            return DpSgd(params["rate"], params["noise_multiplier"], 10)

    space = Space(rate=Float(0.01, 0.1), lr=Float(0.1, 1))
    with pytest.raises(InvalidInput, match="continuous"):
        RandomStopping(space, Geometric(3)).plan(BUDGET, Rate())
    assert RandomStopping(space.grid(3), Geometric(3)).plan(BUDGET, Rate()).price() <= 2


def test_private_validation_is_paid_on_the_side() -> None:
    plan = RandomStopping(SPACE, Geometric(6), validation=VALIDATION).plan(BUDGET, Toy())
    assert plan.validation is not None
    assert plan.validation.noise is not None
    assert plan.noise_multiplier is not None
    base = DpSgd(0.05, plan.noise_multiplier, 100)
    assert plan.cost == parallel(select(base, Geometric(6)), select(plan.validation.cost, Geometric(6)))
    assert plan.noise_multiplier == pytest.approx(
        RandomStopping(SPACE, Geometric(6)).plan(BUDGET, Toy()).noise_multiplier, rel=1e-3
    )


class Fixed:
    """A trainer whose cost cannot be tuned."""

    def cost(self, params: dict[str, Any]) -> PureDp:
        return PureDp(1.0)

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, 0.0


def test_fixed_costs_are_checked_against_the_budget() -> None:
    plan = RandomStopping(SPACE, Geometric(5)).plan(Budget(3.1, 1e-5), Fixed())
    assert plan.noise_multiplier is None
    assert plan.price() <= 3
    with pytest.raises(BudgetExceeded, match="not tunable"):
        RandomStopping(SPACE, Geometric(5)).plan(Budget(1.0, 1e-5), Fixed())


class Silent:
    """No cost at all."""

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, 0.0


class Unscored(Toy):
    """Says that it has no validation records."""

    validation = None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(0, 1e-5), "epsilon"),
        (lambda: Budget(1, 0), "delta"),
        (lambda: RandomStopping([1], Geometric(3)), "Space or a list"),  # type: ignore[arg-type]
        (lambda: RandomStopping(SPACE, 10), "law"),  # type: ignore[arg-type]
        (lambda: RandomStopping(SPACE, Geometric(3), default={"lr": 1}), "exactly the parameters"),
        (lambda: RandomStopping(GRID, Geometric(3), default={"lr": 5}), "one of the candidates"),
        (lambda: RandomStopping(SPACE, Geometric(3), default={"lr": 0.1, "clip": 2}), "lie in the space"),
        (lambda: RandomStopping(SPACE, Geometric(3), default={"lr": 7, "clip": 1}), "lie in the space"),
        (lambda: Adaptive(SPACE, Geometric(3), density=(1.5, 2)), "density c"),
        (lambda: Adaptive(SPACE, Geometric(3), rule="none such"), "register_rule"),
        (lambda: Subset(NoisyBest(GRID, 3), 0.1), "RandomStopping"),  # type: ignore[arg-type]
        (lambda: Subset(RandomStopping(SPACE, Geometric(3)), 1.0), "fraction"),
        (lambda: Subset(RandomStopping(SPACE, Geometric(3)), 0.1, final="half"), "variant 1"),
        (lambda: Subset(RandomStopping(SPACE, Geometric(3)), 0.1, transfer="magic"), "transfer"),
        (lambda: NoisyBest(SPACE, 3), "must be a list"),  # type: ignore[arg-type]
        (lambda: NoisyBest(Space.of([{"a": 1}]), 3), "at least two"),
        (lambda: NoisyBest(GRID, 0), "shards"),
        (lambda: Threshold(GRID, 5, variant="other"), "variant"),
        (lambda: Threshold(GRID, 5, proposer="nobody"), "register_proposer"),
        (lambda: Vote(GRID, len(GRID)), "fewer votes"),
        (lambda: PrivateValidation(0, 10), "fraction"),
        (lambda: RandomStopping(SPACE, Geometric(3)).plan(BUDGET, Silent()), "declares no cost"),  # type: ignore[arg-type]
        (lambda: RandomStopping(SPACE, Geometric(3)).plan(BUDGET, Unscored()), "unpaid"),
        (lambda: RandomStopping(SPACE, Geometric(3), costs="some").plan(BUDGET, Toy()), "'costs'"),
        (lambda: plan_from_json("{}"), "Not a plan"),
        (lambda: plan_from_json("no json"), "Not a plan"),
    ],
)
def test_refusals_say_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()
