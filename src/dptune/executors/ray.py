"""Trials on a Ray cluster, of which Ray sees only a fixed set of actors, however many trials there are.

Ray keeps a task table, worker logs and spilled objects, whose number would equal the number of runs. So each actor
makes one call: it starts a worker process that connects back to this machine and pulls trials over that connection;
trainer, data, trials and models never pass through Ray. Workers keep their output in memory and send it to the
vault. Whoever runs the cluster can read the workers' memory and the network, so the cluster must be declared
trusted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener, wait
from typing import Any

from dptune._validate import integer
from dptune.errors import InvalidInput, Stopped
from dptune.executors.base import Result, Session, Task, Work, dead
from dptune.executors.processes import hello, one_thread

__all__ = ["Ray"]

_START = 120.0  # seconds that a cluster may take to bring up its workers
_QUIET = {"RAY_task_events_report_interval_ms": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InvalidInput("Ray is not installed; install the extra 'ray', or use --executor processes.") from None


def _keep_working(host: str, port: int, key: str) -> None:
    """What an actor does, once: keep one worker process alive until nobody answers any more."""
    environment = {**os.environ, **one_thread(), "PYTHONHASHSEED": "0"}
    while True:
        command = [sys.executable, "-m", "dptune.executors._worker", "--host", host, "--port", str(port)]
        command += ["--parent", str(os.getpid())]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        process.communicate(key.encode() + b"\n")
        if process.returncode in (0, 3):  # the run is over
            return
        time.sleep(0.1)


@dataclass
class _Line:
    channel: Connection
    tasks: list[int] = field(default_factory=list)  # handed over and not answered


@dataclass
class _Session:
    """Connections from the workers of the actors."""

    count: int
    greeting: list[bytes]
    listener: Listener
    ray: Any
    owns_ray: bool
    actors: list[Any] = field(default_factory=list)
    lines: list[_Line] = field(default_factory=list)
    arrived: deque[Connection] = field(default_factory=deque)
    lost: deque[Result] = field(default_factory=deque)
    problem: str | None = None
    closing: bool = False

    @property
    def slots(self) -> int:
        """As many as there are workers now: one that died comes back, unless its actor died with it."""
        self._gather()
        return max(1, len(self.lines))

    def accept(self) -> None:
        """Runs in a thread: greet every worker that connects, also those that replace a dead one."""
        while not self.closing:
            try:
                channel = self.listener.accept()
            except Exception:  # a stranger, or the listener was closed
                if self.closing:
                    return
                time.sleep(0.05)
                continue
            if self.closing:
                channel.close()
                return
            with contextlib.suppress(OSError, EOFError):
                for message in self.greeting:
                    channel.send_bytes(message)
                self.problem = pickle.loads(channel.recv_bytes())
                if self.problem is None:
                    self.arrived.append(channel)

    def _gather(self) -> None:
        while self.arrived:
            self.lines.append(_Line(self.arrived.popleft()))

    def start(self) -> None:
        until = time.monotonic() + _START
        while len(self.lines) < self.count:
            self._gather()
            if self.problem is not None:
                raise InvalidInput(
                    f"The trainer or the data did not arrive in a worker ({self.problem}). Define the trainer in "
                    "a module that workers can import."
                )
            if time.monotonic() > until:
                raise InvalidInput(
                    "The Ray cluster did not bring up its workers. Ask for fewer, and check that they can reach this "
                    "machine."
                )
            time.sleep(0.02)

    def submit(self, *tasks: Task) -> None:
        until = time.monotonic() + _START
        while True:
            self._gather()
            for line in self.lines:
                if not line.tasks:
                    line.tasks = [task.index for task in tasks]
                    with contextlib.suppress(OSError):  # a dead worker shows at wait()
                        line.channel.send_bytes(pickle.dumps(tasks))
                    return
            if time.monotonic() > until:
                raise Stopped("No Ray worker is left. Check the cluster, then resume the run.")
            time.sleep(0.02)

    def wait(self, seconds: float) -> Result | None:
        if self.lost:
            return self.lost.popleft()
        busy = {line.channel: line for line in self.lines if line.tasks}
        for channel in wait(list(busy), timeout=seconds):
            line = busy[channel]  # type: ignore[index] # only connections were passed
            try:
                result: Result = pickle.loads(line.channel.recv_bytes())
            except (EOFError, OSError, pickle.UnpicklingError):
                line.channel.close()
                self.lines.remove(line)
                self.lost.extend(dead(line.tasks))
                return self.lost.popleft()
            line.tasks.remove(result.index)
            return result
        return None

    def close(self) -> None:
        if self.closing:
            return
        self.closing = True
        for line in self.lines:
            line.channel.close()
        with contextlib.suppress(OSError):
            self.listener.close()
        for actor in self.actors:
            with contextlib.suppress(Exception):
                self.ray.kill(actor, no_restart=True)
        if self.owns_ray:
            with contextlib.suppress(Exception):
                self.ray.shutdown()


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: a local one, or the one at ``address``, which must be declared ``trusted``."""

    workers: int | None = None
    address: str | None = None
    trusted: bool = False
    name: str = "ray"

    def __post_init__(self) -> None:
        if self.workers is not None:
            integer("workers", self.workers, 1, 4096)
        if self.address is not None and not self.trusted:
            raise InvalidInput(
                "A Ray cluster sees the private records and every score, so it must be declared trusted: --trusted, or "
                "Ray(trusted=True)."
            )

    def open(self, work: Work) -> Session:
        greeting = hello(work)
        ray = _import_ray()
        owns = not ray.is_initialized()
        count = self.workers or os.cpu_count() or 1
        if owns:
            self._connect(ray, count)
        host = ray.util.get_node_ip_address() if self.address is not None else "127.0.0.1"
        key = secrets.token_bytes(32)
        listener = Listener((host, 0), backlog=2 * count, authkey=key)
        session = _Session(count, greeting, listener, ray, owns)
        threading.Thread(target=session.accept, daemon=True).start()
        try:
            actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
            port = listener.address[1]
            session.actors = [actor.remote() for _ in range(count)]
            for one in session.actors:
                one.work.remote(host, port, key.hex())
            session.start()
        except BaseException:
            session.close()
            raise
        return session

    def _connect(self, ray: Any, count: int) -> None:
        os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            options |= {"num_cpus": count, "include_dashboard": False}
        else:
            options["address"] = self.address
        try:
            ray.init(**options)
        except Exception as error:
            raise InvalidInput(
                f"The Ray cluster cannot be reached ({type(error).__name__}). Check the address."
            ) from None


class _Actor:
    """The only thing that Ray runs: one call per actor, whatever the number of trials."""

    def work(self, host: str, port: int, key: str) -> None:
        _keep_working(host, port, key)
