"""The planner's model of accuracy: closed forms, directions that must hold, and what it lets the planner choose."""

from __future__ import annotations

from typing import Any

import pytest

from dptune.accounting import Binomial, DpSgd, Geometric, NegativeBinomial
from dptune.methods import Budget, Subset
from dptune.planner import choose
from dptune.planner.advice import scaled_space
from dptune.planner.forecast import best_part, choice_loss, data_loss, score_loss
from dptune.spaces import Choice, Float, Space

NARROW = Space(learning_rate=Float(1, 16, log=True))
WIDE = Space(learning_rate=Float(1e-4, 10, log=True), clip_norm=Float(0.01, 3, log=True))


def test_the_best_of_a_certain_number_in_one_dimension() -> None:
    """A bowl over one dimension: the loss at quantile u is edge u^2, so the best of k loses edge 2 / ((k+1)(k+2))."""
    edge = 0.0037 * (4 / 2) ** 2
    for k in (1, 4, 20):
        assert choice_loss(NARROW, Binomial(k, 1)) == pytest.approx(edge * 2 / ((k + 1) * (k + 2)), rel=1e-3)


def test_the_best_of_a_certain_number_in_two_dimensions() -> None:
    """Over two dimensions the loss is edge u, and the best of k loses edge / (k+1)."""
    space = Space(a=Float(1, 16, log=True), b=Float(1, 16, log=True))
    for k in (1, 9):
        assert choice_loss(space, Binomial(k, 1)) == pytest.approx(0.0037 * 16 / 3.14159265 / (k + 1), rel=1e-3)


def test_laws_with_little_mass_on_few_runs_lose_less() -> None:
    assert choice_loss(WIDE, NegativeBinomial(5, 30)) < choice_loss(WIDE, Geometric(30))


def test_directions() -> None:
    assert score_loss(1000, 1000, 5) < score_loss(1000, 100, 5) < score_loss(1000, 100, 50)
    assert data_loss(1.0) == 0
    assert data_loss(0.9) < 0 < data_loss(1.1)


def test_wider_spaces_get_more_runs_and_more_records_smaller_parts() -> None:
    def part(space: Space, records: int) -> Any:
        return best_part(space, records, public=False, noise=4.7)

    assert part(WIDE, 60_000).runs.expected > part(NARROW, 60_000).runs.expected
    assert part(NARROW, 3_000_000).fraction < part(NARROW, 20_000).fraction
    assert part(NARROW, 1_000) is None
    assert best_part(NARROW, 60_000, public=True, noise=0.0, runs=Geometric(7)).runs == Geometric(7)  # type: ignore[union-attr]


class Scaling:
    """DP-SGD whose learning rate grows with the records; priced, never run."""

    validation: Any = None
    transfer_rule = "sgd"

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(0.1, params["noise_multiplier"], 50)


def test_rates_on_the_part_become_those_of_the_space() -> None:
    """Whatever the part tries, the final training's learning rate lies in the space, private validation included."""
    advice = choose(Scaling(), NARROW, Budget(1, 1e-5), records=60_000)
    assert isinstance(advice.method, Subset)
    tuning, factors = advice.method.method, advice.method.factors(Scaling())
    held = tuning.validation
    assert held is not None
    q = advice.method.fraction
    assert factors["learning_rate"] == pytest.approx((1 - q) / q / (1 - held.fraction))
    assert isinstance(tuning.space, Space)
    ((_, rates),) = tuning.space.dimensions
    assert isinstance(rates, Float)
    assert [end * factors["learning_rate"] for end in (rates.low, rates.high)] == pytest.approx([1, 16])
    assert "loses about 0.00" in advice.explanation
    assert advice.plan.price() <= 1


def test_lists_and_linear_ranges_are_not_scaled() -> None:
    space = Space(lr=Choice(1, 2), learning_rate=Float(1, 2))
    assert scaled_space(space, {"lr": 3.0, "learning_rate": 3.0}) == space
    assert scaled_space(space.grid(3), {"lr": 3.0}) == space.grid(3)
