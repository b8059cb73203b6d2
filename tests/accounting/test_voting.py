"""Votes: closed values, brute force over the ring's outcomes, and an independent bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptune.accounting.cost import cost_from_json
from dptune.accounting.voting import (
    RingVote,
    calibrate_vote,
    continuous_vote,
    vote_sensitivity,
    votes_sigma,
)
from dptune.errors import InvalidInput


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 97.24), (0.25, 42.01), (0.5, 22.24), (1.0, 11.80), (3.0, 4.40)])
def test_exact_scales_for_five_votes(epsilon: float, sigma: float) -> None:
    found = votes_sigma(epsilon, 1e-5, candidates=100, votes=5)
    assert found == pytest.approx(sigma, abs=0.005)
    assert continuous_vote(100, 5, found).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert continuous_vote(100, 5, found).epsilon(1e-5) <= epsilon


@pytest.mark.parametrize(("scale", "epsilon"), [(1, 10.9), (3, 2.77)])
def test_small_scales_cost_more_than_they_seem(scale: int, epsilon: float) -> None:
    vote = RingVote(100, 5, scale, scale * 4.72 / math.sqrt(250), 250)
    assert vote.epsilon(1e-5) == pytest.approx(epsilon, rel=0.005)


def _discrete_gaussian(sigma: float, reach: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    x = np.arange(-reach, reach + 1)
    masses = np.array([math.exp(-(int(v) ** 2) / (2 * sigma**2)) for v in x])
    return np.asarray(masses / masses.sum())


@pytest.mark.parametrize(("sigma", "shares", "scale"), [(1.2, 3, 1), (0.6, 5, 2), (2.0, 1, 3)])
def test_against_all_outcomes_of_two_coordinates(sigma: float, shares: int, scale: int) -> None:
    """One vote among two candidates: a replaced client moves one coordinate up and the other down."""
    one = _discrete_gaussian(sigma, 30)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    pad = np.zeros(scale)
    shifted, plain = np.concatenate([pad, total]), np.concatenate([total, pad])
    p, q = np.multiply.outer(shifted, plain), np.multiply.outer(plain, shifted)
    vote = RingVote(2, 1, scale, sigma, shares)
    for e in (0.0, 0.5, 1.0, 2.0, 4.0):
        exact = float(np.maximum(p - math.exp(e) * q, 0.0).sum())
        assert exact - 1e-12 <= vote.delta(e) <= exact * 1.02 + 1e-9


def test_the_sum_is_close_to_one_discrete_gaussian_as_kairouz_liu_steinke_say() -> None:
    """Kairouz, Liu, Steinke 2021, Proposition 14: the max divergence between the sum of n discrete Gaussians
    and one with the summed variance is at most tau = 10 sum_k exp(-2 pi^2 sigma^2 k/(k+1))."""
    sigma, shares, scale = 1.5, 20, 1
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, shares))
    changed = 2
    continuous = continuous_vote(10, 1, sigma * math.sqrt(shares)).epsilon(1e-5)
    exact = RingVote(10, 1, scale, sigma, shares).epsilon(1e-5)
    assert abs(exact - continuous) <= 2 * changed * tau + 0.002 * continuous


def test_sensitivity() -> None:
    assert vote_sensitivity(100, 5) == pytest.approx(math.sqrt(10))
    assert vote_sensitivity(6, 5) == pytest.approx(math.sqrt(2))
    assert vote_sensitivity(6, 5, exactly=False) == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize("epsilon", [0.25, 3.0])
def test_calibration_meets_the_budget_with_honest_survivors_only(epsilon: float) -> None:
    vote = calibrate_vote(epsilon, 1e-5, clients=250, candidates=100, votes=5, dropout=0.2, colluding=3)
    assert vote.shares == 250 * 0.8 - 3
    assert vote.epsilon(1e-5) <= epsilon
    assert vote.total_sigma <= 1.02 * votes_sigma(epsilon, 1e-5, candidates=100, votes=5)


def test_the_certificate_is_below_and_json_is_lossless() -> None:
    vote = RingVote(100, 5, 3, 0.9, 200)
    assert vote.epsilon_lower(1e-5) <= vote.epsilon(1e-5) <= 1.01 * vote.epsilon_lower(1e-5)
    assert cost_from_json(vote.to_json()) == vote


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"candidates": 5, "votes": 5}, "'votes' must be below 'candidates'"),
        ({"candidates": 1, "votes": 1}, "'candidates' must be a whole number"),
        ({"candidates": 9, "votes": 0}, "'votes' must be a whole number"),
    ],
)
def test_impossible_votes(fields: dict[str, int], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        RingVote(fields["candidates"], fields["votes"], scale=1, sigma=1.0, shares=10)


def test_nobody_honest_left() -> None:
    with pytest.raises(InvalidInput, match="No honest noise is left"):
        calibrate_vote(1, 1e-5, clients=4, candidates=10, votes=1, dropout=0.5, colluding=2)
