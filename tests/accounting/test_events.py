"""Events of dp-accounting as costs: never below closed forms and its own accountants, stored and read back, refused."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, stats

from dptune.accounting import (
    ADDED_OR_REMOVED,
    CLIENT_REPLACED,
    RECORD_REPLACED,
    DiscreteLaplace,
    DpSgd,
    Gaussian,
    GaussianMixture,
    Geometric,
    Laplace,
    Neighbours,
    Poisson,
    PureDp,
    RenyiCurve,
    Repeated,
    compose,
    cost_from_json,
    from_dp_event,
    grouped,
    replaced,
    select,
    subsample,
)
from dptune.errors import InvalidInput

NORMAL, LAPLACE = dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent
SAMPLED, TIMES, ALL = dp_event.PoissonSampledDpEvent, dp_event.SelfComposedDpEvent, dp_event.ComposedDpEvent
MIXED, FIXED = dp_event.MixtureOfGaussiansDpEvent, dp_event.SampledWithoutReplacementDpEvent
DELTAS = (1e-3, 1e-6, 1e-9)


def _pld(event: Any, delta: float, relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE) -> float:
    return float(PLDAccountant(relation).compose(event).get_epsilon(delta))


@pytest.mark.parametrize(
    ("event", "cost"),
    [
        (NORMAL(2.0), Gaussian(2.0)),
        (LAPLACE(3.0), Laplace(3.0)),
        (TIMES(SAMPLED(0.01, NORMAL(1.1)), 500), DpSgd(0.01, 1.1, 500)),
        (ALL([TIMES(SAMPLED(0.01, NORMAL(1.1)), 50), SAMPLED(0.01, NORMAL(1.1))]), DpSgd(0.01, 1.1, 51)),
        (ALL([NORMAL(2.0), LAPLACE(3.0)]), compose(Gaussian(2.0), Laplace(3.0))),
        (SAMPLED(0.1, LAPLACE(2.0)), subsample(Laplace(2.0), 0.1)),
        (SAMPLED(1.0, NORMAL(2.0)), DpSgd(1.0, 2.0, 1)),
        (dp_event.NoOpDpEvent(), PureDp(0.0)),
        (ALL([NORMAL(2.0), dp_event.NoOpDpEvent(), TIMES(LAPLACE(1.0), 0), SAMPLED(0.0, NORMAL(1.0))]), Gaussian(2.0)),
        (dp_event.DiscreteLaplaceDpEvent(0.2, 3), DiscreteLaplace(0.2, 3)),
        (dp_event.RepeatAndSelectDpEvent(NORMAL(4.0), 10.0, 1.0), select(Gaussian(4.0), Geometric(10))),
        (dp_event.RepeatAndSelectDpEvent(NORMAL(4.0), 5.0, math.inf), select(Gaussian(4.0), Poisson(5))),
    ],
)
def test_what_the_algebra_knows_is_taken_as_it_is(event: Any, cost: Any) -> None:
    assert from_dp_event(event) == cost


@pytest.mark.parametrize(
    ("event", "cost"),
    [
        (NORMAL(2.0), Gaussian(1.0, neighbours=RECORD_REPLACED)),  # a sum of vectors of norm C changes by 2 C
        (LAPLACE(2.0), Laplace(1.0, neighbours=RECORD_REPLACED)),
        (TIMES(SAMPLED(0.01, NORMAL(1.1)), 50), replaced(DpSgd(0.01, 1.1, 50))),
        (dp_event.DiscreteLaplaceDpEvent(0.2, 3), DiscreteLaplace(0.2, 6, neighbours=RECORD_REPLACED)),
        (dp_event.SingleEpochTreeAggregationDpEvent(8.0, 8), Gaussian(2.0 * (1 - 1e-15), neighbours=RECORD_REPLACED)),
    ],
)
def test_a_replaced_record_changes_a_sum_twice(event: Any, cost: Any) -> None:
    assert from_dp_event(event, RECORD_REPLACED) == cost
    assert from_dp_event(event, RECORD_REPLACED.group(2)) == grouped(cost, 2)


def _random(rng: np.random.Generator, depth: int) -> Any:
    """An event of which dp-accounting's PLD accountant knows everything."""
    kind = int(rng.integers(6 if depth else 4))
    noise = float(np.exp(rng.uniform(0.5, 3.0)))
    if kind == 0:
        return NORMAL(noise)
    if kind == 1:
        return LAPLACE(2 * noise)
    if kind == 2:
        return SAMPLED(float(rng.uniform(0.001, 0.9)), (NORMAL if rng.random() < 0.7 else LAPLACE)(noise))
    if kind == 3:
        return dp_event.DiscreteLaplaceDpEvent(0.3 / noise, int(rng.integers(1, 4)))
    if kind == 4:
        return TIMES(_random(rng, depth - 1), int(rng.integers(1, 6)))
    return ALL([_random(rng, depth - 1) for _ in range(int(rng.integers(1, 4)))])


