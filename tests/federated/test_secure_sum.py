"""The secure sum as a whole: exact sums under dropout at every stage, aborts, lies and forgeries."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from dptune.federated import messages
from dptune.federated.errors import Aborted, ProtocolError
from dptune.federated.in_process import Summed
from dptune.federated.in_process import carry as carry_bytes
from dptune.federated.keys import Agreement, Identity, KeyPair, Roster, open_sealed, seal
from dptune.federated.messages import Stage
from dptune.federated.plan import SumPlan
from dptune.federated.sum_client import SumClient
from dptune.federated.sum_server import SumServer

SUBJECT = b"s" * 32


def fixed_random(label: str) -> Callable[[int], bytes]:
    """Return a reproducible stand-in for the operating system's generator, for test vectors only."""
    counter = iter(range(10**6))
    return lambda size: hashlib.shake_256(f"{label} {next(counter)}".encode()).digest(size)


def plan_of(
    n: int,
    *,
    dropout: float = 0.2,
    colluding: int = 1,
    length: int = 7,
    bits: int = 32,
    roster: bytes = bytes(32),
) -> SumPlan:
    return SumPlan(b"0123456789abcdef", n, length, bits, dropout, colluding, SUBJECT, roster)


def federation(plan: SumPlan) -> tuple[SumServer, list[SumClient], list[npt.NDArray[np.int64]]]:
    rng = np.random.default_rng(plan.clients)
    values = [rng.integers(-(2**20), 2**20, plan.length) for _ in range(plan.clients)]
    clients = [SumClient(clients=plan.clients, subject=SUBJECT) for _ in range(plan.clients)]
    return SumServer(plan), clients, values


def carry(
    server: SumServer,
    clients: list[SumClient],
    values: list[npt.NDArray[np.int64]],
    drop: Mapping[Stage, Collection[int]],
) -> Summed:
    answers = [partial(client.answer, values=row) for client, row in zip(clients, values, strict=True)]
    return carry_bytes(server, answers, drop)


def up_to(stage: Stage, plan: SumPlan) -> tuple[SumServer, list[SumClient], dict[int, bytes]]:
    """Run a federation to the requests of a stage."""
    server, clients, values = federation(plan)
    requests = server.open()
    for current, step in zip(Stage, (server.keys, server.shares, server.masked), strict=False):
        if current is stage:
            break
        requests = step([(i, clients[i].answer(r, values[i])) for i, r in requests.items()])
    return server, clients, requests


