"""The public plan of a vote: candidates, votes, budget and the noise that pays for it.

Server and clients compute the same account from the same numbers: a client takes none of them on trust. Its
digest is the subject of the secure sum, so clients that were shown different plans cannot add up.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dptune import _validate
from dptune._codec import from_json, to_values
from dptune.accounting import Neighbours
from dptune.accounting.voting import RingVote, calibrate_vote
from dptune.errors import InvalidInput
from dptune.federated.errors import ProtocolError
from dptune.federated.graph import topology
from dptune.federated.plan import NO_ROSTER, SumPlan
from dptune.federated.votes import check_votes

__all__ = ["VotePlan", "candidates_digest", "check_budget"]

Candidate = Mapping[str, Any]


def candidates_digest(candidates: Sequence[Candidate]) -> str:
    """Return a digest of the list and its order; equal lists on all clients have equal digests."""
    try:
        text = json.dumps(list(candidates), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as bad:
        raise InvalidInput(f"Candidates must be plain names, numbers and strings, to be sent as JSON: {bad}.") from bad
    return hashlib.sha256(b"dptune candidates 1" + text.encode()).hexdigest()


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a budget that buys nothing."""
    _validate.real("epsilon", epsilon, 0, low_open=True, hint="A vote without budget has no outcome.")
    _validate.real("delta", delta, 0, 1, low_open=True, high_open=True)


@lru_cache(maxsize=64)
def _calibrated(
    epsilon: float, delta: float, *, clients: int, candidates: int, votes: int, dropout: float, colluding: int
) -> RingVote:
    return calibrate_vote(
        epsilon,
        delta,
        clients=clients,
        candidates=candidates,
        votes=votes,
        dropout=dropout,
        colluding=colluding,
    )


@lru_cache(maxsize=256)
def _epsilon(vote: RingVote, delta: float) -> float:
    return float(vote.epsilon(delta))


@dataclass(frozen=True)
class VotePlan:
    """Everything public about one vote."""

    candidates: int
    digest: str
    """Of the candidate list; see :func:`candidates_digest`."""
    votes: int
    epsilon: float
    delta: float
    clients: int
    dropout: float
    colluding: int
    scale: int
    """Each vote counts this many units of the ring."""
    sigma: float
    """Parameter of each client's discrete Gaussian, in units of the ring."""

    def __post_init__(self) -> None:
        check_votes(self.votes, self.candidates)
        check_budget(self.epsilon, self.delta)
        _validate.integer("scale", self.scale, 1, 2**24)
        _validate.real("sigma", self.sigma, 0, low_open=True)
        topology(self.clients, self.dropout, self.colluding)
        for name in ("epsilon", "delta", "dropout", "sigma"):  # 2 and 2.0 are one plan, with one text
            object.__setattr__(self, name, float(getattr(self, name)))

    @classmethod
    def calibrated(
        cls,
        candidates: Sequence[Candidate],
        *,
        votes: int,
        epsilon: float,
        delta: float,
        clients: int,
        dropout: float,
        colluding: int,
    ) -> VotePlan:
        """Return the plan with the least noise whose exact account stays within the budget."""
        check_votes(votes, len(candidates))
        check_budget(epsilon, delta)
        topology(clients, dropout, colluding)
        vote = _calibrated(
            epsilon,
            delta,
            clients=clients,
            candidates=len(candidates),
            votes=votes,
            dropout=dropout,
            colluding=colluding,
        )
        digest = candidates_digest(candidates)
        return cls(
            len(candidates),
            digest,
            votes,
            epsilon,
            delta,
            clients,
            dropout,
            colluding,
            vote.scale,
            vote.sigma,
        )

    def cost(self, contributors: int | None = None) -> RingVote:
        """Return the exact cost when this many clients added noise (by default: the fewest allowed)."""
        alive = topology(self.clients, self.dropout, self.colluding).minimum if contributors is None else contributors
        return RingVote(self.candidates, self.votes, self.scale, self.sigma, alive - self.colluding)

    @property
    def neighbours(self) -> Neighbours:
        """What the vote's guarantee is about: that of its cost."""
        return self.cost().neighbours

    def spent(self, contributors: int | None = None) -> float:
        """Return the exact epsilon when this many clients added noise (by default: the fewest allowed)."""
        return _epsilon(self.cost(contributors), self.delta)

    def check_account(self) -> None:
        """Refuse a plan whose noise does not pay for its epsilon."""
        if (spent := self.spent()) > self.epsilon:
            raise ProtocolError(
                f"The plan claims epsilon {self.epsilon:g} but its noise costs {spent:.4g} with the "
                "fewest clients allowed; "
                "nothing is sent."
            )

    @property
    def bits(self) -> int:
        """The smaller ring in which no sum wraps around, up to twelve deviations of the noise."""
        reach = self.clients * self.scale + 12 * self.sigma * math.sqrt(self.clients)
        return 32 if reach < 2**31 else 64

    @property
    def subject(self) -> bytes:
        """Digest of the whole plan."""
        return hashlib.sha256(b"dptune vote 1" + self.to_json().encode()).digest()

    def sum_plan(self, session: bytes, roster: bytes = NO_ROSTER) -> SumPlan:
        """Return the plan of the secure sum that carries this vote."""
        return SumPlan(
            session,
            self.clients,
            self.candidates,
            self.bits,
            self.dropout,
            self.colluding,
            self.subject,
            roster,
        )

    def to_json(self) -> str:
        """Encode; equal plans have equal text."""
        return json.dumps(to_values(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> VotePlan:
        """Decode and check."""
        try:
            return from_json(text, cls, "a vote")
        except (InvalidInput, ValueError) as bad:
            raise ProtocolError(f"The server's vote is not acceptable: {bad}") from bad
