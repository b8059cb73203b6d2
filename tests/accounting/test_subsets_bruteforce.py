"""Subsets and composition against exact mixtures and product spaces of small pairs.

Guards ``subsample``, ``disjoint``, ``compose``, ``mixture`` and ``parallel`` (docs/theorems/) in both directions and
for every sign of e. An upper bound below the exact profile fails; one far above it fails too.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptune.accounting import (
    Cost,
    Gdp,
    Geometric,
    PureDp,
    compose,
    disjoint,
    mixture,
    parallel,
    select,
    subsample,
)
from tests.accounting._exact import (
    Array,
    Atoms,
    Law,
    awkward_atoms,
    hockey,
    poisson,
    random_atoms,
    selected,
    tnb,
    weak_orders,
    weights,
)

LOSSES = np.array([-9, -3, -1.2, -0.4, -0.05, 0, 0.03, 0.1, 0.3, 0.6, 1, 1.4, 2, 3, 5, 8, 12.0])
DIRECTIONS = ("remove", "add")
NAMES = list(awkward_atoms())


def assert_near(cost: Cost, p: Array, q: Array, above: float, below: float = 1e-13) -> None:
    """The profile of ``cost`` is at least the exact one of p against q, and at most ``above`` more, both ways."""
    for direction, (one, two) in {"remove": (p, q), "add": (q, p)}.items():
        exact = hockey(one, two, LOSSES)
        gap = cost.profile(LOSSES, direction) - exact
        k = int(gap.argmin())
        assert gap[k] >= -below, f"{direction}, e = {LOSSES[k]}: {exact[k]} is true, {gap[k]} more than claimed"
        k = int(gap.argmax())
        assert gap[k] <= above, f"{direction}, e = {LOSSES[k]}: {exact[k]} is true, the bound is {gap[k]} above"


def product(*laws: Array) -> Array:
    """Probabilities on the product space, flattened."""
    joint = np.ones(1)
    for law in laws:
        joint = np.multiply.outer(joint, law).ravel()
    return joint


# One outcome of many: the pairs themselves.


@pytest.mark.parametrize("name", NAMES)
def test_pairs_have_their_exact_profile(name: str) -> None:
    cost = awkward_atoms()[name]
    assert_near(cost, *weights(cost, "remove"), above=1e-13)


# Poisson subsampling: q P + (1 - q) Q against Q.


@pytest.mark.parametrize("rate", [1e-4, 0.05, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("name", NAMES)
def test_subsample_is_the_exact_mixture(name: str, rate: float) -> None:
    cost = awkward_atoms()[name]
    p, q = weights(cost, "remove")
    assert_near(subsample(cost, rate), rate * p + (1 - rate) * q, q, above=1e-12)


def test_subsample_of_a_subsample() -> None:
    cost = random_atoms(np.random.default_rng(1), 5, 1.0, 0.3)
    p, q = weights(cost, "remove")
    assert_near(subsample(subsample(cost, 0.4), 0.3), 0.12 * p + 0.88 * q, q, above=1e-12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_subsample_limits(direction: str) -> None:
    cost = Gdp(1.0)
    assert subsample(cost, 1.0) == cost
    near = subsample(cost, 1.0 - 1e-9).profile(LOSSES, direction)
    assert near == pytest.approx(cost.profile(LOSSES, direction), abs=1e-8)
    nothing = subsample(cost, 1e-9).profile(LOSSES, direction)
    assert nothing == pytest.approx(np.maximum(1.0 - np.exp(LOSSES), 0.0), abs=1e-8)


# Tuning on a part, training on the rest: q P1 x Q2 + (1 - q) Q1 x P2 against Q1 x Q2.


def exact_disjoint(tune: Atoms, base: Atoms, rate: float) -> tuple[Array, Array]:
    (p1, q1), (p2, q2) = weights(tune, "remove"), weights(base, "remove")
    return rate * product(p1, q2) + (1 - rate) * product(q1, p2), product(q1, q2)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.85])
@pytest.mark.parametrize("base", NAMES[::2])
@pytest.mark.parametrize("tune", NAMES[1::2])
def test_disjoint_is_the_exact_mixture(tune: str, base: str, rate: float) -> None:
    first, second = awkward_atoms()[tune], awkward_atoms()[base]
    assert_near(disjoint(first, second, rate), *exact_disjoint(first, second, rate), above=1e-11)


@pytest.mark.parametrize("seed", range(12))
def test_disjoint_on_random_pairs(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    spread = float(rng.choice([0.2, 1.0, 3.0]))
    first = random_atoms(rng, int(rng.integers(2, 8)), spread, 0.4)
    second = random_atoms(rng, int(rng.integers(2, 8)), spread, 0.4)
    rate = float(rng.uniform(0.01, 0.99))
    assert_near(disjoint(first, second, rate), *exact_disjoint(first, second, rate), above=1e-11)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_disjoint_limits(direction: str) -> None:
    tune, base = Gdp(1.3), Gdp(0.7)
    assert disjoint(tune, base, 0.0) == base
    assert disjoint(tune, base, 1.0) == tune
    for rate, end in ((1e-8, base), (1.0 - 1e-8, tune)):
        near = disjoint(tune, base, rate).profile(LOSSES, direction)
        assert near == pytest.approx(end.profile(LOSSES, direction), abs=2e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_disjoint_of_gaussians_by_quadrature(rate: float, direction: str) -> None:
    """L1 and L2 lognormal under Q; a product of two fine midpoint rules, exact to about 1e-6."""
    mu1, mu2 = 1.4, 0.8
    z = np.linspace(-9.0, 9.0, 3001)
    density = np.exp(-0.5 * z**2)
    density /= density.sum()
    ratio = rate * np.exp(mu1 * z - mu1**2 / 2)[:, None] + (1 - rate) * np.exp(mu2 * z - mu2**2 / 2)
    joint = np.multiply.outer(density, density)
    bound = disjoint(Gdp(mu1), Gdp(mu2), rate)
    for e in (0.0, 0.4, 1.0, 2.0):
        part = ratio - math.exp(e) if direction == "remove" else 1.0 - math.exp(e) * ratio
        exact = float((joint * np.maximum(part, 0.0)).sum())
        found = float(bound.profile(np.array([e]), direction)[0])
        assert found >= exact - 1e-6
        assert found <= exact * 1.001 + 1e-6


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("law", [tnb(1.0, 4.0), poisson(4.0)], ids=lambda law: law.name)
def test_selection_on_a_part_is_covered(law: Law, direction: str) -> None:
    """The whole pipeline: every order of the tuning's outcomes, then training, as one exact mixture."""
    rng = np.random.default_rng(8)
    tune, base, rate = random_atoms(rng, 4, 0.8, 0.2), random_atoms(rng, 4, 0.8, 0.2), 0.2
    (p1, q1), (p2, q2) = weights(tune, "remove"), weights(base, "remove")
    orders = weak_orders(4)
    worst = np.zeros(len(LOSSES))
    for won_p, won_q in zip(selected(p1, law, orders), selected(q1, law, orders), strict=True):
        with_default = np.append(won_p, law.never), np.append(won_q, law.never)
        joint_p = rate * product(with_default[0], q2) + (1 - rate) * product(with_default[1], p2)
        joint_q = product(with_default[1], q2)
        one, two = (joint_p, joint_q) if direction == "remove" else (joint_q, joint_p)
        worst = np.maximum(worst, hockey(one, two, LOSSES))
    for training in (base, select(base, Geometric(1))):
        bound = disjoint(select(tune, law.runs), training, rate)
        assert (bound.profile(LOSSES, direction) >= worst - 1e-13).all()


