"""The inner loop of a run: ask, train, remember, tell, until the winner is known.

Outcomes are durable before they are told, and are told in the order of their numbers once a whole batch is there,
so the winner does not depend on which worker was faster, on the executor, or on crashes in between. Failures score
minus infinity and are never tried again; a trial that kills its process is tried once more with its own randomness,
then it has failed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dptune.executors.base import Result, Session, Task
from dptune.methods.base import Outcome, Search, Selection, Trial
from dptune.sealed.vault import Vault

__all__ = ["Beat", "Loop"]

_DEATHS = 2
_HEARTBEAT = 0.5


@dataclass(frozen=True)
class Beat:
    """A sign of life: elapsed seconds; counts of trials in a rehearsal only, where they are no secret."""

    elapsed: float
    done: int | None = None
    asked: int | None = None


@dataclass
class Loop:
    """Drives a search to its end with the workers of one session."""

    vault: Vault
    session: Session
    beat: Callable[[Beat], None] | None = None
    counts: bool = False
    began: float = 0.0
    asked: int = 0
    done: int = 0

    def search(self, search: Search) -> Selection:
        """Run every trial that the search asks for."""
        self.began = time.monotonic()
        known = self.vault.outcomes()
        while not search.done:
            trials = search.ask()
            if not trials:
                break
            self.asked += len(trials)
            scores = self._batch(trials, known)
            for trial in sorted(trials, key=lambda one: one.index):
                search.tell(Outcome(trial.index, scores[trial.index]))
        return search.result()

    def final(self, trial: Trial) -> None:
        """The final training, whose score nobody uses."""
        self._batch([trial], self.vault.outcomes())

    def _batch(self, trials: list[Trial], known: dict[int, float]) -> dict[int, float]:
        """Scores of these trials; those that are over already are not trained again."""
        scores = {trial.index: known[trial.index] for trial in trials if trial.index in known}
        self.done += len(scores)
        todo = {trial.index: trial for trial in trials if trial.index not in known}
        queue = deque(sorted(todo))
        running = 0
        while queue or running:
            while queue and running < self.session.slots:
                trial = todo[queue.popleft()]
                self.vault.begin(trial.index, trial.to_json())
                self.session.submit(self._task(trial))
                running += 1
            result = self.session.wait(_HEARTBEAT)
            self._tick()
            if result is None:
                continue
            running -= 1
            if self._try_again(result):
                queue.appendleft(result.index)
                continue
            self.vault.finish(result.index, result.score, result.model, result.error, result.output)
            scores[result.index] = result.score
            self.done += 1
        return scores

    def _task(self, trial: Trial) -> Task:
        source = trial.extra.get("warm_start")
        start = None if source is None else self.vault.model(int(source))
        return Task(trial.index, trial.to_json(), start)

    def _try_again(self, result: Result) -> bool:
        return result.died and self.vault.death(result.index) < _DEATHS

    def _tick(self) -> None:
        if self.beat is not None:
            counts = (self.done, self.asked) if self.counts else (None, None)
            self.beat(Beat(time.monotonic() - self.began, *counts))

    def wait_until(self, moment: float) -> None:
        """Do nothing, alive, until a time in seconds since the epoch."""
        while (left := moment - time.time()) > 0:
            time.sleep(min(left, _HEARTBEAT))
            self._tick()

    def repeats(self, trial: Trial) -> bool:
        """Train a finished trial once more and compare: does the trainer use its generator alone?"""
        self.session.submit(self._task(trial))
        result = None
        while result is None:
            result = self.session.wait(_HEARTBEAT)
        first = self.vault.outcomes()[trial.index]
        same = result.score == first or (math.isinf(result.score) and math.isinf(first))
        return same and not result.died and result.model == self.vault.model(trial.index)
