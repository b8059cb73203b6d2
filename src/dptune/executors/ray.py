"""Trials on a Ray cluster, of which Ray sees only a fixed set of actors, however many trials there are.

Ray keeps a task table, worker logs and spilled objects, whose number would equal the number of runs. So each actor
makes one call: it starts a worker process that connects back to this machine and pulls trials over that connection.
What passes through Ray is public: this machine's address, the public key of this session, and the public key of each
actor, which comes back as raw bytes through Ray's key-value store (``ray.get`` would unpickle what a node sends). All
else goes over the encrypted link (``_remote``). Whoever runs the cluster can read the workers' memory, so the cluster
must be declared trusted.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from dptune._validate import integer
from dptune.errors import InvalidInput
from dptune.executors.base import Session, Work, usual_workers
from dptune.executors.processes import hello

__all__ = ["Ray"]

_END = 5.0  # seconds that actors may take to end by themselves, once their links are closed
_QUIET = {"RAY_task_events_report_interval_ms": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def _import_ray() -> Any:
    if importlib.util.find_spec("cryptography") is not None:
        with contextlib.suppress(ImportError):
            return importlib.import_module("ray")
    raise InvalidInput("Ray is not installed; install the extra 'ray', or use --executor processes.")


def _store() -> Any:
    """Ray's own table of bytes by name, shared by a cluster."""
    return importlib.import_module("ray.experimental.internal_kv")


class _Actor:
    """The only thing that Ray runs: one call per actor, whatever the number of trials."""

    def work(self, host: str, port: int, driver: bytes, name: str) -> None:
        from dptune.executors._handshake import Keys  # noqa: PLC0415 - in the actor, which may have another install
        from dptune.executors._remote import keep_working  # noqa: PLC0415

        own = Keys.new()  # never leaves this actor and its worker
        _store()._internal_kv_put(name.encode(), own.public, overwrite=True)
        keep_working(host, port, own, driver)


@dataclass
class _Cluster:
    """The actors of one session, and the public keys that they announced."""

    ray: Any
    owned: bool  # started here, so stopped here
    count: int
    label: str = field(default_factory=lambda: f"dptune-{secrets.token_hex(8)}")
    keys: dict[int, bytes] = field(default_factory=dict)
    actors: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _name(self, place: int) -> str:
        return f"{self.label}-{place}"

    def place(self, host: str, port: int, driver: bytes) -> None:
        """Place the actors and set them to work."""
        actor = self.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
        self.actors = [actor.remote() for _ in range(self.count)]
        self.calls = [  # their results are never fetched
            one.work.remote(host, port, driver, self._name(place)) for place, one in enumerate(self.actors)
        ]

    def known(self, public: bytes) -> bool:
        """Whether an actor of this session announced this key; what was announced first stays."""
        with self.lock:
            for place in set(range(self.count)) - set(self.keys):
                announced = _store()._internal_kv_get(self._name(place).encode())
                if announced is not None:
                    self.keys[place] = bytes(announced)
            return public in self.keys.values()

    def stop(self) -> None:
        """Take everything back; the actors have a moment to remove their temporary files."""
        with contextlib.suppress(Exception):
            self.ray.wait(self.calls, num_returns=len(self.calls), timeout=_END, fetch_local=False)
        for actor in self.actors:
            with contextlib.suppress(Exception):
                self.ray.kill(actor, no_restart=True)
        for place in range(self.count):
            with contextlib.suppress(Exception):
                _store()._internal_kv_del(self._name(place).encode())
        if self.owned:
            with contextlib.suppress(Exception):
                self.ray.shutdown()


@dataclass(frozen=True)
class Ray:
    """Trials on a Ray cluster: a local one, or one at an address.

    Args:
        workers: How many workers; if left out, what ``DPTUNE_WORKERS`` says, or as many as this machine has processors.
        address: Where the cluster is; a local one is started if left out.
        trusted: Declares that whoever runs the cluster may see private records and scores. Needed with ``address``.
        name: How users call it.

    Raises:
        InvalidInput: If a cluster at an address is not declared trusted, or ``workers`` is out of range.

    Example:
        >>> from dptune.executors.ray import Ray
        >>> Ray(workers=4, address="ray://cluster:10001", trusted=True).name
        'ray'
    """

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
        """Start the workers; raises :class:`~dptune.errors.InvalidInput` if trainer or data cannot get there."""
        greeting = hello(work)
        ray = _import_ray()
        from dptune.executors._remote import RemoteSession  # noqa: PLC0415 - needs 'cryptography'

        count = self.workers or usual_workers()
        cluster = _Cluster(ray, not ray.is_initialized(), count)
        if cluster.owned:
            self._connect(ray, count)
        host = ray.util.get_node_ip_address() if self.address is not None else "127.0.0.1"
        session = RemoteSession(host, count, greeting, work.vault.parent, cluster.known, cluster.stop)
        try:
            cluster.place(host, session.port, session.public)
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
