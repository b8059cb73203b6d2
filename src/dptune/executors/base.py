"""Where trials run: one interface for this machine's processes and for clusters.

An executor starts a fixed number of workers, hands them trials, one or several at a time, and returns what they say.
It must never retry on its own (a retry conditions on success: ``docs/theorems/select.md``), never print, and never
leave a trace outside the vault that depends on how many trials there were.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dptune.errors import InvalidInput
from dptune.trainer import SupportsFit

__all__ = [
    "DeclaresWorkers",
    "Executor",
    "Result",
    "Session",
    "Task",
    "TriesTrials",
    "Work",
    "attempt",
    "dead",
    "usual_workers",
]

_WORKERS = "DPTUNE_WORKERS"
_MOST = 4096


@dataclass(frozen=True)
class Work:
    """What every worker of a run needs, once. All of it is secret.

    Args:
        trainer: What trains a trial.
        data: The private records.
        secret: That of the run's randomness.
        vault: Where output and temporary files of workers on this machine go.
        pickle: Whether models that no safe file can hold may become pickles.
        steps: The folder in which workers on this machine keep the step of their training; None, always so in a sealed
            run: nowhere.

    Example:
        >>> from pathlib import Path
        >>> from dptune.executors import Work
        >>> from dptune.randomness import Randomness
        >>> work = Work("a trainer", [1, 2, 3], Randomness.rehearsal(0).secret(), Path("vault"))
        >>> len(work.secret)
        32
    """

    trainer: SupportsFit[Any, object]
    data: Any
    secret: bytes
    vault: Path
    pickle: bool = False
    steps: Path | None = None


@dataclass(frozen=True)
class Task:
    """One trial to be trained.

    Args:
        index: By which number its result is known.
        trial: What the training obeys, as JSON.
        start: The packed model that it starts from, if any.
        blank: Whether it is only tried, on blank records, before anything is charged.

    Example:
        >>> from dptune.executors import Task
        >>> Task(0, '{"params": {"lr": 0.1}}').start is None
        True
    """

    index: int
    trial: str
    start: bytes | None = None
    blank: bool = False


@dataclass(frozen=True)
class Result:
    """What became of a task: a score and a model, or an error, or a dead worker. All of it is secret.

    Args:
        index: The number of the task.
        score: The trial's score; minus infinity if there is none.
        model: The packed model; the driver does not open it.
        error: The traceback of a trial that raised.
        died: Whether the worker died before it answered.
        output: What the trial printed.

    Example:
        >>> from dptune.executors import Result
        >>> Result(0, 0.93).died
        False
    """

    index: int
    score: float
    model: bytes | None = None
    error: str | None = None
    died: bool = False
    output: str = ""


def dead(indices: Iterable[int]) -> list[Result]:
    """The results of tasks that a worker had not answered when it died."""
    return [Result(index, float("-inf"), error="the worker process died", died=True) for index in indices]


def attempt(session: Session, task: Task) -> Result:
    """Submit one task to a session that has no other, and wait for its result."""
    session.submit(task)
    while (result := session.wait(1.0)) is None:
        pass
    return result


class Session(Protocol):
    """Running workers.

    A session is owned by one thread. An implementer must give every task to one worker once, and never again if it
    fails or the worker dies: a retry would condition on success. What is seen from outside (processes, messages, files)
    may depend on the number of workers and on time, but not on scores. ``close`` may be called more than once.
    """

    @property
    def slots(self) -> int:
        """How many workers there are: each has one hand-over at a time."""

    def submit(self, *tasks: Task) -> None:
        """Hand tasks of different indices to one free worker; at most ``slots`` hand-overs may be under way."""

    def wait(self, seconds: float) -> Result | None:
        """The next result of a single task, or None if there was none in this time.

        Every task has one result. Those that a worker had not answered when it died are all reported as dead.
        """

    def close(self) -> None:
        """Stop all workers, whatever they do."""


@runtime_checkable
class TriesTrials(Protocol):
    """A session that can try a trial before anything is charged; without it, failures show in a rehearsal alone."""

    def attempt(self, task: Task) -> Result:
        """Train a trial on blank records, by the very path that the run will take (``_worker.try_blank``).

        It is called before any task is submitted. The records of the run are not trained on.

        Args:
            task: a trial from public randomness, with ``blank`` set.

        Returns:
            A result whose ``error`` is one line, if it failed.
        """


class Executor(Protocol):
    """A way to run trials: a value that can be kept and compared, and opens sessions.

    An implementer must see to it that trials are trained with one numerical thread and their own randomness, so that
    results do not depend on where they run; that nothing they print leaves the vault; and that whoever gets ``Work`` is
    trusted with private records. Opening must fail for public reasons only.
    """

    @property
    def name(self) -> str:
        """How users call it."""

    def open(self, work: Work) -> Session:
        """Start the workers; raises a :class:`~dptune.errors.DptuneError` if trainer or data cannot get there."""


@runtime_checkable
class DeclaresWorkers(Protocol):
    """An executor that says how many workers it will start; from this the duration of a run is estimated."""

    @property
    def workers(self) -> int | None:
        """How many; None if the machine decides."""


def usual_workers() -> int:
    """How many workers an executor starts that was not told: a public figure, whatever the run draws.

    Returns:
        What the environment variable ``DPTUNE_WORKERS`` says; without it, as many as there are processors.

    Raises:
        InvalidInput: If the variable is not a whole number from 1 to 4096.

    Example:
        >>> from dptune.executors.base import usual_workers
        >>> usual_workers() >= 1
        True
    """
    said = os.environ.get(_WORKERS, "").strip()
    if not said:
        return os.cpu_count() or 1
    if not (said.isascii() and said.isdigit() and len(said) <= len(str(_MOST)) and 1 <= int(said) <= _MOST):
        raise InvalidInput(
            f"The environment variable {_WORKERS} must be a whole number from 1 to {_MOST}; got {said[:40]!r}. Set it "
            "to how many trainings may run at once, or unset it: as many as there are processors."
        )
    return int(said)
