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
    """The privacy statement of one vote.

    Args:
        epsilon: Exact, of the noise that the contributing clients added, less that of the colluding ones.
        delta: The delta at which it holds.
        stated_epsilon: The budget: exact for the fewest clients that the plan allows.
        clients: How many clients were planned with.
        contributed: How many are in the sum.
        dropout: The fraction that was allowed to fall silent.
        colluding: How many colluding clients the noise survives.
        candidates: How many configurations there were.
        votes: How many of them each client voted for.
        mode: "roster" (keys signed by pinned identities) or "open" (keys relayed by the server).
        split_view_safe: Whether a server that shows clients different views can learn nothing more.
        complete_graph: Whether every pair of clients shared a mask.
        session: By which the vote is known.
        neighbours: What the guarantee is about, as the vote's cost says it.
        digest: Of the list of candidates and its order.
        scale: Units of the ring that one vote counts.
        sigma: Of each client's discrete Gaussian, in units of the ring.
        simulated: Whether all clients ran in one place: then nobody is protected.

    Example:
        >>> from dptune.federated import VoteStatement
        >>> from dptune.federated.vote_plan import VotePlan
        >>> plan = VotePlan.calibrated(
        ...     [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=1.0, delta=1e-5, clients=20, dropout=0.2, colluding=1
        ... )
        >>> statement = VoteStatement.of(plan, contributed=20, mode="open", session=bytes(16))
        >>> statement.epsilon < statement.stated_epsilon  # more clients than the fewest allowed added noise
        True
    """

    epsilon: float
    delta: float
    stated_epsilon: float
    clients: int
    contributed: int
    dropout: float
    colluding: int
    candidates: int
    votes: int
    mode: str
    split_view_safe: bool
    complete_graph: bool
    session: str
    neighbours: str
    digest: str
    scale: int
    sigma: float
    simulated: bool = False

    @classmethod
    def of(
        cls, plan: VotePlan, *, contributed: int, mode: str, session: bytes, simulated: bool = False
    ) -> VoteStatement:
        """Account for a vote that has been opened.

        Args:
            plan: The vote's plan.
            contributed: How many clients are in the sum.
            mode: "roster" or "open".
            session: By which the vote is known.
            simulated: Whether all clients ran in one place.

        Returns:
            The statement, with the exact epsilon of what happened.
        """
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
            digest=plan.digest,
            scale=plan.scale,
            sigma=plan.sigma,
            simulated=simulated,
        )

    @property
    def plan(self) -> VotePlan:
        """The plan of the vote, made anew from what is stated; its digest is what clients charged."""
        return VotePlan(
            candidates=self.candidates,
            digest=self.digest,
            votes=self.votes,
            epsilon=self.stated_epsilon,
            delta=self.delta,
            clients=self.clients,
            dropout=self.dropout,
            colluding=self.colluding,
            scale=self.scale,
            sigma=self.sigma,
        )

    def describe(self) -> dict[str, Any]:
        """The statement as plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        trust = (
            "keys were signed by the members of a pinned roster"
            if self.mode == "roster"
            else "OPEN MODE: the server relayed the keys and could have relayed its own, or invented clients"
        )
        changed = neighbours_from_text(self.neighbours).phrase(verb="gerund")
        first = "SIMULATED in one place, so nobody is protected. " if self.simulated else ""
        return (
            f"{first}One vote of {self.contributed} of {self.clients} clients, {self.votes} votes each on "
            f"{self.candidates} candidates. {changed.capitalize()} changes the law of everything revealed by at most "
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} (budget {self.stated_epsilon:g}). "
            "Holds against "
            f"an honest-but-curious server with up to {self.colluding} colluding clients; {trust}."
        )


class Elected(NamedTuple):
    """What a vote returns: the chosen configuration and its statement.

    Args:
        params: The chosen configuration.
        statement: What the choice cost.

    Example:
        >>> from dptune.federated import Elected, federate
        >>> simulated = federate([[0.0, 1.0]] * 20, [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=8.0)
        >>> params, statement = Elected(simulated.params, simulated.statement)
        >>> params
        {'lr': 0.1}
    """

    params: Candidate
    statement: VoteStatement


def decide(total: Indices, candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the largest noisy sum (the first, if several share it: post-processing)."""
    return candidates[int(np.argmax(total))]
