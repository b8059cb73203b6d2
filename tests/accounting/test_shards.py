"""Shards: the round count against a simulation of the step rule, the cost of a round by integration."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptune.accounting.shards import (
    ElasticRounds,
    filtered_rounds,
    permute_and_flip,
    sparse_vector,
)


def _simulated_rounds(steps: int) -> int:
    """Ding et al., Algorithm 1, without noise, in units of the granularity above the start: a pass doubles the
    step, a fail halves it, and the search ends when the step is zero."""
    threshold, step, rounds = 0, 1, 0
    while step:
        rounds += 1
        if threshold + step <= steps:
            threshold += step
            step *= 2
        else:
            step //= 2
    assert threshold == steps
    return rounds


@given(st.integers(0, 5000))
@settings(max_examples=200)
def test_rounds_match_the_step_rule(steps: int) -> None:
    rounds = ElasticRounds(0.0, 1.0 / 5000)
    best = steps / 5000
    assert rounds.steps(best) == steps
    assert rounds.rounds(best) == _simulated_rounds(steps)
    assert rounds.rounds(best) <= 4 * rounds.doublings(best) + 1 <= 4 * rounds.doublings() + 1


def _above_threshold(utilities: list[float], threshold: float, d: float, e: float) -> tuple[list[float], float]:
    """P(first pass at i) for each i, and P(all fail), by integrating over the threshold's noise."""
    z = np.linspace(-80 * d / e, 80 * d / e, 400_001)
    density = np.exp(-np.abs(z) * e / (2 * d)) * e / (4 * d)

    def below(u: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        x = (threshold + z - u) * e / (4 * d)
        return np.where(x > 0, 1 - 0.5 * np.exp(-np.abs(x)), 0.5 * np.exp(-np.abs(x)))

    passes, still = [], density.copy()
    for u in utilities:
        fail = below(u)
        passes.append(float(np.trapezoid(still * (1 - fail), z)))
        still = still * fail
    return passes, float(np.trapezoid(still, z))


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, -1), (1, -1, 1), (-1, 1, -1)])
def test_a_pass_costs_e_and_a_round_of_fails_half(signs: tuple[int, int, int]) -> None:
    d, e = 0.02, 0.7
    base = [0.5, 0.52, 0.47]
    other = [u + s * d for u, s in zip(base, signs, strict=True)]
    first, fails = _above_threshold(base, 0.5, d, e)
    second, other_fails = _above_threshold(other, 0.5, d, e)
    for one, two in zip(first, second, strict=True):
        assert abs(math.log(one / two)) <= e + 1e-6
    assert abs(math.log(fails / other_fails)) <= e / 2 + 1e-6


def _permute_and_flip(utilities: list[float], budget: float, d: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Exact output law of permute-and-flip by summing over all visiting orders."""
    accept = [math.exp(budget * (u - max(utilities)) / (2 * d)) for u in utilities]
    law = np.zeros(len(utilities))
    orders = list(permutations(range(len(utilities))))
    for order in orders:
        reach = 1.0
        for i in order:
            law[i] += reach * accept[i]
            reach *= 1 - accept[i]
    return law / len(orders)


def test_permute_and_flip_stays_within_its_budget() -> None:
    d, budget = 0.1, 1.3
    rng = np.random.default_rng(7)
    for _ in range(50):
        base = rng.uniform(0, 1, 4)
        other = np.clip(base + rng.choice([-d, 0, d], 4), 0, 1)
        one, two = _permute_and_flip(list(base), budget, d), _permute_and_flip(list(other), budget, d)
        assert one.sum() == pytest.approx(1.0)
        assert np.abs(np.log(one / two)).max() <= budget + 1e-9
    assert permute_and_flip(budget).epsilon(1e-5) <= budget


def test_the_whole_budget_is_charged() -> None:
    assert filtered_rounds(2.0).pure_epsilon == 2.0
    split = sparse_vector(2.0, 0.01, 8)
    e1, e2 = 0.01 / split.threshold_scale, 2 * 8 * 0.01 / split.query_scale
    assert e1 + e2 == pytest.approx(2.0)
    assert e2 / e1 == pytest.approx(16 ** (2 / 3))
    assert split.cost.pure_epsilon == 2.0
