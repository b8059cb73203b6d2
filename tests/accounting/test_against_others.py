"""The accounting against other implementations, closed forms in exact decimals, and simulation.

dp-accounting's loss distributions check the building blocks and their composition; its pessimistic estimate must not be
far below ours, its optimistic one not above. Simulations are seeded, and sized so that without the seed a false
alarm would be rarer than one in a million runs.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from dptune.accounting import (
    Cost,
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Poisson,
    PureDp,
    compose,
    select,
    subsample,
)
from tests.accounting._exact import Law, poisson, tnb

# The analytic Gaussian in fifty digits.


def _phi(x: Decimal) -> Decimal:
    """Standard normal distribution function by its Taylor series, in the current precision."""
    term, total, k = x, x, 0
    while abs(term) > Decimal(10) ** -70:
        k += 1
        term = -term * x * x / (2 * k)
        total += term / (2 * k + 1)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
    return Decimal("0.5") + total / (2 * pi).sqrt()


def _gaussian_delta(mu: float, e: float) -> Decimal:
    with localcontext() as context:
        context.prec = 100
        m, x = Decimal(mu), Decimal(e)
        return _phi(m / 2 - x / m) - x.exp() * _phi(-m / 2 - x / m)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_gaussian_profile_in_high_precision(mu: float) -> None:
    for z in (-3.0, -1.0, -0.2, 0.0, 0.1, 0.7, 1.5, 3.0, 5.0, 7.0):
        e = mu * (z + mu / 2)
        exact = _gaussian_delta(mu, e)
        found = float(Gdp(mu).profile(np.array([e]))[0])
        if e >= 0.0:  # rounded up
            assert Decimal(found) >= exact
        assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("sigma", "epsilon"), [(97.24, 0.1), (42.01, 0.25), (22.24, 0.5), (11.80, 1.0), (4.40, 3.0)])
def test_gaussian_calibration_of_the_documentation(sigma: float, epsilon: float) -> None:
    """Five votes replaced: L2 sensitivity sqrt(10), delta 1e-5."""
    assert Gaussian(sigma / math.sqrt(10)).epsilon(1e-5) == pytest.approx(epsilon, rel=2e-3)


# dp-accounting.

STEP = 1e-3


def _both(make: object, **parameters: object) -> tuple[object, object]:
    assert callable(make)
    high, low = (
        make(**parameters, value_discretization_interval=STEP, pessimistic_estimate=side) for side in (True, False)
    )
    return high, low


def _compare(cost: Cost, high: object, low: object, slack: float) -> None:
    """Both are upper bounds on one truth; theirs from below is below it."""
    for delta in (1e-2, 1e-5, 1e-8):
        ours = cost.epsilon(delta)
        theirs, optimistic = (p.get_epsilon_for_delta(delta) for p in (high, low))  # type: ignore[attr-defined]
        assert ours >= optimistic * (1 - 1e-6) - 1e-6
        assert ours <= theirs * (1 + slack) + slack
        assert cost.epsilon_lower(delta) <= theirs * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("noise", [0.8, 2.0, 10.0])
def test_gaussian(noise: float) -> None:
    high, low = _both(pld.from_gaussian_mechanism, standard_deviation=noise)
    _compare(Gaussian(noise), high, low, 1e-4)


@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0])
def test_laplace(scale: float) -> None:
    high, low = _both(pld.from_laplace_mechanism, parameter=scale)
    _compare(Laplace(scale), high, low, 1e-4)
    three = [p.self_compose(3) for p in (high, low)]  # type: ignore[attr-defined]
    _compare(compose(*[Laplace(scale)] * 3), three[0], three[1], 1e-2)


@pytest.mark.parametrize(("sigma", "shift"), [(1.5, 1), (6.0, 2)])
def test_discrete_gaussian(sigma: float, shift: int) -> None:
    high, low = _both(pld.from_discrete_gaussian_mechanism, sigma=sigma, sensitivity=shift)
    _compare(DiscreteGaussian(sigma, shift), high, low, 1e-3)
    four = [p.self_compose(4) for p in (high, low)]  # type: ignore[attr-defined]
    _compare(compose(*[DiscreteGaussian(sigma, shift)] * 4), four[0], four[1], 4e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_randomised_response(epsilon: float) -> None:
    other = pld.from_privacy_parameters(_parameters(epsilon), value_discretization_interval=STEP)
    for delta in (1e-2, 1e-5):
        assert PureDp(epsilon).epsilon(delta) == pytest.approx(other.get_epsilon_for_delta(delta), abs=2e-3)


def _parameters(epsilon: float) -> object:
    from dp_accounting.pld.common import DifferentialPrivacyParameters  # noqa: PLC0415

    return DifferentialPrivacyParameters(epsilon, 0.0)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.0, 1), (256 / 60000, 1.052, 400), (0.3, 3.0, 60)])
def test_dp_sgd(rate: float, noise: float, steps: int) -> None:
    pair = []
    for side in (True, False):
        one = pld.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=1e-4, pessimistic_estimate=side
        )
        pair.append(one.self_compose(steps))
    _compare(DpSgd(rate, noise, steps), pair[0], pair[1], 4e-3)


def test_subsampled_laplace() -> None:
    high, low = _both(pld.from_laplace_mechanism, parameter=1.0, sampling_prob=0.1)
    _compare(subsample(Laplace(1.0), 0.1), high, low, 2e-3)


def test_different_mechanisms_together() -> None:
    parts = [
        _both(pld.from_gaussian_mechanism, standard_deviation=2.0),
        _both(pld.from_laplace_mechanism, parameter=3.0),
        _both(pld.from_discrete_gaussian_mechanism, sigma=4.0),
    ]
    high, low = (parts[0][i].compose(parts[1][i]).compose(parts[2][i]) for i in (0, 1))  # type: ignore[attr-defined]
    _compare(compose(Gaussian(2.0), Laplace(3.0), DiscreteGaussian(4.0)), high, low, 4e-3)


# Best of K by simulation.


@pytest.mark.parametrize(("law", "e"), [(tnb(1.0, 10.0), 0.8), (poisson(6.0), 0.8)], ids=["geometric", "poisson"])
def test_best_of_k_by_playing_it(law: Law, e: float) -> None:
    """A three-block score on a Gaussian base, played: K runs, the best is released, the event is its middle block.

    The event's frequencies in 200,000 games a world differ from the formula by more than six standard errors, or
    exceed the bound by as much, less than once in 1e8 runs.
    """
    games, mu = 200_000, 1.0
    rng = np.random.default_rng(99)
    count = law.runs.probability
    chances = np.array([count(k) for k in range(200)])
    runs = rng.choice(200, games, p=chances / chances.sum())
    low_cut, high_cut = -1.0, 0.8  # below the first: top rank; above the second: S; between: bottom
    seen, exact = [], []
    for shift in (mu, 0.0):
        y = rng.standard_normal(int(runs.sum())) + shift
        rank = np.where(y < low_cut, 2, np.where(y > high_cut, 1, 0))
        game = np.repeat(np.arange(games), runs)
        best = np.full(games, -1)
        np.maximum.at(best, game, rank)
        seen.append(float((best == 1).mean()))
        s, top = norm.sf(high_cut - shift), norm.cdf(low_cut - shift)
        exact.append(float(law.f(np.array([1 - top]))[0] - law.f(np.array([1 - top - s]))[0]))
    error = [math.sqrt(x * (1 - x) / games) for x in exact]
    for found, true, sd in zip(seen, exact, error, strict=True):
        assert abs(found - true) < 6 * sd
    bound = float(select(Gdp(mu), law.runs).profile(np.array([e]))[0])
    assert exact[0] - math.exp(e) * exact[1] <= bound
    assert seen[0] - math.exp(e) * seen[1] <= bound + 6 * (error[0] + math.exp(e) * error[1])
    assert seen[0] - math.exp(e) * seen[1] > float(Gdp(mu).profile(np.array([e]))[0])  # selection does cost more


def test_score_that_follows_the_ratio_is_milder() -> None:
    """Best of K by likelihood ratio itself: a Lehmann law in closed form, well below the bound."""
    mu, e = 0.5, np.array([0.5, 1.0])
    for runs in (Geometric(10), Poisson(8)):
        z = np.linspace(-9.0, 10.0, 20_001)
        won = [np.diff(runs.generating(norm.cdf(z - shift))) for shift in (mu, 0.0)]
        plain = np.maximum(won[0] - np.exp(e)[:, None] * won[1], 0.0).sum(axis=1)
        assert (select(Gdp(mu), runs).profile(e) >= plain).all()
