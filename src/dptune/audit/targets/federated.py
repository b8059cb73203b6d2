"""Targets of the federation: what one client's ballot hides, and what the sum hides from a curious client and server.

Clients, secure sum and noise are those of a deployment, messages are carried in this process; the noise is the
operating system's, so seeds play no part. Needs the extra ``flower`` (for ``cryptography``).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting.voting import RingVote
from dptune.audit.implementations import Target
from dptune.federated.graph import topology
from dptune.federated.in_process import carry
from dptune.federated.messages import Stage
from dptune.federated.policy import Policy
from dptune.federated.sum_server import SumServer
from dptune.federated.vote_plan import VotePlan
from dptune.federated.voter import Voter
from dptune.federated.votes import ballot

__all__ = ["Curious", "ballots", "federated_vote"]


_CANDIDATES = [{"x": 0}, {"x": 1}]
_LOSSES = ([0.0, 1.0], [1.0, 0.0])  # by preferred candidate
_VICTIM, _CURIOUS, _SILENT = 0, 1, 3


class Curious(Voter):
    """A client that remembers what it added, to take it off the sum."""

    added: Indices

    def _pay_and_fill(self, plan: VotePlan, session: bytes) -> Any:
        self.added = super()._pay_and_fill(plan, session)
        return self.added


def _plan() -> VotePlan:
    return VotePlan.calibrated(_CANDIDATES, votes=1, epsilon=2.0, delta=1e-5, clients=4, dropout=0.25, colluding=1)


def _marks(plan: VotePlan, *leads: float) -> tuple[float, ...]:
    return tuple(lead * plan.scale + 0.5 for lead in leads)


def ballots() -> Target:
    """One client's ballot before masking: votes for one of two candidates under its own share of the noise."""
    plan = _plan()

    def draw(world: int, games: int, seed: int) -> Array:
        del seed
        sheets = (ballot([world], 2, plan.scale, plan.sigma) for _ in range(games))
        return np.array([float(sheet[1] - sheet[0]) for sheet in sheets])

    cost = RingVote(2, 1, plan.scale, plan.sigma, 1)
    return Target("federated ballot", cost, draw, _marks(plan, -2.0, -1.0, 0.0, 1.0, 2.0))


def federated_vote() -> Target:
    """A whole vote of four: as many drop out as may, one is curious, and one changes its mind between the worlds."""
    plan = _plan()
    fewest = topology(plan.clients, plan.dropout, plan.colluding).minimum

    def once(world: int) -> float:
        policy = Policy(plan.epsilon, 3, max_delta=plan.delta, clients=plan.clients)
        voters = [(Curious if i == _CURIOUS else Voter)(policy, None) for i in range(plan.clients)]
        for i, voter in enumerate(voters):
            voter.agree(plan, _CANDIDATES)
            voter.evaluated(_LOSSES[world if i == _VICTIM else 0])
        server = SumServer(plan.sum_plan(os.urandom(16)))
        summed = carry(server, [voter.answer for voter in voters], {Stage.MASKED: [_SILENT]})
        curious = voters[_CURIOUS]
        assert isinstance(curious, Curious)
        rest = summed.total - curious.added
        return float(rest[1] - rest[0])

    def draw(world: int, games: int, seed: int) -> Array:
        del seed
        return np.array([once(world) for _ in range(games)])

    cost = RingVote(2, 1, plan.scale, plan.sigma, fewest - plan.colluding)
    return Target("federated vote", cost, draw, _marks(plan, -4.0, -2.0, -1.0, 0.0, 2.0))
