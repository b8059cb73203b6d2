"""Laws of the number of runs against their definitions, exact sums and simulation.

Guards ``dptune.accounting.runs``: the accounting sees a law only through f, its derivatives and gains, so these are
compared with sums over probabilities that are computed here from the definitions in exact or independent arithmetic.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptune.accounting import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, Runs
from dptune.accounting.runs import parse_runs, runs_from_json
from tests.accounting._exact import Array, Law, binomial, once, poisson, stopping, tnb

LAWS = [
    once(),
    tnb(1.0, 1.5),
    tnb(1.0, 10.0),
    tnb(0.0, 5.0),
    tnb(-0.5, 4.0),
    tnb(2.5, 20.0),
    poisson(0.5),
    poisson(15.0),
    binomial(1, 0.3),
    binomial(12, 0.4),
    binomial(5, 1.0),
]
Z = np.concatenate([np.linspace(0.0, 1.0, 23), 1 - np.geomspace(1e-9, 1e-2, 8)])


def _probabilities(runs: Runs) -> Array:
    """P(K = k), k = 0, 1, ..., from the definitions by scipy or by recursion."""
    if isinstance(runs, Poisson):
        return np.asarray(stats.poisson.pmf(np.arange(400), runs.mean))
    if isinstance(runs, Binomial):
        return np.asarray(stats.binom.pmf(np.arange(runs.trials + 1), runs.trials, runs.probability_each))
    assert isinstance(runs, NegativeBinomial)
    if runs.mean == 1.0:
        return np.array([0.0, 1.0])
    gamma = 1.0 / runs.mean if runs.shape == 1.0 else stopping(runs.shape, runs.mean)
    k = np.arange(1, 20_000)
    # Gamma(k + shape) / (k! Gamma(shape)) (1 - gamma)^k up to a constant: ratio of neighbours.
    logs = np.concatenate([[0.0], np.cumsum(np.log((k[:-1] + runs.shape) / (k[:-1] + 1.0)) + math.log1p(-gamma))])
    return np.append(0.0, np.exp(logs) / np.exp(logs).sum())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_functions_are_sums_over_the_probabilities(law: Law) -> None:
    pmf = _probabilities(law.runs)
    k = np.arange(len(pmf), dtype=float)
    powers = Z[:, None] ** k
    assert law.runs.generating(Z) == pytest.approx(powers @ pmf, abs=1e-12)
    assert law.f(Z) == pytest.approx(powers @ pmf, abs=1e-12)
    assert law.runs.never == pytest.approx(pmf[0], abs=1e-15)
    assert law.runs.expected == pytest.approx(k @ pmf, rel=1e-9)
    falling = np.ones_like(k)
    for order in (1, 2, 3):
        falling = falling * np.maximum(k - order + 1, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(falling > 0, falling * Z[:, None] ** np.maximum(k - order, 0.0), 0.0) @ pmf
        assert law.runs.slope(Z, order) == pytest.approx(exact, rel=1e-7, abs=1e-12)
    assert law.w(Z) == pytest.approx(law.runs.slope(Z), rel=1e-8)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_probabilities_and_quantiles(law: Law) -> None:
    pmf = _probabilities(law.runs)
    for k in (0, 1, 2, 3, 7, 11):
        expected = pmf[k] if k < len(pmf) else 0.0
        assert law.runs.probability(k) == pytest.approx(expected, rel=1e-8, abs=1e-15)
    below = np.cumsum(pmf)
    for level in (0.0, 0.01, 0.2, 0.5, 0.9, 0.999, 0.999999):
        k = law.runs.quantile(level)
        assert below[k] >= level - 1e-9
        assert k == 0 or below[k - 1] < level + 1e-9


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_gain_keeps_its_digits(law: Law) -> None:
    """f(z) - f(z - d) for tiny d is w(z) d; for all d it is the difference."""
    for z in (0.05, 0.5, 0.99, 1.0):
        at = np.array([z])
        for d in (1e-15, 1e-12, 1e-9):
            assert law.runs.gain(at, np.array([d]))[0] == pytest.approx(law.w(at)[0] * d, rel=1e-5)
        for d in (0.01 * z, 0.5 * z, z):
            exact = law.f(at)[0] - law.f(at - d)[0]
            assert law.runs.gain(at, np.array([d]))[0] == pytest.approx(exact, abs=1e-14)
            assert law.step(at, np.array([d]))[0] == pytest.approx(exact, abs=1e-14)


def test_geometric_gain_in_exact_arithmetic() -> None:
    for z, d in (
        (Fraction(1, 3), Fraction(1, 7)),
        (Fraction(1), Fraction(1, 10**12)),
        (Fraction(9, 10), Fraction(9, 10)),
    ):

        def f(x: Fraction) -> Fraction:
            return Fraction(1, 10) * x / (1 - Fraction(9, 10) * x)

        exact = float(f(z) - f(z - d))
        assert Geometric(10).gain(np.array([float(z)]), np.array([float(d)]))[0] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("fraction", [0.0, 1e-6, 0.05, 0.5, 1.0])
def test_hit_probability(law: Law, fraction: float) -> None:
    pmf = _probabilities(law.runs)
    exact = 1.0 - (1.0 - fraction) ** np.arange(len(pmf)) @ pmf
    assert law.runs.hit_probability(fraction) == pytest.approx(exact, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize(
    "law", [tnb(1.0, 10.0), tnb(0.0, 5.0), tnb(-0.5, 4.0), poisson(3.0), binomial(12, 0.4)], ids=lambda law: law.name
)
def test_samples_follow_the_law(law: Law) -> None:
    """Seeded; were it not, each chi-square test would raise a false alarm once in ten million runs."""
    rng = np.random.default_rng(17)
    drawn = np.array([law.runs.sample(rng.random) for _ in range(3000)])
    pmf = _probabilities(law.runs)[:4000]
    edges = np.unique(np.searchsorted(np.cumsum(pmf), np.linspace(0.05, 0.95, 12)))
    cells = np.concatenate([[-1], edges, [10**9]])
    total = np.append(0.0, np.cumsum(pmf))
    upper = total[np.minimum(cells[1:] + 1, len(pmf))]
    lower = total[np.maximum(cells[:-1] + 1, 0)]
    upper[-1] = 1.0
    expected = 3000 * (upper - lower)
    seen = np.histogram(drawn, cells + 0.5)[0]
    keep = expected > 5
    statistic = ((seen - expected)[keep] ** 2 / expected[keep]).sum()
    assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-7


def test_operating_system_randomness_is_used_by_default() -> None:
    """Thirty equal draws of a law with 30 % at its mode happen less than once in 1e15 runs."""
    assert len({Poisson(50).sample() for _ in range(30)}) > 1
    assert Binomial(7, 1.0).sample() == 7
    assert Geometric(1).sample() == 1


@pytest.mark.parametrize("uniform", [0.0, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_extreme_uniforms_give_a_number_of_runs(law: Law, uniform: float) -> None:
    k = law.runs.sample(lambda: uniform)
    assert isinstance(k, int)
    assert k >= (1 if law.never == 0.0 else 0)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_descriptions_come_back(law: Law) -> None:
    again = runs_from_json(json.loads(json.dumps(law.runs.describe())))
    assert again == law.runs
    assert again.generating(Z) == pytest.approx(law.runs.generating(Z), abs=0.0)


def test_texts_of_the_command_line() -> None:
    assert parse_runs("geometric:10") == Geometric(10)
    assert parse_runs("logarithmic:50") == Logarithmic(50)
    assert parse_runs("poisson:15") == Poisson(15)
    assert parse_runs("tnb:-0.5,10") == NegativeBinomial(-0.5, 10)
    assert parse_runs("binomial:30,0.5") == Binomial(30, 0.5)


def test_shapes_join_smoothly() -> None:
    """Shape 0 is the limit of small shapes, in the mean's parameter and in the functions."""
    for shape in (1e-5, -1e-5):
        near, limit = NegativeBinomial(shape, 20.0), Logarithmic(20.0)
        assert near.generating(Z) == pytest.approx(limit.generating(Z), abs=2e-4)
        assert near.slope(Z) == pytest.approx(limit.slope(Z), rel=1e-3)
        d = 0.3 * Z
        assert near.gain(Z, d) == pytest.approx(limit.gain(Z, d), abs=2e-4)


@pytest.mark.parametrize("mean", [1.0 + 1e-9, 1.001, 1e3, 1e6])
@pytest.mark.parametrize("shape", [-0.9, -0.5, 0.0, 0.3, 1.0, 5.0])
def test_means_far_from_the_ordinary(shape: float, mean: float) -> None:
    runs = NegativeBinomial(shape, mean)
    assert 0.0 < runs.stopping < 1.0
    one = np.ones(1)
    assert runs.generating(one)[0] == pytest.approx(1.0, abs=1e-9)
    assert runs.generating(np.zeros(1))[0] == pytest.approx(0.0, abs=1e-12)
    assert runs.slope(one)[0] == pytest.approx(mean, rel=1e-9)
    # The derivative of f by differences agrees with w.
    z = np.array([0.3, 0.7])
    assert runs.gain(z, np.full(2, 1e-7))[0] / 1e-7 == pytest.approx(runs.slope(z)[0], rel=1e-5)
