"""Selection against brute force: every order of a few outcomes, ties included, and every event.

Guards the upper bounds of ``select`` (docs/theorems/select.md and interleaving.md): whatever the score, the winner
never reveals more. Nothing here is statistical; searches are seeded and bounded.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptune.accounting import select
from dptune.accounting.cost import fast_profile
from tests.accounting._exact import (
    Array,
    Atoms,
    Law,
    awkward_atoms,
    best_path,
    binomial,
    default,
    divide,
    hull_profile,
    once,
    poisson,
    random_atoms,
    ranked_profile,
    selected,
    selection_profile,
    tnb,
    weak_orders,
    weights,
)

LAWS = [
    once(),
    tnb(1.0, 2.0),
    tnb(1.0, 10.0),
    tnb(0.0, 5.0),
    tnb(-0.5, 4.0),
    tnb(3.0, 10.0),
    poisson(0.5),
    poisson(3.0),
    poisson(15.0),
    poisson(45.0),
    binomial(1, 0.7),
    binomial(3, 1.0),
    binomial(12, 0.4),
]
FEW_LAWS = [LAWS[i] for i in (2, 4, 9, 11)]
LOSSES = np.array([-12, -3, -1, -0.3, -0.01, 0, 0.01, 0.1, 0.3, 0.7, 1, 1.5, 2, 3, 4, 6, 9, 14.0])
DIRECTIONS = ("remove", "add")
ROUNDOFF = 1e-13


def assert_covers(cost: Atoms, law: Law, parts: int = 25) -> None:
    """The upper profile, and its table for use in other costs, are above every order of the outcomes and above
    interleavings of their parts."""
    priced = select(cost, law.runs)
    for direction in DIRECTIONS:
        p, q = weights(cost, direction)
        worst = np.maximum(
            selection_profile(p, q, law, LOSSES),
            best_path(*divide(p, q, np.full(len(p), parts)), law, LOSSES),
        )
        table = fast_profile(priced) if direction == "remove" else fast_profile(priced).flip()
        gap = np.minimum(priced.profile(LOSSES, direction), table.delta(LOSSES)) - worst
        k = int(gap.argmin())
        assert gap[k] >= -ROUNDOFF, (
            f"{law.name}, {direction}, e = {LOSSES[k]}: a score attains {worst[k]}, {gap[k]} more"
        )


# The brute force itself, against something more naive still.


def _by_runs(p: Array, levels: tuple[int, ...], trials: int, chance: float) -> Array:
    """Law of the winner by listing every sequence of outcomes of every number of runs."""
    won = np.zeros(len(p))
    for k in range(1, trials + 1):
        weight = math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for sequence in itertools.product(range(len(p)), repeat=k):
            top = max(levels[i] for i in sequence)
            best = [i for i in sequence if levels[i] == top]
            for i in best:
                won[i] += weight * math.prod(p[j] for j in sequence) / len(best)
    return won


@pytest.mark.parametrize("levels", [(0, 1, 2), (2, 0, 1), (0, 0, 1), (1, 0, 1), (0, 0, 0)])
def test_winner_law_is_that_of_listed_runs(levels: tuple[int, ...]) -> None:
    p = np.array([0.5, 0.2, 0.3])
    level = np.array(levels)
    orders = (level[None, None, :] <= level[None, :, None], level[None, None, :] == level[None, :, None])
    assert selected(p, binomial(4, 0.6), orders)[0] == pytest.approx(_by_runs(p, levels, 4, 0.6), abs=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_all_weak_orders_are_enumerated(n: int) -> None:
    below, _ = weak_orders(n)
    assert len(below) == [1, 3, 13, 75, 541][n - 1]  # the ordered Bell numbers
    assert len(np.unique(below.reshape(len(below), -1), axis=0)) == len(below)


@pytest.mark.parametrize("law", [poisson(1.5), binomial(3, 0.5), tnb(1.0, 4.0)], ids=lambda law: law.name)
def test_best_event_is_the_best_of_all_events(law: Law) -> None:
    rng = np.random.default_rng(5)
    p, q = weights(random_atoms(rng, 4, 1.0, 0.3), "remove")
    orders = weak_orders(4)
    won_p, won_q = selected(p, law, orders), selected(q, law, orders)
    # One more outcome: the public default, equally likely in both worlds.
    all_p = np.column_stack([won_p, np.full(len(won_p), law.never)])
    all_q = np.column_stack([won_q, np.full(len(won_q), law.never)])
    assert all_p.sum(axis=1) == pytest.approx(np.ones(len(won_p)), abs=1e-13)
    events = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
    for e in (-2.0, -0.2, 0.0, 0.5, 1.5):
        listed = ((all_p - math.exp(e) * all_q) @ events.T).max()
        assert selection_profile(p, q, law, np.array([e]))[0] == pytest.approx(listed, abs=1e-13)


# The library's upper bound.


@pytest.mark.parametrize("law", FEW_LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("name", awkward_atoms())
def test_awkward_pairs_are_covered(name: str, law: Law) -> None:
    assert_covers(awkward_atoms()[name], law)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("n", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_random_pairs_are_covered(n: int, law: Law) -> None:
    rng = np.random.default_rng([n, len(law.name)])
    assert_covers(random_atoms(rng, n, float(rng.choice([0.3, 1.0, 2.5])), 0.3), law)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("name", awkward_atoms())
def test_awkward_pairs_are_covered_by_every_law(name: str, law: Law) -> None:
    assert_covers(awkward_atoms()[name], law, 60)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("seed", range(12))
def test_many_random_pairs_are_covered(seed: int, law: Law) -> None:
    rng = np.random.default_rng([seed, 7])
    for spread, hidden in ((0.1, 0.0), (0.5, 0.5), (1.5, 0.0), (4.0, 0.3)):
        assert_covers(random_atoms(rng, int(rng.integers(2, 7)), spread, hidden), law, 60)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_seven_outcomes_are_covered(law: Law) -> None:
    rng = np.random.default_rng(77)
    assert_covers(random_atoms(rng, 7, 0.8, 0.2), law)


@pytest.mark.parametrize("law", [tnb(1.0, 10.0), tnb(0.0, 5.0), poisson(3.0), poisson(15.0)], ids=lambda law: law.name)
@pytest.mark.parametrize("name", ["approximate", "ladder"])
def test_epsilon_and_delta_are_above_every_order(name: str, law: Law) -> None:
    """The way through ``epsilon(delta)`` solves, rounds and interpolates by itself."""
    cost = awkward_atoms()[name]
    priced = select(cost, law.runs)

    def worst(e: float) -> float:
        both = [weights(cost, direction) for direction in DIRECTIONS]
        at = np.array([e])
        whole = max(float(selection_profile(p, q, law, at)[0]) for p, q in both)
        parts = max(float(best_path(*divide(p, q, np.full(len(p), 40)), law, at)[0]) for p, q in both)
        return max(whole, parts)

    for delta in (0.5, 0.05, 3e-3, 1e-4, 1e-8):
        epsilon = priced.epsilon(delta)
        if math.isfinite(epsilon):
            assert worst(epsilon) <= delta + ROUNDOFF
        else:
            assert worst(40.0) > 0.99 * delta
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert priced.delta(epsilon) >= worst(epsilon) - ROUNDOFF


@pytest.mark.parametrize("law", [tnb(1.0, 5.0), poisson(3.0), binomial(3, 1.0)], ids=lambda law: law.name)
@pytest.mark.parametrize("name", ["approximate", "one-sided", "ladder"])
def test_roc_is_above_every_order(name: str, law: Law) -> None:
    cost = awkward_atoms()[name]
    x = np.linspace(0.0, 1.0, 41)
    for direction in DIRECTIONS:
        p, q = weights(cost, direction)
        won_p, won_q = (selected(m, law, weak_orders(len(p))) for m in (p, q))
        won_p = np.column_stack([won_p, np.full(len(won_p), law.never)])
        won_q = np.column_stack([won_q, np.full(len(won_q), law.never)])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(won_q > 0, won_p / won_q, np.where(won_p > 0, np.inf, 0.0))
        order = np.argsort(-ratio, axis=1)
        power = np.cumsum(np.take_along_axis(won_p, order, 1), axis=1)
        level = np.cumsum(np.take_along_axis(won_q, order, 1), axis=1)
        power, level = (np.column_stack([np.zeros(len(v)), v]) for v in (power, level))
        # Of several points at one level np.interp must see the highest: nudge them apart.
        level = level + 1e-13 * np.arange(level.shape[1])
        worst = np.max([np.interp(x, b, a) for a, b in zip(power, level, strict=True)], axis=0)
        assert (select(cost, law.runs).roc(x, direction) >= worst - 1e-9).all()


@pytest.mark.parametrize("outer", [tnb(1.0, 3.0), poisson(4.0)], ids=lambda law: law.name)
@pytest.mark.parametrize("inner", [tnb(1.0, 3.0), binomial(3, 0.7)], ids=lambda law: law.name)
@pytest.mark.parametrize("name", ["one-sided", "revealing"])
def test_selection_of_selections_is_covered(name: str, inner: Law, outer: Law) -> None:
    """The base of a selection may itself be a selection: its two directions are bounds of their own."""
    cost = awkward_atoms()[name]
    priced = select(select(cost, inner.runs), outer.runs)
    e = np.array([-2.0, -0.3, 0.0, 0.2, 0.6, 1.0, 1.5, 2.5, 4.0])
    for direction in DIRECTIONS:
        p, q = weights(cost, direction)
        orders = weak_orders(4)
        worst = np.zeros(len(e))
        for won_p, won_q in zip(selected(p, inner, orders), selected(q, inner, orders), strict=True):
            again = (np.append(won_p, inner.never), np.append(won_q, inner.never))
            worst = np.maximum(worst, best_path(*divide(*again, np.full(5, 6)), outer, e))
        assert (priced.profile(e, direction) >= worst - ROUNDOFF).all()


@pytest.mark.parametrize(
    "law", [tnb(1.0, 2.0), tnb(1.0, 10.0), tnb(0.0, 50.0), tnb(-0.5, 10.0), tnb(3.0, 10.0)], ids=lambda law: law.name
)
@pytest.mark.parametrize("name", ["approximate", "revealing", "ladder", "pure with middle"])
def test_bound_is_not_far_above_the_formula(name: str, law: Law) -> None:
    """The tight bound of docs/theorems/select.md, evaluated directly; discretisation may shift it a little."""
    cost = awkward_atoms()[name]
    e = np.array([0.0, 0.2, 0.6, 1.0, 1.5, 2.0, 3.0])
    for direction in DIRECTIONS:
        p, q = weights(cost, direction)
        formula = hull_profile(p, q, law, e - 0.03, cells=20_000)
        assert (select(cost, law.runs).profile(e, direction) <= np.minimum(1.02 * formula, 1.0) + 1e-9).all()


# Scores on parts of outcomes: the theorem that only interleavings matter, attacked.


def _attack(pair: tuple[Array, Array], law: Law, e: Array, rounds: int, seed: int) -> Array:
    """Simulated annealing over all orders of the parts; one chain for every entry of e. Returns profiles."""
    rng = np.random.default_rng(seed)
    p, q = pair
    chains, n = len(e), len(p)
    a = np.exp(e)
    ranks = np.argsort(rng.random((chains, n)), axis=1)
    value = ranked_profile(p, q, law, a, ranks)
    best = value.copy()
    rows = np.arange(chains)
    for step in range(rounds):
        i, j = rng.integers(0, n, (2, chains))
        trial = ranks.copy()
        if step % 3:  # exchange two parts
            trial[rows, i], trial[rows, j] = ranks[rows, j], ranks[rows, i]
        else:  # take one part out and put it back elsewhere
            key = np.argsort(ranks, axis=1).astype(float)
            key[rows, i] = j + rng.choice([-0.5, 0.5], chains)
            trial = np.argsort(key, axis=1)
        new = ranked_profile(p, q, law, a, trial)
        heat = 0.03 * best * (1.0 - step / rounds) ** 2 + 1e-12
        take = (new > value) | (rng.random(chains) < np.exp(np.minimum((new - value) / heat, 0.0)))
        ranks[take], value[take] = trial[take], new[take]
        best = np.maximum(best, value)
    return best + default(law, e)


@pytest.mark.parametrize(
    "law", [poisson(3.0), poisson(15.0), poisson(45.0), binomial(3, 1.0), binomial(12, 0.4)], ids=lambda law: law.name
)
def test_no_order_of_parts_beats_the_bound(law: Law) -> None:
    rng = np.random.default_rng([11, len(law.name)])
    for _ in range(2):
        n = int(rng.integers(3, 6))
        cost = random_atoms(rng, n, float(rng.choice([0.2, 0.6, 1.5])), 0.15)
        p, q = divide(*weights(cost, "remove"), rng.integers(1, 5, n))
        e = np.repeat(rng.uniform(-1.0, 4.0, 8), 8)
        found = _attack((p, q), law, e, 600, 1)
        assert (select(cost, law.runs).profile(e) >= found - ROUNDOFF).all()


@pytest.mark.parametrize(
    "law", [poisson(2.0), poisson(20.0), binomial(4, 1.0), tnb(1.0, 5.0)], ids=lambda law: law.name
)
def test_every_order_of_eight_parts_is_below_the_bound(law: Law) -> None:
    """Three outcomes in 3 + 3 + 2 parts: 8! / (3! 3! 2!) = 560 distinct orders, all of them, every event."""
    labels = np.array(sorted(set(itertools.permutations([0, 0, 0, 1, 1, 1, 2, 2]))))
    assert len(labels) == 560
    rng = np.random.default_rng(3)
    parts = np.array([3, 3, 2])
    for spread in (0.2, 1.0):
        cost = random_atoms(rng, 3, spread, 0.0)
        for direction in DIRECTIONS:
            p, q = weights(cost, direction)
            e = np.array([-0.5, 0.0, 0.3, 0.8, 1.6, 3.0])
            worst = np.array([ranked_profile(p / parts, q / parts, law, np.exp(x[None]), labels).max() for x in e])
            fine = best_path(*divide(p, q, 120 * parts), law, e)
            bound = select(cost, law.runs).profile(e, direction)
            worst = worst + default(law, e)
            assert (bound >= worst - ROUNDOFF).all()
            # The theorem itself: interleavings of fine parts do at least as well, up to their size.
            assert (fine >= worst - 1e-3).all()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_no_order_of_parts_beats_the_bound_long(law: Law) -> None:
    rng = np.random.default_rng([12, len(law.name)])
    for _ in range(25):
        n = int(rng.integers(2, 7))
        cost = random_atoms(rng, n, float(rng.choice([0.1, 0.4, 1.0, 2.5])), float(rng.choice([0.0, 0.3])))
        p, q = divide(*weights(cost, "remove"), rng.integers(1, 6, n))
        e = np.repeat(rng.uniform(-2.0, 6.0, 16), 8)
        found = _attack((p, q), law, e, 3000, 2)
        assert (select(cost, law.runs).profile(e) >= found - ROUNDOFF).all()