@pytest.mark.parametrize("seed", range(40))
def test_as_much_as_loss_distributions_say(seed: int) -> None:
    """dp-accounting rounds up too, on a grid of 1e-4: two upper bounds of one truth, and our certificate below it."""
    event = _random(np.random.default_rng(seed), 2)
    cost = from_dp_event(event)
    assert cost_from_json(cost.to_json()) == cost
    accountant = PLDAccountant().compose(event)
    for delta in DELTAS:
        theirs, ours = accountant.get_epsilon(delta), cost.epsilon(delta)
        assert theirs - 5e-4 * (1 + theirs) <= ours <= theirs + 5e-4 * (1 + theirs)
        assert cost.epsilon_lower(delta) <= ours


def test_matrix_mechanisms_compose() -> None:
    """A grid of 2e-3 keeps dp-accounting within seconds, and above the truth by so much."""
    event = TIMES(MIXED(8.0, [0.0, 1.0, 2.0, 2.5], [0.9, 0.05, 0.03, 0.02]), 40)
    accountant = PLDAccountant(value_discretization_interval=2e-3).compose(event)
    for delta in DELTAS:
        assert 0.98 * accountant.get_epsilon(delta) <= from_dp_event(event).epsilon(delta)
        assert from_dp_event(event).epsilon(delta) <= accountant.get_epsilon(delta)


def test_repeated_mechanisms_keep_their_published_caps() -> None:
    many = from_dp_event(TIMES(LAPLACE(40.0), 30))
    assert many == Repeated(Laplace(40.0), 30)
    plain = compose(*[Laplace(40.0)] * 30)
    for delta in DELTAS:
        assert many.epsilon(delta) == plain.epsilon(delta)
        assert select(many, Geometric(10)).epsilon(delta) == select(plain, Geometric(10)).epsilon(delta)


@pytest.mark.parametrize("seed", range(12))
def test_a_mixture_of_gaussians_is_above_quadrature(seed: int) -> None:
    """The hockey-stick integral itself, both ways, at points that are none of the table's."""
    rng = np.random.default_rng(seed)
    noise = float(np.exp(rng.uniform(-0.5, 2.0)))
    changes = (0.0, *(float(c) for c in rng.uniform(0.1, 3.0, 3)))
    chances = tuple(float(p) for p in rng.dirichlet(np.ones(4)))
    cost = GaussianMixture(noise, changes, chances)

    grid = np.linspace(-12 * noise, 3 + 12 * noise, 20001)
    mixed = np.sum([p * stats.norm.pdf(grid, c, noise) for c, p in zip(changes, chances, strict=True)], axis=0)
    plain = stats.norm.pdf(grid, 0, noise)
    for e in rng.uniform(0.0, 2.0, 5):
        for direction, (up, down) in {"remove": (mixed, plain), "add": (plain, mixed)}.items():
            truth = float(integrate.trapezoid(np.maximum(up - math.exp(e) * down, 0.0), grid))
            found = float(cost.profile(np.array([e]), direction)[0])
            assert truth * (1 - 1e-4) - 1e-9 <= found <= truth * (1 + 1e-3) + 1e-6


