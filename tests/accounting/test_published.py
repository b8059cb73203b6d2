"""Never above the literature, and never below the truth (docs/theorems/published.md).

Random plans over all bases, laws of runs and deltas are priced beside every published bound on the same procedure. The
published profiles themselves, and what composition and subsets make of them, stay above tiny mechanisms that are
enumerated from the definition.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from dptune.accounting import (
    DpSgd,
    Gaussian,
    Gdp,
    Laplace,
    NegativeBinomial,
    Poisson,
    PureDp,
    RenyiLine,
    compose,
    disjoint,
    select,
    select_adaptive,
    subsample,
)
from dptune.accounting import literature as lit
from dptune.accounting._disjoint import disjoint_pair
from dptune.accounting._pld import compose_pairs
from dptune.accounting._procedures import procedure_curve
from dptune.accounting._published import LeastProfile, PureProfile, RenyiProfile, estimated_curve
from dptune.accounting._subsampled import subsampled
from dptune.accounting.cost import fast_profile, profile
from dptune.accounting.profiles import ProfilePair, TableProfile
from dptune.accounting.renyi import ORDERS, base_curve, epsilon_of, integer_orders, selected_curve
from dptune.accounting.selected_profile import tabulate
from tests.accounting._exact import Array, Law, poisson, tnb
from tests.accounting._grid import Plan, above, random_law, random_lines, random_plans

MOST = 1e-6


def test_known_cases_are_no_longer_dearer_than_the_literature() -> None:
    assert select(PureDp(1), NegativeBinomial(5, 1000)).epsilon(1e-10) <= 7.0
    assert select(Gaussian(1000), Poisson(1000)).epsilon(1e-10) <= 0.0543
    assert DpSgd(0.999999, 1000, 10**6).epsilon(1e-10) == pytest.approx(Gdp(1.0).epsilon(1e-10), rel=1e-3)


@pytest.mark.parametrize(("kind", "count"), [("whole", 40), ("adaptive", 10), ("subset", 10)])
def test_random_plans_cost_at_most_what_was_published(kind: str, count: int) -> None:
    dear = [(plan, *found) for plan in random_plans(11, count, kind) if (found := above(plan))[0] > MOST]
    assert not dear


@pytest.mark.parametrize(
    "plan",
    [
        Plan(DpSgd(0.0814453, 26.4965, 376), NegativeBinomial(11.84, 1.496e5), 5.5e-15, subset=0.119, variant=2),
        Plan(Gaussian(1.1975), Poisson(449638.0), 6.5e-13, subset=0.595, variant=1),
    ],
    ids=["train on all", "train on the rest"],
)
def test_tuning_on_a_subset_is_finite_where_the_literature_is(plan: Plan) -> None:
    """Losses that tables cut off counted as infinite, at deltas below them; the published curves cut nothing off."""
    assert above(plan)[0] <= MOST
    assert compose(plan.cost(), Gaussian(100.0)).epsilon(1e-10) < math.inf


def test_a_line_costs_at_most_its_conversions() -> None:
    """At its own orders and at dp-accounting's: chords of a table cost up to three parts in ten thousand."""
    for line, delta in random_lines(5, 150):
        ours = line.epsilon(delta)
        for orders in (line.orders, ORDERS):
            assert ours <= epsilon_of(orders, base_curve(line, orders), delta) * (1.0 + MOST)


def test_selection_over_lines_costs_at_most_what_was_published() -> None:
    """Large laws look at tails of the base that its table does not have."""
    rng = np.random.default_rng(3)
    plans = [Plan(line, random_law(rng), delta) for line, delta in random_lines(3, 30)]
    plans.append(Plan(RenyiLine(2.1e-5, (2.5, 100.0)), NegativeBinomial(-0.784, 44119.0), 2.8e-8))
    plans.append(Plan(RenyiLine(6.2, (7.3,)), NegativeBinomial(0.0217, 17450.0), 6.2e-7))
    dear = [(plan, *found) for plan in plans if (found := above(plan))[0] > MOST]
    assert not dear


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize(("kind", "count"), [("whole", 300), ("adaptive", 60), ("subset", 20)])
def test_thousands_of_random_plans_cost_at_most_what_was_published(kind: str, count: int, part: int) -> None:
    dear = [(plan, *found) for plan in random_plans(100 + part, count, kind) if (found := above(plan))[0] > MOST]
    assert not dear


