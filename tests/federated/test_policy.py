"""A client's policy and ledger: what it refuses, and that a charge is written before a ballot leaves."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from dptune.errors import InvalidInput
from dptune.federated import messages
from dptune.federated.errors import ProtocolError, Refused
from dptune.federated.keys import Identity, Roster
from dptune.federated.plan import SumPlan
from dptune.federated.policy import Policy, VoteLedger
from dptune.federated.sum_server import SumServer
from dptune.federated.vote_plan import VotePlan
from dptune.federated.voter import Voter

CANDIDATES = [{"lr": 0.1 * j} for j in range(8)]


def plan_for(clients: int = 10, epsilon: float = 1.0, colluding: int = 1) -> VotePlan:
    return VotePlan.calibrated(
        CANDIDATES, votes=2, epsilon=epsilon, delta=1e-5, clients=clients, dropout=0.2, colluding=colluding
    )


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (Policy(0.5, 3), "costs epsilon 1; this client allows 0.5"),
        (Policy(1, 11), "has 10 clients; this client takes part from 11"),
        (Policy(1, 3, clients=9), "claims 10 clients, 9 were agreed"),
        (Policy(1, 3, max_delta=1e-6), "delta"),
        (Policy(1, 3, min_colluding=2), "colluding"),
    ],
)
def test_a_policy_refuses(policy: Policy, match: str) -> None:
    with pytest.raises(Refused, match=match):
        Voter(policy, None).agree(plan_for(), CANDIDATES)


def test_a_roster_pins_the_number_of_clients() -> None:
    roster = Roster.of(Identity.new().public for _ in range(9))
    with pytest.raises(Refused, match="9 were agreed"):
        Policy(1, 3, roster=roster).check(plan_for())


def test_noise_that_does_not_pay_is_refused() -> None:
    honest = plan_for()
    cheap = dataclasses.replace(honest, sigma=honest.sigma / 2)
    with pytest.raises(ProtocolError, match="claims epsilon 1 but its noise costs"):
        Policy(1, 3).check(cheap)


def test_unequal_candidate_lists_are_refused() -> None:
    voter = Voter(Policy(1, 3), None)
    with pytest.raises(ProtocolError, match="does not match the plan"):
        voter.agree(plan_for(), CANDIDATES[::-1])
    with pytest.raises(Refused, match="differ from this client's own list"):
        voter.agree(plan_for(), CANDIDATES, own=CANDIDATES[1:])


@pytest.mark.parametrize("values", [{"max_epsilon": 0}, {"min_clients": 2}, {"clients": 4}, {"total_epsilon": 0.1}])
def test_impossible_policies(values: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Policy(**{"max_epsilon": 1.0, "min_clients": 5, **values})  # type: ignore[arg-type] # names vary by case


def test_the_ledger_admits_up_to_the_total(tmp_path: Path) -> None:
    ledger = VoteLedger(tmp_path / "own" / "votes.ledger")
    policy, plan = Policy(1, 3, total_epsilon=2), plan_for()
    ledger.charge(os.urandom(16), plan, policy)
    ledger.charge(os.urandom(16), plan, policy)
    with pytest.raises(Refused, match="holds epsilon 2 of 2"):
        VoteLedger(ledger.path).charge(os.urandom(16), plan, policy)
    assert VoteLedger(ledger.path).spent() == pytest.approx((2.0, 2e-5))
    with pytest.raises(Refused, match="does not fit"):
        Voter(policy, ledger).agree(plan, CANDIDATES)


def test_many_cheap_votes_are_stopped_by_their_deltas(tmp_path: Path) -> None:
    ledger, policy = VoteLedger(tmp_path / "ledger"), Policy(1, 3, total_epsilon=3)
    for _ in range(3):
        ledger.charge(os.urandom(16), plan_for(epsilon=0.1), policy)
    with pytest.raises(Refused, match="holds delta 3e-05 of 3e-05"):
        ledger.charge(os.urandom(16), plan_for(epsilon=0.1), policy)


def test_a_session_is_charged_once(tmp_path: Path) -> None:
    ledger, session = VoteLedger(tmp_path / "ledger"), os.urandom(16)
    ledger.charge(session, plan_for(), Policy(1, 3, total_epsilon=5))
    with pytest.raises(Refused, match="already voted"):
        ledger.charge(session, plan_for(), Policy(1, 3, total_epsilon=5))


def voters_at_masked_stage(tmp_path: Path) -> tuple[list[Voter], list[VoteLedger], dict[int, bytes]]:
    plan = plan_for()
    ledgers = [VoteLedger(tmp_path / f"{i}.ledger") for i in range(10)]
    voters = [Voter(Policy(1, 3), ledger) for ledger in ledgers]
    for voter in voters:
        voter.agree(plan, CANDIDATES)
        voter.evaluated([float(j) for j in range(8)])
    server = SumServer(plan.sum_plan(os.urandom(16)))
    requests = server.open()
    for step in (server.keys, server.shares):
        requests = step([(i, voters[i].answer(r)) for i, r in requests.items()])
    return voters, ledgers, requests


def test_the_charge_is_on_disk_when_the_ballot_leaves_and_not_before(tmp_path: Path) -> None:
    voters, ledgers, requests = voters_at_masked_stage(tmp_path)
    assert ledgers[0].spent() == (0.0, 0.0)
    with pytest.raises(ProtocolError):
        voters[0].answer(requests[0][:-1])  # refused: costs nothing
    assert ledgers[0].spent() == (0.0, 0.0)
    voters[0].answer(requests[0])
    assert ledgers[0].spent() == (1.0, 1e-5)


def test_a_client_rolled_back_to_an_earlier_state_does_not_vote_twice(tmp_path: Path) -> None:
    voters, ledgers, requests = voters_at_masked_stage(tmp_path)
    frozen = voters[0].freeze()
    voters[0].answer(requests[0])
    again = Voter(Policy(1, 3, total_epsilon=9), ledgers[0])
    again.thaw(frozen)
    with pytest.raises(Refused, match="already voted"):
        again.answer(requests[0])


def test_two_requests_processed_at_once_get_one_answer(tmp_path: Path) -> None:
    # A framework may start two workers from the same saved state; the ledger lets one of them answer.
    voters, ledgers, requests = voters_at_masked_stage(tmp_path)
    server_view = [(i, voters[i].answer(r)) for i, r in requests.items()]
    frozen = voters[0].freeze()
    assert b'"choices": []' in frozen
    index = messages.peek(server_view[0][1])[2]
    others = [j for j in range(10) if j != index]
    session = messages.peek(requests[0])[1]

    def unmask(dead: list[int]) -> bytes:
        alive = messages.pack_rows({j: b"" for j in others if j not in dead})
        body = messages.pack_count(10 - len(dead)) + alive + messages.pack_rows(dict.fromkeys(dead, b""))
        return messages.pack(messages.Stage.UNMASK, session, index, body, reply=False)

    twin = Voter(Policy(1, 3), ledgers[0])
    twin.thaw(frozen)
    assert voters[0].answer(unmask([]))
    with pytest.raises(Refused, match="answered once"):
        twin.answer(unmask(others[:2]))


def test_the_sum_waits_for_the_evaluation() -> None:
    voter = Voter(Policy(1, 3), None)
    voter.agree(plan_for(), CANDIDATES)
    with pytest.raises(ProtocolError, match="before this client was ready"):
        voter.answer(SumServer(plan_for().sum_plan(bytes(16))).open()[0])
    with pytest.raises(ProtocolError, match="one for each"):
        voter.evaluated([1.0])


def test_a_sum_of_something_else_is_refused() -> None:
    voter = Voter(Policy(1, 3), None)
    voter.agree(plan_for(), CANDIDATES)
    voter.failed()
    other = plan_for(epsilon=0.9).sum_plan(bytes(16))
    with pytest.raises(ProtocolError, match="something else"):
        voter.answer(SumServer(other).open()[0])
    larger = SumPlan(bytes(16), 40, 8, 32, 0.2, 1, plan_for().subject)
    with pytest.raises(ProtocolError, match="plans for 40 clients, this client for 10"):
        voter.answer(SumServer(larger).open()[0])


@pytest.mark.parametrize("terms", [{"dropout": 0.6}, {"colluding": 2}, {"length": 9}, {"bits": 64}])
def test_a_sum_on_other_terms_than_the_vote_is_refused(terms: dict[str, Any]) -> None:
    # With more dropout in the sum than in the vote, a server could open a sum that holds too little noise.
    voter = Voter(Policy(1, 3), None)
    voter.agree(plan_for(), CANDIDATES)
    voter.failed()
    other = dataclasses.replace(plan_for().sum_plan(bytes(16)), **terms)
    with pytest.raises(ProtocolError, match="other terms"):
        voter.answer(SumServer(other).open()[0])


def test_plans_travel_as_text() -> None:
    plan = plan_for()
    assert VotePlan.from_json(plan.to_json()) == plan
    with pytest.raises(ProtocolError, match="not acceptable"):
        VotePlan.from_json('{"votes": 3}')
    with pytest.raises(ProtocolError, match="not acceptable"):
        VotePlan.from_json(plan.to_json().replace('"votes":2', '"votes":8'))
