"""Readings of a cost: never below what an attack reaches, checked by closed forms, by all events of small mechanisms,
and by an independent accountant."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from dptune.accounting import (
    Cost,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    NegativeBinomial,
    Poisson,
    PureDp,
    compose,
    disjoint,
    select,
    subsample,
)
from dptune.accounting.calibrate import calibrate_power
from dptune.errors import BudgetExceeded, InvalidInput

COSTS: list[Cost] = [
    *(Gaussian(noise) for noise in (0.3, 1.0, 4.0)),
    *(Laplace(scale) for scale in (0.5, 2.0)),
    *(PureDp(epsilon) for epsilon in (0.1, 1.0, 3.0)),
    DpSgd(0.01, 1.0, 1000),
    DpSgd(0.2, 3.0, 100),
    DpSgd(0.004, 0.9, 3000),
    compose(Gaussian(2.0), Laplace(3.0)),
    select(PureDp(1.0), Geometric(10)),
    select(Gaussian(3.0), Geometric(30)),
    select(Gaussian(3.0), Poisson(15)),
    select(DpSgd(0.01, 2.0, 500), NegativeBinomial(5, 60)),
    subsample(select(Gaussian(2.0), Geometric(10)), 0.1),
    disjoint(select(Gaussian(2.0), Geometric(10)), Gaussian(2.0), 0.1),
    subsample(Laplace(1.0), 0.3),
    compose(DpSgd(0.01, 2.0, 500), Gaussian(5.0)),
]


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 0.5, 0.9])
def test_the_power_against_a_gaussian_is_the_closed_form(mu: float, rate: float) -> None:
    truth = float(norm.cdf(norm.ppf(rate) + mu))
    assert truth <= Gdp(mu).power(rate) <= truth * (1 + 1e-7) + 1e-15


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.5, 0.95])
def test_the_power_against_randomised_response_is_the_closed_form(epsilon: float, rate: float) -> None:
    truth = min(math.exp(epsilon) * rate, 1 - math.exp(-epsilon) * (1 - rate))
    assert truth <= PureDp(epsilon).power(rate) <= truth * (1 + 1e-6)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("prior", [0.001, 0.2, 0.5, 0.8, 0.999])
def test_the_risk_against_a_gaussian_is_the_closed_form(mu: float, prior: float) -> None:
    cut = mu / 2 + math.log((1 - prior) / prior) / mu
    truth = float(prior * norm.cdf(cut - mu) + (1 - prior) * norm.sf(cut))
    assert truth * (1 - 1e-6) - 1e-12 <= Gdp(mu).bayes_risk(prior) <= truth


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0])
def test_the_advantage_against_a_gaussian_is_the_closed_form(mu: float) -> None:
    truth = float(2 * norm.cdf(mu / 2) - 1)
    assert truth <= Gdp(mu).advantage() <= truth * (1 + 1e-9)


def _winner(mean: float, law: np.ndarray) -> np.ndarray:
    """The law of the best of K outcomes, K geometric: outcomes are ranked by their index."""
    g = 1.0 / mean
    below = np.concatenate([[0.0], np.cumsum(law)])
    generating = g * below / (1 - (1 - g) * below)
    return np.diff(generating)


def test_no_event_of_a_small_mechanism_beats_the_readings() -> None:
    """Selection over three outcomes of a pure mechanism: every event, every order of scores, both directions."""
    epsilon, mean = 1.0, 5.0
    cost = select(PureDp(epsilon), Geometric(mean))
    generator = np.random.default_rng(3)
    worst = 0.0
    for _ in range(5):
        q = generator.dirichlet(np.ones(3))
        p = q * np.exp(generator.choice([-epsilon / 2, epsilon / 2], 3))
        p /= p.sum()
        if np.max(np.abs(np.log(p / q))) > epsilon:
            continue
        one, two = _winner(mean, p), _winner(mean, q)
        for inside in itertools.product([0.0, 1.0], repeat=3):
            rate, power = float(two @ inside), float(one @ inside)
            if not 0 < sum(inside) < 3:  # nothing, or everything
                continue
            bound = cost.power(rate)
            assert power <= bound
            assert power - rate <= cost.advantage()
            for prior in (0.1, 0.5, 0.7):
                assert cost.bayes_risk(prior) <= prior * (1 - power) + (1 - prior) * rate + 1e-15
            worst = max(worst, power / bound)
    assert worst > 0.5  # the attack is a real one


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_mu_covers_the_profile_and_nothing_smaller_does(cost: Cost) -> None:
    slack = 1e-8
    found = cost.mu(slack)
    assert found.slack == slack
    losses = np.concatenate([np.linspace(0, 3, 181), np.linspace(3, 60, 191)])

    def excess(mu: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            gaussian = norm.cdf(mu / 2 - losses / mu) - np.exp(losses + norm.logcdf(-mu / 2 - losses / mu))
        return max(float(np.max(cost.profile(losses, side) - gaussian)) for side in ("remove", "add"))

    assert excess(found.mu) <= slack + 1e-13
    assert excess(found.mu * 0.99) > slack


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_power_follows_from_every_point_of_the_profile(cost: Cost) -> None:
    losses = np.linspace(-6, 6, 161)
    for rate in (1e-3, 0.05):
        bounds = [np.min(cost.profile(losses, side) + np.exp(losses) * rate) for side in ("remove", "add")]
        assert rate <= cost.power(rate) <= min(1.0, max(bounds)) * (1 + 1e-4)  # found where a grid finds it


@pytest.mark.parametrize("base", [DpSgd(0.01, 1.0, 1000), DpSgd(0.2, 3.0, 100), DpSgd(0.004, 0.9, 3000)], ids=str)
def test_dp_sgd_by_another_accountant(base: DpSgd) -> None:
    """dp-accounting's optimistic losses are below the truth; readings must be above what they give."""
    step = privacy_loss_distribution.from_gaussian_mechanism(
        base.noise_multiplier, sampling_prob=base.sampling_rate, pessimistic_estimate=False
    )
    whole = step.self_compose(base.steps)
    losses = np.linspace(0, 6, 301)
    below = np.array([whole.get_delta_for_epsilon(float(e)) for e in losses])
    mu = base.mu(1e-8).mu
    gaussian = norm.cdf(mu / 2 - losses / mu) - np.exp(losses + norm.logcdf(-mu / 2 - losses / mu))
    assert np.max(below - gaussian) <= 1e-8
    assert base.advantage() >= below[0]
    # Two points of the other accountant's curve: an event with this false positive rate has at least this power.
    rates = (below[:-1] - below[1:]) / np.diff(np.exp(losses))
    powers = below[:-1] + np.exp(losses[:-1]) * rates
    for rate, power in list(zip(rates, powers, strict=True))[::60]:
        if 1e-6 < rate < 1:
            assert base.power(float(rate)) >= power * (1 - 5e-3)


