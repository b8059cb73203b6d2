"""The laws of the algebra, for many costs: what must hold whatever the numbers are.

Property tests with a fixed, derandomised profile, so that a run is reproducible. Guards every page of docs/theorems/.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dptune.accounting import (
    Binomial,
    Cost,
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    PureDp,
    Runs,
    compose,
    cost_from_json,
    disjoint,
    mixture,
    parallel,
    select,
    select_adaptive,
    subsample,
)

GENERATE = (Phase.explicit, Phase.generate)  # no shrinking: an example here is readable, and pricing takes time
LAWFUL = settings(max_examples=12, phases=GENERATE)
FEW = settings(LAWFUL, max_examples=3)
E = np.array([-6.0, -2.0, -0.7, -0.1, 0.0, 0.05, 0.3, 0.9, 1.7, 3.0, 5.0, 9.0])
DELTAS = (0.3, 1e-2, 1e-5, 1e-9)

leaves: st.SearchStrategy[Cost] = st.one_of(
    st.builds(Gdp, st.floats(0.02, 4.0)),
    st.builds(Gaussian, st.floats(0.3, 30.0)),
    st.builds(Laplace, st.floats(0.2, 30.0)),
    st.builds(PureDp, st.floats(0.01, 5.0)),
    st.builds(DiscreteGaussian, st.floats(0.5, 20.0), st.integers(1, 3)),
    st.builds(DpSgd, st.floats(0.001, 1.0), st.floats(0.6, 5.0), st.just(1)),
)
stopping: st.SearchStrategy[Runs] = st.one_of(
    st.builds(Geometric, st.floats(1.0, 60.0)),
    st.builds(Logarithmic, st.floats(1.0, 60.0)),
    st.builds(NegativeBinomial, st.floats(-0.9, 3.0), st.floats(1.0, 60.0)),
)
counting: st.SearchStrategy[Runs] = st.one_of(
    st.builds(Poisson, st.floats(0.1, 40.0)),
    st.builds(Binomial, st.integers(1, 40), st.floats(0.05, 1.0)),
)


def same_profile(one: Cost, two: Cost, tolerance: float) -> None:
    for direction in ("remove", "add"):
        assert one.profile(E, direction) == pytest.approx(two.profile(E, direction), rel=tolerance, abs=tolerance)


def assert_lawful(cost: Cost) -> None:
    """What every cost must satisfy: parity, monotonicity, range, and that epsilon and delta invert each other.

    Two directions that are bounds of their own need not agree at 0, nor fall across it; on either side they must.
    """
    ahead, back = cost.profile(E, "remove"), cost.profile(E, "add")
    # Parity: d_PQ(e) = 1 - exp(e) + exp(e) d_QP(-e).
    mirrored = 1.0 - np.exp(E) + np.exp(E) * cost.profile(-E, "add")
    away = E != 0.0
    assert ahead[away] == pytest.approx(mirrored[away], rel=1e-9, abs=1e-15 * np.exp(E).max())
    for d in (ahead, back):
        assert (d >= np.maximum(1.0 - np.exp(E), 0.0) - 1e-12).all()
        assert (d <= 1.0 + 1e-12).all()
        assert (np.diff(d[E >= 0.0]) <= 1e-12).all()
    found = [cost.epsilon(delta) for delta in DELTAS]
    assert found == sorted(found)
    for delta, epsilon in zip(DELTAS, found, strict=True):
        if math.isfinite(epsilon):
            assert cost.delta(epsilon) <= delta * (1.0 + 1e-3)


@LAWFUL
@given(leaves)
def test_mechanisms_are_lawful(cost: Cost) -> None:
    assert_lawful(cost)


@LAWFUL
@given(leaves)
def test_profiles_are_convex_in_exp(cost: Cost) -> None:
    a = np.exp(np.linspace(-4.0, 8.0, 240))
    for direction in ("remove", "add"):
        d = cost.profile(np.log(a), direction)
        chord = d[:-2] + (d[2:] - d[:-2]) * (a[1:-1] - a[:-2]) / (a[2:] - a[:-2])
        assert (d[1:-1] <= chord + 1e-13).all()


@LAWFUL
@given(leaves, st.sampled_from(DELTAS))
def test_epsilon_is_the_smallest_that_the_profile_allows(cost: Cost, delta: float) -> None:
    epsilon = cost.epsilon(delta)
    assert cost.delta(epsilon) <= delta
    if epsilon > 1e-6:
        assert cost.delta(epsilon - 1e-6) >= delta * (1.0 - 1e-12)
    assert cost.epsilon_lower(delta) <= epsilon


@LAWFUL
@given(leaves, stopping)
def test_selection_is_lawful(base: Cost, runs: Runs) -> None:
    assert_lawful(select(base, runs))


@FEW
@given(leaves, counting)
def test_selection_with_counted_runs_is_lawful(base: Cost, runs: Runs) -> None:
    assert_lawful(select(base, runs))


@FEW
@given(leaves, stopping, st.floats(0.3, 0.99), st.floats(1.01, 4.0))
def test_adaptive_selection_is_lawful(base: Cost, runs: Runs, c: float, big_c: float) -> None:
    boxed = select_adaptive(base, runs, (c, big_c))
    assert_lawful(boxed)
    assert boxed.epsilon(1e-5) >= select(base, runs).epsilon(1e-5) * (1.0 - 1e-3) - 1e-3
    assert boxed.epsilon_lower(1e-3) <= boxed.epsilon(1e-3)


@LAWFUL
@given(leaves)
def test_one_certain_run_costs_the_base(base: Cost) -> None:
    for runs in (Geometric(1), NegativeBinomial(-0.5, 1), Logarithmic(1)):
        once = select(base, runs)
        for direction in ("remove", "add"):
            assert (once.profile(E, direction) >= base.profile(E, direction) * (1.0 - 1e-12)).all()
        same_profile(once, base, 1e-9)
        assert once.epsilon(1e-5) == pytest.approx(base.epsilon(1e-5), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("base", [Gdp(0.7), PureDp(0.5)], ids=str)
def test_one_certain_counted_run_costs_the_base(base: Cost) -> None:
    same_profile(select(base, Binomial(1, 1.0)), base, 1e-9)


@LAWFUL
@given(leaves, st.floats(-0.9, 3.0), st.floats(1.0, 50.0), st.floats(1.05, 3.0))
def test_more_expected_runs_never_cost_less(base: Cost, shape: float, mean: float, factor: float) -> None:
    fewer, more = (select(base, NegativeBinomial(shape, m)).epsilon(1e-5) for m in (mean, mean * factor))
    assert more >= fewer * (1.0 - 2e-3) - 1e-6  # both are rounded up, by less than this


@FEW
@given(leaves, st.floats(0.2, 20.0), st.floats(1.1, 2.0))
def test_more_poisson_runs_never_cost_less(base: Cost, mean: float, factor: float) -> None:
    fewer, more = (select(base, Poisson(m)).epsilon(1e-5) for m in (mean, mean * factor))
    assert more >= fewer * (1.0 - 5e-3) - 1e-6


@FEW
@given(leaves, leaves, st.one_of(stopping, counting))
def test_a_worse_base_never_costs_less(one: Cost, two: Cost, runs: Runs) -> None:
    both = parallel(one, two)
    for base in (one, two):
        assert select(both, runs).epsilon(1e-4) >= select(base, runs).epsilon_lower(1e-4)


@LAWFUL
@given(leaves)
def test_a_free_mechanism_changes_nothing(cost: Cost) -> None:
    free = PureDp(0.0)
    assert free.epsilon(1e-12) == 0.0
    for whole in (compose(cost, free), compose(free, cost, free), parallel(cost, free)):
        same_profile(whole, cost, 1e-12)


@FEW
@given(leaves, leaves)
def test_composition_is_lawful(one: Cost, two: Cost) -> None:
    both = compose(one, two)
    assert_lawful(both)
    for part in (one, two):
        for direction in ("remove", "add"):
            assert (both.profile(E, direction) >= part.profile(E, direction) - 1e-12).all()
    # Simple composition: the sum of epsilons at half of delta each.
    assert both.epsilon(1e-5) <= one.epsilon(5e-6) + two.epsilon(5e-6) + 2e-2
    same_profile(both, compose(two, one), 1e-9)


@LAWFUL
@given(st.lists(st.tuples(st.floats(0.05, 1.0), leaves), min_size=1, max_size=4))
def test_mixture_is_the_average(parts: list[tuple[float, Cost]]) -> None:
    total = math.fsum(w for w, _ in parts)
    mixed = mixture([(w / total, cost) for w, cost in parts])
    for direction in ("remove", "add"):
        profiles = np.array([cost.profile(E, direction) for _, cost in parts])
        average = np.array([w / total for w, _ in parts]) @ profiles
        found = mixed.profile(E, direction)
        assert found == pytest.approx(average, rel=1e-9, abs=1e-12)
        assert (found >= profiles.min(axis=0) - 1e-12).all()
        assert (found <= profiles.max(axis=0) + 1e-12).all()


@LAWFUL
@given(st.lists(leaves, min_size=1, max_size=4))
def test_parallel_is_the_maximum(costs: list[Cost]) -> None:
    whole = parallel(*costs)
    for direction in ("remove", "add"):
        highest = np.max([cost.profile(E, direction) for cost in costs], axis=0)
        assert whole.profile(E, direction) == pytest.approx(highest, abs=0.0)
    assert whole.epsilon(1e-5) == max(cost.epsilon(1e-5) for cost in costs)


@LAWFUL
@given(leaves, st.floats(0.001, 0.999), st.floats(1.0, 2.0))
def test_subsampling_amplifies(cost: Cost, rate: float, factor: float) -> None:
    smaller, larger = subsample(cost, rate), subsample(cost, min(1.0, rate * factor))
    assert_lawful(smaller)
    for direction in ("remove", "add"):
        low, high, whole = (c.profile(E, direction) for c in (smaller, larger, cost))
        assert (low <= high + 1e-12).all()
        assert (high <= whole + 1e-12).all()


@FEW
@given(leaves, leaves, st.floats(0.01, 0.99))
def test_disjoint_is_between_its_parts(tune: Cost, base: Cost, rate: float) -> None:
    """d is convex in the law, so the mixture is below the average of the parts; it is above either alone, diluted."""
    whole = disjoint(tune, base, rate)
    assert_lawful(whole)
    for direction in ("remove", "add"):
        d = whole.profile(E, direction)
        average = rate * tune.profile(E, direction) + (1 - rate) * base.profile(E, direction)
        assert (d <= average * (1.0 + 1e-3) + 1e-3).all()
        assert (d >= subsample(tune, rate).profile(E, direction) - 1e-12).all()
        assert (d >= subsample(base, 1.0 - rate).profile(E, direction) - 1e-12).all()


trees: st.SearchStrategy[Cost] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(select, inner, st.one_of(stopping, counting)),
        st.builds(lambda c, r: select_adaptive(c, r, (0.7, 1.6)), inner, stopping),
        st.builds(subsample, inner, st.floats(0.01, 0.99)),
        st.builds(disjoint, inner, inner, st.floats(0.01, 0.99)),
        st.builds(compose, inner, inner),
        st.builds(parallel, inner, inner),
        st.builds(lambda a, b, w: mixture([(w, a), (1.0 - w, b)]), inner, inner, st.floats(0.1, 0.9)),
    ),
    max_leaves=4,
)


@settings(LAWFUL, max_examples=60)
@given(trees)
def test_descriptions_come_back_equal(cost: Cost) -> None:
    again = cost_from_json(cost.to_json())
    assert again == cost
    assert hash(again) == hash(cost)
    assert again.to_json() == cost.to_json()


@pytest.mark.parametrize(
    "cost",
    [
        disjoint(select(DpSgd(0.05, 1.1, 9), Geometric(5)), DpSgd(0.05, 1.1, 9), 0.15),
        subsample(select(Gdp(1.0), Poisson(3)), 0.1),
        mixture([(0.25, Gaussian(1.0)), (0.75, select_adaptive(PureDp(0.5), Logarithmic(4), (0.8, 1.5)))]),
    ],
    ids=["disjoint", "subsampled", "mixed"],
)
def test_descriptions_come_back_at_the_same_price(cost: Cost) -> None:
    again = cost_from_json(cost.to_json())
    assert again.epsilon(1e-5) == cost.epsilon(1e-5)
    assert again.epsilon_lower(1e-5) == cost.epsilon_lower(1e-5) <= cost.epsilon(1e-5)


@pytest.mark.parametrize("cost", [DpSgd(0.5, 1.0, 2), DpSgd(0.01, 1.0, 100), PureDp(1.0), Gaussian(1.0)], ids=str)
def test_roc_is_the_lower_envelope_of_the_profile_lines(cost: Cost) -> None:
    x = np.linspace(0.0, 1.0, 21)
    e = np.linspace(-6.0, 6.0, 2401)
    envelope = (cost.profile(e)[:, None] + np.exp(e)[:, None] * x).min(axis=0)
    assert cost.roc(x) == pytest.approx(np.minimum(envelope, 1.0), abs=2e-3)