def test_a_mixture_with_two_outcomes_is_a_step_of_dp_sgd() -> None:
    for rate, noise in ((0.01, 0.7), (0.3, 2.0), (0.9, 5.0)):
        mixed, step = GaussianMixture(noise, (0.0, 1.0), (1 - rate, rate)), DpSgd(rate, noise, 1)
        for delta in DELTAS:
            exact = step.epsilon(delta)
            assert exact * (1 - 1e-9) <= mixed.epsilon(delta) <= exact + 1e-4


@pytest.mark.parametrize(("a", "shift"), [(0.01, 1), (0.5, 1), (0.5, 7), (3.0, 2)])
def test_discrete_laplace_is_its_sum(a: float, shift: int) -> None:
    x = np.arange(-6000, 6001 + shift, dtype=float)
    p, q = (np.exp(-a * np.abs(x - s)) * math.tanh(a / 2) for s in (shift, 0))
    for e in np.linspace(0.0, a * shift, 7):
        truth = float(np.maximum(p - math.exp(e) * q, 0.0).sum())
        assert truth * (1 - 1e-12) <= DiscreteLaplace(a, shift).delta(float(e)) <= truth + 1e-13


def test_a_fixed_batch_is_above_its_renyi_divergence() -> None:
    """The worst sums that a replaced record of norm C can make, C against -C, by quadrature."""
    rate, noise = 0.1, 3.0
    cost = from_dp_event(FIXED(100, 10, NORMAL(noise)), RECORD_REPLACED)
    assert isinstance(cost, RenyiCurve)
    x = np.linspace(-60.0, 60.0, 400001)
    p, q = ((1 - rate) * stats.norm.pdf(x, 0, noise) + rate * stats.norm.pdf(x, s, noise) for s in (1, -1))
    for order, value in zip(cost.orders, cost.values, strict=True):
        if order <= 16:
            ratio = np.exp(order * np.log(p) + (1 - order) * np.log(q))
            truth = math.log(integrate.trapezoid(ratio, x)) / (order - 1)
            assert value >= truth


def test_renyi_curves_are_added_before_they_are_converted() -> None:
    steps = TIMES(FIXED(1000, 10, NORMAL(4.0)), 200)
    cost = from_dp_event(steps, RECORD_REPLACED)
    assert isinstance(cost, RenyiCurve)
    halved = TIMES(FIXED(1000, 10, NORMAL(2.0)), 200)  # dp-accounting takes the noise relative to the change
    for delta in DELTAS:
        theirs = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(halved).get_epsilon(delta)
        assert theirs * (1 - 1e-9) <= cost.epsilon(delta) <= theirs * 1.02


@pytest.mark.parametrize(("rho", "xi"), [(0.02, 0.0), (0.5, 0.0), (0.1, 0.05)])
def test_zcdp_is_its_curve(rho: float, xi: float) -> None:
    """Above the Gaussian mechanism, which is rho-zCDP; not above dp-accounting's conversion by much."""
    cost = from_dp_event(ALL([dp_event.ZCDpEvent(rho / 2, xi), dp_event.ZCDpEvent(rho / 2, 0.0)]))
    for delta in DELTAS:
        theirs = RdpAccountant().compose(dp_event.ZCDpEvent(rho, xi)).get_epsilon(delta)
        assert Gaussian(1 / math.sqrt(2 * rho)).epsilon(delta) <= cost.epsilon(delta)
        assert theirs * (1 - 1e-6) - 0.01 <= cost.epsilon(delta) <= theirs * 1.03
    assert cost.epsilon_lower(1e-5) == 0.0
    assert select(cost, Geometric(5)).epsilon(1e-5) > cost.epsilon(1e-5)
    assert cost_from_json(cost.to_json()) == cost


