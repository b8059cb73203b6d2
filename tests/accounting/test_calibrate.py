"""Calibration: within budget, close to it, on the safe side; the cheapest law reaches its goal."""

from __future__ import annotations

import pytest

from dptune import Cost, DpSgd, Gaussian, Geometric, Poisson, PureDp, compose, disjoint, select
from dptune.accounting.calibrate import calibrate_noise, cheapest_runs
from dptune.errors import BudgetExceeded, InvalidInput


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
def test_noise_meets_the_total_budget_and_no_less_noise_does(epsilon: float) -> None:
    def whole(noise: float) -> Cost:
        return select(Gaussian(noise), Geometric(10))

    noise = calibrate_noise(whole, epsilon, 1e-5)
    assert whole(noise).epsilon(1e-5) <= epsilon
    assert whole(noise * 0.9995).epsilon(1e-5) > epsilon


def test_any_expression_can_be_calibrated() -> None:
    def whole(noise: float) -> Cost:
        base = DpSgd(0.02, noise, 200)
        return compose(disjoint(select(base, Geometric(5)), base, 0.2), PureDp(0.2))

    noise = calibrate_noise(whole, 2.0, 1e-5, tolerance=1e-3)
    assert 1.95 < whole(noise).epsilon(1e-5) <= 2.0


def test_a_budget_below_the_fixed_part_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="does not depend on the noise"):
        calibrate_noise(lambda noise: compose(Gaussian(noise), PureDp(2.0)), 1.0, 1e-5)


def test_the_cheapest_law_reaches_its_goal_and_beats_the_common_choices() -> None:
    base = Gaussian(3.73)
    choice = cheapest_runs(base, fraction=0.05, probability=0.9, delta=1e-5)
    assert choice.hit_probability >= 0.9
    assert choice.runs.hit_probability(0.05) >= 0.9
    assert choice.epsilon == select(base, choice.runs).epsilon(1e-5)
    for law in (Geometric(171.0), Poisson(46.1)):
        assert law.hit_probability(0.05) == pytest.approx(0.9, abs=0.002)
        assert choice.epsilon <= select(base, law).epsilon(1e-5) + 1e-3


def test_bad_goals() -> None:
    with pytest.raises(InvalidInput, match="'fraction' must be a number in"):
        cheapest_runs(Gaussian(3), fraction=0, probability=0.9, delta=1e-5)
    with pytest.raises(InvalidInput, match="'epsilon' must be a number in"):
        calibrate_noise(Gaussian, -1.0, 1e-5)