def test_unbounded_losses_beyond_the_slack_have_no_mu() -> None:
    assert math.isinf(PureDp(200.0).mu().mu) or PureDp(200.0).mu().mu > 15
    assert Gdp(1e-6).mu(0.1).mu == 0.0


@pytest.mark.parametrize(("power", "rate"), [(0.1, 0.01), (0.5, 0.1)])
def test_noise_for_a_power_keeps_it(power: float, rate: float) -> None:
    noise = calibrate_power(lambda s: select(Gaussian(s), Geometric(10)), power, rate)
    assert select(Gaussian(noise), Geometric(10)).power(rate) <= power
    assert select(Gaussian(noise * 0.999), Geometric(10)).power(rate) > power


def test_bad_figures_are_one_line() -> None:
    for call in (
        lambda: Gaussian(1.0).power(0.0),
        lambda: Gaussian(1.0).power(1.5),
        lambda: Gaussian(1.0).bayes_risk(float("nan")),
        lambda: Gaussian(1.0).mu(0.0),
        lambda: calibrate_power(Gaussian, 0.01, 0.1),
    ):
        with pytest.raises(InvalidInput):
            call()
    with pytest.raises(BudgetExceeded, match="does not depend on the noise"):
        calibrate_power(lambda s: compose(Gaussian(s), PureDp(3.0)), 0.02, 0.01)


def test_laplace_profiles_end_without_an_overflow() -> None:
    assert list(Laplace(1.0).profile(np.array([1.0, 800.0, 5000.0]))) == [0.0, 0.0, 0.0]
