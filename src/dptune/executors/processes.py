"""Trials in processes of this machine, one numerical thread each.

A fixed number of workers is started before the charge and lives until the release. What they print and their temporary
files go to the vault; a worker that dies is reported, and replaced, but its trials are not tried again here. What
workers answer is data: nothing that they made is unpickled. Large arrays are in this machine's memory once: workers map
them (``_sharing``).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import BinaryIO

from dptune._progress import VARIABLE
from dptune._threads import ALONE, one_thread
from dptune._validate import integer
from dptune.errors import InvalidInput, Stopped
from dptune.executors._messages import LARGEST, BadMessage, pack_tasks, unpack_ready, unpack_result
from dptune.executors._sharing import Memory
from dptune.executors.base import Result, Session, Task, Work, attempt, dead, usual_workers
from dptune.executors.models import dumps

__all__ = ["Processes", "did_not_arrive", "environment", "hello"]

_STARTS = 5  # in a row without one that got ready: then there is no use in going on
_READY = 600.0  # seconds that a worker may take to load trainer and data


def environment(folder: Path, steps: Path | None = None, workers: int = 1) -> dict[str, str]:
    """A worker's environment: one thread, temporary files in ``folder``, modules where this process finds them.

    Only workers of a rehearsal keep their ``steps``. A final training may use the processors of all ``workers``.
    """
    given = {**os.environ, **one_thread(), ALONE: str(workers), "TMPDIR": str(folder), "PYTHONHASHSEED": "0"}
    given.pop(VARIABLE, None)
    given |= {} if steps is None else {VARIABLE: str(steps.absolute())}
    if given.get("PYTHONPATH"):  # it may be relative to the folder of this process, and workers live in another
        given["PYTHONPATH"] = os.pathsep.join(
            str(Path(one).absolute()) for one in given["PYTHONPATH"].split(os.pathsep)
        )
    return given


def hello(work: Work, memory: Memory | None = None) -> list[bytes]:
    """The messages that a worker gets first; raises if trainer or data cannot be sent.

    With ``memory``, large arrays are not in them: they are in memory that the worker maps.
    """
    paths = [str(Path(p).absolute()) if p else str(Path.cwd()) for p in sys.path]
    told = (work.trainer, work.data, work.secret, work.pickle)
    try:
        if memory is not None:
            content = dumps(told, memory.take)
            pieces = memory.settle()
            if pieces is not None:
                return [pickle.dumps((paths, pieces)), content]
        return [pickle.dumps((paths, [])), dumps(told)]
    except MemoryError:
        raise InvalidInput("The records do not fit into this machine's memory.") from None
    except Exception as error:
        raise InvalidInput(
            f"The trainer or the data cannot be sent to another process ({type(error).__name__}: {error}). "
            "Open files and connections inside fit()."
        ) from None


def did_not_arrive(problem: str) -> InvalidInput:
    """What to say when a worker cannot make sense of trainer or data."""
    return InvalidInput(
        f"The trainer or the data did not arrive in a worker ({problem}). Define the trainer in a module that workers "
        "can import, and load what takes long inside fit()."
    )


def _command(descriptor: int) -> list[str]:
    """What starts a worker that speaks through an inherited socket."""
    command = [sys.executable, "-m", "dptune.executors._worker"]
    return [*command, "--descriptor", str(descriptor), "--parent", str(os.getpid())]


@contextlib.contextmanager
def _appended(path: Path) -> Iterator[BinaryIO]:
    """A file for its owner alone, whatever the umask, to write at its end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as stream:
        os.fchmod(descriptor, 0o600)
        yield stream


@dataclass
class _Worker:
    """A process, and the time in which it must get ready: one that hangs until then is killed, so nobody waits."""

    process: subprocess.Popen[bytes]
    channel: Connection
    limit: float
    tasks: list[int] = field(default_factory=list)  # handed over and not answered
    late: bool = False

    def __post_init__(self) -> None:
        self._timer = threading.Timer(self.limit, self._too_late)
        self._timer.daemon = True
        self._timer.start()

    def _too_late(self) -> None:
        self.late = True
        self.process.kill()
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.channel.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)  # a process that it forked may hold the other end

    def problem(self) -> str | None:
        """None once it is ready, or why it is not."""
        try:
            return unpack_ready(self.channel.recv_bytes(LARGEST))
        except (EOFError, OSError, BadMessage):
            return f"it was not ready after {self.limit:g} seconds" if self.late else "it ended before it was ready"
        finally:
            self._timer.cancel()

    def stop(self) -> None:
        self._timer.cancel()
        self.channel.close()
        self.process.kill()
        self.process.wait()


