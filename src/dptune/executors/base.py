"""Where trials run: one interface for this machine's processes and for clusters.

An executor starts a fixed number of workers, hands them trials, one or several at a time, and returns what they say.
It must never retry on its own (a retry conditions on success: ``docs/theorems/select.md``), never print, and never
leave a trace outside the vault that depends on how many trials there were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dptune.trainer import SupportsFit

__all__ = ["Executor", "Result", "Session", "Task", "Work", "dead"]


@dataclass(frozen=True)
class Work:
    """What every worker of a run needs, once. All of it is secret."""

    trainer: SupportsFit[Any, object]
    data: Any
    secret: bytes  # of the run's randomness
    vault: Path  # where output and temporary files of workers on this machine go


@dataclass(frozen=True)
class Task:
    """One trial (as JSON), and the pickled model that it starts from, if any."""

    index: int
    trial: str
    start: bytes | None = None


@dataclass(frozen=True)
class Result:
    """What became of a task: a score and a pickled model, or an error's traceback, or a dead worker."""

    index: int
    score: float
    model: bytes | None = None
    error: str | None = None
    died: bool = False
    output: str = ""


def dead(indices: Iterable[int]) -> list[Result]:
    """The results of tasks that a worker had not answered when it died."""
    return [Result(index, float("-inf"), error="the worker process died", died=True) for index in indices]


class Session(Protocol):
    """Running workers. Owned by one thread; ``close`` may be called more than once."""

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


class Executor(Protocol):
    """A way to run trials."""

    @property
    def name(self) -> str:
        """How users call it."""

    def open(self, work: Work) -> Session:
        """Start the workers; raises a :class:`~dptune.errors.DptuneError` if trainer or data cannot get there."""
