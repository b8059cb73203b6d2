"""Candidates under a line: their noise by closed form and by dp-accounting, the plan's cost, who is not admitted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from dptune.accounting import (
    Binomial,
    Cost,
    DpSgd,
    Gaussian,
    Geometric,
    RenyiLine,
    disjoint,
    mixture,
    parallel,
    select,
)
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Adaptive, Budget, Line, RandomStopping, Subset, fit_trial, plan_from_json
from dptune.methods.drive import drive
from dptune.methods.lines import admit, settle_selection
from dptune.methods.random_stopping import StoppingPlan
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.spaces import Choice, Float, Int, Space
from dptune.testing.searches import check_method, run_plan

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(rate=Float(0.005, 0.05, log=True), steps=Int(50, 500), lr=Float(0.1, 1))
ORDERS = (2.0, 3.0, 4.0, 8.0, 16.0)


class Trainer:
    """DP-SGD's cost over a continuous rate; remembers nothing, returns the parameters it got."""

    def cost(self, params: dict[str, Any]) -> Cost:
        return DpSgd(params["rate"], params["noise_multiplier"], params["steps"])

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return dict(params), params["lr"]


def _plan(runs: int | None = None, **options: Any) -> StoppingPlan:
    plan = RandomStopping(SPACE, Geometric(6), costs="line", **options).plan(BUDGET, Trainer())
    if runs is None:
        return plan
    return replace(plan, tuning=replace(plan.tuning, runs=Binomial(runs, 1.0)))


def _curve(params: dict[str, Any], noise: float, orders: tuple[float, ...]) -> np.ndarray[Any, Any]:
    accountant = RdpAccountant(list(orders))
    step = dp_event.PoissonSampledDpEvent(params["rate"], dp_event.GaussianDpEvent(noise))
    accountant.compose(step, params["steps"])
    return np.array(accountant.rdp)


@pytest.mark.parametrize("steps", [1, 30, 400])
def test_without_sampling_the_noise_has_a_closed_form(steps: int) -> None:
    """T Gaussian steps have the curve T a / (2 s^2), so the smallest noise under c a is sqrt(T / 2c)."""
    found = admit(Trainer(), {"rate": 1.0, "steps": steps, "lr": 1.0}, RenyiLine(0.03, ORDERS))
    assert found["noise_multiplier"] == pytest.approx(math.sqrt(steps / 0.06), rel=2e-4)
    assert found["noise_multiplier"] >= math.sqrt(steps / 0.06)


def test_every_candidate_has_the_smallest_noise_under_the_line() -> None:
    plan = _plan(8)
    line = plan.tuning.base.line
    assert line is not None
    source = Randomness.rehearsal(2)
    for trial in plan.start(source).ask():
        assert "noise_multiplier" not in trial.params
        model, _ = fit_trial(Trainer(), trial, [], source)
        noise, allowed = model["noise_multiplier"], line.slope * np.array(line.orders)
        assert (_curve(trial.params, noise, line.orders) <= allowed).all()
        assert (_curve(trial.params, 0.9995 * noise, line.orders) > allowed).any()


def test_the_plan_costs_the_line_and_says_so() -> None:
    plan = _plan()
    line = plan.tuning.base.line
    assert line is not None
    assert plan.cost == select(line, Geometric(6))
    assert 0.97 * BUDGET.epsilon < plan.price() <= BUDGET.epsilon
    assert plan_from_json(plan.to_json()) == plan
    assert any("Renyi line" in sentence for sentence in plan.assumptions)
    subset = Subset(RandomStopping(SPACE, Geometric(6), costs="line"), 0.1).plan(BUDGET, Trainer())
    kept = subset.final.base.line
    assert kept is not None
    assert subset.cost == disjoint(select(kept, Geometric(6)), kept, 0.1)
    adaptive = Adaptive(SPACE, Geometric(3), costs="line", density=(0.9, 1.2), points=20)
    check_method(adaptive, BUDGET, Trainer(), lambda trial: float(trial.params["lr"]), range(2))


def test_no_candidate_costs_more_than_the_line() -> None:
    """The exact account of random stopping over drawn candidates with their noise is below what the plan charges."""
    plan, source = _plan(5), Randomness.rehearsal(4)
    models = [fit_trial(Trainer(), trial, [], source)[0] for trial in plan.start(source).ask()]
    costs = [Trainer().cost(model) for model in models]
    mixed = mixture([(1.0 / len(costs), cost) for cost in costs])
    assert select(mixed, Geometric(6)).epsilon(1e-5) < _plan().price()


