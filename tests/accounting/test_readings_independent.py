"""``mu`` and ``power`` of twenty expressions beside an independent computation: never below it, and hardly above.

Nothing of the accounting is used on the other side. Outcomes are put into cells and their probabilities computed in
closed form, for products where mechanisms are composed; the attack is the best test on cells (Neyman and Pearson). That
is an attack on the mechanism itself, so no reading may be below it. For selection it is an attack on a real score, and
from above the bound of docs/theorems/select.md, summed up directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from dptune.accounting import (
    Cost,
    DpSgd,
    Gaussian,
    Geometric,
    Laplace,
    Poisson,
    PureDp,
    compose,
    disjoint,
    select,
    subsample,
)

Floats = npt.NDArray[np.float64]
RATES = (0.001, 0.01, 0.1, 0.5)
SLACK = 1e-8
ROUNDOFF = 1e-9


@dataclass(frozen=True)
class Pair:
    """The probabilities of all outcomes under both neighbours."""

    p: Floats
    q: Floats

    def turned(self) -> Pair:
        return Pair(self.q, self.p)


def gaussian(noise: float, cells: int = 20_000) -> Pair:
    edges = np.concatenate([[-np.inf], np.linspace(-8.0, 8.0 + 1.0 / noise, cells - 1), [np.inf]])
    return Pair(_normal(edges - 1.0 / noise), _normal(edges))


def _normal(edges: Floats) -> Floats:
    """Of every cell, from the nearer tail."""
    found: Floats = np.where(edges[:-1] > 0, -np.diff(norm.sf(edges)), np.diff(norm.cdf(edges)))
    return found


def laplace(scale: float, cells: int = 20_000) -> Pair:
    """The likelihood ratio is constant outside of [0, 1]: one cell on either side."""
    inside = np.diff(np.exp(-np.linspace(0.0, 1.0, cells - 1)[::-1] / scale)) / 2.0
    far = math.exp(-1.0 / scale) / 2
    return Pair(np.concatenate([[far], inside, [0.5]]), np.concatenate([[0.5], inside[::-1], [far]]))


def pure(epsilon: float) -> Pair:
    yes = 1.0 / (1.0 + math.exp(-epsilon))
    return Pair(np.array([yes, 1.0 - yes]), np.array([1.0 - yes, yes]))


def product(one: Pair, two: Pair) -> Pair:
    return Pair(np.outer(one.p, two.p).ravel(), np.outer(one.q, two.q).ravel())


def sampled(pair: Pair, rate: float) -> Pair:
    return Pair(rate * pair.p + (1.0 - rate) * pair.q, pair.q)


def either(one: Pair, two: Pair, rate: float) -> Pair:
    """A record is in the first mechanism or in the second, by a coin."""
    p = rate * np.outer(one.p, two.q) + (1.0 - rate) * np.outer(one.q, two.p)
    return Pair(p.ravel(), np.outer(one.q, two.q).ravel())


FEW = 400  # cells of each factor of a product
DENSITIES: list[tuple[Cost, Callable[[], Pair]]] = [
    *((Gaussian(noise), lambda noise=noise: gaussian(noise)) for noise in (0.3, 1.0, 4.0)),
    *((Laplace(scale), lambda scale=scale: laplace(scale)) for scale in (0.5, 2.0)),
    *((PureDp(epsilon), lambda epsilon=epsilon: pure(epsilon)) for epsilon in (0.1, 1.0, 3.0)),
    (compose(Gaussian(2.0), Gaussian(3.0)), lambda: product(gaussian(2.0, FEW), gaussian(3.0, FEW))),
    (compose(Gaussian(2.0), Laplace(3.0)), lambda: product(gaussian(2.0, FEW), laplace(3.0, FEW))),
    (compose(PureDp(1.0), PureDp(0.5)), lambda: product(pure(1.0), pure(0.5))),
    (compose(*[PureDp(0.5)] * 4), lambda: product(*[product(pure(0.5), pure(0.5))] * 2)),
    (subsample(Gaussian(1.0), 0.1), lambda: sampled(gaussian(1.0), 0.1)),
    (subsample(Laplace(1.0), 0.3), lambda: sampled(laplace(1.0), 0.3)),
    (subsample(PureDp(2.0), 0.2), lambda: sampled(pure(2.0), 0.2)),
    (DpSgd(0.1, 1.0, 2), lambda: product(*[sampled(gaussian(1.0, FEW), 0.1)] * 2)),
    (disjoint(Gaussian(1.0), Gaussian(2.0), 0.1), lambda: either(gaussian(1.0, FEW), gaussian(2.0, FEW), 0.1)),
]


def best_test(pair: Pair, rate: float) -> float:
    """The power of the best test: outcomes by their likelihood ratio until the false positives are used up."""
    with np.errstate(divide="ignore"):
        order = np.argsort(-(np.log(pair.p) - np.log(pair.q)))
    false, right = np.cumsum(pair.q[order]), np.cumsum(pair.p[order])
    return float(np.interp(rate, np.concatenate([[0.0], false]), np.concatenate([[0.0], right])))


def smallest_mu(losses: Floats, profile: Floats) -> float:
    """The smallest Gaussian that covers these points of a profile up to the slack."""

    def excess(mu: float) -> float:
        cover = norm.cdf(mu / 2 - losses / mu) - np.exp(losses + norm.logcdf(-mu / 2 - losses / mu))
        return float(np.max(profile - cover)) - SLACK

    return float(brentq(excess, 1e-6, 60.0, xtol=1e-12))


def profile_of(pair: Pair, losses: Floats) -> Floats:
    return np.array([np.maximum(pair.p - math.exp(loss) * pair.q, 0.0).sum() for loss in losses])


@pytest.mark.parametrize(("cost", "densities"), DENSITIES, ids=[str(cost) for cost, _ in DENSITIES])
def test_readings_against_densities(cost: Cost, densities: Callable[[], Pair]) -> None:
    pair = densities()
    for rate in RATES:
        truth = max(best_test(pair, rate), best_test(pair.turned(), rate))
        assert truth * (1 - ROUNDOFF) <= cost.power(rate) <= truth * (1 + 1e-2)  # composition rounds outward to a grid
    losses = np.concatenate([np.linspace(0.0, 2.0, 41), np.linspace(2.0, 16.0, 29)[1:]])
    truth = max(smallest_mu(losses, profile_of(one, losses)) for one in (pair, pair.turned()))
    assert truth * (1 - ROUNDOFF) <= cost.mu(SLACK).mu <= truth * (1 + 3e-2)


@dataclass(frozen=True)
class Law:
    """A law of the number of runs by its generating function, the derivative of that, and its inverse."""

    f: Callable[[Floats], Floats]
    w: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]


def geometric(mean: float) -> Law:
    g = 1.0 / mean
    return Law(
        lambda z: g * z / (1 - (1 - g) * z),
        lambda z: g / (1 - (1 - g) * z) ** 2,
        lambda value: value / (g + (1 - g) * value),
    )


def poisson(mean: float) -> Law:
    return Law(
        lambda z: np.exp(mean * (z - 1)),
        lambda z: mean * np.exp(mean * (z - 1)),
        lambda value: np.maximum(1 + np.log(np.maximum(value, 1e-300)) / mean, 0.0),
    )


def roc(at: Floats, mu: float) -> Floats:
    """The power of the best test of one run at each false positive rate."""
    found: Floats = norm.cdf(norm.ppf(np.clip(at, 0.0, 1.0)) + mu)
    return found


def attack(law: Law, mu: float, rate: float) -> float:
    """A real attack on a real score: unlikely outcomes on top, then those that are tested for, then the rest."""
    top = norm.cdf(np.linspace(-6.0, 8.0, 4001))  # what is not on top, under the second neighbour
    top = top[law.f(top) - law.f(np.zeros(1)) > rate]
    tested = top - law.inverse(law.f(top) - rate)
    return float(np.max(law.f(roc(top, mu)) - law.f(np.maximum(roc(top, mu) - roc(tested, mu), 0.0))))


def summed_bound(law: Law, mu: float) -> Callable[[float], float]:
    """The bound of docs/theorems/select.md, its supremum over a grid."""
    y = np.linspace(-8.0, 8.0, 401)
    density = norm.pdf(y) / norm.pdf(y).sum()
    ratio = np.exp(mu * y - mu**2 / 2)
    at = norm.cdf(y)
    high, low = law.w(roc(at, mu)), law.w(at)
    none = float(law.f(np.zeros(1))[0])

    def delta(loss: float) -> float:
        above = np.max(np.outer(ratio, high) - math.exp(loss) * low, axis=1)
        return float(density @ np.maximum(above, 0.0)) + none * max(0.0, 1.0 - math.exp(loss))

    return delta


SELECTIONS = [
    (select(Gaussian(3.0), Geometric(30)), 1 / 3.0, geometric(30)),
    (select(Gaussian(2.0), Geometric(5)), 1 / 2.0, geometric(5)),
    (select(Gaussian(3.0), Poisson(15)), 1 / 3.0, poisson(15)),
]


@pytest.mark.parametrize(("cost", "mu", "law"), SELECTIONS, ids=[str(cost) for cost, _, _ in SELECTIONS])
def test_readings_of_a_selection(cost: Cost, mu: float, law: Law) -> None:
    """Between an attack that anybody can run and the bound, summed up directly."""
    delta = summed_bound(law, mu)
    rates = np.geomspace(1e-7, 0.6, 60)
    powers = np.array([attack(law, mu, float(rate)) for rate in rates])
    for rate, power in zip(rates[::15], powers[::15], strict=True):
        found = minimize_scalar(partial(_line, delta, float(rate)), bounds=(-2.0, 9.0), method="bounded").fun
        assert power <= cost.power(float(rate)) <= found * (1 + 1e-2)
        assert cost.power(float(rate)) <= power * 1.1  # the attack is a good one
    losses = np.linspace(0.0, 5.0, 21)
    reached = np.max(powers - np.outer(np.exp(losses), rates), axis=1)
    above = smallest_mu(losses, np.array([min(1.0, delta(loss)) for loss in losses]))
    assert smallest_mu(losses, reached) <= cost.mu(SLACK).mu <= above * (1 + 1e-2)


def _line(delta: Callable[[float], float], rate: float, loss: float) -> float:
    """What a point of a profile says of the power at a rate."""
    return delta(loss) + math.exp(loss) * rate


def test_there_are_twenty() -> None:
    assert len(DENSITIES) + len(SELECTIONS) == 20
