"""Targets that choose and then train: the vote and permute-and-flip as whole methods, through the loop of sealed runs.

One record turns the opinion of the part it falls into, from the first candidate to the second; there are two parts, so
it makes a clear lead a tie. The attacker sees which candidate was chosen, which for two candidates is as telling as
the noisy sums themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.accounting import Cost, PureDp
from dptune.audit._inline import Runner
from dptune.audit.implementations import Target
from dptune.methods import NoisyBest, Vote
from dptune.methods.budget import Budget
from dptune.methods.plan import Method
from dptune.randomness import Randomness
from dptune.spaces import Space

__all__ = ["Opinion", "noisy_best", "vote"]


_CANDIDATES = Space.of([{"x": 0}, {"x": 1}])
_BUDGET = Budget(2.0, 1e-5)


class Opinion:
    """Scores 1 for the second candidate where the record is, for the first one elsewhere; releases nothing."""

    def cost(self, params: Mapping[str, Any]) -> Cost:
        del params
        return PureDp(1e-3)

    def fit(self, params: Mapping[str, Any], data: Array, rng: np.random.Generator) -> tuple[str, float]:
        del rng
        return "nothing", float((data.sum() > 0) == (params["x"] == 1))


def _chosen(name: str, method: Method) -> Target:
    trainer, worlds = Opinion(), (np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    plan = method.plan(_BUDGET, trainer)

    def draw(world: int, games: int, seed: int) -> Array:
        source, runner = Randomness.rehearsal(seed), Runner()
        runs = (runner.run(plan, trainer, worlds[world], source.child("game", game)) for game in range(games))
        return np.array([float(chosen.params["x"]) for chosen, _, _ in runs])

    return Target(name, plan.cost, draw, (0.5,))


def vote() -> Target:
    """Two clients, one vote each; the record turns one of them."""
    return _chosen("vote", Vote(_CANDIDATES, 1, clients=2, share=0.98))


def noisy_best() -> Target:
    """Two shards; the record turns the utilities of one of them."""
    return _chosen("noisy best", NoisyBest(_CANDIDATES, 2, share=0.98))