def test_the_release_names_the_noise() -> None:
    plan, source = _plan(3), Randomness.rehearsal(1)
    selection, model = run_plan(plan, Trainer(), [], source)
    assert settle_selection(Trainer(), selection).params == model
    subset = Subset(RandomStopping(SPACE, Geometric(3), costs="line"), 0.1).plan(BUDGET, Trainer())
    selection, model = run_plan(subset, Trainer(), [], source)
    assert settle_selection(Trainer(), selection).params == model
    assert model["noise_multiplier"] > 0


class Fixed(Trainer):
    """Sets its own noise."""

    def cost(self, params: dict[str, Any]) -> Cost:
        return DpSgd(params["rate"], 2.0, params["steps"])


def test_a_candidate_above_the_line_is_not_admitted() -> None:
    line = Line(slope=0.01, orders=ORDERS)
    plan = RandomStopping(SPACE, Geometric(3), costs=line).plan(BUDGET, Fixed())
    kept = RenyiLine(0.01, ORDERS)
    assert plan.cost == select(kept, Geometric(3))
    for rate, fits in ((0.005, True), (0.05, False)):
        params = {"rate": rate, "steps": 400, "lr": 0.5}
        assert fits == (_curve(params, 2.0, ORDERS) <= 0.01 * np.array(ORDERS)).all()
        trial = Trial(0, params, line=kept)
        if fits:
            assert fit_trial(Fixed(), trial, [], Randomness.rehearsal(0))[0] == params
        else:
            with pytest.raises(InvalidInput, match="above the line"):
                fit_trial(Fixed(), trial, [], Randomness.rehearsal(0))
    listed = Space(rate=Choice(0.005, 0.05), steps=Choice(400), lr=Choice(0.5)).grid()
    with pytest.raises(InvalidInput, match="above the line"):
        RandomStopping(listed, Geometric(3), costs=line).plan(BUDGET, Fixed())


def test_a_score_that_is_part_of_the_declared_cost_stays_under_the_line_too() -> None:
    """Training and a noisy count on disjoint records: the larger curve decides, here that of the count."""

    class Scored(Trainer):
        def cost(self, params: dict[str, Any]) -> Cost:
            return parallel(super().cost(params), Gaussian(5.0))

    params = {"rate": 0.01, "steps": 50, "lr": 0.5}
    found = admit(Scored(), params, RenyiLine(1.0 / 49.0, ORDERS))
    assert found == admit(Trainer(), params, RenyiLine(1.0 / 49.0, ORDERS))
    with pytest.raises(InvalidInput, match="No noise"):
        admit(Scored(), params, RenyiLine(1.0 / 51.0, ORDERS))


def test_what_a_line_refuses() -> None:
    class Odd(Trainer):
        def cost(self, params: dict[str, Any]) -> Cost:
            return select(DpSgd(0.01, params["noise_multiplier"], 10), Geometric(3))

    with pytest.raises(InvalidInput, match="No Renyi curve"):
        RandomStopping(SPACE, Geometric(3), costs="line").plan(BUDGET, Odd())
    with pytest.raises(BudgetExceeded, match="line is fixed"):
        RandomStopping(SPACE, Geometric(3), costs=Line(slope=5.0)).plan(BUDGET, Trainer())
    with pytest.raises(InvalidInput, match="'costs'"):
        RandomStopping(SPACE, Geometric(3), costs="curve").plan(BUDGET, Trainer())


def test_the_pointwise_maximum_is_never_dearer_where_kinds_can_be_listed() -> None:
    """docs/theorems/line.md: a line is for costs that cannot be enumerated; for a list it needs more noise."""
    listed = Space(rate=Choice(0.01, 0.04), steps=Choice(200, 400), lr=Choice(0.1, 0.5)).grid()
    largest = RandomStopping(listed, Geometric(6), costs="largest").plan(BUDGET, Trainer())
    base = largest.tuning.base
    assert base.of is not None
    line = RandomStopping(listed, Geometric(6), costs="line").plan(BUDGET, Trainer())
    source = Randomness.rehearsal(0)
    trials, _ = drive(line, source, lambda trial: 0.0)
    for trial in trials:
        noise = fit_trial(Trainer(), trial, [], source)[0]["noise_multiplier"]
        place = listed.items.index(trial.candidate)
        assert noise > base.kinds[base.of[place]].noise
