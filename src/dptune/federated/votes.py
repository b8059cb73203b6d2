"""From losses to a ballot: exactly k votes, whatever the losses are.

Sensitivity rests on exactly k ones, so losses that are NaN rank last and still give k votes; ties are broken
by fresh randomness, never by position. Losses go in and must never come out of this file.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import numpy as np

from dptune import _validate
from dptune._typing import Indices
from dptune.errors import InvalidInput
from dptune.federated.noise import discrete_gaussian

__all__ = ["ballot", "best", "check_votes"]


def check_votes(votes: int, candidates: int) -> None:
    """Refuse a number of votes that leaves no choice."""
    _validate.integer("candidates", candidates, 2, hint="A vote needs something to choose from.")
    _validate.integer("votes", votes, 1, candidates, hint="A client cannot vote for more candidates than there are.")
    if votes == candidates:
        raise InvalidInput(
            f"'votes' equals the number of candidates ({candidates}): every ballot would be the same and "
            "the outcome "
            "pure noise. Ask for fewer votes."
        )


def best(losses: Sequence[float], votes: int) -> list[int]:
    """Return the positions of the ``votes`` smallest losses; NaN ranks last, ties are drawn by lot."""
    check_votes(votes, len(losses))
    lots = list(range(len(losses)))
    secrets.SystemRandom().shuffle(lots)
    values = [float(loss) for loss in losses]
    ranked = sorted(lots, key=lambda j: (math.isnan(values[j]), 0.0 if math.isnan(values[j]) else values[j]))
    return sorted(ranked[:votes])


def ballot(choices: Sequence[int], candidates: int, scale: int, sigma: float) -> Indices:
    """Return scale times the votes plus this client's share of the noise: ready to be masked."""
    ones = np.zeros(candidates, dtype=np.int64)
    ones[list(choices)] = scale
    return ones + discrete_gaussian(sigma, candidates)
