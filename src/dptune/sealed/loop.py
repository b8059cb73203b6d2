"""The inner loop of a run: ask, train, remember, tell, until the winner is known.

Outcomes are durable before they are told, and are told in the order of their numbers once a whole batch is there,
so the winner does not depend on which worker was faster, on the executor, or on crashes in between. Failures score
minus infinity and are never tried again; a trial that kills its process is tried once more with its own randomness,
then it has failed.

Trials may be handed over together (``_stacks``), and each still has an outcome of its own. When a worker dies, nobody
knows which of its trials did it: the death is noted for all that it had not answered, and everything of that hand-over
is trained alone from then on, also after :func:`~dptune.sealed.resume`. That death fails nobody: each has its two
tries alone. So a trial whose training kills its process fails, by itself, and its peers get what they would have got
without it.
What is handed over together follows from the trials and from the number of workers at the beginning, which is
written down: a run that was cut off hands over the same again, with peers that were finished (their first outcomes
stand), and the rest of a stack is the same to the last bit.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dptune._progress import read_steps
from dptune.executors.base import Result, Session, Task
from dptune.executors.models import kind_of
from dptune.methods.trial import Outcome, Search, Selection, Trial
from dptune.sealed._clock import Deadline
from dptune.sealed._stacks import Kind, shares
from dptune.sealed.vault import Vault

__all__ = ["Beat", "Loop"]

_DEATHS = 2  # of a trial alone
_HEARTBEAT = 0.5


@dataclass(frozen=True)
class Beat:
    """A sign of life: elapsed seconds; counts of trials, and steps of those under way, in a rehearsal only, where they
    are no secret."""

    elapsed: float
    done: int | None = None
    asked: int | None = None
    steps: tuple[int, int] | None = None  # done, of so many


@dataclass
class Loop:
    """Drives a search to its end with the workers of one session."""

    vault: Vault
    session: Session
    beat: Callable[[Beat], None] | None = None
    counts: bool = False
    kind: Kind | None = None  # which trials may be handed over together; None: each alone
    pickle: bool = False  # whether a worker may send one
    steps: Path | None = None  # where workers of a rehearsal keep the step of their training
    workers: int = 1
    began: float = 0.0
    asked: int = 0
    done: int = 0

    def search(self, search: Search) -> Selection:
        """Run every trial that the search asks for."""
        self.began = time.monotonic()
        self._count_workers()
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
        numbered = {trial.index: trial for trial in trials}
        groups = self._groups(trials)
        stacked = {index for group in groups if len(group) > 1 for index in group}  # a death there is not theirs alone
        queue = deque(group for group in self._after_deaths(groups) if any(index not in scores for index in group))
        running: list[set[int]] = []
        while queue or running:
            while queue and len(running) < self.session.slots:
                group = queue.popleft()
                self.vault.begin({index: numbered[index].to_json() for index in group})
                self.session.submit(*(self._task(numbered[index]) for index in group))
                running.append(set(group))
            result = self.session.wait(_HEARTBEAT)
            self._tick()
            if result is None:
                continue
            running = [left for group in running if (left := group - {result.index})]
            if result.index in scores:  # trained again for the sake of its stack
                continue
            if result.died and self.vault.death(result.index) < _DEATHS + (result.index in stacked):
                queue.appendleft((result.index,))
                continue
            result = self._safe(result)
            self.vault.finish(result.index, result.score, result.model, result.error, result.output)
            scores[result.index] = result.score
            self.done += 1
        return scores

    def _safe(self, result: Result) -> Result:
        """The result, or a failure if it holds a pickle that nobody asked for: a worker of this version sends none."""
        if self.pickle or result.model is None or kind_of(result.model) != "pickle":
            return result
        return Result(result.index, -math.inf, error="the worker sent a pickle", output=result.output)

    def _count_workers(self) -> None:
        """As many as there were when the run began, also if it goes on with more or fewer."""
        if self.kind is None:
            return
        if "workers" not in self.vault.facts():
            self.vault.remember(workers=self.session.slots)
        self.workers = int(self.vault.facts()["workers"])

    def _groups(self, trials: list[Trial]) -> list[tuple[int, ...]]:
        """The numbers of trials that go to one worker together, group by group in order."""
        if self.kind is None:
            return [(index,) for index in sorted(trial.index for trial in trials)]
        return shares(trials, self.kind, self.workers)

    def _after_deaths(self, groups: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """The groups, with one that killed its worker split: each of its trials goes alone from then on."""
        deadly = set() if self.kind is None else self.vault.deadly()
        return [part for group in groups for part in ([group] if deadly.isdisjoint(group) else [(i,) for i in group])]

    def _task(self, trial: Trial) -> Task:
        start = None if trial.warm_start is None else self.vault.model(trial.warm_start)
        return Task(trial.index, trial.to_json(), start)

    def _tick(self) -> None:
        if self.beat is not None:
            elapsed = time.monotonic() - self.began
            if not self.counts:
                self.beat(Beat(elapsed))
                return
            self.beat(Beat(elapsed, self.done, self.asked, None if self.steps is None else read_steps(self.steps)))

    def wait_until(self, deadline: Deadline) -> None:
        """Do nothing, alive, until a public time."""
        while (left := deadline.left()) > 0:
            time.sleep(min(left, _HEARTBEAT))
            self._tick()

    def repeats(self, trials: list[Trial]) -> bool:
        """Train the first of these finished trials once more, handed over as it was, and compare all that was.

        Does the trainer use its generators alone?
        """
        numbered = {trial.index: trial for trial in trials}
        first, deadly = trials[0].index, set() if self.kind is None else self.vault.deadly()
        group: tuple[int, ...] = (first,)
        if first not in deadly:
            group = next(part for part in self._groups(trials) if first in part)
        self.session.submit(*(self._task(numbered[index]) for index in group))
        results: list[Result] = []
        while len(results) < len(group):
            result = self.session.wait(_HEARTBEAT)
            results += [] if result is None else [result]
        known = self.vault.outcomes()
        return all(self._same(one, known[one.index]) for one in results if one.index not in deadly - {first})

    def _same(self, result: Result, score: float) -> bool:
        same = result.score == score or (math.isinf(result.score) and math.isinf(score))
        return same and not result.died and result.model == self.vault.model(result.index)
