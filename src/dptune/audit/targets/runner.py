"""Targets of the runner: random stopping driven by the loop of sealed runs, with failures and interruptions.

The search, the loop and the call of the trainer are the real ones, in this process (``_inline``). The attacker sees
what a release shows: parameters and model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.accounting import Cost, Geometric, PureDp, Runs, select
from dptune.audit._inline import Runner, released
from dptune.audit.implementations import Target
from dptune.methods import RandomStopping
from dptune.methods.budget import Budget
from dptune.methods.plan import Plan
from dptune.randomness import Randomness
from dptune.spaces import Float, Space

__all__ = ["Responses", "failures", "observed_runs", "stopping", "stopping_plan"]


@dataclass(frozen=True)
class Responses:
    """A trainer whose whole output is one of a few answers; ``chances[world]`` are their probabilities.

    The answer "fail" raises. Scores rank the answers from the first (lowest) to the last.
    """

    chances: tuple[Mapping[str, float], Mapping[str, float]]
    declared: Cost

    def cost(self, params: Mapping[str, Any]) -> Cost:
        del params
        return self.declared

    def fit(self, params: Mapping[str, Any], data: Array, rng: np.random.Generator) -> tuple[str, float]:
        del params
        law = self.chances[int(data.sum())]
        answer = str(rng.choice(list(law), p=list(law.values())))
        if answer == "fail":
            raise RuntimeError("diverged")
        return answer, float(list(law).index(answer))


def stopping_plan(trainer: Responses, runs: Runs) -> Plan:
    """A plan of random stopping that spends what the trainer declares."""
    cost = select(trainer.declared, runs)
    budget = Budget(cost.epsilon(1e-9) * 1.01 + 0.01, 1e-9)
    return RandomStopping(Space(x=Float(0.0, 1.0)), runs).plan(budget, trainer)


def _target(
    name: str, trainer: Responses, runs: Runs, runner: Runner, seen: Callable[[dict[str, Any], str], bool]
) -> Target:
    plan = stopping_plan(trainer, runs)

    def draw(world: int, games: int, seed: int) -> Array:
        source, data = Randomness.rehearsal(seed), np.full(1, float(world))
        found = []
        for game in range(games):
            chosen, vault, _ = runner.run(plan, trainer, data, source.child("game", game))
            params, answer = released(chosen, vault)
            found.append(float(seen(params, "default" if answer is None else str(answer))))
        return np.array(found)

    return Target(name, plan.cost, draw, (0.5,))


def stopping(runner: Runner | None = None, epsilon: float = 1.25) -> Target:
    """Randomised response, the likelier answer ranked lowest: it wins only if every run gave it.

    If the release shows the number of runs, the attacker waits for three or more; if not, he takes every game.
    """
    high = 1.0 / (1.0 + math.exp(-epsilon))
    trainer = Responses(({"yes": 1 - high, "no": high}, {"yes": high, "no": 1 - high}), PureDp(epsilon))

    def seen(params: dict[str, Any], answer: str) -> bool:
        return answer == "yes" and int(params.get("runs", 3)) >= 3

    return _target("random stopping", trainer, Geometric(2), runner or Runner(), seen)


def failures(runner: Runner | None = None) -> Target:
    """One certain run that often fails, with a probability that depends on the record within the declared epsilon."""
    trainer = Responses(
        ({"other": 0.48, "rare": 0.02, "fail": 0.5}, {"other": 0.065, "rare": 0.1477, "fail": 0.7873}), PureDp(2.0)
    )
    return _target(
        "failures", trainer, Geometric(1), runner or Runner(), lambda params, answer: bool(params) and answer == "rare"
    )


def observed_runs(runner: Runner, runs: Runs, games: int, seed: int, lives: int) -> list[int]:
    """How many trials each of many runs had, all interrupted after ``lives`` trials if they got that far."""
    trainer = Responses(({"yes": 0.5, "no": 0.5}, {"yes": 0.5, "no": 0.5}), PureDp(1.0))
    plan, source = stopping_plan(trainer, runs), Randomness.rehearsal(seed)
    found = []
    for game in range(games):
        _, _, search = runner.run(plan, trainer, np.zeros(1), source.child("game", game), lives)
        found.append(len(search._outcomes.scores))  # type: ignore[attr-defined] # the curator's view of a random search
    return found
