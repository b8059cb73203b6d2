"""Adaptive selection against the best policy there is, found by backward induction over all histories.

Guards ``select_adaptive`` (docs/theorems/adaptive.md). A policy maps what was seen so far to a sampling law within
[c, C] times the uniform prior, the same map in both worlds. For a fixed score and event the chance of each
history factorises into decisions and outcomes, so the worst policy is a decision tree with extreme decisions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptune.accounting import Binomial, Gdp, Geometric, Poisson, Runs, select, select_adaptive
from tests.accounting._exact import Array, Atoms, atoms, best_path, binomial, divide, selection_profile, weak_orders

LOSSES = np.array([-2.0, -0.5, 0.0, 0.3, 0.8, 1.5, 2.5, 4.0])


def _extremes(candidates: int, c: float, big_c: float) -> Array:
    """Vertices of the laws on the candidates whose density against the uniform prior lies in [c, C]."""
    low, high = c / candidates, big_c / candidates
    found = set()
    for free in range(candidates):
        for ends in itertools.product((low, high), repeat=candidates - 1):
            rest = 1.0 - sum(ends)
            if low - 1e-12 <= rest <= high + 1e-12:
                law = list(ends)
                law.insert(free, rest)
                found.add(tuple(round(x, 14) for x in law))
    return np.array(sorted(found))


def _counts(trials: int, chance: float) -> Array:
    return np.array([math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)])


class Tree:
    """All histories of up to ``trials`` runs of ``candidates`` mechanisms with the same number of outcomes."""

    def __init__(self, p: Array, q: Array, trials: int, chance: float) -> None:
        self.p, self.q = p, q  # [candidate, outcome], conditional on the candidate
        self.counts = _counts(trials, chance)
        self.trials = trials

    def worst(self, levels: tuple[int, ...], event: Array, e: Array, vertices: Array) -> Array:
        """max over policies of P(S) - exp(e) Q(S), the default added; ``levels`` ranks the labelled outcomes."""
        n = self.p.size
        level = np.array(levels)
        a = np.exp(e)
        value = np.zeros((len(e),) + (n,) * self.trials)
        for k in range(self.trials, 0, -1):
            grid = np.indices((n,) * k).reshape(k, -1)  # every history of k runs, as outcome indices
            ranks = level[grid]
            best = ranks == ranks.max(axis=0)
            share = (best * event[grid]).sum(axis=0) / best.sum(axis=0)
            chance_p = self.p.ravel()[grid].prod(axis=0)
            chance_q = self.q.ravel()[grid].prod(axis=0)
            now = self.counts[k] * share * (chance_p - a[:, None] * chance_q)
            value = value + now.reshape((len(e),) + (n,) * k)
            # The decision that led to the last run: sum over its outcomes, best law over candidates.
            by_candidate = value.reshape((len(e), -1, *self.p.shape)).sum(axis=-1)
            value = (by_candidate @ vertices.T).max(axis=-1).reshape((len(e),) + (n,) * (k - 1))
        return np.asarray(value + self.counts[0] * np.maximum(1.0 - a, 0.0))


def _base(p: Array, q: Array) -> Atoms:
    """One run under the uniform prior: candidate and outcome together."""
    return atoms(p.ravel() / len(p), q.ravel() / len(q))


def _strict(n: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(n)))


def _pair(rng: np.random.Generator, candidates: int, outcomes: int, spread: float) -> tuple[Array, Array]:
    q = rng.dirichlet(np.ones(outcomes), candidates) + 0.02
    p = q * np.exp(spread * rng.standard_normal(q.shape))
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


def _search(
    pair: tuple[Array, Array], law: tuple[int, float], density: tuple[float, float], orders: list[tuple[int, ...]]
) -> None:
    (p, q), (trials, chance) = pair, law
    cost = select_adaptive(_base(p, q), Binomial(trials, chance), density)
    vertices = _extremes(len(p), *density)
    events = np.array(list(itertools.product([0.0, 1.0], repeat=p.size)))[1:-1]
    for direction, (one, two) in {"remove": (p, q), "add": (q, p)}.items():
        tree = Tree(one, two, trials, chance)
        worst = np.maximum(tree.counts[0] * (1.0 - np.exp(LOSSES)), 1.0 - np.exp(LOSSES))  # empty and full event
        for levels in orders:
            for event in events:
                worst = np.maximum(worst, tree.worst(levels, event, LOSSES, vertices))
        gap = cost.profile(LOSSES, direction) - worst
        k = int(gap.argmin())
        assert gap[k] >= -1e-13, f"{direction}, e = {LOSSES[k]}: a policy attains {worst[k]}, {gap[k]} more"


def test_extreme_decisions() -> None:
    assert _extremes(2, 0.5, 2.0).tolist() == [[0.25, 0.75], [0.75, 0.25]]
    assert _extremes(2, 1.0, 1.0).tolist() == [[0.5, 0.5]]
    three = _extremes(3, 0.5, 1.2)
    assert three.sum(axis=1) == pytest.approx(np.ones(len(three)))
    assert len(three) == 3  # one candidate at 0.2, two at 0.4


def test_without_freedom_the_tree_is_plain_selection() -> None:
    """The backward induction against the other brute force, at density (1, 1)."""
    p, q = _pair(np.random.default_rng(0), 2, 2, 0.8)
    tree = Tree(p, q, 3, 0.6)
    orders = [tuple(int(x) for x in (row.sum(axis=1) - 1)) for row in weak_orders(4)[0]]
    events = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    found = np.max(
        [tree.worst(o, s, LOSSES, _extremes(2, 1.0, 1.0)) for o in orders for s in events],
        axis=0,
    )
    exact = selection_profile(p.ravel() / 2, q.ravel() / 2, binomial(3, 0.6), LOSSES)
    assert found == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize("density", [(0.75, 2.0), (0.5, 1.2), (0.2, 5.0), (0.9, 1.05)])
@pytest.mark.parametrize("law", [(1, 1.0), (2, 0.8), (3, 1.0)])
def test_no_policy_on_two_candidates_beats_the_bound(density: tuple[float, float], law: tuple[int, float]) -> None:
    rng = np.random.default_rng(21)
    for spread in (0.4, 1.5):
        _search(_pair(rng, 2, 2, spread), law, density, _strict(4))


@pytest.mark.parametrize("density", [(0.5, 2.0), (0.75, 1.25)])
def test_ties_do_not_help_a_policy(density: tuple[float, float]) -> None:
    orders = [tuple(int(x) for x in (row.sum(axis=1) - 1)) for row in weak_orders(4)[0]]
    _search(_pair(np.random.default_rng(22), 2, 2, 0.8), (3, 0.7), density, orders)


@pytest.mark.parametrize("law", [(2, 1.0), (3, 0.8)])
def test_no_policy_on_three_candidates_beats_the_bound(law: tuple[int, float]) -> None:
    rng = np.random.default_rng(23)
    orders = _strict(6)
    chosen = [orders[i] for i in rng.choice(len(orders), 6, replace=False)]
    _search(_pair(rng, 3, 2, 0.8), law, (0.5, 1.8), chosen)


@pytest.mark.slow
@pytest.mark.parametrize("law", [(2, 1.0), (3, 0.8), (4, 0.5), (4, 1.0)])
@pytest.mark.parametrize("density", [(0.75, 2.0), (0.3, 1.3), (0.1, 8.0)])
def test_no_policy_beats_the_bound_long(law: tuple[int, float], density: tuple[float, float]) -> None:
    rng = np.random.default_rng(24)
    for spread in (0.2, 0.7, 2.0):
        _search(_pair(rng, 2, 2, spread), law, density, _strict(4))
    for shape in ((2, 3), (3, 2)):
        orders = _strict(6)
        chosen = [orders[i] for i in rng.choice(len(orders), 12, replace=False)]
        _search(_pair(rng, *shape, 0.8), (min(law[0], 3), law[1]), density, chosen)


@pytest.mark.parametrize("density", [(0.6, 1.0), (1.0, 1.7), (1.0, 1.0)])
@pytest.mark.parametrize("runs", [Geometric(5), Poisson(4)], ids=str)
def test_no_freedom_is_plain_selection(runs: Runs, density: tuple[float, float]) -> None:
    """A law that is nowhere below the prior, or nowhere above it, is the prior."""
    plain, boxed = select(Gdp(0.5), runs), select_adaptive(Gdp(0.5), runs, density)
    e = np.linspace(-3.0, 6.0, 40)
    assert boxed.profile(e) == pytest.approx(plain.profile(e), abs=0.0)
    assert boxed == plain


@pytest.mark.parametrize("runs", [Geometric(5), Geometric(40), Poisson(4)], ids=str)
def test_more_freedom_never_costs_less(runs: Runs) -> None:
    boxes = [(1.0, 1.0), (0.95, 1.1), (0.75, 1.5), (0.75, 2.0), (0.3, 2.0), (0.3, 6.0)]
    found = [select_adaptive(Gdp(0.4), runs, box).epsilon(1e-5) for box in boxes]
    assert found == sorted(found)


def test_adaptive_bound_covers_plain_parts() -> None:
    """Ignoring the freedom is one policy: scores on parts of outcomes are covered too."""
    p, q = _pair(np.random.default_rng(25), 2, 2, 0.8)
    law = binomial(6, 0.5)
    parts = divide(p.ravel() / 2, q.ravel() / 2, np.full(4, 30))
    bound = select_adaptive(_base(p, q), law.runs, (0.8, 1.3)).profile(LOSSES)
    assert (bound >= best_path(*parts, law, LOSSES)).all()


def test_reference_values() -> None:
    """Base 1-DP at delta 1e-5, geometric mean 10 and 50, c = .75, C = 2: the values the documentation quotes."""
    assert select_adaptive(Gdp(0.2680511), Geometric(10), (0.75, 2.0)).epsilon(1e-5) == pytest.approx(3.856, rel=5e-3)
    assert select_adaptive(Gdp(0.2680511), Geometric(50), (0.75, 2.0)).epsilon(1e-5) == pytest.approx(4.578, rel=5e-3)
