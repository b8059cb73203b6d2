"""Trials in processes of this machine, one numerical thread each.

A fixed number of workers is started before the charge and lives until the release. What they print and their temporary
files go to the vault; a worker that dies is reported, and replaced, but its trials are not tried again here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from dptune._validate import integer
from dptune.errors import InvalidInput, Stopped
from dptune.executors._worker import dumps
from dptune.executors.base import Result, Session, Task, Work, dead

__all__ = ["Processes", "environment", "hello", "one_thread"]

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def one_thread() -> dict[str, str]:
    """Settings under which numerical libraries use one thread: equal results on every machine, no oversubscription."""
    return dict.fromkeys(_THREADS, "1")


def environment(folder: Path) -> dict[str, str]:
    """A worker's environment: one thread, temporary files in ``folder``."""
    return {**os.environ, **one_thread(), "TMPDIR": str(folder), "PYTHONHASHSEED": "0"}


def hello(work: Work) -> list[bytes]:
    """The messages that a worker gets first; raises if trainer or data cannot be sent."""
    paths = [str(Path(p).absolute()) if p else str(Path.cwd()) for p in sys.path]
    try:
        return [pickle.dumps(paths), dumps((work.trainer, work.data, work.secret))]
    except Exception as error:
        raise InvalidInput(
            f"The trainer or the data cannot be sent to another process ({type(error).__name__}: {error}). "
            "Open files and connections inside fit()."
        ) from None


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    channel: Connection
    tasks: list[int] = field(default_factory=list)  # handed over and not answered

    def stop(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


@dataclass
class _Session:
    """Workers on this machine."""

    work: Work
    slots: int
    greeting: list[bytes]
    workers: list[_Worker | None] = field(default_factory=list)
    lost: deque[Result] = field(default_factory=deque)

    def start(self) -> None:
        started = [self._spawn(place) for place in range(self.slots)]
        self.workers.extend(started)
        for worker in started:  # they load in parallel, then say whether all arrived
            self._greet(worker)
        for worker in started:
            self._confirm(worker)

    def _spawn(self, place: int) -> _Worker:
        ours, theirs = socket.socketpair()
        output, folder = self.work.vault / "output", self.work.vault / "work"
        for one in (output, folder):
            one.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-m", "dptune.executors._worker"]
        command += ["--descriptor", str(theirs.fileno()), "--parent", str(os.getpid())]
        with (output / f"worker-{place}.log").open("ab") as log, theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env=environment(folder),
            )
        return _Worker(process, Connection(ours.detach()))

    def _greet(self, worker: _Worker) -> None:
        with contextlib.suppress(OSError):  # a worker that is dead already shows at the first answer
            for message in self.greeting:
                worker.channel.send_bytes(message)

    def _confirm(self, worker: _Worker) -> None:
        try:
            problem = pickle.loads(worker.channel.recv_bytes())
        except (EOFError, OSError):
            problem = "the worker ended before it was ready"
        if problem is not None:
            raise InvalidInput(
                f"The trainer or the data did not arrive in a worker ({problem}). Define the trainer in a module that "
                "workers can import."
            )

    def submit(self, *tasks: Task) -> None:
        for place, worker in enumerate(self.workers):
            if worker is not None and worker.tasks:
                continue
            free = worker or self._replace(place)
            free.tasks = [task.index for task in tasks]
            with contextlib.suppress(OSError):  # a dead worker shows at wait()
                free.channel.send_bytes(pickle.dumps(tasks))
            return
        raise InvalidInput("All workers are busy; wait() for one first.")

    def _replace(self, place: int) -> _Worker:
        worker = self._spawn(place)
        self.workers[place] = worker
        self._greet(worker)
        try:
            self._confirm(worker)
        except InvalidInput:
            raise Stopped("A worker could not be started again. Free some memory, then resume the run.") from None
        return worker

    def wait(self, seconds: float) -> Result | None:
        if self.lost:
            return self.lost.popleft()
        busy = {w.channel: place for place, w in enumerate(self.workers) if w is not None and w.tasks}
        for channel in wait(list(busy), timeout=seconds):
            place = busy[channel]  # type: ignore[index] # only connections were passed
            worker = self.workers[place]
            assert worker is not None
            try:
                result: Result = pickle.loads(worker.channel.recv_bytes())
            except (EOFError, OSError, pickle.UnpicklingError):
                worker.stop()
                self.workers[place] = None
                self.lost.extend(dead(worker.tasks))
                return self.lost.popleft()
            worker.tasks.remove(result.index)
            return result
        return None

    def close(self) -> None:
        for worker in self.workers:
            if worker is not None:
                worker.stop()
        self.workers.clear()


@dataclass(frozen=True)
class Processes:
    """This machine's processes; by default as many as it has processors."""

    workers: int | None = None
    name: str = "processes"

    def __post_init__(self) -> None:
        if self.workers is not None:
            integer("workers", self.workers, 1, 4096)

    def open(self, work: Work) -> Session:
        session = _Session(work, self.workers or os.cpu_count() or 1, hello(work))
        try:
            session.start()
        except BaseException:
            session.close()
            raise
        return session
