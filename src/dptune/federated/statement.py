"""What a vote cost and what it rests on, for people and for machines.

The statement must name the mode that ran, since a roster changes what a dishonest server could do. It is
public: it holds the plan and the outcome, never a count of votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from dptune._typing import Indices
from dptune.accounting.neighbours import neighbours_from_text
from dptune.federated.graph import topology
from dptune.federated.vote_plan import Candidate, VotePlan

__all__ = ["Elected", "VoteStatement", "decide"]


@dataclass(frozen=True)
class VoteStatement:
    """The privacy statement of one vote."""

    epsilon: float
    """Exact, of the noise that the contributing clients added, less that of the colluding ones."""
    delta: float
    stated_epsilon: float
    """The budget: exact for the fewest clients that the plan allows."""
    clients: int
    contributed: int
    dropout: float
    colluding: int
    candidates: int
    votes: int
    mode: str
    """``roster`` (keys signed by pinned identities) or ``open`` (keys relayed by the server)."""
    split_view_safe: bool
    complete_graph: bool
    session: str
    neighbours: str
    """What the guarantee is about, as the vote's cost says it."""

    @classmethod
    def of(cls, plan: VotePlan, *, contributed: int, mode: str, session: bytes) -> VoteStatement:
        """Account for a vote that has been opened."""
        shape = topology(plan.clients, plan.dropout, plan.colluding)
        return cls(
            epsilon=plan.spent(contributed),
            delta=plan.delta,
            stated_epsilon=plan.epsilon,
            clients=plan.clients,
            contributed=contributed,
            dropout=plan.dropout,
            colluding=plan.colluding,
            candidates=plan.candidates,
            votes=plan.votes,
            mode=mode,
            split_view_safe=shape.split_view_safe,
            complete_graph=shape.complete,
            session=session.hex(),
            neighbours=str(plan.neighbours),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        trust = (
            "keys were signed by the members of a pinned roster"
            if self.mode == "roster"
            else "OPEN MODE: the server relayed the keys and could have relayed its own, or invented clients"
        )
        changed = neighbours_from_text(self.neighbours).phrase(verb="gerund")
        return (
            f"One vote of {self.contributed} of {self.clients} clients, {self.votes} votes each on "
            f"{self.candidates} "
            f"candidates. {changed.capitalize()} changes the law of everything revealed by at most "
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} (budget {self.stated_epsilon:g}). "
            "Holds against "
            f"an honest-but-curious server with up to {self.colluding} colluding clients; {trust}."
        )


class Elected(NamedTuple):
    """What a vote returns: the chosen configuration and its statement."""

    params: Candidate
    statement: VoteStatement


def decide(total: Indices, candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the largest noisy sum (the first, if several share it: post-processing)."""
    return candidates[int(np.argmax(total))]