@dataclass
class _Session:
    """Workers on this machine."""

    work: Work
    slots: int
    greeting: list[bytes]
    memory: Memory
    workers: list[_Worker | None] = field(default_factory=list)
    lost: deque[Result] = field(default_factory=deque)
    failed: int = 0  # starts in a row

    def start(self) -> None:
        started: list[_Worker] = []
        for place in range(self.slots):
            started.append(self._spawn(place))
            self.workers.append(started[-1])
        for worker in started:  # they load in parallel, then say whether all arrived
            self._greet(worker)
        for worker in started:
            problem = worker.problem()
            if problem is not None:
                raise did_not_arrive(problem)

    def _spawn(self, place: int) -> _Worker:
        output, folder = self.work.vault / "output", self.work.vault / "work"
        for one in (output, folder, *([] if self.work.steps is None else [self.work.steps])):
            one.mkdir(mode=0o700, exist_ok=True)
        ours, theirs = socket.socketpair()
        with ours, theirs, _appended(output / f"worker-{place}.log") as log:
            process = subprocess.Popen(
                _command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno(), *self.memory.descriptors],
                cwd=folder,
                env=environment(folder, self.work.steps, self.slots),
            )
            return _Worker(process, Connection(ours.detach()), _READY)

    def _greet(self, worker: _Worker) -> None:
        with contextlib.suppress(OSError):  # a worker that is dead already shows at the first answer
            for message in self.greeting:
                worker.channel.send_bytes(message)

    def submit(self, *tasks: Task) -> None:
        for place, worker in enumerate(self.workers):
            if worker is not None and worker.tasks:
                continue
            free = worker if worker is not None and worker.process.poll() is None else self._replace(place)
            if free is None:  # dead before it was ready: that is the death of what it was started for
                self.lost.extend(dead(task.index for task in tasks))
                return
            free.tasks = [task.index for task in tasks]
            with contextlib.suppress(OSError):  # a dead worker shows at wait()
                free.channel.send_bytes(pack_tasks(tasks))
            return
        raise InvalidInput("All workers are busy; wait() for one first.")

    def _replace(self, place: int) -> _Worker | None:
        """A new worker where one died; None if it was not ready in its time, an error if that keeps happening."""
        self._drop(place)
        with contextlib.suppress(OSError):  # no process can be made now
            self.workers[place] = worker = self._spawn(place)
            self._greet(worker)
            if worker.problem() is None:
                self.failed = 0
                return worker
        self._drop(place)
        self.failed += 1
        if self.failed < _STARTS:
            return None
        folder = self.work.vault.parent
        raise Stopped(
            f"Worker processes could not be started, {_STARTS} times in a row. What the run was charged stays charged: "
            f"free some memory, then finish it with 'dptune resume {folder}'."
        )

    def _drop(self, place: int) -> None:
        worker, self.workers[place] = self.workers[place], None
        if worker is not None:
            worker.stop()

    def wait(self, seconds: float) -> Result | None:
        if self.lost:
            return self.lost.popleft()
        busy = {w.channel: place for place, w in enumerate(self.workers) if w is not None and w.tasks}
        for channel in wait(list(busy), timeout=seconds):
            place = busy[channel]  # type: ignore[index] # only connections were passed
            worker = self.workers[place]
            assert worker is not None
            try:
                result = unpack_result(worker.channel.recv_bytes(LARGEST))
                worker.tasks.remove(result.index)
            except (EOFError, OSError, ValueError):  # dead, or it speaks of what it was not asked
                return self._death(place, worker)
            return result
        return self._silent_death(busy)

    def attempt(self, task: Task) -> Result:
        return attempt(self, task)

    def _death(self, place: int, worker: _Worker) -> Result:
        self._drop(place)
        self.lost.extend(dead(worker.tasks))
        return self.lost.popleft()

    def _silent_death(self, busy: dict[Connection, int]) -> Result | None:
        """A worker that is dead while its channel lives on, in the hands of a process that it forked."""
        for channel, place in busy.items():
            worker = self.workers[place]
            if worker is not None and worker.process.poll() is not None and not channel.poll():
                return self._death(place, worker)
        return None

    def close(self) -> None:
        for worker in self.workers:
            if worker is not None:
                worker.stop()
        self.workers.clear()
        self.memory.close()


@dataclass(frozen=True)
class Processes:
    """Trials in this machine's processes, one numerical thread each.

    Args:
        workers: How many processes; if left out, what ``DPTUNE_WORKERS`` says, or as many as there are processors.
        name: How users call it.

    Raises:
        InvalidInput: If ``workers`` is not between 1 and 4096.

    Example:
        >>> from dptune.executors import Processes
        >>> two = Processes(workers=2)  # then dptune.run(plan, trainer, data, executor=two, ...)
        >>> two.name
        'processes'
    """

    workers: int | None = None
    name: str = "processes"

    def __post_init__(self) -> None:
        if self.workers is not None:
            integer("workers", self.workers, 1, 4096)

    def open(self, work: Work) -> Session:
        """Start the workers; raises :class:`~dptune.errors.InvalidInput` if trainer or data cannot get there."""
        memory = Memory()
        try:
            session = _Session(work, self.workers or usual_workers(), hello(work, memory), memory)
        except BaseException:
            memory.close()
            raise
        try:
            session.start()
        except BaseException:
            session.close()
            raise
        return session
