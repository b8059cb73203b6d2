"""The planner where something is expected to be best: its model by simulation, and what it lets the planner choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Binomial, DpSgd, Geometric, NegativeBinomial, Runs
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, RandomGuess, RandomStopping, Subset
from dptune.planner import choose
from dptune.planner.expected import Outlook, outlook, parts
from dptune.planner.forecast import FLATTER
from dptune.planner.kinds import kind_named
from dptune.spaces import Choice, Float, Int, Space
from dptune.training import Adam

EXPECTED = Space(learning_rate=Float(1, 64, log=True, around=8, spread=2))


class Scaling:
    """DP-SGD whose learning rate grows with the records; priced, never run."""

    validation: Any = None
    transfer_rule = "sgd"

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(0.1, params["noise_multiplier"], 50)


@pytest.mark.parametrize(
    ("runs", "deviation"),
    [(Binomial(1, 1), 0.004), (Binomial(8, 1), 0.004), (Geometric(5), 0.0), (Geometric(30), 0.01)],
)
def test_the_model_is_what_simulated_tuning_loses(runs: Runs, deviation: float) -> None:
    """A seeded simulation of the same story, 20,000 times: its standard error is below 2 % of the loss."""
    rng, bowl, lost = np.random.default_rng(5), 0.003, []
    for _ in range(20_000):
        count = runs.sample(rng.random)
        truth, places = rng.normal(), rng.normal(size=count)
        scores = deviation * rng.normal(size=count) - bowl / FLATTER * (places - truth) ** 2
        chosen = places[int(np.argmax(scores))] if count else 0.0
        lost.append(bowl * (chosen - truth) ** 2)
    assert Outlook(1.0, bowl, 0.012).tuned(runs, deviation) == pytest.approx(np.mean(lost), rel=0.08, abs=3e-5)


def test_directions() -> None:
    model = Outlook(1.0, 0.003, 0.012)
    law = NegativeBinomial(5, 30)
    assert model.tuned(law, 0.002) < model.tuned(law, 0.01) < model.tuned(law, 0.05)
    assert model.tuned(NegativeBinomial(5, 60), 0.005) < model.tuned(NegativeBinomial(5, 10), 0.005)
    few, many = outlook(EXPECTED, 6_000, 1.0), outlook(EXPECTED, 60_000, 1.0)
    assert few is not None
    assert many is not None
    assert few.bowl > many.bowl
    assert few.hunger > many.hunger
    assert not parts(many, 1_000, public=False, noise=4.7)  # every part would be too small


def test_other_spaces_are_not_spoken_of() -> None:
    two = Space(learning_rate=Float(1, 64, log=True, around=8, spread=2), clip_norm=Float(0.1, 1, log=True))
    for space in (two, two.grid(2), Space(learning_rate=Float(1, 64, around=8, spread=2))):
        assert outlook(space, 60_000, 1.0) is None


def test_many_records_are_tuned_on_a_small_part_and_few_are_trained_once() -> None:
    many = choose(Scaling(), EXPECTED, Budget(1, 1e-5), records=60_000)
    assert isinstance(many.method, Subset)
    assert many.plan.price() <= 1
    few = choose(Scaling(), EXPECTED, Budget(1, 1e-5), records=2_000)
    assert isinstance(few.method, RandomGuess)
    assert few.plan.default == {"learning_rate": 8.0}
    assert "without tuning" in few.explanation
    assert "too small to tune on" in few.explanation
    assert few.plan.price() <= 1


def test_near_a_sure_rule_there_is_no_tuning_unless_it_is_asked_for() -> None:
    sure = Space(learning_rate=Float(1, 64, log=True, around=8, spread=1.2))
    advice = choose(Scaling(), sure, Budget(1, 1e-5), records=60_000)
    assert isinstance(advice.method, RandomGuess)
    assert "expected to gain less than 0.001" in advice.explanation
    asked = choose(Scaling(), sure, Budget(1, 1e-5), records=60_000, runs=Geometric(7))
    assert asked.plan.law == Geometric(7)


def test_a_law_that_was_asked_for_is_used() -> None:
    asked = choose(Scaling(), EXPECTED, Budget(1, 1e-5), records=60_000, runs=Geometric(7))
    assert asked.plan.law == Geometric(7)
    small = choose(Scaling(), EXPECTED, Budget(1, 1e-5), records=2_000, runs=Geometric(7))
    assert small.plan.law == Geometric(7)


def test_tuning_on_the_part_tries_what_becomes_the_expected_value() -> None:
    method = choose(Scaling(), EXPECTED, Budget(1, 1e-5), records=60_000).method
    assert isinstance(method, Subset)
    ((_, rates),) = method.method.space.dimensions  # type: ignore[union-attr]
    assert isinstance(rates, Float)
    assert rates.middle * method.factors(Scaling())["learning_rate"] == pytest.approx(8.0)


def test_parts_are_hardly_whitened_so_learning_rates_tuned_on_them_are_shortened() -> None:
    image = kind_named("image")
    whitened = image.trainer(976, 10, 60_000, epsilon=1)
    plain = replace(whitened, whitening=None)
    subset = Subset(RandomStopping(EXPECTED, Geometric(5)), 0.1)
    assert subset.factors(plain)["learning_rate"] == pytest.approx(9.0)
    assert subset.factors(whitened)["learning_rate"] == pytest.approx(0.75 * 9.0)
    assert subset.factors(replace(whitened, settings=replace(whitened.settings, optimizer=Adam()))) == {}
    with pytest.raises(InvalidInput, match="'transfer' is for what is tuned"):
        Subset(RandomStopping(EXPECTED, Geometric(5)), 0.1, transfer={"noise_multiplier": 0.01})
    with pytest.raises(InvalidInput, match="'transfer' must be 'auto', 'sgd', 'whitened', 'none' or a dictionary"):
        Subset(RandomStopping(EXPECTED, Geometric(5)), 0.1, transfer="white")


class Tunable:
    """DP-SGD whose rate and steps are tuned; priced, never run."""

    validation: Any = "public"

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(params.get("sampling_rate", 0.1), params["noise_multiplier"], int(params.get("steps", 50)))


@pytest.mark.parametrize(
    ("name", "tried"),
    [("steps", Choice(20, 40)), ("steps", Int(20, 22)), ("sampling_rate", Choice(0.05, 0.1)), ("steps", Choice(20))],
)
@pytest.mark.parametrize("final", ["rest", "all"])
def test_factors_on_what_a_training_costs_are_refused(name: str, tried: Any, final: str) -> None:
    """They were charged for, and the final training, which costs something else, was refused by the worker."""
    inner = RandomStopping(Space(**{name: tried}), Geometric(2))
    for factor in (0.5, 2.0):
        priced = Subset(inner, 0.2, final=final, transfer={name: factor})
        with pytest.raises(InvalidInput, match=f"what a training costs follows from '{name}'"):
            priced.plan(Budget(2, 1e-5), Tunable())
    assert Subset(inner, 0.2, final=final, transfer={name: 1.0}).plan(Budget(2, 1e-5), Tunable()).price() <= 2


class Dear:
    """A training whose cost nothing lowers."""

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(0.5, 0.5, 100)


def test_what_does_not_fit_is_refused_as_everywhere() -> None:
    with pytest.raises(BudgetExceeded):
        choose(Dear(), EXPECTED, Budget(0.1, 1e-5), records=60_000)
