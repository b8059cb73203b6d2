"""The counter-example of ``docs/theorems/ding-theorem3.md``: Algorithm 1 of Ding et al., computed and not simulated.

The law of the selected candidate is a finite recursion over (utility level, step) whose round probabilities are
one-dimensional integrals; thresholds that noise hardly ever reaches are cut and the loss is counted.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dptune.accounting import Gdp, Geometric
from dptune.accounting.literature import DING_THEOREM3, published

Array = NDArray[np.float64]

SHARDS, EPSILON, GRANULARITY, START = 10, 1.0, 0.1, 0.5
HERE, NEIGHBOUR = (0.6, 0.5), (0.5, 0.6)  # one shard's accuracies change from (1, 0) to (0, 1)
CUT = 64  # levels above the start; a threshold 6.4 above is 16 scales of the candidates' noise away


def laplace_tail(x: Array, scale: float) -> Array:
    """P(noise >= x)."""
    return np.where(x > 0, 0.5 * np.exp(-np.abs(x) / scale), 1.0 - 0.5 * np.exp(-np.abs(x) / scale))


def selection(utilities: tuple[float, ...]) -> tuple[Array, float]:
    """The law of the selected candidate (index 0: none), and the mass lost to the cut."""
    nu = np.linspace(-4.0, 4.0, 16001)  # twenty scales either side
    scale = 2.0 / (SHARDS * EPSILON)
    weight = np.exp(-np.abs(nu) / scale) / (2.0 * scale)
    weight /= weight.sum()

    @cache
    def round_law(level: int) -> Array:
        """Probabilities that the round fails, or passes at each candidate."""
        threshold = START + level * GRANULARITY + nu
        left, law = np.ones_like(nu), []
        for u in utilities:
            passes = laplace_tail(threshold - u, 4.0 / (SHARDS * EPSILON))
            law.append(float(weight @ (left * passes)))
            left = left * (1.0 - passes)
        return np.array([1.0 - math.fsum(law), *law])

    @cache
    def final(level: int, step: int, chosen: int) -> tuple[float, ...]:
        if step == 0:
            return tuple(1.0 if i == chosen else 0.0 for i in range(len(utilities) + 1))
        if level + step > CUT:
            return final(level, step // 2, chosen)
        law = round_law(level + step)
        total = law[0] * np.array(final(level, step // 2, chosen))
        for s in range(1, len(utilities) + 1):
            total = total + law[s] * np.array(final(level + step, 2 * step, s))
        return tuple(float(x) for x in total)

    # Every pass climbs a level, so a path has at most CUT passes, and one failed round more than passes at most.
    return np.array(final(0, 1, 0)), (CUT + 1) * (1.0 - float(round_law(CUT)[0]))


def test_theorem3_claims_nothing_where_the_selection_reveals_much() -> None:
    # The utilities move by at most 1/k, so the data sets may be neighbours (Lemma 2), and the best utility is
    # START + GRANULARITY on both: n = 1, log n = 0, so epsilon and delta' are claimed to be 0, whatever O() hides.
    assert np.abs(np.subtract(HERE, NEIGHBOUR)).max() <= 1.0 / SHARDS + 1e-12
    n = (max(HERE) - START) / GRANULARITY
    assert n == pytest.approx(1.0)
    assert max(HERE) == max(NEIGHBOUR)
    (p, lost_p), (q, lost_q) = selection(HERE), selection(NEIGHBOUR)
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    assert max(lost_p, lost_q) < 2e-5
    assert p == pytest.approx([0.3314, 0.4540, 0.2147], abs=2e-4)
    assert q == pytest.approx([0.3314, 0.3671, 0.3015], abs=2e-4)
    assert float(np.maximum(p - q, 0.0).sum()) == pytest.approx(0.0869, abs=2e-4)  # delta at epsilon 0; the claim is 0
    assert float(np.log(q / p).max()) == pytest.approx(0.340, abs=2e-3)  # epsilon at delta 0; the claim is 0


def test_published_lists_it_without_an_epsilon() -> None:
    entry = published(Gdp(0.3), Geometric(10), 1e-5)["ding_theorem3"]
    assert entry is DING_THEOREM3
    assert entry.epsilon is None
    assert entry.reason.startswith("Not a DP guarantee")