# The minimum is on the profile: other operations see it.


def test_the_minimum_reaches_tables_composition_and_the_filter() -> None:
    cost = select(Gaussian(1000), Poisson(1000))
    bound = lit.papernot_steinke_exact(Gaussian(1000), Poisson(1000), 1e-10)
    assert cost.delta(bound) <= 1e-10 * (1.0 + 1e-6)
    assert fast_profile(cost).remove.epsilon(1e-10) <= bound * 1.02  # a table has knots
    assert compose(cost, cost).epsilon(1e-10) <= 2.0 * bound
    adaptive = select_adaptive(PureDp(0.1), NegativeBinomial(3.0, 1e4), (0.9, 1.2))
    assert adaptive.delta(lit.hypo_theorem2(PureDp(0.1), adaptive.runs, 0.1, (0.9, 1.2)) * (1.0 + 1e-12)) == 0.0


def test_the_estimate_of_a_curve_is_close() -> None:
    """It decides whether a curve is computed, so it must not exceed the curve by more than the margin of one half."""
    orders = tuple(a for a in ORDERS if a == int(a))  # at others dp-accounting's curves of sampled steps are loose
    bases = [Gaussian(0.7), Gaussian(300), PureDp(2)]
    for base in [*bases, DpSgd(0.01, 1.0, 1000), DpSgd(0.9, 100.0, 20), DpSgd(0.001, 0.6, 100), DpSgd(0.2, 0.5, 3)]:
        pair = fast_profile(base)
        estimate = np.max([estimated_curve(way, np.array(orders)) for way in (pair, pair.flip())], axis=0)
        curve = base_curve(base, orders)
        assert (estimate <= 1.04 * curve).all()
        low = np.array(orders) <= 2
        assert estimate[low] == pytest.approx(curve[low], rel=0.04)  # profiles end, and large orders look beyond


# Brute force: best of K runs of randomised response, its outcomes ranked either way.


def _winner(law: Law, masses: Array, order: tuple[int, ...]) -> Array:
    """Probabilities of the released outcome (a default last) when outcomes rank in this order, lowest first."""
    out, below = np.zeros(len(masses)), 0.0
    for i in order:
        out[i] = float(law.f(np.array([below + masses[i]]))[0] - law.f(np.array([below]))[0])
        below += masses[i]
    return np.append(out, law.never)


def _profile(p: Array, q: Array, e: Array) -> Array:
    return np.asarray(np.maximum(p[None, :] - np.exp(e)[:, None] * q[None, :], 0.0).sum(axis=1))


def _released(epsilon: float, law: Law) -> list[tuple[Array, Array]]:
    """Both worlds' laws of the winner for every order of the outcomes of randomised response, split in two each."""
    p = np.repeat([1.0, math.exp(-epsilon)], 2) / (1.0 + math.exp(-epsilon)) / 2.0
    q = p[::-1].copy()
    return [(_winner(law, p, order), _winner(law, q, order)) for order in itertools.permutations(range(4))]


LAWS = [tnb(1.0, 20.0), tnb(0.0, 5.0), tnb(-0.5, 50.0), tnb(4.0, 8.0), poisson(6.0), poisson(0.3)]
LOSSES = np.linspace(0.0, 6.0, 61)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.5])
def test_published_profiles_are_above_every_score(epsilon: float, law: Law) -> None:
    base = PureDp(epsilon)
    curve = selected_curve(base, law.runs, (1.0, 1.0))
    assert curve is not None
    bounds = [
        RenyiProfile(*curve),
        profile(select(base, law.runs)).remove,
        tabulate(profile(select(base, law.runs)).add),
    ]
    if isinstance(law.runs, NegativeBinomial):
        bounds.append(PureProfile((2.0 + law.runs.shape) * epsilon))
    for p, q in _released(epsilon, law):
        truth = _profile(p, q, LOSSES)
        for bound in bounds:
            assert (bound.delta(LOSSES) >= truth * (1.0 - 1e-12) - 1e-15).all()


