"""Certificates from below: the score that attains ``epsilon_lower`` exists and really costs that much.

Guards ``select(...).epsilon_lower`` (docs/theorems/interleaving.md). The score is read off piece by piece, checked to
be a score on parts of the base's outcomes, and its exact profile recomputed from the definition. A certificate is
also never worse than the three-block formula or any order of whole outcomes, beyond the stated step.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dptune.accounting import Gdp, select
from tests.accounting._exact import (
    Array,
    Law,
    awkward_atoms,
    best_path,
    binomial,
    divide,
    hull_profile,
    poisson,
    random_atoms,
    ranked_profile,
    roc_nodes,
    root,
    selection_profile,
    three_block,
    tnb,
    weights,
)

LAWS = [tnb(1.0, 10.0), tnb(0.0, 5.0), poisson(15.0), binomial(12, 0.4)]
NAMES = ["pure with middle", "approximate", "near ties"]
STEP = 2e-3  # of epsilon: the grid of the certificate and its last bracket


def roc(p: Array, q: Array, x: Array) -> Array:
    """U(x) of outcomes p against q."""
    level, power = roc_nodes(p, q, 1)
    top = np.append(np.diff(level) > 0, True)  # of several powers at one level the last
    return np.asarray(np.interp(x, level[top], power[top]))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("name", NAMES)
def test_score_of_the_certificate_attains_it(name: str, law: Law) -> None:
    cost, delta = awkward_atoms()[name], 3e-3
    priced = select(cost, law.runs)
    certificate, forward = priced._certificate(delta)
    p, q = certificate.programme.score(certificate.epsilon)
    # A score on parts of outcomes: the pieces are two laws, no easier to tell apart than the base.
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    assert p.min() >= 0.0
    assert q.min() >= 0.0
    level, power = roc_nodes(p, q, 1)
    base = weights(cost, "remove" if forward else "add")
    assert (power <= roc(*base, level) + 1e-9).all()
    # What its winner reveals, from the definition.
    e = np.array([certificate.epsilon])
    attained = float(ranked_profile(p, q, law, np.exp(e), np.arange(len(p))[None])[0])
    assert certificate.epsilon == 0.0 or attained >= delta * (1.0 - 1e-6)
    assert priced.epsilon_lower(delta) >= certificate.epsilon - 1e-6


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("name", NAMES)
def test_certificate_is_between_simple_scores_and_the_bound(name: str, law: Law) -> None:
    cost, delta = awkward_atoms()[name], 1e-2
    priced = select(cost, law.runs)
    found = priced.epsilon_lower(delta)
    assert found <= priced.epsilon(delta) + 1e-9

    pairs = [weights(cost, direction) for direction in ("remove", "add")]
    nodes = [roc_nodes(p, q, 12) for p, q in pairs]
    parts = [divide(p, q, np.full(len(p), 60)) for p, q in pairs]

    def formula(e: Array) -> Array:
        return np.asarray(np.max([hull_profile(p, q, law, e) for p, q in pairs], axis=0))

    def orders(e: Array) -> Array:
        return np.asarray(np.max([selection_profile(p, q, law, e) for p, q in pairs], axis=0))

    def blocks(e: Array) -> Array:
        return np.asarray(np.max([three_block(x, u, law, e) for x, u in nodes], axis=0))

    def paths(e: Array) -> Array:
        return np.asarray(np.max([best_path(p, q, law, e) for p, q in parts], axis=0))

    if math.isinf(found):  # what one world never shows is already worth more than delta
        assert orders(np.array([60.0]))[0] > delta
        return
    assert found <= root(formula, delta, rounds=4) + STEP
    assert found >= root(orders, delta, rounds=4) - STEP
    assert found >= root(blocks, delta, rounds=4) - STEP
    # Fine interleavings, found independently: the truth is near them, so the certificate cannot be far above.
    assert found <= root(paths, delta, rounds=4) + 0.03


@pytest.mark.parametrize("seed", range(2))
def test_certificates_of_random_pairs_are_below_the_truth(seed: int) -> None:
    rng = np.random.default_rng([seed, 9])
    cost = random_atoms(rng, 4, 0.7, 0.3)
    for law in (tnb(1.0, 10.0), poisson(15.0)):
        for delta in (0.05, 1e-3):
            found = select(cost, law.runs).epsilon_lower(delta)
            e = np.array([min(found, 60.0)])
            truth = max(float(hull_profile(*weights(cost, d), law, e)[0]) for d in ("remove", "add"))
            assert found == 0.0 or truth >= delta * (1 - 1e-9)
            assert found <= select(cost, law.runs).epsilon(delta)


# Gaussian bases: the three-block formula on the exact ROC curve.


def _gaussian_blocks(mu: float, law: Law, delta: float) -> float:
    """The best three-block epsilon on a grid of levels: low ratios on top, then S, then the rest."""
    x = np.unique(np.concatenate([np.geomspace(1e-14, 0.5, 160), 1.0 - np.geomspace(1e-12, 0.5, 160)]))
    u = norm.sf(norm.isf(x) - mu)
    return root(lambda e: three_block(x, u, law, e), delta, rounds=4)


@pytest.mark.parametrize(
    "law", [tnb(1.0, 10.0), tnb(0.0, 50.0), tnb(-0.5, 10.0), poisson(15.0), binomial(30, 0.5)], ids=lambda law: law.name
)
@pytest.mark.parametrize(("base", "delta"), [(0.5, 1e-6), (4.0, 1e-5), (1.0, 1e-2)])
def test_three_blocks_on_gaussian_bases(base: float, delta: float, law: Law) -> None:
    mu = float(
        brentq(lambda m: norm.sf(base / m - m / 2) - math.exp(base) * norm.sf(base / m + m / 2) - delta, 1e-3, 9)
    )
    priced = select(Gdp(mu), law.runs)
    blocks, lower, upper = _gaussian_blocks(mu, law, delta), priced.epsilon_lower(delta), priced.epsilon(delta)
    assert blocks <= upper
    assert lower <= upper
    assert lower >= blocks - STEP
    if delta <= 1e-5:
        assert upper <= 1.02 * lower


@pytest.mark.parametrize(
    ("base", "law", "tight", "lower"),
    [
        (1.0, tnb(1.0, 10.0), 1.5396, 1.532),
        (1.0, tnb(1.0, 100.0), 2.0595, 2.049),
        (1.0, tnb(0.0, 50.0), 1.7095, 1.703),
        (4.0, tnb(1.0, 10.0), 5.8942, 5.874),
        (4.0, tnb(1.0, 100.0), 7.6925, 7.664),
    ],
)
def test_documented_values(base: float, law: Law, tight: float, lower: float) -> None:
    mu = float(brentq(lambda m: norm.sf(base / m - m / 2) - math.exp(base) * norm.sf(base / m + m / 2) - 1e-5, 1e-3, 9))
    priced = select(Gdp(mu), law.runs)
    assert priced.epsilon(1e-5) == pytest.approx(tight, rel=2e-3)
    assert priced.epsilon_lower(1e-5) >= lower - 1.5e-3