@pytest.mark.parametrize("n", [3, 4, 5, 8, 13, 33, 50, 100, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("amount", ["none", "some", "all allowed"])
def test_exact_under_dropout(n: int, stage: Stage, amount: str) -> None:
    plan = plan_of(n, dropout=1 / 3 if n == 3 else 0.25)
    allowed = n - plan.shape.minimum
    count = {"none": 0, "some": (allowed + 1) // 2, "all allowed": allowed}[amount]
    server, clients, values = federation(plan)
    gone = np.random.default_rng(n + 1000 * stage).permutation(n)[:count].tolist()
    result = carry(server, clients, values, {stage: gone})
    counted = set(range(n)) - (set(gone) if stage is not Stage.UNMASK else set())
    assert set(result.contributors) == counted
    np.testing.assert_array_equal(result.total, sum(values[i] for i in counted))


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(Stage.KEYS, marks=pytest.mark.slow),
        pytest.param(Stage.SHARES, marks=pytest.mark.slow),
        Stage.MASKED,
        pytest.param(Stage.UNMASK, marks=pytest.mark.slow),
    ],
)
def test_exact_for_250_clients_with_all_allowed_dropouts(stage: Stage) -> None:
    plan = plan_of(250, length=100)
    server, clients, values = federation(plan)
    gone = np.random.default_rng(stage).permutation(250)[:50].tolist()
    result = carry(server, clients, values, {stage: gone})
    np.testing.assert_array_equal(result.total, sum(values[i] for i in result.contributors))
    assert result.bytes_up < 16_000
    assert result.bytes_down < 16_000


@pytest.mark.parametrize("bits", [32, 64])
def test_dropouts_spread_over_all_stages(bits: int) -> None:
    plan = plan_of(40, bits=bits)
    server, clients, values = federation(plan)
    drop = {Stage.KEYS: [0, 39], Stage.SHARES: [5, 6], Stage.MASKED: [7, 8], Stage.UNMASK: [9, 10]}
    result = carry(server, clients, values, drop)
    assert set(result.contributors) == set(range(40)) - {0, 39, 5, 6, 7, 8}
    np.testing.assert_array_equal(result.total, sum(values[i] for i in result.contributors))


@pytest.mark.parametrize("n", [3, 10, 60])
@pytest.mark.parametrize("stage", list(Stage))
def test_one_dropout_too_many_aborts_unopened(n: int, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> bytes:
        raise AssertionError("a secret was opened")

    monkeypatch.setattr("dptune.federated.sum_server.join", opened)
    plan = plan_of(n, dropout=1 / 3 if n == 3 else 0.25)
    server, clients, values = federation(plan)
    gone = range(n - plan.shape.minimum + 1)
    with pytest.raises(Aborted, match="nothing was unmasked"):
        carry(server, clients, values, {stage: gone})


def test_a_masked_vector_looks_uniform() -> None:
    # 8 clients of zeros, 4000 words each: the top byte of what the server sees, chi-square, 255 degrees.
    plan = plan_of(8, length=4000)
    server, clients, _ = federation(plan)
    requests = server.open()
    for step in (server.keys, server.shares):
        requests = step([(i, clients[i].answer(r)) for i, r in requests.items()])
    zeros = np.zeros(4000, dtype=np.int64)
    seen = b"".join(clients[i].answer(r, zeros)[19:] for i, r in requests.items())
    counts = np.bincount(np.frombuffer(seen, dtype="<u4") >> 24, minlength=256)
    statistic = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert chi2(255).sf(statistic) > 1e-8
    assert chi2(255).cdf(statistic) > 1e-8


# -- what clients refuse


def test_each_stage_is_answered_once() -> None:
    server, clients, values = federation(plan_of(4))
    requests = server.open()
    for step in (server.keys, server.shares, server.masked, None):
        replies = [(i, clients[i].answer(r, values[i])) for i, r in requests.items()]
        for i, request in requests.items():
            with pytest.raises(ProtocolError, match="answered once"):
                clients[i].answer(request, values[i])
        if step is not None:
            requests = step(replies)


def test_stages_come_in_order() -> None:
    _, _, requests = up_to(Stage.MASKED, plan_of(4))
    fresh = SumClient(clients=4, subject=SUBJECT)
    with pytest.raises(ProtocolError, match="came before stage KEYS"):
        fresh.answer(requests[0], np.zeros(7, dtype=np.int64))


@pytest.mark.parametrize(("claimed", "pinned"), [(250, 50), (40, 50)])
def test_another_number_of_clients_is_refused(claimed: int, pinned: int) -> None:
    request = SumServer(plan_of(claimed)).open()[0]
    with pytest.raises(ProtocolError, match=f"plans for {claimed} clients, this client for {pinned}"):
        SumClient(clients=pinned, subject=SUBJECT).answer(request)


def test_another_subject_is_refused() -> None:
    request = SumServer(plan_of(5)).open()[0]
    with pytest.raises(ProtocolError, match="something else"):
        SumClient(clients=5, subject=b"t" * 32).answer(request)


@pytest.mark.parametrize("stage", [Stage.SHARES, Stage.MASKED, Stage.UNMASK])
def test_claimed_survivors_below_the_minimum_are_refused(stage: Stage) -> None:
    plan = plan_of(10)
    _, clients, requests = up_to(stage, plan)
    forged = requests[3][:19] + struct.pack(">H", plan.shape.minimum - 1) + requests[3][21:]
    with pytest.raises(ProtocolError, match="must be given up"):
        clients[3].answer(forged, np.zeros(7, dtype=np.int64))


def _unmask_request(plan: SumPlan, index: int, alive: set[int], dead: set[int], count: int) -> bytes:
    rows = messages.pack_rows(dict.fromkeys(alive, b"")) + messages.pack_rows(dict.fromkeys(dead, b""))
    return messages.pack(Stage.UNMASK, plan.session, index, messages.pack_count(count) + rows, reply=False)


@pytest.mark.parametrize(
    ("alive", "dead", "match"),
    [
        ({1, 2, 3, 4}, {4}, "alive and as dead"),
        ({1, 2, 3}, set(), "do not match"),
        ({1, 2, 3, 4}, {0}, "do not match"),
        ({1, 2}, {3, 4}, "threshold|needs"),
    ],
)
def test_lies_about_who_is_alive_are_refused(alive: set[int], dead: set[int], match: str) -> None:
    plan = plan_of(5)
    _, clients, _ = up_to(Stage.UNMASK, plan)
    with pytest.raises(ProtocolError, match=match):
        clients[0].answer(_unmask_request(plan, 0, alive, dead, 5))


def test_a_tampered_share_is_refused() -> None:
    _, clients, requests = up_to(Stage.MASKED, plan_of(6))
    tampered = bytearray(requests[2])
    tampered[40] ^= 1
    with pytest.raises(ProtocolError, match="tampered"):
        clients[2].answer(bytes(tampered), np.zeros(7, dtype=np.int64))


@pytest.mark.parametrize("stage", [Stage.SHARES, Stage.MASKED, Stage.UNMASK])
@pytest.mark.parametrize("damage", ["cut", "extended", "other session", "other client"])
def test_malformed_requests_are_refused(stage: Stage, damage: str) -> None:
    _, clients, requests = up_to(stage, plan_of(6))
    good = requests[1]
    bad = {
        "cut": good[:-1],
        "extended": good + b"\0",
        "other session": good[:1] + bytes(16) + good[17:],
        "other client": requests[2],
    }[damage]
    with pytest.raises(ProtocolError):
        clients[1].answer(bad, np.zeros(7, dtype=np.int64))
    assert clients[1].answer(good, np.zeros(7, dtype=np.int64))  # a refusal does not use up the stage


def test_a_stranger_among_the_neighbours_is_refused() -> None:
    plan = plan_of(60)
    stranger = next(j for j in range(1, 60) if j not in plan.neighbours(0))
    server, clients, _ = federation(plan)
    replies = {i: clients[i].answer(r)[19:] for i, r in server.open().items()}
    near = {j: replies[j] for j in plan.neighbours(0)}
    near.pop(next(iter(near)))
    near[stranger] = replies[stranger]
    body = messages.pack_count(60) + messages.pack_rows(near)
    with pytest.raises(ProtocolError, match="not a neighbour"):
        clients[0].answer(messages.pack(Stage.SHARES, plan.session, 0, body, reply=False))


def test_one_key_shown_for_two_clients_is_refused() -> None:
    plan = plan_of(5)
    server, clients, _ = federation(plan)
    replies = {i: clients[i].answer(r)[19:] for i, r in server.open().items()}
    shown = {1: replies[1], 2: replies[1], 3: replies[3], 4: replies[4]}
    body = messages.pack_count(5) + messages.pack_rows(shown)
    with pytest.raises(ProtocolError, match="same key"):
        clients[0].answer(messages.pack(Stage.SHARES, plan.session, 0, body, reply=False))


# -- the roster


def roster_federation(n: int) -> tuple[SumPlan, Roster, list[SumClient]]:
    identities = sorted((Identity(bytes([i]) * 32) for i in range(n)), key=lambda one: one.public)
    roster = Roster.of(one.public for one in identities)
    plan = plan_of(n, roster=roster.digest)
    clients = [SumClient(clients=n, subject=SUBJECT, identity=one, roster=roster) for one in identities]
    return plan, roster, clients


def test_exact_with_a_roster() -> None:
    plan, roster, clients = roster_federation(12)
    values = [np.full(7, i) for i in range(12)]
    result = carry(SumServer(plan, roster), clients, values, {Stage.MASKED: [3, 4]})
    np.testing.assert_array_equal(result.total, np.full(7, 66 - 7))


def test_a_foreign_key_is_refused_by_client_and_server() -> None:
    plan, roster, clients = roster_federation(6)
    server = SumServer(plan, roster)
    requests = server.open()
    replies = {i: clients[i].answer(r) for i, r in requests.items()}
    intruder = Identity(b"z" * 32)
    mallory = SumClient(clients=6, subject=SUBJECT)
    forged = mallory.answer(SumServer(plan_of(6)).open()[4])[19:]
    forged += intruder.sign(b"anything")
    near = {j: replies[j][19:] for j in range(1, 6)} | {4: forged}
    body = messages.pack_count(6) + messages.pack_rows(near)
    with pytest.raises(ProtocolError, match="client 4 are not signed"):
        clients[0].answer(messages.pack(Stage.SHARES, plan.session, 0, body, reply=False))
    replies[4] = messages.pack(Stage.KEYS, plan.session, 4, forged, reply=True)
    server.keys(replies.items())
    assert "not signed" in server.refused[4]


def test_a_signature_for_another_plan_is_refused() -> None:
    plan, roster, clients = roster_federation(6)
    other = SumPlan(b"fedcba9876543210", 6, 7, 32, 0.2, 1, SUBJECT, roster.digest)
    old = clients[4].answer(SumServer(other, roster).open()[4])[19:]
    server = SumServer(plan, roster)
    server.open()
    with pytest.raises(Aborted):
        server.keys([(4, messages.pack(Stage.KEYS, plan.session, 4, old, reply=True))])
    assert "not signed" in server.refused[4]


def test_modes_do_not_mix() -> None:
    plan, roster, clients = roster_federation(6)
    with pytest.raises(ProtocolError, match="open mode"):
        clients[0].answer(SumServer(plan_of(6)).open()[0])
    with pytest.raises(ProtocolError, match="a roster"):
        SumClient(clients=6, subject=SUBJECT).answer(SumServer(plan, roster).open()[0])
    with pytest.raises(ProtocolError, match="another member's index"):
        clients[0].answer(SumServer(plan, roster).open()[1])
    with pytest.raises(ProtocolError, match="not the one"):
        clients[0].answer(SumServer(plan_of(6, roster=b"r" * 32)).open()[0])


# -- what the server refuses


def test_a_client_that_answers_twice_counts_once() -> None:
    plan = plan_of(5)
    server, clients, values = federation(plan)
    replies = [(i, clients[i].answer(r)) for i, r in server.open().items()]
    requests = server.keys([*replies, replies[2]])
    assert "twice" in server.refused[2]
    for step in (server.shares, server.masked):
        requests = step([(i, clients[i].answer(r, values[i])) for i, r in requests.items()])
    total = server.unmask([(i, clients[i].answer(r)) for i, r in requests.items()])
    np.testing.assert_array_equal(total, sum(values))


def test_a_malformed_reply_counts_as_dropout() -> None:
    plan = plan_of(10)
    server, clients, requests = up_to(Stage.MASKED, plan)
    values = np.ones(7, dtype=np.int64)
    replies = {i: clients[i].answer(r, values) for i, r in requests.items()}
    replies[0] = replies[0][:-1]
    replies[1] = replies[2]  # client 1 sends what client 2 sent
    requests = server.masked(replies.items())
    assert server.refused.keys() == {0, 1}
    total = server.unmask([(i, clients[i].answer(r)) for i, r in requests.items()])
    np.testing.assert_array_equal(total, np.full(7, 8))


@pytest.mark.parametrize("victim", ["alive", "dead"])
def test_wrong_shares_are_noticed(victim: str) -> None:
    plan = plan_of(10)
    server, clients, requests = up_to(Stage.MASKED, plan)
    values = np.ones(7, dtype=np.int64)
    gone = 5
    requests = server.masked([(i, clients[i].answer(r, values)) for i, r in requests.items() if i != gone])
    replies = {i: clients[i].answer(r) for i, r in requests.items()}
    shares, _ = messages.unpack_rows(replies[0][19:], 32)
    shares[1 if victim == "alive" else gone] = bytes(32)
    replies[0] = messages.pack(Stage.UNMASK, plan.session, 0, messages.pack_rows(shares), reply=True)
    with pytest.raises(ProtocolError, match="tampered"):
        server.unmask(replies.items())


def test_what_is_kept_after_the_ballot_does_not_open_it() -> None:
    """Seed and mask keys are gone once the masked values are sent: with the wire they would give the input."""
    _, clients, requests = up_to(Stage.MASKED, plan_of(10))
    clients[0].answer(requests[0], np.ones(7, dtype=np.int64))
    kept = json.loads(clients[0].freeze())
    assert (kept["seed"], kept["secret"], kept["peers"]) == ("", "", {})


def test_a_tampered_escrow_is_noticed() -> None:
    plan = plan_of(10)
    server, clients, requests = up_to(Stage.SHARES, plan)
    gone, values = 5, np.ones(7, dtype=np.int64)
    replies = {i: clients[i].answer(r) for i, r in requests.items()}
    replies[gone] = replies[gone][:-1] + bytes([replies[gone][-1] ^ 1])
    requests = server.shares(replies.items())
    requests = server.masked([(i, clients[i].answer(r, values)) for i, r in requests.items() if i != gone])
    with pytest.raises(ProtocolError, match="escrow are wrong"):
        server.unmask([(i, clients[i].answer(r)) for i, r in requests.items()])


def test_an_escrow_of_another_length_counts_as_dropout() -> None:
    server, clients, requests = up_to(Stage.SHARES, plan_of(10))
    replies = {i: clients[i].answer(r) for i, r in requests.items()}
    replies[3] += b"x"
    server.shares(replies.items())
    assert "in escrow" in server.refused[3]


def test_what_the_escrow_shows_opens_no_share() -> None:
    """The mask keys of a silent client must not open the shares it sealed: they would give its self mask as well."""
    one, two = KeyPair.new(), KeyPair.new()
    here, there = Agreement(one.secret, 3, b"plan"), Agreement(two.secret, 8, b"plan")
    mine, theirs = here.with_peer(8, two.public), there.with_peer(3, one.public)
    assert (mine.outward, mine.inward, mine.mask) == (theirs.inward, theirs.outward, theirs.mask)
    sealed = seal(mine.outward, b"shares", b"")
    assert open_sealed(theirs.inward, sealed, b"") == b"shares"
    assert open_sealed(mine.mask, sealed, b"") is None
    assert len({mine.outward, mine.inward, mine.mask}) == 3
    other = Agreement(one.secret, 3, b"another plan").with_peer(8, two.public)
    assert not {other.outward, other.inward, other.mask} & {mine.outward, mine.inward, mine.mask}


def test_the_server_runs_each_stage_once() -> None:
    server, clients, _ = federation(plan_of(4))
    replies = [(i, clients[i].answer(r)) for i, r in server.open().items()]
    server.keys(replies)
    with pytest.raises(ProtocolError, match="each stage runs once"):
        server.keys(replies)


# -- between messages, and fixed vectors


def test_frozen_clients_continue() -> None:
    plan = plan_of(6)
    server, clients, values = federation(plan)
    requests = server.open()
    total = None
    for step in (server.keys, server.shares, server.masked, server.unmask):
        replies = []
        for i, request in requests.items():
            revived = SumClient(clients=6, subject=SUBJECT)
            revived.thaw(clients[i].freeze())
            replies.append((i, revived.answer(request, values[i])))
            clients[i] = revived
        outcome = step(replies)
        if isinstance(outcome, dict):
            requests = outcome
        else:
            total = outcome
    np.testing.assert_array_equal(total, sum(values))
    assert b'"held": {}' in clients[0].freeze()


def wire_of_a_fixed_sum() -> dict[str, dict[str, str]]:
    """Every byte of a sum of five clients with fixed randomness, of which one drops out before its ballot."""
    plan = plan_of(5, length=3)
    server = SumServer(plan)
    clients = [SumClient(clients=5, subject=SUBJECT, random=fixed_random(f"client {i}")) for i in range(5)]
    wire: dict[str, dict[str, str]] = {}
    requests = server.open()
    for stage, step in zip(Stage, (server.keys, server.shares, server.masked, server.unmask), strict=True):
        here = {i: r for i, r in requests.items() if i != 4 or stage < Stage.MASKED}
        sent = {i: clients[i].answer(r, np.arange(3) * (i + 1)) for i, r in here.items()}
        wire[stage.name] = {f"to {i}": r.hex() for i, r in requests.items()} | {
            f"from {i}": r.hex() for i, r in sent.items()
        }
        outcome = step(sent.items())
        if isinstance(outcome, dict):
            requests = outcome
        else:
            wire["SUM"] = {"total": str(np.asarray(outcome).tolist())}
    return wire


def test_fixed_vectors() -> None:
    """A change here breaks federations whose members have different versions: give the plan a new magic number then."""
    vectors = json.loads((Path(__file__).parent / "secure_sum_vectors.json").read_text())
    assert wire_of_a_fixed_sum() == vectors
    assert vectors["SUM"]["total"] == "[0, 10, 20]"
