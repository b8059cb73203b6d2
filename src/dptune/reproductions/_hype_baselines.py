"""The rivals in the DP-Hype paper, on the same tables: Opt, RandGuess, raw losses, subsets, Feathers.

Every rival pays for what it shows: sensitivities and compositions are stated beside each one, and where the paper's own
differ the comment says so. Tables are accuracies in [0, 1], one row per client, one column per candidate.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dptune import _validate
from dptune._typing import Array, Mask
from dptune.accounting.voting import votes_sigma
from dptune.errors import InvalidInput

__all__ = ["binary_vote", "feathers", "gaussian_sigma", "optimum", "random_guess", "raw_vote", "subsets_vote"]


def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the exact deviation of one Gaussian release (infinite epsilon: none)."""
    if math.isinf(epsilon):
        return 0.0
    # Two candidates, one vote: sensitivity sqrt(2).
    return sensitivity * votes_sigma(epsilon, delta, candidates=2, votes=1) / math.sqrt(2)


def _table(scores: npt.ArrayLike) -> Array:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not ((table >= 0) & (table <= 1)).all():
        raise InvalidInput("Scores must be a table of accuracies in [0, 1], one row per client.")
    return table


def _top(table: Array, votes: int, rng: np.random.Generator) -> Mask:
    """Mark each client's best candidates, ties by lot."""
    lots = rng.random(table.shape)
    order = np.lexsort((lots, -table), axis=1)
    marks = np.zeros(table.shape, dtype=bool)
    np.put_along_axis(marks, order[:, :votes], True, axis=1)
    return marks


def optimum(global_scores: npt.ArrayLike) -> int:
    """Opt: the best candidate by everyone's data, not private at all."""
    return int(np.argmax(np.asarray(global_scores)))


def random_guess(global_scores: npt.ArrayLike) -> float:
    """RandGuess: the mean accuracy of a candidate drawn blindly; costs nothing."""
    return float(np.mean(np.asarray(global_scores)))


def binary_vote(scores: npt.ArrayLike, *, votes: int, epsilon: float, delta: float, rng: np.random.Generator) -> int:
    """DP-Hype itself with one continuous Gaussian on the sum, as the paper simulates it."""
    table = _table(scores)
    sigma = 0.0 if math.isinf(epsilon) else votes_sigma(epsilon, delta, candidates=table.shape[1], votes=votes)
    total = _top(table, votes, rng).sum(axis=0) + sigma * rng.standard_normal(table.shape[1])
    return int(np.argmax(total))


def raw_vote(scores: npt.ArrayLike, *, votes: int, epsilon: float, delta: float, rng: np.random.Generator) -> int:
    """Appendix F: each client adds its accuracies on its best candidates instead of ones.

    A replaced client changes up to min(2k, p) entries, each by at most 1.
    """
    table = _table(scores)
    changed = min(2 * _validate.integer("votes", votes, 1, table.shape[1]), table.shape[1])
    sigma = gaussian_sigma(math.sqrt(changed), epsilon, delta)
    total = (table * _top(table, votes, rng)).sum(axis=0) + sigma * rng.standard_normal(table.shape[1])
    return int(np.argmax(total))


def subsets_vote(scores: npt.ArrayLike, *, epsilon: float, delta: float, rng: np.random.Generator) -> int:
    """Appendix H: each client evaluates one candidate that was dealt to it at random.

    The deal is public and independent of the data, so a replaced client changes one entry by at most 1 (the paper
    charges sqrt(2), for a deal that changes with the client).
    """
    table = _table(scores)
    clients, candidates = table.shape
    if clients < candidates:
        raise InvalidInput(f"{clients} clients cannot cover {candidates} candidates, one each; use more clients.")
    deal = rng.permutation(np.arange(clients) % candidates)
    total = np.bincount(deal, weights=table[np.arange(clients), deal], minlength=candidates)
    noisy = total + gaussian_sigma(1.0, epsilon, delta) * rng.standard_normal(candidates)
    return int(np.argmax(noisy / np.bincount(deal, minlength=candidates)))


def feathers(
    scores: npt.ArrayLike,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    releases: int = 100,
    rate: float = 0.05,
) -> int:
    """Appendix G: Feathers with a corrected account: losses clipped to [0, 1], every release paid for.

    Each client shows the server ``releases`` noisy losses of its own; the composition of Gaussians is one Gaussian, so
    the deviation is sqrt(releases) times that of one release. The distribution over candidates follows exponentiated
    gradients on the mean loss against the running mean, as in the original.
    """
    table = 1.0 - _table(scores)
    clients, candidates = table.shape
    rounds = _validate.integer("releases", releases, 1)
    sigma = math.sqrt(rounds) * gaussian_sigma(1.0, epsilon, delta)
    weights = np.zeros(candidates)
    running = 0.0
    for seen in range(rounds):
        law = np.exp(weights - weights.max())
        law /= law.sum()
        j = int(rng.choice(candidates, p=law))
        mean = float(np.mean(table[:, j] + sigma * rng.standard_normal(clients)))
        gain = (running - mean) if seen else 0.0
        weights[j] += rate * gain / law[j]
        running = (running * seen + mean) / (seen + 1)
    return int(np.argmax(weights))
