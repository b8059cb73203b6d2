"""Stated utility models: how likely a shard method or a vote is to choose well, by simulation in numpy.

The models are assumptions, not measurements: utilities uniform on (0, 1) as in Ding et al.'s experiments; a client's
local score is the utility plus Gaussian noise. Nothing here touches data, and nothing here may be used to choose on
private data: that is what the exact samplers are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting.shards import ElasticRounds, ElasticStep, above_threshold, flip_rate, sparse_vector

__all__ = [
    "CLIENT_DEVIATION",
    "Rounds",
    "elastic_rounds",
    "flip_choices",
    "sparse_choices",
    "top_share",
    "vote_choices",
]

CLIENT_DEVIATION = 0.2  # of a client's local score from the utility


@dataclass(frozen=True)
class Rounds:
    """One simulated run of elastic thresholds: who was chosen after every round (-1: nobody yet), what was spent."""

    chosen: list[int]
    spent: float

    @property
    def final(self) -> int:
        """Who was chosen in the end; -1 for nobody."""
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
    elastic, chosen, spent = ElasticStep(start, granularity), -1, 0.0
    one = above_threshold(1, 1)
    trace: list[int] = []
    while elastic.step and spent + 1.0 <= budget + 1e-9 and len(trace) < most:
        above = None
        if not (free_above_one and elastic.impossible):
            level = elastic.proposal() + rng.laplace(0.0, float(one.threshold_scale) / k_epsilon)
            noisy = utilities + rng.laplace(0.0, float(one.query_scale) / k_epsilon, len(utilities))
            above = int(np.argmax(noisy >= level)) if (noisy >= level).any() else None
            spent += float(one.failed if above is None else one.passed)
        elastic.answer(above is not None)
        if above is not None:
            chosen = above
        trace.append(chosen)
    return Rounds(trace, spent)


def sparse_choices(utilities: Array, k_budget: float, granularity: float, rng: np.random.Generator) -> int:
    """One sparse vector over the same proposals; -1 if nothing passed."""
    vector = sparse_vector(1.0, 1.0, ElasticRounds(0.0, granularity).most_passes())
    shift, left = rng.laplace(0.0, float(vector.threshold_scale) / k_budget), vector.passes
    elastic, chosen = ElasticStep(0.0, granularity), -1
    while elastic.step and left:
        over = np.zeros(1, dtype=bool)
        if not elastic.impossible:
            noise = rng.laplace(0.0, float(vector.query_scale) / k_budget, len(utilities))
            over = utilities + noise >= elastic.proposal() + shift
        elastic.answer(bool(over.any()))
        if over.any():
            chosen, left = int(np.argmax(over)), left - 1
    return chosen


def flip_choices(utilities: Array, k_budget: float, rng: np.random.Generator) -> Indices:
    """Permute-and-flip for every row, as the largest utility plus exponential noise (the same law)."""
    return np.asarray(
        np.argmax(utilities + rng.exponential(1.0 / float(flip_rate(k_budget, 1)), utilities.shape), axis=1)
    )


def vote_choices(
    utilities: Array, clients: int, votes: int, sigma: float, deviation: float, rng: np.random.Generator
) -> Indices:
    """The winner of a noisy vote for every row of utilities."""
    n, p = utilities.shape
    chosen = np.zeros(n, dtype=np.int64)
    for row in range(n):
        local = utilities[row] + rng.normal(0.0, deviation, (clients, p))
        best = np.argpartition(-local, votes - 1, axis=1)[:, :votes]
        totals = np.bincount(best.ravel(), minlength=p) + rng.normal(0.0, sigma, p)
        chosen[row] = int(np.argmax(totals))
    return chosen


def top_share(utilities: Array, chosen: Indices, fraction: float) -> float:
    """How often the chosen one is among the best ``fraction``; nobody chosen (-1) is a miss."""
    keep = max(1, math.floor(utilities.shape[1] * fraction + 1e-9))
    edge = np.sort(utilities, axis=1)[:, -keep]
    rows = np.arange(len(utilities))
    hit = (chosen >= 0) & (utilities[rows, np.maximum(chosen, 0)] >= edge)
    return float(hit.mean())


def threshold_choices(
    utilities: Array, k_budget: float, granularity: float, variant: str, rng: np.random.Generator
) -> Indices:
    """The choice of thresholds for every row, with the package's own noise (``rounds``) or one sparse vector."""
    if variant == "sparse":
        return np.array([sparse_choices(row, k_budget, granularity, rng) for row in utilities])
    weight = ElasticRounds(0.0, granularity).weight()
    return np.array(
        [elastic_rounds(row, k_budget / weight, granularity, rng, budget=weight).final for row in utilities]
    )
