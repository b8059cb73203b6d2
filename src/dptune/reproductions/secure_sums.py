"""The secure sum of a vote and Flower's SecAgg+, run in one process on real Flower messages, with their costs counted.

For DP-Hype's Table IV and for ``benchmarks/federated.py``. Neither protocol pays for a network: messages are delivered
in this process, and their payload is counted. Needs the extra ``flower``.
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from dptune.federated.errors import Aborted, MissingExtra

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
    from flwr.server.compat.grid_client_proxy import GridClientProxy
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.serverapp import Grid
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity
except ImportError as missing:
    raise MissingExtra("flwr", "flower") from missing

from dptune.federated.client_app import ballot
from dptune.federated.flower_wire import ACTION, read, reply_with, request
from dptune.federated.in_process import carry
from dptune.federated.messages import Stage
from dptune.federated.plan import SumPlan
from dptune.federated.policy import Policy
from dptune.federated.server_app import DpHype
from dptune.federated.sum_client import SumClient
from dptune.federated.sum_server import SumServer

__all__ = ["DROPOUT", "LENGTH", "Cost", "LocalGrid", "bare", "quiet_flower", "secagg_plus", "sum_over_flower",
           "vote_over_flower"]  # fmt: skip

LENGTH = 100
DROPOUT = 0.2
LIMIT = 900.0
"""Seconds after which a run in this process is given up: a table of costs takes a quarter of an hour in all."""


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    cpu: float
    up: float
    down: float


class LocalGrid(Grid):
    """Delivers Flower messages to client apps in this process and counts their bytes.

    Nothing here waits for anybody, but Flower's shares are computed by threads that hand the interpreter to each other
    at every step: on a machine that others keep busy this takes many times its processor time. So there is a limit.
    """

    def __init__(self, app: ClientApp, nodes: int, limit: float = LIMIT) -> None:
        self._app, self._limit = app, limit
        self._began, self._worked = time.monotonic(), time.process_time()
        self.up = self.down = 0
        self.contexts = {
            100 + i: Context(1, 100 + i, {"partition-id": i, "num-partitions": nodes}, RecordDict(), {})
            for i in range(nodes)
        }

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in messages:
            self._in_time()
            node = message.metadata.dst_node_id
            self.down += _size(message)
            message = copy.deepcopy(message)  # noqa: PLW2901 - as a network would: senders may share records
            reply = self._app(message, self.contexts[node])
            reply.metadata.__dict__["_src_node_id"] = node
            self.up += _size(reply)
            replies.append(reply)
        return replies

    def _in_time(self) -> None:
        taken, worked = time.monotonic() - self._began, time.process_time() - self._worked
        if taken > self._limit:
            raise Aborted(
                f"The sum with {len(self.contexts)} clients was given up after {taken:.0f} s, of which the processor "
                f"worked {worked:.0f} s on it; the limit is {self._limit:.0f} s. The machine may be busy: call again, "
                "and what was measured before is kept."
            )


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Flower without its log and its warnings, with the identity that its workflows ask for."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(logging.CRITICAL)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _size(message: Message) -> int:
    # Config records as they are sent; their own count_bytes fails on empty lists.
    return sum(
        len(record.deflate()) if isinstance(record, ConfigRecord) else record.count_bytes()
        for record in message.content.values()
    )


def bare(n: int, *, dropped: int = 0) -> Cost:
    """Our secure sum of n vectors, state machines only."""
    subject = bytes(32)
    values = np.random.default_rng(n).integers(-1000, 1000, (n, LENGTH))
    started = time.process_time()
    server = SumServer(SumPlan(os.urandom(16), n, LENGTH, 32, DROPOUT, 1, subject))
    clients = [SumClient(clients=n, subject=subject) for _ in range(n)]
    answers = [lambda request, i=i: clients[i].answer(request, values[i]) for i in range(n)]
    result = carry(server, answers, {Stage.MASKED: range(dropped)})
    spent = time.process_time() - started
    np.testing.assert_array_equal(result.total, values[list(result.contributors)].sum(axis=0))
    return Cost(spent, result.bytes_up, result.bytes_down)


def sum_over_flower(n: int) -> Cost:
    """Our secure sum alone over Flower messages, client state frozen between them."""
    app, subject = ClientApp(), bytes(32)

    @app.query(ACTION)
    def answer(message: Message, context: Context) -> Message:
        client = SumClient(clients=n, subject=subject)
        if (kept := context.state.config_records.get("sum")) is not None:
            client.thaw(cast(bytes, kept["client"]))
        reply = client.answer(cast(bytes, read(message)["request"]), np.ones(LENGTH, dtype=np.int64))
        context.state["sum"] = ConfigRecord({"client": client.freeze()})
        return reply_with(message, {"answer": reply})

    grid = LocalGrid(app, n)
    nodes = list(grid.get_node_ids())
    started = time.process_time()
    server = SumServer(SumPlan(os.urandom(16), n, LENGTH, 32, DROPOUT, 1, subject))

    def ask(requests: dict[int, bytes]) -> list[tuple[int, bytes]]:
        sent = [request({"request": body}, nodes[i], 60.0) for i, body in requests.items()]
        replies = grid.send_and_receive(sent)
        return [(nodes.index(m.metadata.src_node_id), cast(bytes, read(m)["answer"])) for m in replies]

    requests = server.open()
    for step in (server.keys, server.shares, server.masked):
        requests = step(ask(requests))
    total = server.unmask(ask(requests))
    spent = time.process_time() - started
    np.testing.assert_array_equal(total, n)
    return Cost(spent, grid.up / n, grid.down / n)


def vote_over_flower(n: int) -> Cost:
    """A whole vote over Flower messages: noise, account, ledgers on disk and the secure sum."""
    app = ClientApp()
    candidates = [{"candidate": j} for j in range(LENGTH)]
    with tempfile.TemporaryDirectory() as folder:

        @ballot(app, policy=Policy(1, 3), ledger=lambda c: Path(folder) / f"{c.node_id}.ledger")
        def losses(candidates: object, context: Context) -> list[float]:
            return [float(j) for j in range(LENGTH)]

        vote = DpHype(candidates, votes=5, epsilon=1, dropout=DROPOUT)
        vote.plan(n).check_account()  # the account is cached: what follows is the protocol
        started = time.process_time()
        vote.start(LocalGrid(app, n))
        spent = time.process_time() - started
    return Cost(spent, vote.bytes_up / n, vote.bytes_down / n)


def secagg_plus(n: int, shares: float | int, threshold: float | int, limit: float = LIMIT) -> Cost:
    """Flower's SecAgg+ on n vectors of the same length, given up after so many seconds."""

    class Client(NumPyClient):
        def fit(
            self, parameters: object, config: object
        ) -> tuple[list[np.ndarray], int, dict[str, bool | bytes | float | int | str]]:
            return [np.ones(LENGTH)], 1, {}

    app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[secaggplus_mod])
    grid = LocalGrid(app, n, limit)
    manager = SimpleClientManager()
    for node in grid.get_node_ids():
        manager.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    state = RecordDict({"config": ConfigRecord({"current_round": 1}), "parameters": ArrayRecord([np.zeros(LENGTH)])})
    context = LegacyContext(
        Context(1, 0, {}, state, {}),
        ServerConfig(num_rounds=1),
        FedAvg(
            fraction_fit=1.0,
            min_fit_clients=n,
            min_available_clients=n,
            initial_parameters=ndarrays_to_parameters([np.zeros(LENGTH)]),
        ),
        manager,
    )
    started = time.process_time()
    SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=threshold)(grid, context)
    spent = time.process_time() - started
    return Cost(spent, grid.up / n, grid.down / n)
