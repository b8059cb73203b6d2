"""A run in this process: the search, the loop and the call of the trainer of sealed runs, with the vault in memory.

Thousands of runs take seconds this way. What is left out is storage and worker processes, which are audited on their
own (``_targets_sealed``). Nothing here may decide anything that the sealed runner decides otherwise.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dptune.executors.base import Result, Task
from dptune.methods.execute import check_cost, fit_trial
from dptune.methods.parts import ALL
from dptune.methods.plan import Plan
from dptune.methods.trial import Search, Selection, Trial, trial_from_json
from dptune.randomness import Randomness
from dptune.sealed.loop import Loop
from dptune.trainer import SupportsFit, SupportsStacking, fit_many

__all__ = ["InlineSession", "Interrupted", "MemoryVault", "Runner", "StackedSession", "released"]

DataT = TypeVar("DataT")

_FOREVER = 10**9


class Interrupted(Exception):
    """The process was killed, as far as the loop can tell."""


@dataclass
class MemoryVault:
    """The part of a vault that the loop uses."""

    scores: dict[int, float] = field(default_factory=dict)
    models: dict[int, bytes | None] = field(default_factory=dict)

    def outcomes(self) -> dict[int, float]:
        return dict(self.scores)

    def begin(self, trials: Mapping[int, str]) -> None:
        del trials

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

    trainer: SupportsFit[Any, object]
    data: Any
    randomness: Randomness
    lives: int = _FOREVER
    slots: int = 1
    _results: deque[Result] = field(default_factory=deque)

    def submit(self, *tasks: Task) -> None:
        for task in tasks:
            if self.lives <= 0:
                raise Interrupted
            self.lives -= 1
            self._results.append(self.attempt(task, self.randomness))

    def attempt(self, task: Task, randomness: Randomness) -> Result:
        try:
            start = None if task.start is None else pickle.loads(task.start)
            trial = trial_from_json(task.trial)
            model, score = fit_trial(self.trainer, trial, self.data, randomness, start=start)
        except Exception as error:
            return Result(task.index, -math.inf, None, repr(error))
        return Result(task.index, score, pickle.dumps(model))

    def wait(self, seconds: float) -> Result | None:
        del seconds
        return self._results.popleft()

    def close(self) -> None:
        self._results.clear()


def _plain(trial: Trial) -> bool:
    """Whether a trial trains on all records from the start and is scored by the trainer."""
    special = trial.validation is not None or trial.final or trial.warm_start is not None or trial.line is not None
    return trial.part == ALL and not special


@dataclass
class StackedSession(InlineSession):
    """An inline session that fits the plain trials of a batch as one stack where the trainer can: equal up to rounding.

    A trial is plain if it trains on all records from the start and is scored by the trainer; every other one, and every
    trial of a stack that raised, is fitted on its own.
    """

    slots: int = 16
    _waiting: list[Task] = field(default_factory=list)

    def submit(self, *tasks: Task) -> None:
        for task in tasks:
            if self.lives <= 0:
                raise Interrupted
            self.lives -= 1
            self._waiting.append(task)

    def wait(self, seconds: float) -> Result | None:
        if not self._results:
            tasks, self._waiting = self._waiting, []
            self._results.extend(self._together(tasks) or [self.attempt(task, self.randomness) for task in tasks])
        return super().wait(seconds)

    def _together(self, tasks: list[Task]) -> list[Result] | None:
        trials = [trial_from_json(task.trial) for task in tasks]
        plain = all(_plain(t) and task.start is None for t, task in zip(trials, tasks, strict=True))
        if len(tasks) < 2 or not plain or not isinstance(self.trainer, SupportsStacking):
            return None
        try:
            for trial in {repr((one.params, one.declared)): one for one in trials}.values():
                check_cost(self.trainer, trial)  # once for each configuration
            rngs = [self.randomness.generator(*trial.seed_label) for trial in trials]
            fitted = fit_many(self.trainer, [trial.params for trial in trials], self.data, rngs)
        except Exception:
            return None
        return [
            Result(task.index, float(score), pickle.dumps(model))
            for task, (model, score) in zip(tasks, fitted, strict=True)
        ]


def begin(plan: Plan, randomness: Randomness) -> Search:
    """The search of a plan, as the sealed runner begins it."""
    return plan.start(randomness)


@dataclass(frozen=True)
class Runner:
    """How a run is driven; a mutated runner replaces one of its parts."""

    session: Callable[..., InlineSession] = InlineSession
    start: Callable[[Plan, Randomness], Search] = begin
    resume: Callable[[Plan, Randomness], Search] = begin

    def run(
        self,
        plan: Plan,
        trainer: SupportsFit[DataT, object],
        data: DataT,
        randomness: Randomness,
        lives: int = _FOREVER,
    ) -> tuple[Selection, MemoryVault, Search]:
        """One run, interrupted after ``lives`` trials (if it has so many) and then continued."""
        vault = MemoryVault()
        search = self.start(plan, randomness)
        try:
            chosen = self._finish(vault, search, trainer, data, randomness, lives)
        except Interrupted:
            search = self.resume(plan, randomness)
            chosen = self._finish(vault, search, trainer, data, randomness, _FOREVER)
        return chosen, vault, search

    def _finish(
        self,
        vault: MemoryVault,
        search: Search,
        trainer: SupportsFit[DataT, object],
        data: DataT,
        randomness: Randomness,
        lives: int,
    ) -> Selection:
        session = self.session(trainer, data, randomness, lives)
        loop = Loop(vault, session, pickle=True)  # type: ignore[arg-type] # the part of a vault that it uses
        chosen = loop.search(search)
        if chosen.final is not None:
            loop.final(chosen.final)
        return chosen


def released(chosen: Selection, vault: MemoryVault) -> tuple[dict[str, Any], Any]:
    """What leaves: parameters and model (None: there is none, or its training failed)."""
    number = chosen.final.index if chosen.final is not None else chosen.winner
    model = None if number is None else vault.model(number)
    return chosen.params, None if model is None else pickle.loads(model)
