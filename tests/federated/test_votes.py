"""Ballots: exactly k votes whatever the losses, and noise with the right law."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from dptune.errors import InvalidInput
from dptune.federated.noise import discrete_gaussian
from dptune.federated.votes import ballot, best

NAN = float("nan")


def test_the_smallest_losses_win() -> None:
    assert best([3.0, 1.0, 2.0, 0.5], 2) == [1, 3]


@pytest.mark.parametrize("losses", [[NAN, 1.0, 5.0, math.inf], [math.inf, 1.0, 5.0, NAN]])
def test_nan_ranks_last_even_behind_infinity(losses: list[float]) -> None:
    chosen = best(losses, 3)
    assert all(not math.isnan(losses[j]) for j in chosen)


def test_nan_still_gives_exactly_k_votes() -> None:
    assert len(best([NAN] * 10, 4)) == 4
    assert 2 in best([NAN, NAN, 1.0, NAN], 2)


def test_ties_are_drawn_by_lot() -> None:
    # Each of 4 equal candidates is chosen first with probability 1/4: 400 draws, never seen has chance 4 *
    # .75^400.
    assert set(Counter(best([1.0] * 4, 1)[0] for _ in range(400))) == {0, 1, 2, 3}


@pytest.mark.parametrize(("votes", "match"), [(0, "votes"), (5, "more candidates than"), (4, "pure noise")])
def test_impossible_numbers_of_votes(votes: int, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        best([1.0, 2.0, 3.0, 4.0], votes)


def test_the_ballot_is_scaled_votes_plus_noise() -> None:
    # sigma = .05 is zero except with probability 2 exp(-200).
    assert ballot([1, 3], 5, 7, 0.05).tolist() == [0, 7, 0, 7, 0]


@pytest.mark.parametrize("sigma", [0.4, 1.3, 7.0])
def test_noise_has_the_discrete_gaussian_law(sigma: float) -> None:
    draws = discrete_gaussian(sigma, 20_000)
    reach = math.ceil(3 * sigma)
    support = np.arange(-12 * reach, 12 * reach + 1)
    law = np.exp(-(support**2) / (2 * sigma**2))
    law /= law.sum()
    clipped, places = np.clip(draws, -reach, reach), range(-reach, reach + 1)
    shares = [float(law[np.clip(support, -reach, reach) == x].sum()) for x in places]
    # The noise has no seed. Every count is binomial: exact levels, at most one false alarm in 1e8 runs.
    for x, share in zip(places, shares, strict=True):
        assert binomtest(int((clipped == x).sum()), 20_000, min(share, 1.0)).pvalue > 1e-8 / len(places)


@pytest.mark.parametrize("sigma", [0.0, -1.0, NAN])
def test_noise_needs_a_positive_width(sigma: float) -> None:
    with pytest.raises(InvalidInput, match="sigma"):
        discrete_gaussian(sigma, 3)
