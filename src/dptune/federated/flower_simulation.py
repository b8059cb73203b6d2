"""The simulated federation of ``dptune vote --flower``: the same vote through Flower's own simulation.

Needs Ray (it comes with the extra ``flower``). Clients that are told to drop out answer with an error, as a crashed
client does. The CPU seconds that it reports are this process's and those that all clients took to answer; starting
Ray's workers is not in them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dptune._typing import Array
from dptune.federated import messages
from dptune.federated.client_app import ballot
from dptune.federated.errors import Aborted, MissingExtra
from dptune.federated.flower_wire import read
from dptune.federated.keys import Identity, Roster
from dptune.federated.messages import Stage
from dptune.federated.policy import Policy
from dptune.federated.server_app import DpHype
from dptune.federated.simulate import Simulated
from dptune.federated.statement import Elected
from dptune.federated.vote_plan import Candidate

try:
    from flwr.app import Context, Error, Message
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import ClientAppCallable
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("flwr", "flower") from missing

__all__ = ["federate"]


def federate(
    losses: npt.ArrayLike,
    candidates: Sequence[Candidate],
    *,
    votes: int = 5,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    dropout: float = 0.2,
    colluding: int = 1,
    drop: Mapping[Stage, int] | None = None,
    roster: bool = False,
) -> Simulated:
    """Run one vote through Flower; row i of ``losses`` belongs to partition i."""
    table = np.asarray(losses, dtype=np.float64)
    clients = len(table)
    started = time.process_time()
    secrets = [Identity.new_secret() for _ in range(clients)] if roster else []
    members = Roster.of(Identity(one).public for one in secrets) if roster else None
    vote = DpHype(
        candidates,
        votes=votes,
        epsilon=epsilon,
        delta=delta,
        dropout=dropout,
        colluding=colluding,
        clients=clients,
        roster=members,
    )
    policy = Policy(epsilon, 3, max_delta=delta, clients=clients, min_colluding=colluding, roster=members)
    outcome: list[Elected | Exception] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            outcome.append(vote.start(grid, stage_timeout=600))
        except Exception as bad:  # handed to the caller's thread
            outcome.append(bad)

    with tempfile.TemporaryDirectory() as folder:
        app = _clients(table, policy, secrets, Path(folder), _silent(drop or {}, clients))
        run_simulation(server, app, clients, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
        answering = sum(float(line) for file in Path(folder).glob("*.cpu") for line in file.read_text().split())
    if not outcome:
        raise Aborted("Flower's simulation ended without an outcome. Its log says why; mend that and start again.")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    params, statement = outcome[0]
    return Simulated(
        chosen=list(candidates).index(params),
        params=params,
        statement=replace(statement, simulated=True),
        cpu_seconds=time.process_time() - started + answering,
        bytes_up=vote.bytes_up / clients,
        bytes_down=vote.bytes_down / clients,
    )


def _silent(drop: Mapping[Stage, int], clients: int) -> dict[int, int]:
    order = np.random.default_rng().permutation(clients).tolist()
    return {order.pop(): int(stage) for stage, count in drop.items() for _ in range(count)}


def _clients(table: Array, policy: Policy, secrets: list[bytes], folder: Path, silent: dict[int, int]) -> ClientApp:
    def partition(context: Context) -> int:
        return int(context.node_config["partition-id"])

    def fall_silent(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        body = read(message).get("request")
        if isinstance(body, bytes) and messages.peek(body)[0] >= silent.get(partition(context), 99):
            return Message(Error(code=0, reason="dropped out"), reply_to=message)
        return call_next(message, context)

    def timed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        began = time.process_time()
        try:
            return call_next(message, context)
        finally:
            with (folder / f"{os.getpid()}.cpu").open("a") as file:  # a worker runs one client at a time
                file.write(f"{time.process_time() - began}\n")

    app = ClientApp(mods=[timed, fall_silent])

    def identity(context: Context) -> Identity:
        return Identity(secrets[partition(context)])

    @ballot(
        app,
        policy=policy,
        ledger=lambda context: folder / f"{partition(context)}.ledger",
        identity=identity if secrets else None,
    )
    def losses(candidates: Sequence[Candidate], context: Context) -> Sequence[float]:
        return [float(loss) for loss in table[partition(context)]]

    return app
