"""Stopping at a known threshold against brute force: every set of good outputs, whole or split, and every event.

Guards docs/theorems/known_threshold.md: no threshold costs more than the price, and the certificate is attained.
Nothing here is statistical; draws are seeded.
"""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from dptune.accounting import (
    Binomial,
    Cost,
    DpSgd,
    Filter,
    Gaussian,
    Geometric,
    Laplace,
    Poisson,
    PureDp,
    Runs,
    compose,
    cost_from_json,
    disjoint,
    known_threshold,
)
from dptune.accounting.cost import profile
from dptune.accounting.known_threshold import liu_talwar_threshold
from dptune.cli import main
from dptune.errors import InvalidInput
from tests.accounting._exact import (
    Array,
    Atoms,
    Law,
    awkward_atoms,
    binomial,
    hockey,
    once,
    poisson,
    random_atoms,
    tnb,
    weights,
)

LAWS = [once(), tnb(1.0, 2.0), tnb(1.0, 30.0), tnb(0.0, 5.0), tnb(3.0, 10.0), poisson(0.5), poisson(15.0)]
LAWS += [binomial(1, 0.7), binomial(3, 1.0), binomial(12, 0.4)]
LOSSES = np.array([0, 0.01, 0.1, 0.3, 0.7, 1, 1.2, 1.5, 2, 3, 4, 6, 9, 14.0])
ROUNDOFF = 1e-13


def released(masses: Array, good: Array, law: Law) -> Array:
    """The law of what leaves, for every row of ``good`` (the share of each outcome that is good): outputs, default."""
    taken = masses * good
    x = np.minimum(taken.sum(axis=1, keepdims=True), 1.0)
    runs = law.step(np.ones_like(x), x) / np.where(x > 0.0, x, 1.0)
    return np.append(taken * runs, law.f(1.0 - x), axis=1)


def worst(p: Array, q: Array, law: Law, shares: tuple[float, ...]) -> Array:
    """The exact worst profile over thresholds that make these shares of the outcomes good."""
    good = np.array(list(itertools.product(shares, repeat=len(p))))
    # A share of an outcome that is tested while another share of it is good too: cut every outcome in two.
    p, q, good = np.repeat(p, 2) / 2.0, np.repeat(q, 2) / 2.0, np.repeat(good, 2, axis=1)
    out_p, out_q = released(p, good, law), released(q, good, law)
    return np.array([hockey(out_p, out_q, np.array([e])).max() for e in LOSSES])


def assert_covers(cost: Atoms, law: Law, shares: tuple[float, ...]) -> None:
    bound = known_threshold(cost, law.runs)
    for direction in ("remove", "add"):
        p, q = weights(cost, direction)
        claimed = profile(bound).seen_from(direction).delta(LOSSES)
        truth = worst(p, q, law, shares)
        short = truth - claimed * (1.0 + 1e-12) - ROUNDOFF
        assert (short <= 0.0).all(), f"{cost} {law.name} {direction}: {claimed} below {truth}"


def test_released_outputs_are_what_enumeration_says() -> None:
    """At most three tries, good with probability x: y leaves at the first, second or third try."""
    masses, good = np.array([0.5, 0.3, 0.2]), np.array([[1.0, 0.5, 0.0]])
    x = 0.65
    tries = 1.0 + (1.0 - x) + (1.0 - x) ** 2
    expected = [0.5 * tries, 0.15 * tries, 0.0, (1.0 - x) ** 3]
    np.testing.assert_allclose(released(masses, good, binomial(3, 1.0))[0], expected, rtol=1e-14)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_no_threshold_on_small_mechanisms_costs_more(law: Law) -> None:
    rng = np.random.default_rng(17)
    for n, shares, hidden in ((3, (0.0, 0.15, 0.6, 1.0), 0.0), (4, (0.0, 0.5, 1.0), 0.3)):
        assert_covers(random_atoms(rng, n, 1.0, hidden), law, shares)


@pytest.mark.parametrize("name", awkward_atoms())
def test_no_threshold_on_awkward_mechanisms_costs_more(name: str) -> None:
    pair = awkward_atoms()[name]
    shares = (0.0, 0.3, 1.0) if len(pair.p) < 5 else (0.0, 1.0)
    for law in (LAWS[2], LAWS[8]):
        assert_covers(pair, law, shares)


def test_the_price_is_attained_by_randomised_response() -> None:
    """Shares on a fine grid come within a hundredth of the price, at every loss where it is not tiny."""
    e1 = math.e
    cost = Atoms((e1 / (1 + e1), 1 / (1 + e1)), (1 / (1 + e1), e1 / (1 + e1)))
    p, q = weights(cost, "remove")
    good = np.array(list(itertools.product(np.linspace(0.0, 1.0, 81), repeat=2)))
    for law in (LAWS[1], LAWS[6], LAWS[8]):
        out_p, out_q = released(p, good, law), released(q, good, law)
        truth = np.array([hockey(out_p, out_q, np.array([e])).max() for e in LOSSES])
        claimed = profile(known_threshold(cost, law.runs)).remove.delta(LOSSES)
        seen = truth > 1e-3
        assert (claimed[seen] <= truth[seen] * 1.01 + 1e-4).all(), f"{law.name}: {claimed} far above {truth}"


