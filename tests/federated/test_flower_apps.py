"""The Flower apps: a vote over real Flower messages, what leaves a client, who is refused or missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from dptune.errors import InvalidInput
from dptune.federated.client_app import ballot, only_votes
from dptune.federated.errors import Aborted
from dptune.federated.flower_wire import MESSAGE_TYPE, RECORD, read, reply_with, request
from dptune.federated.keys import Identity, Roster
from dptune.federated.messages import peek
from dptune.federated.policy import Policy, VoteLedger
from dptune.federated.server_app import DpHype

SERVER = 1
CANDIDATES = [{"lr": 10.0**-j, "momentum": 0.9} for j in range(6)]


@pytest.fixture(autouse=True)
def a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower stamps messages with the task that runs in this process; older versions have none."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(identity, name, SERVER)


class InMemoryGrid(Grid):
    """Nodes in this process, real messages, a real client app; ``lost`` decides which nodes never answer
    which message.
    """

    def __init__(self, app: ClientApp, nodes: int, lost: Callable[[int, int], bool] = lambda node, turn: False) -> None:
        self._app = app
        self._lost = lost
        self._turn = 0
        self.contexts = {
            100 + i: Context(1, 100 + i, {"partition-id": i, "num-partitions": nodes}, RecordDict(), {})
            for i in range(nodes)
        }
        self.sent: list[Message] = []
        self.replies: list[Message] = []

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def deliver(self, message: Message) -> Message:
        """Run the client app on one message, as a SuperNode does."""
        node = message.metadata.dst_node_id
        try:
            reply = self._app(message, self.contexts[node])
        except Exception as bad:
            reply = Message(Error(code=1, reason=str(bad)), reply_to=message)
        return self.stamp(reply, node)

    @staticmethod
    def stamp(reply: Message, node: int) -> Message:
        """Name the sender, as the transport does."""
        reply.metadata.__dict__["_src_node_id"] = node
        return reply

    def index_of(self, node: int) -> int:
        """Return the index that the server gave to a node."""
        bodies = [read(m).get("request") for m in self.sent if m.metadata.dst_node_id == node]
        return next(peek(body)[2] for body in bodies if isinstance(body, bytes))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        self._turn += 1
        batch = list(messages)
        self.sent.extend(batch)
        answered = [m for m in batch if not self._lost(m.metadata.dst_node_id - 100, self._turn)]
        replies = [self.deliver(message) for message in answered]
        self.replies.extend(replies)
        return replies


def app_with(tmp_path: Path, policy: Policy, losses: Any = None, **settings: Any) -> ClientApp:
    app = ClientApp()

    @ballot(app, policy=policy, ledger=lambda c: tmp_path / f"{c.node_config['partition-id']}.ledger", **settings)
    def evaluate(candidates: Sequence[Any], context: Context) -> Sequence[float]:
        if losses is not None:
            return losses(candidates, context)  # type: ignore[no-any-return] # tests pass what they like
        return [abs(candidate["lr"] - 0.01) for candidate in candidates]

    return app


def test_a_vote_over_flower(tmp_path: Path) -> None:
    grid = InMemoryGrid(app_with(tmp_path, Policy(4, 10)), 30)
    vote = DpHype(CANDIDATES, votes=1, epsilon=4)
    params, statement = vote.start(grid)
    assert params == {"lr": 0.01, "momentum": 0.9}
    assert statement.mode == "open"
    assert statement.contributed == statement.clients == 30
    assert statement.epsilon <= 4
    assert "OPEN MODE" in str(statement)
    assert VoteLedger(tmp_path / "7.ledger").spent() == (4.0, 1e-5)


@pytest.mark.parametrize("turn", [1, 2, 3, 4, 5])
def test_lost_nodes_count_as_dropouts(tmp_path: Path, turn: int) -> None:
    grid = InMemoryGrid(app_with(tmp_path, Policy(8, 10)), 15, lost=lambda node, now: node < 3 and now >= turn)
    # Twelve votes for one candidate against noise of deviation about .9 at epsilon 8.
    params, statement = DpHype(CANDIDATES, votes=1, epsilon=8).start(grid)
    assert params == {"lr": 0.01, "momentum": 0.9}
    assert statement.contributed == (15 if turn == 5 else 12)


@pytest.mark.parametrize("turn", [1, 2, 3, 4, 5])
def test_one_lost_node_too_many_aborts(tmp_path: Path, turn: int) -> None:
    grid = InMemoryGrid(app_with(tmp_path, Policy(8, 10)), 15, lost=lambda node, now: node < 4 and now >= turn)
    with pytest.raises(Aborted, match="the plan needs 12"):
        DpHype(CANDIDATES, votes=1, epsilon=8).start(grid)


def test_a_vote_with_a_roster(tmp_path: Path) -> None:
    identities = [Identity(bytes([i]) * 32) for i in range(12)]
    roster = Roster.of(one.public for one in identities)
    app = app_with(
        tmp_path,
        Policy(4, 10, roster=roster),
        identity=lambda c: identities[int(c.node_config["partition-id"])],
    )
    params, statement = DpHype(CANDIDATES, votes=1, epsilon=4, roster=roster).start(InMemoryGrid(app, 12))
    assert statement.mode == "roster"
    assert params["momentum"] == 0.9


def test_a_node_outside_the_roster_is_refused(tmp_path: Path) -> None:
    identities = [Identity(bytes([i]) * 32) for i in range(12)]
    roster = Roster.of(one.public for one in identities)
    identities[3] = Identity(b"x" * 32)
    app = app_with(
        tmp_path,
        Policy(4, 10, roster=roster),
        identity=lambda c: identities[int(c.node_config["partition-id"])],
    )
    vote = DpHype(CANDIDATES, votes=1, epsilon=4, roster=roster)
    assert vote.start(InMemoryGrid(app, 12)).statement.contributed == 11
    assert vote.refused == {103: "This identity is not on the roster; ask the vote's organiser to add it."}


def test_a_forged_reply_counts_as_dropout_and_says_why(tmp_path: Path) -> None:
    class Tampering(InMemoryGrid):
        def deliver(self, message: Message) -> Message:
            reply = super().deliver(message)
            answer = read(reply).get("answer")
            if message.metadata.dst_node_id == 103 and isinstance(answer, bytes) and answer[0] == 0x83:
                return self.stamp(reply_with(message, {"answer": answer[:-4]}), 103)
            return reply

    vote = DpHype(CANDIDATES, votes=1, epsilon=8)
    grid = Tampering(app_with(tmp_path, Policy(8, 10)), 15)
    assert vote.start(grid).statement.contributed == 14
    assert vote.refused == {103: f"Client {grid.index_of(103)} sent 20 bytes of masked values instead of 24."}


def test_nothing_but_votes_leaves_a_client(tmp_path: Path) -> None:
    def leaky(candidates: Sequence[Any], context: Context) -> Sequence[float]:
        context.state["metrics"] = MetricRecord({"accuracy": 0.987654})
        if context.node_config["partition-id"] == 3:
            raise RuntimeError("patient 4711 has no label")
        return [0.987654] * len(candidates)

    grid = InMemoryGrid(app_with(tmp_path, Policy(4, 10), leaky), 12)
    DpHype(CANDIDATES, votes=1, epsilon=4).start(grid)
    assert len(grid.replies) == 5 * 12
    for reply in grid.replies:
        assert reply.has_content()
        assert list(reply.content) == [RECORD]
        assert set(read(reply)) in ({"ready"}, {"answer"})
    ready = {str(read(reply)) for reply in grid.replies[:12]}
    assert ready == {"{'ready': 'yes'}"}


def test_the_mod_builds_every_reply_from_scratch() -> None:
    message = request({"plan": "x"}, 5, 60)
    context = Context(1, 5, {}, RecordDict(), {})

    def careless(message: Message, context: Context) -> Message:
        record = ConfigRecord({"ready": "yes", "accuracy": "0.9"})
        return Message(RecordDict({RECORD: record, "metrics": MetricRecord({"loss": 0.1})}), reply_to=message)

    def failing(message: Message, context: Context) -> Message:
        raise RuntimeError("patient 4711 has no label")

    reply = only_votes(message, context, careless)
    assert list(reply.content) == [RECORD]
    assert read(reply) == {"ready": "yes"}
    assert read(only_votes(message, context, failing)) == {"refused": "The client could not answer."}
    assert read(reply_with(message, {"answer": b"1", "loss": "2"})) == {"answer": b"1"}


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(1, 3), "costs epsilon 4; this client allows 1"),
        (Policy(4, 50), "has 12 clients; this client takes part from 50"),
        (Policy(4, 3, clients=11), "claims 12 clients, 11 were agreed"),
    ],
)
def test_policies_stop_a_vote_before_evaluation(tmp_path: Path, policy: Policy, reason: str) -> None:
    evaluated = []
    app = app_with(tmp_path, policy, lambda candidates, context: evaluated.append(1))
    with pytest.raises(Aborted, match=reason):
        DpHype(CANDIDATES, votes=1, epsilon=4).start(InMemoryGrid(app, 12))
    assert not evaluated


def test_unequal_candidate_lists_are_refused(tmp_path: Path) -> None:
    app = app_with(tmp_path, Policy(4, 3), candidates=CANDIDATES[:-1])
    with pytest.raises(Aborted, match="differ from this client's own list"):
        DpHype(CANDIDATES, votes=1, epsilon=4).start(InMemoryGrid(app, 12))


def test_a_repeated_request_is_refused_by_the_client(tmp_path: Path) -> None:
    grid = InMemoryGrid(app_with(tmp_path, Policy(4, 3)), 5)
    DpHype(CANDIDATES, votes=1, epsilon=4).start(grid)
    for message in [m for m in grid.sent if "request" in read(m)]:
        refused = read(grid.deliver(message))
        assert set(refused) == {"refused"}
        assert "answered once" in str(refused["refused"])


def test_a_second_vote_does_not_fit_the_ledger(tmp_path: Path) -> None:
    app = app_with(tmp_path, Policy(4, 3))
    DpHype(CANDIDATES, votes=1, epsilon=4).start(InMemoryGrid(app, 5))
    with pytest.raises(Aborted, match="ledger holds epsilon 4 of 4"):
        DpHype(CANDIDATES, votes=1, epsilon=4).start(InMemoryGrid(app, 5))


def test_a_sum_without_a_vote_is_refused(tmp_path: Path) -> None:
    grid = InMemoryGrid(app_with(tmp_path, Policy(4, 3)), 3)
    for values in ({"request": b"x"}, {"other": "y"}):
        assert "refused" in read(grid.deliver(request(dict(values), 100, 60)))
    assert MESSAGE_TYPE == "query.dptune_vote"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"votes": 6}, "pure noise"),
        ({"votes": 7}, "more candidates"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"dropout": 1}, "dropout"),
        ({"colluding": 0}, "colluding"),
        ({"clients": 2}, "clients"),
        ({"clients": 3, "roster": [bytes(32)]}, "roster has 1 members"),
    ],
)
def test_bad_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        DpHype(CANDIDATES, **{"votes": 1, **settings})


def test_candidates_must_be_plain_values() -> None:
    with pytest.raises(InvalidInput, match="JSON"):
        DpHype([{"lr": object()}, {"lr": 1}], votes=1)
