"""Targets of the runner: random stopping driven by the loop of sealed runs, with failures and interruptions.

The search, the loop and the call of the trainer are the real ones; trials run in this process and the vault is kept
in memory, so that thousands of runs take seconds. The attacker sees what a release shows: parameters and model.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import Cost, Geometric, PureDp, Runs, select
from dptune.audit.implementations import Target
from dptune.executors.base import Result, Task
from dptune.methods import RandomStopping
from dptune.methods.base import Budget, Plan, Search, Selection, trial_from_json
from dptune.methods.execute import fit_trial
from dptune.sealed._loop import Loop
from dptune.sealed.randomness import Randomness
from dptune.spaces import Float, Space

__all__ = ["InlineSession", "Interrupted", "MemoryVault", "Runner", "failures", "observed_runs", "stopping"]

Array = NDArray[np.float64]


class Interrupted(Exception):
    """The process was killed, as far as the loop can tell."""


@dataclass
class MemoryVault:
    """The part of a vault that the loop uses."""

    scores: dict[int, float] = field(default_factory=dict)
    models: dict[int, bytes | None] = field(default_factory=dict)

    def outcomes(self) -> dict[int, float]:
        return dict(self.scores)

    def begin(self, number: int, trial: str) -> None:
        del number, trial

    def finish(self, number: int, score: float, model: bytes | None, error: str | None, output: str) -> None:
        del error, output
        self.scores[number], self.models[number] = score, model

    def model(self, number: int) -> bytes | None:
        return self.models.get(number)

    def death(self, number: int) -> int:
        del number
        return 2


@dataclass
class InlineSession:
    """Runs a task where it is submitted; a failure scores minus infinity. It is interrupted after ``lives`` tasks."""

    trainer: Any
    data: Any
    randomness: Randomness
    lives: int = 10**9
    slots: int = 1
    _results: list[Result] = field(default_factory=list)

    def submit(self, task: Task) -> None:
        if self.lives <= 0:
            raise Interrupted
        self.lives -= 1
        self._results.append(self.attempt(task, self.randomness))

    def attempt(self, task: Task, randomness: Randomness) -> Result:
        try:
            model, score = fit_trial(self.trainer, trial_from_json(task.trial), self.data, randomness)
        except Exception as error:
            return Result(task.index, -math.inf, None, repr(error))
        return Result(task.index, score, pickle.dumps(model))

    def wait(self, seconds: float) -> Result | None:
        del seconds
        return self._results.pop()

    def close(self) -> None:
        self._results.clear()


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


@dataclass(frozen=True)
class Runner:
    """How a run is driven; a mutated runner replaces one of its parts."""

    session: Callable[..., InlineSession] = InlineSession
    start: Callable[[Plan, Randomness], Search] = Plan.start
    resume: Callable[[Plan, Randomness], Search] = Plan.start

    def run(
        self, plan: Plan, trainer: Any, data: Any, randomness: Randomness, lives: int = 10**9
    ) -> tuple[Selection, MemoryVault, Search]:
        """One run, interrupted after ``lives`` trials (if it has so many) and then continued."""
        vault = MemoryVault()
        search = self.start(plan, randomness)
        try:
            chosen = self._loop(vault, trainer, data, randomness, lives).search(search)
        except Interrupted:
            search = self.resume(plan, randomness)
            chosen = self._loop(vault, trainer, data, randomness, 10**9).search(search)
        return chosen, vault, search

    def _loop(self, vault: MemoryVault, trainer: Any, data: Any, randomness: Randomness, lives: int) -> Loop:
        return Loop(vault, self.session(trainer, data, randomness, lives))  # type: ignore[arg-type] # the part it uses


def stopping_plan(trainer: Responses, runs: Runs) -> Plan:
    """A plan of random stopping that spends what the trainer declares."""
    cost = select(trainer.declared, runs)
    budget = Budget(cost.epsilon(1e-9) * 1.01 + 0.01, 1e-9)
    return RandomStopping(Space(x=Float(0.0, 1.0)), runs).plan(budget, trainer)


def _released(chosen: Selection, vault: MemoryVault) -> tuple[dict[str, Any], str]:
    """What leaves: parameters, and the model's answer ("default" if there is none)."""
    model = None if chosen.winner is None else vault.model(chosen.winner)
    return chosen.params, "default" if model is None else str(pickle.loads(model))


def _target(
    name: str, trainer: Responses, runs: Runs, runner: Runner, seen: Callable[[dict[str, Any], str], bool]
) -> Target:
    plan = stopping_plan(trainer, runs)

    def draw(world: int, games: int, seed: int) -> Array:
        source, data = Randomness.rehearsal(seed), np.full(1, float(world))
        found = []
        for game in range(games):
            chosen, vault, _ = runner.run(plan, trainer, data, source.child("game", game))
            found.append(float(seen(*_released(chosen, vault))))
        return np.array(found)

    return Target(name, plan.cost, draw, (0.5,))


def stopping(runner: Runner | None = None, epsilon: float = 1.25) -> Target:
    """Randomised response, the likelier answer ranked lowest: it wins only if every run gave it.

    If the release tells the number of runs, the attacker waits for three or more; if not, he takes every game.
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
        found.append(len(search._told.scores))  # type: ignore[attr-defined] # the curator's view of a random search
    return found
