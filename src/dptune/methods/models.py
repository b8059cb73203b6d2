"""Stated utility models: how likely a shard method or a vote is to choose well, by simulation in numpy.

The models are assumptions, not measurements: utilities uniform on (0, 1) as in Ding et al.'s experiments; a client's
local score is the utility plus Gaussian noise. Nothing here touches data, and nothing here may be used to choose on
private data: that is what the exact samplers are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dptune.accounting.shards import ElasticRounds, sparse_vector
from dptune.methods.threshold import worst_case_weight

__all__ = ["Rounds", "elastic_rounds", "flip_choices", "sparse_choices", "top_share", "vote_choices"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rounds:
    """One simulated run of elastic thresholds: who was chosen after every round (-1: nobody yet)."""

    chosen: list[int]
    passes: int
    spent: float

    @property
    def final(self) -> int:
        return self.chosen[-1] if self.chosen else -1


def elastic_rounds(
    utilities: Array,
    k_epsilon: float,
    granularity: float,
    rng: np.random.Generator,
    *,
    start: float = 0.0,
    budget: float = math.inf,
    most: int = 10_000,
    free_above_one: bool = True,
) -> Rounds:
    """Ding et al.'s Algorithm 1 with noise Lap(2/k e) and Lap(4/k e), e being the unit of ``budget``.

    An infinite budget and ``free_above_one=False`` give the paper's own, unbounded procedure.
    """
    u, step, chosen, passes, spent = start, 1, -1, 0, 0.0
    trace: list[int] = []
    while step and spent + 1.0 <= budget + 1e-9 and len(trace) < most:
        above = None
        proposal = u + step * granularity
        if not free_above_one or proposal <= 1.0 + 1e-12:
            level = proposal + rng.laplace(0.0, 2.0 / k_epsilon)
            over = utilities + rng.laplace(0.0, 4.0 / k_epsilon, len(utilities)) >= level
            above = int(np.argmax(over)) if over.any() else None
            spent += 0.5 if above is None else 1.0
        if above is None:
            step //= 2
        else:
            chosen, u, step, passes = above, u + granularity * step, 2 * step, passes + 1
        trace.append(chosen)
    return Rounds(trace, passes, spent)


def sparse_choices(utilities: Array, k_budget: float, granularity: float, rng: np.random.Generator) -> int:
    """One sparse vector over the same proposals; -1 if nothing passed."""
    elastic = ElasticRounds(0.0, granularity)
    vector = sparse_vector(1.0, 1.0, max(1, 2 * elastic.doublings()))
    shift, left = rng.laplace(0.0, vector.threshold_scale / k_budget), vector.passes
    u, step, chosen = 0.0, 1, -1
    while step and left:
        proposal = u + step * granularity
        over = np.zeros(1, dtype=bool)
        if proposal <= 1.0 + 1e-12:
            over = utilities + rng.laplace(0.0, vector.query_scale / k_budget, len(utilities)) >= proposal + shift
        if over.any():
            chosen, u, step, left = int(np.argmax(over)), u + granularity * step, 2 * step, left - 1
        else:
            step //= 2
    return chosen


def flip_choices(utilities: Array, k_budget: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Permute-and-flip for every row, as the largest utility plus exponential noise (the same law)."""
    return np.asarray(np.argmax(utilities + rng.exponential(2.0 / k_budget, utilities.shape), axis=1))


def vote_choices(
    utilities: Array, clients: int, votes: int, sigma: float, deviation: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The winner of a noisy vote for every row of utilities."""
    n, p = utilities.shape
    chosen = np.zeros(n, dtype=np.int64)
    for row in range(n):
        local = utilities[row] + rng.normal(0.0, deviation, (clients, p))
        best = np.argpartition(-local, votes - 1, axis=1)[:, :votes]
        totals = np.bincount(best.ravel(), minlength=p) + rng.normal(0.0, sigma, p)
        chosen[row] = int(np.argmax(totals))
    return chosen


def top_share(utilities: Array, chosen: NDArray[np.int64], fraction: float) -> float:
    """How often the chosen one is among the best ``fraction``; nobody chosen (-1) is a miss."""
    keep = max(1, math.floor(utilities.shape[1] * fraction + 1e-9))
    edge = np.sort(utilities, axis=1)[:, -keep]
    rows = np.arange(len(utilities))
    hit = (chosen >= 0) & (utilities[rows, np.maximum(chosen, 0)] >= edge)
    return float(hit.mean())


def threshold_choices(
    utilities: Array, k_budget: float, granularity: float, variant: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The choice of thresholds for every row, with the package's own noise (``rounds``) or one sparse vector."""
    if variant == "sparse":
        return np.array([sparse_choices(row, k_budget, granularity, rng) for row in utilities])
    weight = max(worst_case_weight(ElasticRounds(0.0, granularity)), 1.0)
    return np.array(
        [elastic_rounds(row, k_budget / weight, granularity, rng, budget=weight).final for row in utilities]
    )
