"""Planning goes in one direction: a fresh plan is priced once, and only a stored one is derived again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import Inline, cut_off

from dptune.accounting import DpSgd, Geometric, _epsilon
from dptune.accounting import cost as costs
from dptune.accounting.calibrate import calibrate_noise
from dptune.methods import (
    Budget,
    Method,
    NoisyBest,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
)
from dptune.methods import stored as plans
from dptune.methods._machinery import pricing
from dptune.sealed import resume, run
from dptune.spaces import Choice, Float, Space

BUDGET = Budget(2.0, 1e-5)
SPACE = Space(lr=Float(1e-4, 1, log=True))
STEPS = Space(lr=Float(1e-4, 1, log=True), steps=Choice(5, 10))
METHODS: dict[str, Method] = {
    "random stopping": RandomStopping(SPACE, Geometric(3)),
    "validated": RandomStopping(SPACE, Geometric(3), validation=PrivateValidation(0.1, 500)),
    "two costs": RandomStopping(STEPS, Geometric(3)),
    "subset": Subset(RandomStopping(SPACE, Geometric(3)), 0.2),
    "noisy best": NoisyBest(SPACE.grid(2), 2),
    "guess": RandomGuess(SPACE),
}


class Toy:
    """DP-SGD's cost without DP-SGD."""

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(0.5, params["noise_multiplier"], int(params.get("steps", 5)))

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return {"lr": np.array([params["lr"]])}, params["lr"]

    def predict(self, x: Any) -> Any:
        return x


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, float]]:
    """Every epsilon that is really computed, by its profile."""
    asked: list[tuple[Any, float]] = []
    real = _epsilon.larger_epsilon

    def counting(pair: Any, delta: float) -> float:
        asked.append((pair, delta))
        return real(pair, delta)

    monkeypatch.setattr(costs, "larger_epsilon", counting)
    for cached in (costs.profile, costs.fast_profile, costs.lower_pair, costs.solved):
        cached.cache_clear()
    return asked


def _derivations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every stored plan that is held against what its settings give, from now on."""
    derived: list[Any] = []
    compared = plans._compare

    def counting(plan: Any, stored: Any) -> None:
        derived.append(plan)
        compared(plan, stored)

    monkeypatch.setattr(plans, "_compare", counting)
    return derived


@pytest.mark.parametrize("name", METHODS)
def test_a_fresh_plan_is_priced_once(
    name: str, priced: list[tuple[Any, float]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    derived = _derivations(monkeypatch)
    plan = METHODS[name].plan(BUDGET, Toy())
    assert len({(id(pair), delta) for pair, delta in priced}) == len(priced)  # no level of noise was priced twice
    asked = len(priced)
    assert plan.price() <= BUDGET.epsilon
    plan.to_json()
    run(plan, Toy(), np.arange(8.0), seed=1, data_is="synthetic", out=tmp_path / "run", executor=Inline())
    assert len(priced) == asked  # neither the runner nor the statement computed it again
    assert derived == []  # nor was the plan read back from its JSON


def test_the_plan_that_was_verified_is_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = calibrate_noise

    def watched(pipeline: Any, *given: Any, **named: Any) -> float:
        found = real(pipeline, *given, **named)
        made.append(pipeline(found))
        return found

    monkeypatch.setattr(pricing, "calibrate_noise", watched)
    plan = METHODS["subset"].plan(BUDGET, Toy())
    assert made[-1] == plan.cost
    assert plan.cost is plan.cost


def test_a_stored_plan_is_derived_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = METHODS["random stopping"].plan(BUDGET, Toy())
    cut_off(plan, Toy(), tmp_path / "run", seed=1, data_is="synthetic")
    derived = _derivations(monkeypatch)
    resume(tmp_path / "run", Toy(), np.arange(40.0), executor=Inline())
    assert len(derived) == 1
