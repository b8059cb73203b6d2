"""Workers on other machines, which connect to the driver and are given trials over encrypted links.

Every worker has a thread here that speaks with it; the owner of the session only touches queues, so that no worker,
slow, silent or hostile, can hold up the others or the owner. What a worker says is data, about its own trials alone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dptune._progress import VARIABLE
from dptune._threads import one_thread
from dptune.errors import InvalidInput, Stopped
from dptune.executors._handshake import Keys
from dptune.executors._link import Link, Listener
from dptune.executors._messages import pack_tasks, unpack_ready, unpack_result
from dptune.executors.base import Result, Task, attempt, dead
from dptune.executors.processes import did_not_arrive

__all__ = ["RemoteSession", "keep_working"]

_START = 600.0  # seconds that a cluster may take to bring up its workers: it may be a busy one
_DONE = (0, 3)  # exit codes of a worker whose driver is gone


def keep_working(host: str, port: int, own: Keys, driver: bytes) -> None:
    """Keep one worker process alive, on the machine where this is called, until the driver is gone."""
    environment = {**os.environ, **one_thread(), "PYTHONHASHSEED": "0"}
    environment.pop(VARIABLE, None)  # a worker of a sealed run keeps its step nowhere
    command = [sys.executable, "-m", "dptune.executors._worker", "--host", host, "--port", str(port)]
    command += ["--parent", str(os.getpid())]
    with _hidden_folder() as folder:
        while True:
            process = subprocess.Popen(
                [*command, "--folder", str(_emptied(folder))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            process.communicate(f"{own.secret.hex()}\n{driver.hex()}\n".encode())  # never on the command line
            if process.returncode in _DONE:
                return
            time.sleep(0.1)


@contextlib.contextmanager
def _hidden_folder() -> Iterator[Path]:
    """A folder for temporary files inside another one.

    Others on the machine see the outer one and its times, so there is one however many trials there are and workers
    die, and nothing in it changes: what changes is in the inner one.
    """
    outer = Path(tempfile.mkdtemp(prefix="dptune-"))
    try:
        inner = outer / "inside"
        inner.mkdir(mode=0o700)
        yield inner
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def _emptied(folder: Path) -> Path:
    """A new folder in this one, without what the worker before left."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700, exist_ok=True)
    return work


@dataclass(eq=False)
class _Line:
    """One worker: what its thread is to send, and what it has not answered."""

    link: Link
    inbox: queue.SimpleQueue[tuple[Task, ...] | None] = field(default_factory=queue.SimpleQueue)
    tasks: list[int] = field(default_factory=list)


class RemoteSession:
    """Links from the workers that hold a known key.

    Args:
        host: the address of this machine that workers can reach.
        count: how many workers there are to be.
        greeting: the first messages to every worker.
        folder: of the run, for advice.
        known: whether a public key is that of a worker of this run; asked in threads.
        stop: called once at the end.
    """

    def __init__(
        self,
        host: str,
        count: int,
        greeting: list[bytes],
        folder: Path,
        known: Callable[[bytes], bool],
        stop: Callable[[], None],
    ) -> None:
        self._count, self._greeting, self._folder, self._stop = count, greeting, folder, stop
        self._lines: list[_Line] = []
        self._heard: deque[Result] = deque()
        self._arrived: queue.SimpleQueue[_Line | str] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[_Line, Result | None]] = queue.SimpleQueue()
        self._closing = False
        keys = Keys.new()  # of this session alone
        self.public = keys.public
        self._listener = Listener(host, keys, known, self._welcome)
        self.port = self._listener.port

    def _welcome(self, link: Link) -> None:
        """In the thread of a worker: greet it, hand it what is in its inbox, pass on what it answers."""
        line: _Line | None = None
        try:
            for message in self._greeting:
                link.send_bytes(message)
            problem = unpack_ready(link.recv_bytes())
            if problem is not None:
                self._arrived.put(problem)
                return
            line = _Line(link)
            self._arrived.put(line)
            while (tasks := line.inbox.get()) is not None:
                link.send_bytes(pack_tasks(tasks))
                left = {task.index for task in tasks}
                while left:
                    result = unpack_result(link.recv_bytes())
                    left.remove(result.index)
                    self._results.put((line, result))
        except Exception:  # gone, or it does not speak as a worker does; a thread's traceback would be printed
            if line is not None:
                self._results.put((line, None))

    @property
    def slots(self) -> int:
        """As many as there are workers now: one that died comes back, unless what kept it alive died too."""
        self._gather()
        return max(1, len(self._lines))

    def _gather(self) -> str | None:
        """Take in who arrived; what is wrong with somebody who did, if anything."""
        problem = None
        with contextlib.suppress(queue.Empty):
            while True:
                one = self._arrived.get_nowait()
                if isinstance(one, str):
                    problem = one
                else:
                    self._lines.append(one)
        return problem

    def start(self) -> None:
        """Wait until all workers are there."""
        until = time.monotonic() + _START
        while len(self._lines) < self._count:
            problem = self._gather()
            if problem is not None:
                raise did_not_arrive(problem)
            if time.monotonic() > until:
                raise InvalidInput(
                    "The Ray cluster did not bring up its workers. Ask for fewer, and check that they can reach this "
                    "machine and have dptune with its extra 'ray' installed."
                )
            time.sleep(0.02)

    def submit(self, *tasks: Task) -> None:
        """Hand tasks to one free worker; wait for one that answers or comes back if there is none."""
        until = time.monotonic() + _START
        while True:
            self._gather()
            for line in [one for one in self._lines if not one.tasks]:
                if line.link.idle():
                    line.tasks = [task.index for task in tasks]
                    line.inbox.put(tasks)
                    return
                self._drop(line)  # it died while it had nothing to do: nobody's death
            if self._lines:  # busy, for as long as they like: what they answer is kept for wait()
                until = time.monotonic() + _START
            elif time.monotonic() > until:
                raise Stopped(
                    "No Ray worker is left. What the run was charged stays charged: check the cluster, then finish it "
                    f"with 'dptune resume {self._folder}'."
                )
            self._hear(0.02)

    def _drop(self, line: _Line) -> None:
        self._lines.remove(line)
        line.link.hang_up()
        line.inbox.put(None)

    def wait(self, seconds: float) -> Result | None:
        """The next result, or None if there was none in this time."""
        if not self._heard:
            self._hear(seconds)
        return self._heard.popleft() if self._heard else None

    def _hear(self, seconds: float) -> None:
        """Take in the next answer, which frees its worker, or the next death."""
        try:
            line, result = self._results.get(timeout=seconds)
        except queue.Empty:
            return
        if result is not None:
            line.tasks.remove(result.index)
            self._heard.append(result)
        elif line in self._lines:
            self._drop(line)
            self._heard.extend(dead(line.tasks))

    def attempt(self, task: Task) -> Result:
        """Try a trial on blank records, before anything else is submitted."""
        return attempt(self, task)

    def close(self) -> None:
        """Send everybody away."""
        if self._closing:
            return
        self._closing = True
        self._listener.close()
        for line in list(self._lines):
            self._drop(line)
        self._stop()
