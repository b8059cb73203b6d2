"""Linear scaling: its cost is a composition of two selections and a training; the final rate lies on a line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dptune.accounting import Cost, Gdp, Geometric, Poisson, compose, parallel, select
from dptune.errors import InvalidInput
from dptune.methods import Budget, LinearScaling, PrivateValidation, plan_from_json
from dptune.methods.drive import drive
from dptune.methods.linear_scaling import LinearScalingPlan, on_line
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.spaces import Choice, Float, Space
from dptune.testing.searches import check_method

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(learning_rate=Float(0.01, 100.0, log=True))


class Toy:
    """A Gaussian mechanism whose noise can be set."""

    def cost(self, params: dict[str, Any]) -> Gdp:
        return Gdp(1.0 / params["noise_multiplier"])

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, 0.0


def score(trial: Trial) -> float:
    """The best rate is 4 over the noise: about linear in the epsilon of a run."""
    return -abs(math.log(float(trial.params["learning_rate"]) * float(trial.params["noise_multiplier"]) / 4.0))


@pytest.fixture(scope="module")
def plan() -> LinearScalingPlan:
    return LinearScaling(SPACE, Geometric(20)).plan(BUDGET, Toy())


def test_conforms() -> None:
    check_method(
        LinearScaling(SPACE, Poisson(3), validation=PrivateValidation(0.1, 500)), BUDGET, Toy(), score, range(2)
    )


def test_the_price_is_a_composition_that_is_written_out(plan: LinearScalingPlan) -> None:
    noises = [one.base.noise for one in (plan.first, plan.second, plan.final)]
    assert all(noise is not None for noise in noises)
    first, second, final = (Gdp(1.0 / float(noise or 0.0)) for noise in noises)
    whole = compose(select(first, Geometric(20)), select(second, Geometric(20)), final)
    assert plan.price() == pytest.approx(whole.epsilon(1e-5), rel=1e-9)
    assert 1.98 < plan.price() <= 2.0
    assert noises == sorted(noises, key=lambda noise: -float(noise or 0.0))
    assert len(set(noises)) == 3


def test_private_scores_are_part_of_both_selections() -> None:
    made = LinearScaling(SPACE, Geometric(3), validation=PrivateValidation(0.2, 800)).plan(BUDGET, Toy())
    costs: list[Cost] = []
    for tuning in (made.first, made.second):
        assert tuning.validation is not None
        base = Gdp(1.0 / float(tuning.base.noise or 0.0))
        costs.append(parallel(select(base, Geometric(3)), select(tuning.validation.cost, Geometric(3))))
    final = Gdp(1.0 / float(made.final.base.noise or 0.0))
    assert made.price() == pytest.approx(compose(*costs, final).epsilon(1e-5), rel=1e-9)
    assert made.final.validation is None


def test_the_final_rate_is_near_what_the_line_promises(plan: LinearScalingPlan) -> None:
    found = []
    for seed in range(30):
        _, selection = drive(plan, Randomness.rehearsal(seed), score)
        assert selection.final is not None
        assert selection.final.final
        found.append(float(selection.final.params["learning_rate"]) * float(plan.noise or 0.0) / 4.0)
    middle = sorted(found)[15]
    assert 0.5 < middle < 2.0  # the truth is 1; the space reaches over four decades


def test_no_two_runs_share_their_randomness(plan: LinearScalingPlan) -> None:
    trials = plan.start(Randomness.rehearsal(3)).ask()
    assert len({trial.index for trial in trials}) == len({trial.seed_label for trial in trials}) == len(trials) > 4
    rates = {trial.params["learning_rate"] for trial in trials}
    assert len(rates) == len(trials)
    assert {trial.params["noise_multiplier"] for trial in trials} == {plan.first.base.noise, plan.second.base.noise}


def test_all_failed_is_the_public_default(plan: LinearScalingPlan) -> None:
    _, selection = drive(plan, Randomness.rehearsal(1), lambda trial: -math.inf)
    assert selection.best is None
    assert selection.params["learning_rate"] == pytest.approx(SPACE.default["learning_rate"])


def test_a_line_stays_within_the_space_and_never_falls() -> None:
    assert on_line((1.0, 50.0), (0.1, 0.2, 5.0), 0.01, 100.0) == 100.0
    assert on_line((9.0, 4.0), (0.1, 0.2, 5.0), 0.01, 100.0) == pytest.approx(6.0)
    assert on_line((1.0, 2.0), (0.1, 0.1, 5.0), 0.01, 100.0) == 2.0


def test_an_edited_plan_is_refused(plan: LinearScalingPlan) -> None:
    assert plan_from_json(plan.to_json()) == plan
    text = plan.to_json().replace('"expected_runs": 41.0', '"expected_runs": 3.0')
    with pytest.raises(InvalidInput):
        plan_from_json(text)


def test_what_cannot_be_is_refused() -> None:
    for space in (Space(clip=Float(0.1, 1.0, log=True)), Space(lr=Float(0.1, 1.0)), Space(lr=Choice(1, 2))):
        with pytest.raises(InvalidInput, match="learning rate alone"):
            LinearScaling(space, Geometric(3))
    for shares in ((0.3, 0.1), (0.5, 0.6), (0.1,)):
        with pytest.raises(InvalidInput, match="shares"):
            LinearScaling(SPACE, Geometric(3), shares=shares)  # type: ignore[arg-type]