@pytest.mark.parametrize("law", LAWS[:2] + LAWS[4:], ids=lambda law: law.name)
@pytest.mark.parametrize("epsilon", [0.05, 0.8])
def test_operations_on_published_profiles_are_above_the_truth(epsilon: float, law: Law) -> None:
    """Composition, subsampling and disjoint parts of a profile that is nothing but a published bound."""
    curve = selected_curve(PureDp(epsilon), law.runs, (1.0, 1.0))
    assert curve is not None
    top = 3.0 * (4.0 + epsilon)
    worst = TableProfile(np.array([0.0, top]), np.array([1.0, 0.0]))  # ours, were it useless
    bound = LeastProfile(worst, lambda: RenyiProfile(*curve))
    table = tabulate(bound)
    pair, one = ProfilePair(table, table), profile(PureDp(epsilon))
    both, part, split = compose_pairs([(pair, 1), (one, 1)]), subsampled(pair, 0.3), disjoint_pair(pair, one, 0.3)
    response = np.array([1.0, math.exp(-epsilon)]) / (1.0 + math.exp(-epsilon))
    for p, q in _released(epsilon, law):
        for way in ("remove", "add"):
            (p1, q1), (p2, q2) = (p, q), (response, response[::-1])
            product = np.outer(p1, p2).ravel(), np.outer(q1, q2).ravel()
            mixed = 0.3 * p1 + 0.7 * q1, q1
            apart = (0.3 * np.outer(p1, q2) + 0.7 * np.outer(q1, p2)).ravel(), np.outer(q1, q2).ravel()
            for made, (with_it, without) in ((both, product), (part, mixed), (split, apart)):
                worlds = (with_it, without) if way == "remove" else (without, with_it)
                claimed = (made.remove if way == "remove" else made.add).delta(LOSSES)
                assert (claimed >= _profile(*worlds, LOSSES) * (1.0 - 1e-12) - 1e-15).all()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("epsilon", [0.05, 0.8, 2.5])
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_published_curves_of_subsets_are_above_the_truth(rate: float, epsilon: float, law: Law) -> None:
    """Renyi divergences of every score, both ways: tuning on a part, training on the rest or on everything."""
    base = PureDp(epsilon)
    tuning, orders = select(base, law.runs), np.array(integer_orders(ORDERS))
    costs = subsample(tuning, rate), compose(subsample(tuning, rate), base), disjoint(tuning, base, rate)
    curves = [procedure_curve(cost, lambda one: base_curve(one, tuple(orders))) for cost in costs]
    response = np.array([1.0, math.exp(-epsilon)]) / (1.0 + math.exp(-epsilon))
    for p, q in _released(epsilon, law):
        part = rate * p + (1.0 - rate) * q
        without = np.outer(q, response[::-1]).ravel()
        apart = (rate * np.outer(p, response[::-1]) + (1.0 - rate) * np.outer(q, response)).ravel()
        worlds = (part, q), (np.outer(part, response).ravel(), without), (apart, without)
        for curve, (with_it, other) in zip(curves, worlds, strict=True):
            for one, two in ((with_it, other), (other, with_it)):
                assert (_divergences(one, two, orders) <= curve * (1.0 + 1e-9) + 1e-12).all()


def _divergences(p: Array, q: Array, orders: Array) -> Array:
    """Renyi divergences of p from q, from the definition."""
    seen = p > 0.0
    logs = orders[:, None] * np.log(p[seen]) + (1.0 - orders[:, None]) * np.log(q[seen])
    return np.asarray(logsumexp(logs, axis=1) / (orders - 1.0))


def test_plans_of_the_grid_cover_every_law_and_base() -> None:
    plans = list(random_plans(0, 400))
    assert len({type(plan.base) for plan in plans}) == 7
    assert len({type(plan.runs) for plan in plans}) == 5
    assert isinstance(plans[0], Plan)


def test_parts_of_tiny_losses_are_not_taken_for_infinite_ones() -> None:
    """Losses closer than what slopes can tell apart were all dropped but one; the rest counted as infinite."""
    base, runs = Laplace(5726.0), Poisson(2.6e5)
    total = disjoint(select(base, runs), base, 0.66)
    assert total.epsilon(2e-8) <= lit.koskela_kulkarni_theorem6(base, runs, 2e-8, 0.66, exact=True)
