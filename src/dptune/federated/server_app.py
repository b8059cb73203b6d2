"""Voting for Flower's ``ServerApp``: one call that returns the chosen configuration and its statement.

    @app.main()
    def main(grid, context):
        params, statement = DpHype(candidates, votes=5, epsilon=1, delta=1e-5).start(grid)
        FedAvg(...).start(grid, ...)

First every client evaluates, for as long as that takes; then four short stages sum the noisy votes. Clients
that do not answer in time count as dropped out; below the declared number the vote is aborted before anything
is unmasked.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dptune import _validate
from dptune._typing import Indices
from dptune.errors import InvalidInput
from dptune.federated.errors import Aborted, MissingExtra, ProtocolError
from dptune.federated.flower_wire import Value, payload, read, request
from dptune.federated.graph import topology
from dptune.federated.keys import Roster
from dptune.federated.plan import NO_ROSTER
from dptune.federated.statement import Elected, VoteStatement, decide
from dptune.federated.sum_server import SumServer
from dptune.federated.vote_plan import Candidate, VotePlan, candidates_digest, check_budget
from dptune.federated.votes import check_votes

try:
    from flwr.app import Message
    from flwr.serverapp import Grid
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("flwr", "flower") from missing

__all__ = ["DpHype"]


@dataclass(frozen=True)
class _Terms:
    """What the vote is planned from, once the number of clients is known."""

    votes: int
    epsilon: float
    delta: float
    dropout: float
    colluding: int


class DpHype:
    """A private vote on one of several configurations, run by Flower's ``ServerApp``.

    Args:
        candidates: The configurations, as plain names, numbers and strings.
        votes: For how many of them each client votes.
        epsilon: The budget of the vote.
        delta: Its delta.
        dropout: The fraction of clients that may fall silent.
        colluding: How many clients may conspire with the server, at least 1.
        clients: The agreed number of clients; all connected nodes if left out.
        roster: The members' public keys; asks for signed keys.

    Raises:
        InvalidInput: If the settings cannot be, or the roster has not ``clients`` members.

    Example:
        >>> from dptune.federated import DpHype
        >>> vote = DpHype([{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=1.0, clients=20)
        >>> vote.plan(20).spent() <= 1.0  # then elected = vote.start(grid) in the server's main function
        True
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        votes: int = 5,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        dropout: float = 0.2,
        colluding: int = 1,
        clients: int | None = None,
        roster: Roster | Iterable[bytes] | None = None,
    ) -> None:
        self.candidates = list(candidates)
        self.roster = roster if roster is None or isinstance(roster, Roster) else Roster.of(roster)
        if self.roster is not None and clients not in (None, len(self.roster.members)):
            raise InvalidInput(
                f"The roster has {len(self.roster.members)} members, 'clients' says {clients}. "
                "Leave 'clients' out, or list them all."
            )
        self._clients = clients if self.roster is None else len(self.roster.members)
        self._terms = _Terms(votes, epsilon, delta, dropout, colluding)
        self.refused: dict[int, str] = {}
        """Why nodes are not in the sum, as far as they or the protocol said so."""
        self.bytes_up = 0
        self.bytes_down = 0
        """Payload of all messages of the sum, over all clients."""
        check_votes(votes, len(self.candidates))
        check_budget(epsilon, delta)
        candidates_digest(self.candidates)
        _validate.real("dropout", dropout, 0, 1, high_open=True)
        _validate.integer("colluding", colluding, 1)
        if self._clients is not None:
            topology(self._clients, dropout, colluding)

    def plan(self, clients: int) -> VotePlan:
        """Return the calibrated plan for this many clients; raises on impossible settings."""
        return VotePlan.calibrated(
            self.candidates,
            votes=self._terms.votes,
            epsilon=self._terms.epsilon,
            delta=self._terms.delta,
            clients=clients,
            dropout=self._terms.dropout,
            colluding=self._terms.colluding,
        )

    def start(
        self,
        grid: Grid,
        *,
        evaluation_timeout: float = 86_400.0,
        stage_timeout: float = 60.0,
        wait: float = 60.0,
    ) -> Elected:
        """Run the vote.

        Args:
            grid: Flower's connection to the nodes.
            evaluation_timeout: How many seconds clients have to evaluate the candidates.
            stage_timeout: How many seconds they have for each stage of the secure sum.
            wait: How many seconds to wait for the agreed number of nodes to connect.

        Returns:
            The chosen configuration and its statement.

        Raises:
            Aborted: If too few clients are left; nothing was unmasked.
        """
        nodes = self._connected(grid, wait)
        plan = self.plan(self._clients or len(nodes))
        index_of = self._evaluate(grid, plan, nodes, evaluation_timeout)
        session = os.urandom(16)
        server = SumServer(plan.sum_plan(session, self.roster.digest if self.roster else NO_ROSTER), self.roster)
        total = self._sum(grid, server, index_of, stage_timeout)
        statement = VoteStatement.of(
            plan,
            contributed=len(server.contributors),
            mode="roster" if self.roster else "open",
            session=session,
        )
        return Elected(decide(total, self.candidates), statement)

    # -- phases

    def _connected(self, grid: Grid, wait: float) -> list[int]:
        wanted = self._clients or 3
        deadline = time.monotonic() + _validate.real("wait", wait, 0)
        nodes = list(grid.get_node_ids())
        while len(nodes) < wanted and time.monotonic() < deadline:
            time.sleep(0.2)
            nodes = list(grid.get_node_ids())
        if self._clients is None or len(nodes) <= self._clients:
            return nodes
        return secrets.SystemRandom().sample(nodes, self._clients)

    def _evaluate(self, grid: Grid, plan: VotePlan, nodes: Sequence[int], timeout: float) -> dict[int, int]:
        """Ask every node to evaluate; return the index of each node that is ready."""
        values: dict[str, Value] = {"plan": plan.to_json(), "candidates": json.dumps(self.candidates)}
        index_of: dict[int, int] = {}
        free = iter(secrets.SystemRandom().sample(range(plan.clients), plan.clients))
        for node, reply in self._ask(grid, dict.fromkeys(nodes, values), timeout):
            if "ready" not in reply or node in index_of:
                self.refused[node] = str(reply.get("refused", "The node did not answer."))
                continue
            try:
                index = next(free) if self.roster is None else self.roster.index(_bytes(reply, "identity"))
                if index in index_of.values():
                    raise ProtocolError("Two nodes claim the same identity.")
                index_of[node] = index
            except ProtocolError as bad:
                self.refused[node] = str(bad)
        if len(index_of) < (least := plan.sum_plan(bytes(16)).shape.minimum):
            reasons = "; ".join(sorted(set(self.refused.values()))) or "the others did not answer"
            raise Aborted(f"{len(index_of)} of {plan.clients} clients are ready, the plan needs {least}: {reasons}")
        return index_of

    def _sum(self, grid: Grid, server: SumServer, index_of: dict[int, int], timeout: float) -> Indices:
        node_of = {index: node for node, index in index_of.items()}
        requests = server.open()
        steps: list[Callable[[list[tuple[int, bytes]]], dict[int, bytes]]]
        steps = [server.keys, server.shares, server.masked]
        try:
            for step in steps:
                requests = step(self._stage(grid, requests, index_of, timeout))
            return server.unmask(self._stage(grid, requests, index_of, timeout))
        finally:
            self.refused |= {node_of[i]: reason for i, reason in server.refused.items() if i in node_of}

    def _stage(
        self, grid: Grid, requests: dict[int, bytes], index_of: dict[int, int], timeout: float
    ) -> list[tuple[int, bytes]]:
        asked: dict[int, dict[str, Value]]
        asked = {node: {"request": requests[i]} for node, i in index_of.items() if i in requests}
        answers = []
        for node, reply in self._ask(grid, asked, timeout, count=True):
            if isinstance(answer := reply.get("answer"), bytes):
                answers.append((index_of[node], answer))
            else:
                self.refused[node] = str(reply.get("refused", "The node did not answer."))
        return answers

    def _ask(
        self, grid: Grid, asked: dict[int, dict[str, Value]], timeout: float, *, count: bool = False
    ) -> list[tuple[int, dict[str, Value]]]:
        """Send one message to each node and return what came back in time, from nodes that were asked."""
        sent = [request(values, node, timeout) for node, values in asked.items()]
        replies: list[Message] = list(grid.send_and_receive(sent, timeout=timeout))
        if count:
            self.bytes_down += sum(payload(message) for message in sent)
            self.bytes_up += sum(payload(message) for message in replies)
        return [(m.metadata.src_node_id, read(m)) for m in replies if m.metadata.src_node_id in asked]


def _bytes(values: dict[str, Value], key: str) -> bytes:
    value = values.get(key)
    if not isinstance(value, bytes):
        raise ProtocolError("The node did not show an identity, but the vote asks for a roster.")
    return value
