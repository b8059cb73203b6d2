"""A whole federation in one process: real clients, real secure sum, simulated or given losses, no network.

This is what ``dptune vote`` runs. The protocol and the noise are those of a deployment; only the transport
and the clients' ledgers are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptune import _validate
from dptune._typing import Array
from dptune.errors import InvalidInput
from dptune.federated.in_process import Summed, carry
from dptune.federated.keys import Identity, Roster
from dptune.federated.messages import Stage
from dptune.federated.plan import NO_ROSTER
from dptune.federated.policy import Policy
from dptune.federated.statement import VoteStatement, decide
from dptune.federated.sum_server import SumServer
from dptune.federated.vote_plan import Candidate, VotePlan
from dptune.federated.voter import Voter

__all__ = ["Simulated", "federate", "parse_drops", "simulated_losses"]


@dataclass(frozen=True)
class Simulated:
    """A simulated vote and what it took."""

    chosen: int
    params: Candidate
    statement: VoteStatement
    cpu_seconds: float
    bytes_up: float
    bytes_down: float


def simulated_losses(
    clients: int, candidates: int, *, good: int = 5, deviation: float = 0.2, seed: int | None = None
) -> Array:
    """Draw the paper's losses: good candidates around 0, the others around 1 (the good ones come first)."""
    _validate.integer("good", good, 0, candidates)
    _validate.real("deviation", deviation, 0)
    centre = np.ones(candidates)
    centre[:good] = 0.0
    return centre + deviation * np.random.default_rng(seed).standard_normal((clients, candidates))


def parse_drops(texts: Sequence[str], clients: int) -> dict[Stage, int]:
    """Read ``N@STAGE`` (a number 1 to 4, or keys, shares, masked, unmask): N clients fall silent there."""
    drops: dict[Stage, int] = {}
    for text in texts:
        number, at, name = text.partition("@")
        try:
            stage = Stage(int(name)) if name.isdigit() else Stage[name.upper()]
            count = int(number)
        except (ValueError, KeyError):
            at = ""
            stage, count = Stage.KEYS, 0
        if not at or count < 0:
            raise InvalidInput(
                f"'drop' must look like N@STAGE with STAGE 1 to 4 (or keys, shares, masked, unmask); got {text!r}."
            )
        drops[stage] = drops.get(stage, 0) + count
    if sum(drops.values()) > clients:
        raise InvalidInput(f"'drop' names {sum(drops.values())} clients; there are {clients}. Drop fewer.")
    return drops


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
    """Run one vote of a whole federation in this process: real clients, real secure sum, no network.

    Args:
        losses: A table with one row for each client and one column for each candidate (smaller is better).
        candidates: The configurations.
        votes: For how many of them each client votes.
        epsilon: The budget of the vote.
        delta: Its delta.
        dropout: The fraction of clients that may fall silent.
        colluding: How many clients may conspire with the server, at least 1.
        drop: How many clients fall silent at which stage.
        roster: Whether keys are signed by identities that all know.

    Returns:
        The chosen configuration, its statement, and what the vote took.

    Raises:
        InvalidInput: If the table does not fit, or the settings cannot be.
        Aborted: If more clients fall silent than ``dropout`` allows.

    Example:
        >>> from dptune.federated import federate
        >>> losses = [[0.1, 0.9, 0.8]] * 20
        >>> found = federate(losses, [{"lr": 0.1}, {"lr": 1.0}, {"lr": 10.0}], votes=1, epsilon=8.0)
        >>> found.params
        {'lr': 0.1}
        >>> found.statement.contributed
        20
    """
    table = np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(candidates):
        raise InvalidInput(f"Losses must have one row per client and {len(candidates)} columns; got {table.shape}.")
    started = time.process_time()
    clients = table.shape[0]
    plan = VotePlan.calibrated(
        candidates,
        votes=votes,
        epsilon=epsilon,
        delta=delta,
        clients=clients,
        dropout=dropout,
        colluding=colluding,
    )
    identities = sorted((Identity.new() for _ in range(clients)), key=lambda one: one.public) if roster else None
    members = Roster.of(one.public for one in identities) if identities else None
    policy = Policy(epsilon, 3, max_delta=delta, clients=clients, min_colluding=colluding, roster=members)
    voters = [Voter(policy, None, identities[i] if identities else None) for i in range(clients)]
    for voter, row in zip(voters, table, strict=True):
        voter.agree(plan, candidates)
        voter.evaluated(row.tolist())
    session = os.urandom(16)
    server = SumServer(plan.sum_plan(session, members.digest if members else NO_ROSTER), members)
    summed = _carry(server, voters, drop or {}, clients)
    chosen = int(np.argmax(summed.total))
    statement = VoteStatement.of(
        plan,
        contributed=len(summed.contributors),
        mode="roster" if roster else "open",
        session=session,
        simulated=True,
    )
    return Simulated(
        chosen=chosen,
        params=decide(summed.total, candidates),
        statement=statement,
        cpu_seconds=time.process_time() - started,
        bytes_up=summed.bytes_up,
        bytes_down=summed.bytes_down,
    )


def _carry(server: SumServer, voters: Sequence[Voter], drop: Mapping[Stage, int], clients: int) -> Summed:
    order = np.random.default_rng().permutation(clients).tolist()
    silent: dict[Stage, list[int]] = {}
    for stage, count in sorted(drop.items()):
        silent[stage], order = order[:count], order[count:]
    return carry(server, [voter.answer for voter in voters], silent)
