"""Searches over a landscape that is known: uniform draws and the package's own adaptive search, over fixed T.

For every T the accuracy is that of the cell whose noisy score was the best of the first T runs, as in DP-HyPO's
Figure 1. Used by the MNIST and the CIFAR-10 landscapes alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dptune._typing import Array
from dptune.accounting import Binomial, DpSgd, Geometric
from dptune.methods import Adaptive, Budget
from dptune.methods.drive import drive
from dptune.methods.random_stopping import StoppingPlan
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress
from dptune.spaces import Candidates

__all__ = ["DENSITY", "Landscape", "adaptive_plan", "gaps", "search", "searched", "shown", "told", "uniform"]

DENSITY = (0.75, 2.0)  # c and C of the paper, both data sets


@dataclass(frozen=True)
class Landscape:
    """Candidates, what each is worth, and how far a score strays from that."""

    candidates: Candidates
    actual: Array
    spread: Array

    def place(self) -> dict[tuple[object, ...], int]:
        """The place of each candidate, by its values."""
        return {tuple(item.values()): i for i, item in enumerate(self.candidates.items)}


@dataclass(frozen=True)
class _AnyCost:
    """A base mechanism for planning; with a fixed number of runs its price is not used."""

    def cost(self, params: dict[str, object]) -> DpSgd:
        del params
        return DpSgd(0.01, 4.0, 100)


def adaptive_plan(candidates: Candidates, most: int) -> StoppingPlan:
    """The paper's adaptive search (tau .1, beta 1, C = 2, c = .75) with exactly this many runs."""
    planned = Adaptive(candidates, Geometric(10.0), density=DENSITY, tau=0.1, beta=1.0)
    plan = planned.plan(Budget(15.0, 1e-5), _AnyCost())
    return replace(plan, tuning=replace(plan.tuning, runs=Binomial(most, 1.0)))


def told(actual: Array, scores: Array) -> Array:
    """Row by row, what the best-scored of the first T runs is worth, for T = 1, 2, ..."""
    best = np.maximum.accumulate(scores, axis=1)
    places = np.where(scores == best, np.arange(scores.shape[1]), 0)
    return np.asarray(np.take_along_axis(actual, np.maximum.accumulate(places, axis=1), axis=1))


def uniform(land: Landscape, most: int, repeats: int, rng: np.random.Generator) -> Array:
    """The curves of searches that draw every candidate alike, one row each."""
    places = rng.integers(0, len(land.actual), (repeats, most))
    actual = land.actual[places]
    return told(actual, actual + land.spread[places] * rng.standard_normal(places.shape))


def search(land: Landscape, plan: StoppingPlan, most: int, seed: int) -> Array:
    """The curve of one adaptive search."""
    place, actual, scores = land.place(), np.zeros(most), np.zeros(most)
    noise = np.random.default_rng((7, seed)).standard_normal(most)

    def score(trial: Trial) -> float:
        here = place[tuple(trial.candidate.values())]
        actual[trial.index] = land.actual[here]
        scores[trial.index] = land.actual[here] + land.spread[here] * noise[trial.index]
        return float(scores[trial.index])

    drive(plan, Randomness.rehearsal(seed), score)
    return np.asarray(told(actual[None], scores[None])[0])


def searched(
    land: Landscape, plan: StoppingPlan, most: int, searches: int, say: Callable[[str], None], kept: Kept
) -> Array:
    """The curves of so many adaptive searches, one row each; those that were made on this landscape are kept."""
    name = hashlib.sha256(land.actual.tobytes() + land.spread.tobytes()).hexdigest()[:16]
    progress, rows = Progress(searches, say), []
    for seed in range(searches):
        key = {"search": seed, "landscape": name, "most": most}
        known = key in kept
        rows.append(kept.get(key, lambda seed=seed: search(land, plan, most, seed).tolist()))  # type: ignore[misc]
        progress.known() if known else progress.done("adaptive search")
    return np.array(rows)


def gaps(adaptive: Array, plain: Array) -> tuple[Array, Array]:
    """By T: adaptive minus uniform, and the standard error of that difference."""
    error = np.sqrt(adaptive.var(axis=0, ddof=1) / len(adaptive) + plain.var(axis=0, ddof=1) / len(plain))
    return np.asarray(adaptive.mean(axis=0) - plain.mean(axis=0)), np.asarray(error)


def shown(most: int, wanted: Sequence[int] = (1, 2, 3, 5, 7, 8, 10, 15, 20, 30, 50, 75, 100, 150, 200)) -> list[int]:
    """The numbers of runs that a table shows."""
    return [t for t in wanted if t <= most]