def test_the_default_counts() -> None:
    """Randomised response 1, stopping with probability .5, e = 1.2: .060; without the default's event .008."""
    base, a = PureDp(1.0), math.exp(1.2)
    assert known_threshold(base, Geometric(2)).delta(1.2) == pytest.approx(0.0603, abs=1e-4)
    share = np.linspace(0.0, 1.0, 401)
    top, bottom = math.e / (1 + math.e), 1 / (1 + math.e)
    s, b = (m[None, :] for m in np.meshgrid(share * bottom, share * top))
    p, v = s * math.e, b / math.e
    h = [1.0 / (0.5 + 0.5 * x) for x in (p + v, s + b)]  # f(z) = .5 z / (1 - .5 z)
    alone = p * h[0] - a * s * h[1]
    assert float(alone.max()) == pytest.approx(0.008, abs=5e-4)


def _normal_roc(x: Array, mu: float) -> Array:
    return np.asarray(norm.cdf(norm.ppf(x) + mu))


@pytest.mark.parametrize(
    ("runs", "mu"),
    [(Geometric(2), 1.0), (Geometric(1000), 0.25), (Poisson(15), 0.25), (Binomial(10, 1.0), 1.0), (Poisson(0.1), 0.5)],
    ids=str,
)
def test_no_event_of_a_gaussian_base_is_above_the_price(runs: Runs, mu: float) -> None:
    """Random positions of both blocks, over all scales: exact masses from the normal law, not from a polygon."""
    rng = np.random.default_rng(5)
    n = 200_000
    s = 10.0 ** rng.uniform(-14, 0, n) * rng.random(n) ** 0.2
    b = np.where(rng.random(n) < 0.5, 10.0 ** rng.uniform(-12, 0, n), 1.0 - 10.0 ** rng.uniform(-12, 0, n)) * (1.0 - s)
    p, v = _normal_roc(s, mu), np.asarray(norm.cdf(norm.ppf(b) - mu))
    one = np.ones(n)
    h_p, h_q = (runs.gain(one, np.minimum(x, 1.0)) / x for x in (p + v, s + b))
    hidden = [runs.generating(np.clip(1.0 - x, 0.0, 1.0)) for x in (p + v, s + b)]
    found = profile(known_threshold(Gaussian(1.0 / mu), runs)).remove
    for e in (0.0, 0.2, 0.9, 2.0, 5.0, 9.0):
        claimed = float(found.delta(np.array([e]))[0])
        for in_p, in_q in ((p * h_p, s * h_q), (p * h_p + hidden[0], s * h_q + hidden[1])):
            assert float((in_p - math.exp(e) * in_q).max()) <= claimed * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize(
    ("base", "runs", "delta"),
    [
        (Gaussian(4.0), Geometric(100), 1e-5),
        (Gaussian(1.0), Poisson(15), 1e-10),
        (PureDp(1.0), Binomial(10, 1.0), 1e-5),
        (DpSgd(0.01, 2.0, 1000), Geometric(100), 1e-6),
    ],
    ids=str,
)
def test_price_and_certificate_meet(base: Cost, runs: Runs, delta: float) -> None:
    cost = known_threshold(base, runs)
    upper, lower = cost.epsilon(delta), cost.epsilon_lower(delta)
    assert lower <= upper <= lower * 1.004


def test_one_certain_run_is_the_base() -> None:
    base = Gaussian(1.0)
    assert known_threshold(base, Geometric(1)).epsilon(1e-5) == pytest.approx(base.epsilon(1e-5), rel=1e-3)
    assert known_threshold(base, Geometric(1)).epsilon(1e-5) >= base.epsilon(1e-5)


@pytest.mark.parametrize(("epsilon", "mean"), [(0.01, 2.0), (0.3, 1e5), (1.0, 30.0), (5.0, 1.0)])
def test_pure_bases_pay_at_most_twice(epsilon: float, mean: float) -> None:
    for base in (PureDp(epsilon), Laplace(1.0 / epsilon)):
        cost = known_threshold(base, Geometric(mean))
        assert cost.epsilon(1e-12) <= 2.0 * epsilon * (1.0 + 1e-9)
        assert liu_talwar_threshold(base, Geometric(mean)) == pytest.approx(2.0 * epsilon)
    assert liu_talwar_threshold(PureDp(1.0), Poisson(3)) == math.inf  # a default may cost more: exp(3 tanh(1/2))
    assert known_threshold(PureDp(1.0), Poisson(15)).epsilon_lower(1e-6) > 6.9


def test_it_is_a_cost_like_others() -> None:
    cost = known_threshold(Gaussian(2.0), Geometric(5))
    assert cost_from_json(cost.to_json()) == cost
    assert json.loads(cost.to_json())["cost"] == "known-threshold"
    twice = compose(cost, cost)
    assert cost.epsilon(1e-5) < twice.epsilon(1e-5) <= 2.0 * cost.epsilon(5e-6) + 1e-9
    assert twice.epsilon_lower(1e-5) <= twice.epsilon(1e-5)
    part = disjoint(cost, Gaussian(2.0), 0.1)
    assert Gaussian(2.0).epsilon(1e-5) * 0.9 < part.epsilon(1e-5) < cost.epsilon(1e-5)
    spent = Filter.of(10.0, 1e-5)
    assert spent.admits(spent.curve(cost))
    with pytest.raises(InvalidInput, match="law such as"):
        known_threshold(Gaussian(2.0), 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must be a cost"):
        known_threshold("gaussian", Geometric(5))  # type: ignore[arg-type]


def test_the_command_prices_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["price", "--base", "pure:1", "--runs", "geometric:2", "--delta", "1e-5", "--known-threshold"]
    assert main([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["epsilon"] == known_threshold(PureDp(1.0), Geometric(2)).epsilon(1e-5)
    assert said["literature"] == {"liu_talwar_known_threshold": pytest.approx(2.0)}
    assert main(asked) == 0
    assert "liu talwar known threshold" in capsys.readouterr().out
    assert main([*asked, "--density", "0.5,2"]) == 2