# Composition: product spaces.


@pytest.mark.parametrize("seed", range(8))
def test_compose_covers_the_product_space(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    costs = [random_atoms(rng, int(rng.integers(2, 6)), float(rng.choice([0.1, 0.7, 2.0])), 0.2) for _ in range(3)]
    p = product(*(weights(c, "remove")[0] for c in costs))
    q = product(*(weights(c, "remove")[1] for c in costs))
    assert_near(compose(*costs), p, q, above=4e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("times", [2, 5])
def test_compose_with_itself_covers_the_product_space(name: str, times: int) -> None:
    cost = awkward_atoms()[name]
    p, q = weights(cost, "remove")
    assert_near(compose(*[cost] * times), product(*[p] * times), product(*[q] * times), above=6e-3)


@pytest.mark.parametrize("times", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_compose_of_randomised_responses(epsilon: float, times: int) -> None:
    """k answers of which i say yes: binomial probabilities, exact."""
    up, down = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    i = np.arange(times + 1)
    ways = np.array([float(math.comb(times, int(k))) for k in i])
    p, q = ways * up**i * down ** (times - i), ways * down**i * up ** (times - i)
    assert_near(compose(*[PureDp(epsilon)] * times), p, q, above=2e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_compose_keeps_far_tails(delta: float) -> None:
    """Rare strong outcomes: the exact epsilon of 30 answers at small delta, from below and close."""
    times, epsilon = 30, 0.25
    up, down = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    i = np.arange(times + 1)
    ways = np.array([float(math.comb(times, int(k))) for k in i])
    p, q = ways * up**i * down ** (times - i), ways * down**i * up ** (times - i)
    found = compose(*[PureDp(epsilon)] * times).epsilon(delta)
    assert hockey(p, q, np.array([found]))[0] <= delta
    assert hockey(p, q, np.array([found * 0.98 - 1e-3]))[0] > delta


@pytest.mark.parametrize("delta", [0.1, pytest.param(1e-4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(2))
def test_compose_certificate_is_true(seed: int, delta: float) -> None:
    rng = np.random.default_rng([seed, 4])
    costs = [random_atoms(rng, 4, 0.7, 0.2 * seed) for _ in range(3)]
    p = product(*(weights(c, "remove")[0] for c in costs))
    q = product(*(weights(c, "remove")[1] for c in costs))
    low = compose(*costs).epsilon_lower(delta)
    assert low > 0.1  # it says something
    assert max(hockey(p, q, np.array([low]))[0], hockey(q, p, np.array([low]))[0]) >= delta * (1 - 1e-9)


# Public mixtures and disjoint data.


@pytest.mark.parametrize("seed", range(6))
def test_mixture_is_the_labelled_union(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    costs = [random_atoms(rng, 4, 1.0, 0.3) for _ in range(3)]
    shares = rng.dirichlet(np.ones(3))
    p = np.concatenate([s * weights(c, "remove")[0] for s, c in zip(shares, costs, strict=True)])
    q = np.concatenate([s * weights(c, "remove")[1] for s, c in zip(shares, costs, strict=True)])
    assert_near(mixture([(float(s), c) for s, c in zip(shares, costs, strict=True)]), p, q, above=1e-12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parallel_is_the_pointwise_maximum(direction: str) -> None:
    rng = np.random.default_rng(6)
    costs = [random_atoms(rng, 4, 1.0, 0.3) for _ in range(3)]
    exact = np.max([hockey(*weights(c, direction), LOSSES) for c in costs], axis=0)
    assert parallel(*costs).profile(LOSSES, direction) == pytest.approx(exact, abs=1e-13)
