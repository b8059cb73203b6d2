"""No certificate is above the truth: roundoff is taken from the lower side (docs/theorems/roundoff.md).

Truth is a closed form where there is one: DP-SGD at a rate next to 1 is dominated by Gaussian composition, one certain
run is the base itself. Elsewhere the upper bound stands in for it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptune.accounting import (
    Cost,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    NegativeBinomial,
    Poisson,
    PureDp,
    select,
    subsample,
)
from dptune.accounting._convolution import convolve, tilt
from dptune.accounting._dots import Pld, dots_below
from dptune.accounting._epsilon import certified
from dptune.accounting.cost import lower_pair
from dptune.accounting.profiles import gaussian_pair


def certificate(cost: Cost, delta: float) -> float:
    """What the lower profile claims, without the belt that ``epsilon_lower`` wears."""
    return certified(lower_pair(cost, delta), delta)


@pytest.mark.parametrize(("noise", "steps"), [(500.0, 100_000), (1000.0, 1_000_000), (30.0, 400)])
@pytest.mark.parametrize("delta", [1e-15, 1e-12, 1e-10, 1e-5])
def test_many_steps_stay_below_and_close_to_gaussian_composition(noise: float, steps: int, delta: float) -> None:
    cost = DpSgd(0.999999, noise, steps)
    truth = Gdp(math.sqrt(steps) / noise).epsilon(delta)
    # A rate of 1 costs more than one next to it, by less than a part in a million.
    assert certificate(cost, delta) <= truth
    assert certificate(cost, delta) >= truth * (1.0 - 6e-3)
    assert truth * (1.0 - 1e-5) <= cost.epsilon(delta) <= truth * (1.0 + 3e-3)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2, 1.0, 1e4])
@pytest.mark.parametrize("mean", [1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-14, 1e-6, 1e-2])
def test_selection_on_little_noise_has_a_finite_certificate(noise: float, mean: float, delta: float) -> None:
    cost = select(Gaussian(noise), Geometric(mean))
    lower, upper = certificate(cost, delta), cost.epsilon(delta)
    assert lower <= upper < math.inf
    if mean == 1.0:
        assert lower <= Gaussian(noise).epsilon(delta)
        assert lower >= Gaussian(noise).epsilon(delta) * 0.99


FOUND_BY_SEARCH: list[tuple[Cost, float]] = [
    (select(DpSgd(0.16803344790041883, 48.50461181873467, 7), NegativeBinomial(-0.40479539573708645, 28.9)), 2.3e-12),
    (subsample(select(DpSgd(2e-4, 159.75594430636215, 501), Geometric(4671.7)), 0.001263795345515019), 2e-14),
    (select(DpSgd(1.0, 0.6897579271678244, 14001), Poisson(139.6)), 1e-4),
    (select(PureDp(40.0), Geometric(1e5)), 1e-13),
]


@pytest.mark.parametrize(("cost", "delta"), FOUND_BY_SEARCH, ids=lambda value: str(value)[:40])
def test_certificates_that_a_search_found_too_high(cost: Cost, delta: float) -> None:
    assert certificate(cost, delta) <= cost.epsilon(delta)
    assert certificate(cost, delta) < math.inf


def test_stated_noise_covers_the_error_of_a_convolution() -> None:
    """A binomial sum in exact arithmetic beside the convolution: the masses above every loss, from 1 to 1e-15."""
    step, n, each = 0.01, 4000, 0.03
    law = Pld(step, -1, np.array([1.0 - each, 0.0, each]), 0.0, 0.0)
    made = convolve([(law, n)], tilt([(law, n)]))
    k = np.arange(n + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k])
    exact = np.exp(logs + k * math.log(each) + (n - k) * math.log1p(-each))
    above = np.cumsum(exact[::-1])[::-1]  # at losses (2 k - n) step
    table = np.cumsum(made.masses[::-1])[::-1]
    index = 2 * k - n - made.first
    inside = (index >= 0) & (index < len(table)) & (above > 1e-20)
    stated = np.exp(made.log_noise - made.tilt * (2.0 * k - n) * step)
    # lgamma is good to a few parts in 1e12 here.
    assert inside.sum() > 100
    assert (np.abs(table[index[inside]] - above[inside]) <= stated[inside] + 1e-10 * above[inside]).all()
    wanted = inside & (above < 1e-3) & (above > 1e-16)
    assert (stated[wanted] < 1e-3 * above[wanted]).all()


def test_dots_below_never_claim_more_than_the_pair() -> None:
    for mu in (1e-4, 0.1, 3.0):
        made = dots_below(gaussian_pair(mu, below=True), mu / 30.0, 1e-20)
        losses = made.losses()
        e = np.linspace(0.0, 6.0 * mu, 50)
        claimed = (made.masses[None, :] * np.maximum(-np.expm1(e[:, None] - losses[None, :]), 0.0)).sum(axis=1)
        assert (claimed <= gaussian_pair(mu, below=True).remove.delta(e)).all()
