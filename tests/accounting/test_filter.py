"""The Renyi curve against closed forms, and the filter against exact composition and the known counter-example."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import integrate, stats

from dptune._codec import from_json, to_values
from dptune.accounting import ADDED_OR_REMOVED, Cost, DpSgd, Gdp, Geometric, Neighbours, PureDp, disjoint, select
from dptune.accounting.filter import ORDERS, Curve, Filter, renyi_curve
from dptune.accounting.profiles import ProfilePair, TableProfile
from dptune.errors import InvalidInput
from dptune.ledgers.entries import filter_from_values, filter_values


@dataclass(frozen=True)
class Reveal(Cost):
    """Shows the record with probability ``chance``, else nothing: an infinite loss of that mass."""

    kind: ClassVar[str] = "test-reveal"
    chance: float

    @property
    def neighbours(self) -> Neighbours:
        return ADDED_OR_REMOVED

    def _profile(self) -> ProfilePair:
        both = TableProfile(np.zeros(1), np.array([self.chance]))
        return ProfilePair(both, both)

    def _lower(self, delta: float) -> ProfilePair:
        return self._profile()


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 2.5])
def test_gaussian_curve_is_a_mu_squared_half(mu: float) -> None:
    """Upper bound at every order that the cut tail does not reach, and within a part in 10^4 of the closed form."""
    orders = [a for a in ORDERS if (a - 1) * mu + 5.2 < 7.3]  # the cut of 1e-13 is at 7.35 deviations
    curve = renyi_curve(Gdp(mu), orders)
    exact = np.array(orders) * mu**2 / 2
    assert (np.array(curve.values) >= exact * (1 - 1e-6)).all()
    assert np.array(curve.values) == pytest.approx(exact, rel=2e-4)
    assert 0 < curve.infinite <= 1.01e-13


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_cut_tail_plus_finite_part_bounds_the_truth(mu: float) -> None:
    """At high orders the tail is moved to the infinite mass: what is left is at least the truncated moment."""
    curve = renyi_curve(Gdp(mu), ORDERS)
    loss = Gdp(mu).epsilon(curve.infinite) * (1 - 1e-6)  # all losses below this one are kept
    for order, value in zip(ORDERS, curve.values, strict=True):
        top = (loss - mu**2 / 2) / mu
        kept = stats.norm.logcdf(top - (order - 1) * mu) + (order - 1) * order * mu**2 / 2
        assert value >= kept / (order - 1) * (1 - 1e-6) - 1e-9


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 12.0])
def test_pure_curve_is_that_of_randomised_response(epsilon: float) -> None:
    curve = renyi_curve(PureDp(epsilon), ORDERS)
    p = 1 / (1 + math.exp(-epsilon))
    for order, value in zip(ORDERS, curve.values, strict=True):
        terms = np.array([order * math.log(p) + (1 - order) * math.log1p(-p)] * 2)
        terms[1] = order * math.log1p(-p) + (1 - order) * math.log(p)
        exact = float(np.logaddexp(*terms)) / (order - 1)
        assert exact * (1 - 1e-9) <= value <= exact * (1 + 1e-6) + 1e-9
    assert curve.infinite == 0.0


def test_subsampled_curve_against_quadrature() -> None:
    """One step of DP-SGD in the removal direction, which is the worse one."""
    rate, noise = 0.05, 1.0
    orders = (1.5, 2.0, 3.0, 4.0)
    curve = renyi_curve(DpSgd(rate, noise, 1), orders)

    def integrand(x: float, order: float) -> float:
        ratio = 1 - rate + rate * math.exp((2 * x - 1) / (2 * noise**2))
        return float(ratio**order * stats.norm.pdf(x, scale=noise))

    for order, value in zip(orders, curve.values, strict=True):
        moment, _ = integrate.quad(integrand, -12, 25, args=(order,), limit=400)
        assert value == pytest.approx(math.log(moment) / (order - 1), rel=2e-3)
        assert value >= math.log(moment) / (order - 1) * (1 - 1e-4)


def test_curve_of_selection_is_usable_at_every_order() -> None:
    """The tight bound is no convex profile near zero; its curve must still not exceed what epsilon says."""
    cost = select(DpSgd(0.01, 2.0, 500), Geometric(10))
    values = renyi_curve(cost, ORDERS).values
    assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(values))
    assert values[0] < 0.5


def test_a_sum_is_never_rounded_down() -> None:
    total = Curve((0.0,), 0.0)
    for _ in range(1000):
        total = total + Curve((0.1,), 1e-20)
    assert total.values[0] >= 100.0
    assert total.infinite >= 1e-17


def test_the_known_counter_example_is_refused() -> None:
    """docs/theorems/filter.md: each path fits the budget (1, 1e-5) by itself, the whole does not."""
    rule = Filter.of(1.0, 1e-5)
    small, large, chance = 0.2, 0.8000263, 1e-5  # 0.80003 when rounded

    def answers(epsilon: float) -> tuple[float, float]:
        return 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))

    def respond(p: float, q: float) -> float:
        yes, no = answers(large)
        return max(0.0, p * yes - math.e * q * no) + max(0.0, p * no - math.e * q * yes)

    def reveal(p: float, q: float) -> float:
        return p * chance + (1 - chance) * max(0.0, p - math.e * q)

    yes, no = answers(small)
    first_always = respond(yes, no) + respond(no, yes)
    second_always = reveal(yes, no) + reveal(no, yes)
    adaptive = respond(yes, no) + reveal(no, yes)
    assert max(first_always, second_always) <= 1e-5 * (1 + 1e-9)
    assert adaptive == pytest.approx(1.45e-5, rel=0.01)

    spent = rule.curve(PureDp(small))
    assert rule.admits(spent)
    assert not rule.admits(spent + rule.curve(PureDp(large)))
    assert not rule.admits(spent + rule.curve(Reveal(chance)))


def test_infinite_losses_have_their_own_small_share() -> None:
    rule = Filter.of(1.0, 1e-5)
    assert rule.admits(rule.curve(Reveal(0.9e-7)))
    assert not rule.admits(rule.curve(Reveal(1.1e-7)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (1.0, 1e-5), (3.0, 1e-5), (8.0, 1e-6)])
def test_what_the_filter_admits_fits_by_exact_composition(epsilon: float, delta: float) -> None:
    """Fixed charges: the filter may waste up to a sixth of epsilon, but it never admits more than composition does."""
    rule = Filter.of(epsilon, delta)
    low, high = 0.0, 5.0
    for _ in range(20):
        mu = (low + high) / 2
        low, high = (mu, high) if rule.admits(rule.curve(Gdp(mu))) else (low, mu)
    exact = Gdp(low).epsilon(delta)
    assert 0.84 * epsilon < exact <= epsilon
    assert rule.epsilon_spent(rule.curve(Gdp(low))) <= epsilon


def test_many_small_charges_fit_as_one_large_one() -> None:
    rule = Filter.of(2.0, 1e-5)
    charge, spent, count = rule.curve(Gdp(0.02)), rule.nothing, 0
    while rule.admits(spent + charge) and count < 5000:
        spent, count = spent + charge, count + 1
    exact = Gdp(0.02 * math.sqrt(count)).epsilon(1e-5)
    assert 0.84 * 2.0 < exact <= 2.0


def test_the_adaptive_worst_case_is_simulated() -> None:
    """An adversary that spends by what it saw: enumerate its whole tree exactly and check delta at epsilon.

    Randomised response r, then, while the loss so far is low, larger and larger steps that the filter admits.
    """
    rule = Filter.of(1.0, 1e-3)
    step = 0.15

    def delta(loss: float, p: float, q: float, spent: Curve, depth: int) -> float:
        del loss
        cost = PureDp(step) if depth % 2 else PureDp(step / 2)
        if p > q:  # after a bad sign the adversary tries a big last step
            cost = PureDp(0.6)
        total = spent + rule.curve(cost)
        if depth == 12 or not rule.admits(total):
            return max(0.0, p - math.exp(rule.epsilon) * q)
        e = cost.pure_epsilon
        yes, no = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
        return delta(0.0, p * yes, q * no, total, depth + 1) + delta(0.0, p * no, q * yes, total, depth + 1)

    assert delta(0.0, 1.0, 1.0, rule.nothing, 0) <= rule.delta


def _worst_chance(opening: Filter, shown: Filter, depth: int) -> float:
    """The largest probability with which any adversary brings the loss above what a rule shows, at any moment.

    It chooses among three randomised responses after every answer, and may stop: the whole game is solved exactly.
    """
    unit, steps = 0.25, (1, 2, 4)
    curves = {step: opening.curve(PureDp(unit * step)) for step in steps}

    @functools.cache
    def epsilon(counts: tuple[int, ...]) -> float:
        total = opening.nothing
        for step, count in zip(steps, counts, strict=True):
            for _ in range(count):
                total = total + curves[step]
        return shown.epsilon_spent(total)

    @functools.cache
    def chance(counts: tuple[int, ...], loss: int) -> float:
        if unit * loss > epsilon(counts) + 1e-12:
            return 1.0
        if sum(counts) == depth:
            return 0.0
        found = [0.0]
        for place, step in enumerate(steps):
            yes = 1 / (1 + math.exp(-unit * step))
            then = tuple(count + (place == other) for other, count in enumerate(counts))
            found.append(yes * chance(then, loss + step) + (1 - yes) * chance(then, loss - step))
        return max(found)

    return chance((0, 0, 0), 0)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (2.0, 0.1)])
def test_what_an_odometer_shows_is_exceeded_with_probability_delta(epsilon: float, delta: float) -> None:
    """Ville's inequality against the best adversary there is; the figures of a filter are no odometer's."""
    rule = Filter.of(epsilon, delta)
    found = _worst_chance(rule, rule.raised_to(5 * epsilon, delta), depth=8)
    assert 0.5 * delta < found <= delta
    assert _worst_chance(rule, rule, depth=8) > delta


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_an_odometer_bounds_the_tail_of_the_gaussian_loss(mu: float, delta: float) -> None:
    """The loss of a Gaussian mechanism is normal with mean mu^2 / 2 and variance mu^2."""
    rule = Filter.of(1.0, delta).raised_to(400.0, delta)
    epsilon = rule.epsilon_spent(rule.curve(Gdp(mu)))
    beyond = float(stats.norm.sf((epsilon - mu**2 / 2) / mu))
    assert beyond <= delta - rule.infinite
    assert epsilon >= Filter.of(1.0, delta).epsilon_spent(rule.curve(Gdp(mu)))


def test_a_raise_keeps_what_was_fixed_and_cannot_lower() -> None:
    rule = Filter.of(1.0, 1e-5)
    more = rule.raised_to(2.0, 1e-5).raised_to(3.0, 1e-4)
    assert (more.orders, more.weights, more.raised) == (rule.orders, rule.weights, True)
    assert more.infinite == pytest.approx(10 * rule.infinite)
    assert filter_from_values(filter_values(more)) == more
    with pytest.raises(InvalidInput, match="cannot be lowered"):
        more.raised_to(2.0, 1e-4)
    spent = rule.curve(Gdp(0.3)) + rule.curve(Gdp(0.2))
    for epsilon in (0.5, 1.0, 1.5, 2.0):  # 1 / M at epsilon, against the definition
        sums = zip(rule.orders, rule.weights, spent.values, strict=True)
        grown = sum(w * math.exp((a - 1) * (epsilon - value)) for a, w, value in sums)
        assert more.delta_at(spent, epsilon) == pytest.approx(more.infinite + 1 / grown, rel=1e-8)


def test_a_filter_goes_through_json() -> None:
    rule = Filter.of(3.0, 1e-5)
    assert from_json(to_values(rule), Filter, "a filter") == rule
    assert filter_from_values(filter_values(rule)) == rule
    assert "raised" not in filter_values(rule)  # ledgers of before have the same entries
    assert math.fsum(rule.weights) <= 1.0


def test_an_expensive_pipeline_has_a_curve() -> None:
    base = DpSgd(0.01, 2.0, 200)
    curve = renyi_curve(disjoint(select(base, Geometric(5)), base, 0.1), ORDERS)
    alone = renyi_curve(base, ORDERS)
    # Training on the rest costs a little less than on everything; tuning on a tenth costs a little.
    assert 0.5 * alone.values[2] < curve.values[2] < 2.0 * alone.values[2]


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="increasing"):
        renyi_curve(Gdp(1.0), [2.0, 1.5])
    with pytest.raises(InvalidInput, match="cost"):
        renyi_curve(3.0, [2.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="delta"):
        Filter.of(1.0, 0.0)
