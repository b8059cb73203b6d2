"""The cost of a Renyi line: above every mechanism under it, equal to the published conversion where that is best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dptune.accounting import DpSgd, Gdp, Geometric, Poisson, RenyiLine, compose, cost_from_json, disjoint, select
from dptune.accounting.lines import ORDERS, line_orders
from dptune.accounting.literature import papernot_steinke
from dptune.errors import InvalidInput

SHORT = (2.0, 3.0, 4.0, 8.0, 16.0)


def _worst(slope: float, orders: tuple[float, ...], e: float) -> float:
    """The largest d(e) of any law of the loss on a grid that obeys the line, both ways: a linear programme."""
    top = min((16.0 + slope * a * (a - 1.0)) / a for a in orders)  # larger losses would need weights below 1e-6
    losses = np.linspace(-top, top, 1201)
    gain = np.maximum(np.exp(losses) - math.exp(e), 0.0)
    rows = [np.exp(a * losses - (a - 1.0) * slope * a) for a in orders]
    rows += [np.exp((1.0 - a) * losses - (a - 1.0) * slope * a) for a in orders]
    done = linprog(
        -gain, A_ub=rows, b_ub=np.ones(len(rows)), A_eq=[np.ones_like(losses), np.exp(losses)], b_eq=[1.0, 1.0]
    )
    assert done.status == 0
    return float(-done.fun)


@pytest.mark.parametrize("slope", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("orders", [SHORT, (1.1, 1.5, 4.0), (1.25,)])
def test_no_law_under_the_line_is_worse(slope: float, orders: tuple[float, ...]) -> None:
    line = RenyiLine(slope, orders)
    for e in (0.0, 0.5 * math.sqrt(slope), 2.0 * math.sqrt(slope), 4.0 * math.sqrt(slope) + slope):
        worst, bound = _worst(slope, orders, e), line.delta(e)
        assert worst <= bound * (1.0 + 1e-6) + 1e-9
        if orders == SHORT:
            assert bound <= 2.0 * worst  # with usual orders the bound is no mere formality


@pytest.mark.parametrize("slope", [0.001, 0.03, 0.4, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_small_deltas_agree_with_the_published_conversion(slope: float, delta: float) -> None:
    curve = [slope * a for a in ORDERS]
    published = float(compute_epsilon(list(ORDERS), curve, delta)[0])
    # Profiles are convex, the least of several conversions is not: filling that in may save a little.
    assert 0.998 * published <= RenyiLine(slope, ORDERS).epsilon(delta) <= published * (1.0 + 1e-6)


@pytest.mark.parametrize("slope", [150.0, 195.0, 200.0])
def test_the_gaussian_on_a_steep_line_is_below(slope: float) -> None:
    """Squares of likelihood ratios overflow from a loss of 355 on, and the line claimed that nothing is beyond."""
    gaussian, line = Gdp(math.sqrt(2.0 * slope)), RenyiLine(slope, ORDERS)
    for e in (300.0, 340.0, 356.0, 380.0, 420.0):
        assert line.delta(e) >= gaussian.delta(e)
    assert line.epsilon(1e-15) >= gaussian.epsilon(1e-15)
    assert line.epsilon_lower(1e-15) == pytest.approx(gaussian.epsilon(1e-15), rel=1e-6)


def test_a_divergence_that_overflows_is_not_cut_off() -> None:
    """Only D_4 <= 800 is known: the variance of the ratio may be exp(800), not exp(700)."""
    assert RenyiLine(200.0, (4.0,)).delta(790.0) == pytest.approx(1.0)


@given(st.floats(1e-4, 2.0), st.floats(0.0, 8.0))
@settings(max_examples=40)
def test_the_gaussian_on_the_line_is_below(slope: float, e: float) -> None:
    gaussian = Gdp(math.sqrt(2.0 * slope))
    line = RenyiLine(slope, ORDERS)
    assert gaussian.delta(e) <= line.delta(e) * (1.0 + 1e-9) + 1e-17
    assert line.epsilon_lower(1e-5) == gaussian.epsilon_lower(1e-5)


@pytest.mark.parametrize("runs", [Geometric(10), Poisson(15)])
def test_selection_under_a_line_lies_between_the_gaussian_and_the_papers_route(runs: Geometric | Poisson) -> None:
    """The paper puts c * a into Papernot and Steinke's theorems; the algebra does better with the same line."""
    line = RenyiLine(Gdp(0.2687).distance ** 2 / 2.0, ORDERS)
    paper = papernot_steinke(line, runs, 1e-5, orders=ORDERS)
    assert select(Gdp(0.2687), runs).epsilon(1e-5) < select(line, runs).epsilon(1e-5) < paper


def test_the_papers_route_between_and_beyond_the_orders() -> None:
    """Divergences grow with the order: the curve at 3 is the line at 4, and nothing is known above the last order."""
    line = RenyiLine(0.04, (2.0, 4.0))
    at = [papernot_steinke(line, Geometric(1), 1e-5, orders=[a]) for a in (4.0, 3.0, 5.0)]
    known = [float(compute_epsilon([a], [0.04 * 4.0], 1e-5)[0]) for a in (4.0, 3.0)]
    assert at[:2] == pytest.approx(known)
    assert at[2] == math.inf


def test_it_composes_and_survives_json() -> None:
    line = RenyiLine(0.03, SHORT)
    assert cost_from_json(line.to_json()) == line
    for whole in (compose(line, Gdp(0.3)), disjoint(select(line, Geometric(5)), line, 0.1)):
        assert cost_from_json(whole.to_json()) == whole
        assert whole.epsilon_lower(1e-5) <= whole.epsilon(1e-5) < math.inf


def test_a_mechanism_under_the_line_costs_no_more() -> None:
    """DP-SGD whose curve (dp-accounting's) was checked to be under the line, by its exact account."""
    from dp_accounting import dp_event  # noqa: PLC0415 - for this test alone
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

    base = DpSgd(0.02, 1.3, 400)
    orders = line_orders(2.0, 1e-5)
    accountant = RdpAccountant(list(orders))
    accountant.compose(dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.3)), 400)
    slope = float(np.max(np.array(accountant.rdp) / np.array(orders))) * (1.0 + 1e-9)
    line = RenyiLine(slope, orders)
    for delta in (1e-2, 1e-4, 1e-6):
        assert base.epsilon(delta) < line.epsilon(delta)
    assert select(base, Geometric(10)).epsilon(1e-5) < select(line, Geometric(10)).epsilon(1e-5)


def test_orders_follow_the_budget() -> None:
    assert line_orders(0.1, 1e-5) == ORDERS
    assert line_orders(3.0, 1e-5)[-1] < line_orders(1.0, 1e-5)[-1]


@pytest.mark.parametrize(
    ("slope", "orders", "words"),
    [
        (0.0, SHORT, "slope"),
        (-1.0, SHORT, "slope"),
        (0.1, (), "orders"),
        (0.1, (2.0, 2.0), "increasing"),
        (0.1, (1.0,), "order"),
    ],
)
def test_bad_lines(slope: float, orders: tuple[float, ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        RenyiLine(slope, orders)
