"""The paper's rivals: each finds the clear winner when noise is absent, and pays the stated noise when it is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.reproductions import _hype_baselines as baselines

rng = np.random.default_rng


def table(clients: int = 200, candidates: int = 20, winner: int = 7) -> np.ndarray:
    scores = rng(0).uniform(0.1, 0.3, (clients, candidates))
    scores[:, winner] = 0.9
    return scores


METHODS: list[Callable[..., int]] = [
    partial(baselines.binary_vote, votes=3),
    partial(baselines.raw_vote, votes=3),
    baselines.subsets_vote,
    baselines.feathers,
]


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_the_winner_wins(method: Callable[..., int]) -> None:
    assert method(table(), epsilon=math.inf, delta=1e-5, rng=rng(1)) == 7


def test_opt_and_guess() -> None:
    assert baselines.optimum([0.1, 0.9, 0.5]) == 1
    assert baselines.random_guess([0.1, 0.9, 0.5]) == pytest.approx(0.5)


def test_one_gaussian_release_is_calibrated_exactly() -> None:
    # Balle and Wang's analytic Gaussian at sensitivity 1, epsilon 1, delta 1e-5: sigma = 3.7306.
    assert baselines.gaussian_sigma(1.0, 1.0, 1e-5) == pytest.approx(3.7306, abs=2e-4)
    assert baselines.gaussian_sigma(2.0, 1.0, 1e-5) == pytest.approx(2 * 3.7306, abs=4e-4)


def test_at_small_budgets_the_vote_beats_its_rivals() -> None:
    # The same 200 clients at epsilon .5: votes add up to 200 against deviation 17; a rival's signal is far smaller.
    success = {}
    for name, method in zip(("binary", "raw", "subsets", "feathers"), METHODS, strict=True):
        generator = rng(5)
        success[name] = np.mean([method(table(), epsilon=0.5, delta=1e-5, rng=generator) == 7 for _ in range(60)])
    assert success["binary"] == 1.0
    assert success["subsets"] < 0.5
    assert success["feathers"] < 0.9


@pytest.mark.parametrize("scores", [[[0.5, 1.5]], [0.5, 0.5], [[math.nan, 0.5]]])
def test_scores_must_be_accuracies(scores: list[list[float]]) -> None:
    with pytest.raises(InvalidInput, match="accuracies"):
        baselines.raw_vote(scores, votes=1, epsilon=1, delta=1e-5, rng=rng(0))


def test_subsets_need_enough_clients() -> None:
    with pytest.raises(InvalidInput, match="cannot cover"):
        baselines.subsets_vote(np.full((5, 6), 0.5), epsilon=1, delta=1e-5, rng=rng(0))