def test_truncated_batches_cost_more_than_all_of_them() -> None:
    event = TIMES(dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 120, 1.0), 20)
    cost = from_dp_event(event)
    theirs = _pld(event, 1e-5)
    assert theirs <= cost.epsilon(1e-5) <= 1.05 * theirs
    assert cost.epsilon(1e-5) > DpSgd(0.1, 1.0, 20).epsilon(1e-5)
    assert from_dp_event(event, RECORD_REPLACED) == replaced(cost)
    assert cost_from_json(cost.to_json()) == cost


@pytest.mark.parametrize(("noise", "buckets"), [(0.5, 2), (0.2, 5), (0.9, 10)])
def test_randomised_response_counts_every_time(noise: float, buckets: int) -> None:
    """dp-accounting's PLD accountant counts it once however often it is composed."""
    event = dp_event.RandomizedResponseDpEvent(noise, buckets)
    one = math.log((1 - noise + noise / buckets) / (noise / buckets))
    assert from_dp_event(event, RECORD_REPLACED).epsilon(1e-12) == pytest.approx(one, rel=1e-9)
    many = from_dp_event(TIMES(event, 4), RECORD_REPLACED)
    assert many.epsilon(1e-12) == pytest.approx(4 * one, rel=1e-6)


class _Own(dp_event.DpEvent):  # type: ignore[misc]  # dp-accounting has no types
    """An event that somebody else defined."""


@pytest.mark.parametrize(
    ("event", "relation", "words"),
    [
        (dp_event.NonPrivateDpEvent(), ADDED_OR_REMOVED, "not private"),
        (dp_event.UnsupportedDpEvent(), ADDED_OR_REMOVED, "nothing is known"),
        (ALL([NORMAL(1.0), dp_event.NonPrivateDpEvent()]), ADDED_OR_REMOVED, "not private"),
        (SAMPLED(0.5, dp_event.UnsupportedDpEvent()), ADDED_OR_REMOVED, "nothing is known"),
        (TIMES(dp_event.NonPrivateDpEvent(), 0), ADDED_OR_REMOVED, "not private"),
        (_Own(), ADDED_OR_REMOVED, "not an event of dp_accounting"),
        ("no event", ADDED_OR_REMOVED, "not an event of dp_accounting"),
        (NORMAL(0.0), ADDED_OR_REMOVED, "noise_multiplier"),
        (LAPLACE(0.0), ADDED_OR_REMOVED, "noise_multiplier"),
        (SAMPLED(1.5, NORMAL(1.0)), ADDED_OR_REMOVED, "sampling probability"),
        (MIXED(1.0, [1.0], [0.5]), ADDED_OR_REMOVED, "sum to 1"),
        (MIXED(1.0, [0.0, 1.0], [0.5, 0.5]), RECORD_REPLACED, "one record added or removed"),
        (FIXED(100, 10, NORMAL(1.0)), ADDED_OR_REMOVED, "one record replaced"),
        (FIXED(100, 10, LAPLACE(1.0)), RECORD_REPLACED, "only a Gaussian"),
        (dp_event.SampledWithReplacementDpEvent(100, 10, NORMAL(1.0)), RECORD_REPLACED, "no cost is known"),
        (dp_event.SingleEpochTreeAggregationDpEvent(8.0, 8), ADDED_OR_REMOVED, "one record replaced"),
        (dp_event.RandomizedResponseDpEvent(0.5, 2), ADDED_OR_REMOVED, "one record replaced"),
        (dp_event.RandomizedResponseDpEvent(0.0, 2), RECORD_REPLACED, "not private"),
        (NORMAL(1.0), CLIENT_REPLACED, "about records"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(event: Any, relation: Neighbours, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        from_dp_event(event, relation)
    assert "\n" not in str(caught.value)


def test_it_is_what_the_package_exports() -> None:
    assert dp_accounting.GaussianDpEvent is NORMAL
    mixed = from_dp_event(TIMES(MIXED(4.0, [0.0, 1.0, 2.0], [0.8, 0.15, 0.05]), 1000))
    assert "sensitivities" in mixed.to_json()
    assert len(mixed.to_json()) < 300  # a thousand times, said once
