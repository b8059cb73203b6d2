"""A client in a vote: it agrees to a plan, evaluates at leisure, and then answers the four short stages.

What it sends is a masked ballot and nothing about its data: no loss, no metric, no count, no error text of
the user's own code. The noise is drawn when the ballot is masked, after the charge is on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dptune._typing import Indices
from dptune.federated import messages
from dptune.federated.errors import ProtocolError, Refused
from dptune.federated.keys import Identity
from dptune.federated.messages import Stage
from dptune.federated.policy import Policy, VoteLedger
from dptune.federated.sum_client import SumClient
from dptune.federated.vote_plan import Candidate, VotePlan, candidates_digest
from dptune.federated.votes import ballot, best

__all__ = ["Voter"]


class Voter:
    """One client's part in one vote."""

    def __init__(self, policy: Policy, ledger: VoteLedger | None, identity: Identity | None = None) -> None:
        self._policy = policy
        self._ledger = ledger
        self._identity = identity
        self._plan: VotePlan | None = None
        self._choices: list[int] = []
        self._ready = False
        self._sum: SumClient | None = None

    def agree(self, plan: VotePlan, candidates: Sequence[Candidate], own: Sequence[Candidate] | None = None) -> None:
        """Check a proposed vote against the policy before any evaluation; ``own`` pins the candidates."""
        if candidates_digest(candidates) != plan.digest or len(candidates) != plan.candidates:
            raise ProtocolError(
                "The candidate list does not match the plan that the server announces; nothing is sent."
            )
        if own is not None and candidates_digest(own) != plan.digest:
            raise Refused("The server's candidates differ from this client's own list; votes would not add up.")
        self._policy.check(plan, self._ledger.spent() if self._ledger else (0.0, 0.0))
        self._plan = plan

    def evaluated(self, losses: Sequence[float]) -> None:
        """Turn the losses into votes and forget them."""
        if self._plan is None:
            raise ProtocolError("A client evaluates after it has agreed to a plan.")
        if len(losses) != self._plan.candidates:
            raise ProtocolError(f"{len(losses)} losses for {self._plan.candidates} candidates; return one for each.")
        self._choices = best(losses, self._plan.votes)
        self._ready = True

    def failed(self) -> None:
        """Vote by lot: a failure is a function of the data and must look like any other ballot."""
        if self._plan is not None:
            self.evaluated([float("nan")] * self._plan.candidates)

    def answer(self, request: bytes) -> bytes:
        """Answer one stage of the secure sum."""
        plan = self._plan
        if plan is None or not self._ready:
            raise ProtocolError("The sum was asked for before this client was ready.")
        if self._sum is None:
            self._sum = self._summing(plan)
        stage, session, _ = messages.peek(request)
        if stage is Stage.MASKED:
            reply = self._sum.masked(request, lambda: self._pay_and_fill(plan, session))
            self._choices = []
        else:
            reply = self._sum.answer(request)
        if self._ledger is not None:
            self._ledger.answer_once(session, stage)
        return reply

    def _pay_and_fill(self, plan: VotePlan, session: bytes) -> Indices:
        if self._ledger is not None:
            self._ledger.charge(session, plan, self._policy)
        return ballot(self._choices, plan.candidates, plan.scale, plan.sigma)

    def _summing(self, plan: VotePlan) -> SumClient:
        return SumClient(
            clients=plan.clients,
            subject=plan.subject,
            terms=plan.sum_plan(bytes(16)),
            identity=self._identity,
            roster=self._policy.roster,
        )

    def freeze(self) -> bytes:
        """Return the state as bytes, to be kept on this client only: it contains votes and secrets."""
        state = {
            "plan": self._plan.to_json() if self._plan else "",
            "choices": self._choices,
            "ready": self._ready,
            "sum": self._sum.freeze().decode() if self._sum else "",
        }
        return json.dumps(state).encode()

    def thaw(self, frozen: bytes) -> None:
        """Continue from a frozen state."""
        state = json.loads(frozen)
        self._plan = VotePlan.from_json(state["plan"]) if state["plan"] else None
        self._choices, self._ready = list(state["choices"]), bool(state["ready"])
        if state["sum"] and self._plan is not None:
            self._sum = self._summing(self._plan)
            self._sum.thaw(state["sum"].encode())
