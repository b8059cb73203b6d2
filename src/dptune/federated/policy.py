"""What a client allows, and the ledger on its own disk of what it has given.

Both belong to the client: no message can change them. A vote is charged in full before the masked ballot
leaves, and is never refunded, since a server that aborts may have seen the sum.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dptune import _validate
from dptune.federated.errors import Refused
from dptune.federated.keys import Roster
from dptune.federated.vote_plan import VotePlan

__all__ = ["Policy", "VoteLedger"]

_ROUNDING = 1.0 + 1e-9  # three times a tenth is three tenths


@dataclass(frozen=True)
class Policy:
    """What a client allows: its own limits, which no message can change.

    Args:
        max_epsilon: The largest epsilon of one vote.
        min_clients: The smallest federation in which this client takes part, at least 3.
        max_delta: The largest delta of one vote.
        clients: The number of clients that was agreed; a server that names another is refused. A roster implies it.
        total_epsilon: The largest sum of epsilons over all votes in the ledger; that of one vote if left out.
        total_delta: The largest sum of deltas; in the same proportion if left out.
        min_colluding: The number of colluding clients that the noise must at least survive.
        roster: The members; keys of others are refused.

    Raises:
        InvalidInput: If a limit is out of range.

    Example:
        >>> from dptune.federated import Policy
        >>> Policy(max_epsilon=1.0, min_clients=20, total_epsilon=2.0).total_delta
        2e-05
    """

    max_epsilon: float
    min_clients: int
    max_delta: float = 1e-5
    clients: int | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None
    min_colluding: int = 1
    roster: Roster | None = None

    def __post_init__(self) -> None:
        _validate.real("max_epsilon", self.max_epsilon, 0, low_open=True)
        _validate.real("max_delta", self.max_delta, 0, 1, low_open=True, high_open=True)
        _validate.integer("min_clients", self.min_clients, 3)
        _validate.integer("min_colluding", self.min_colluding, 1)
        if self.clients is not None:
            _validate.integer("clients", self.clients, self.min_clients)
        if self.total_epsilon is None:
            object.__setattr__(self, "total_epsilon", self.max_epsilon)
        total = _validate.real("total_epsilon", self.total_epsilon, self.max_epsilon)
        if self.total_delta is None:
            object.__setattr__(self, "total_delta", self.max_delta * total / self.max_epsilon)
        _validate.real("total_delta", self.total_delta, self.max_delta)

    def check(self, plan: VotePlan, spent: tuple[float, float] = (0.0, 0.0)) -> None:
        """Refuse a plan that this client does not allow.

        Args:
            plan: The vote that the server proposes.
            spent: The epsilon and delta that this client's ledger already holds.

        Raises:
            Refused: If a limit would be exceeded.
            ProtocolError: If the plan's noise does not pay for its epsilon.
        """
        if plan.epsilon > self.max_epsilon:
            raise Refused(
                f"The vote costs epsilon {plan.epsilon:g}; this client allows {self.max_epsilon:g}. "
                "Raise 'max_epsilon' to take part."
            )
        if plan.delta > self.max_delta:
            raise Refused(
                f"The vote costs delta {plan.delta:g}; this client allows {self.max_delta:g}. "
                "Raise 'max_delta' to take part."
            )
        if plan.clients < self.min_clients:
            raise Refused(
                f"The vote has {plan.clients} clients; this client takes part from {self.min_clients} on. "
                "Lower 'min_clients' to take part."
            )
        agreed = self.clients if self.roster is None else len(self.roster.members)
        if agreed is not None and plan.clients != agreed:
            raise Refused(
                f"The vote claims {plan.clients} clients, {agreed} were agreed; an overstated number shrinks the noise."
            )
        if plan.colluding < self.min_colluding:
            raise Refused(
                f"The noise survives {plan.colluding} colluding clients; this client asks for {self.min_colluding}. "
                "Plan the vote with more 'colluding'."
            )
        limits = (self.total_epsilon, self.total_delta)
        for name, held, cost, limit in zip(
            ("epsilon", "delta"), spent, (plan.epsilon, plan.delta), limits, strict=True
        ):
            if limit is not None and held + cost > limit * _ROUNDING:
                raise Refused(
                    f"The ledger holds {name} {held:g} of {limit:g}; a vote of {cost:g} does not fit. "
                    "Take part in a cheaper one."
                )
        plan.check_account()


class VoteLedger:
    """A file of charges, one line per vote, and of stages answered; durable before anything leaves.

    The file, not the memory of a process, decides what was answered: a framework may run two messages at once.

    Args:
        path: The file; it is made when the first vote is charged.

    Example:
        >>> from dptune.federated import VoteLedger
        >>> VoteLedger("votes.ledger").spent()
        (0.0, 0.0)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS charges (session TEXT PRIMARY KEY, subject TEXT NOT NULL, "
            "epsilon REAL NOT NULL, delta REAL NOT NULL, clients INTEGER NOT NULL, at TEXT NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS answers (session TEXT NOT NULL, stage INTEGER NOT NULL, "
            "PRIMARY KEY (session, stage))"
        )
        connection.execute(  # beside the charges, so that a ledger of an earlier version stays one
            "CREATE TABLE IF NOT EXISTS modes (session TEXT PRIMARY KEY, mode TEXT NOT NULL, roster TEXT)"
        )
        return connection

    def spent(self) -> tuple[float, float]:
        """Return the sums of epsilon and delta so far (basic composition)."""
        if not self.path.exists():
            return 0.0, 0.0
        with closing(self._connect()) as connection:
            row = connection.execute("SELECT TOTAL(epsilon), TOTAL(delta) FROM charges").fetchone()
        return float(row[0]), float(row[1])

    def charge(self, session: bytes, plan: VotePlan, policy: Policy) -> None:
        """Check the policy against what was spent and write the charge, in one transaction.

        Args:
            session: The 16 bytes by which the vote is known.
            plan: The vote.
            policy: What this client allows.

        Raises:
            Refused: If the policy forbids the vote, or this client has already voted in this session.
        """
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                known = connection.execute("SELECT 1 FROM charges WHERE session = ?", (session.hex(),)).fetchone()
                if known:
                    raise Refused("This client has already voted in this session; a vote is cast once.")
                held = connection.execute("SELECT TOTAL(epsilon), TOTAL(delta) FROM charges").fetchone()
                policy.check(plan, (float(held[0]), float(held[1])))
                connection.execute(
                    "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        session.hex(),
                        plan.subject.hex(),
                        plan.epsilon,
                        plan.delta,
                        plan.clients,
                        datetime.now(UTC).isoformat(timespec="seconds"),
                    ),
                )
                mode = ("open", None) if policy.roster is None else ("roster", policy.roster.digest.hex())
                connection.execute("INSERT INTO modes VALUES (?, ?, ?)", (session.hex(), *mode))
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def answer_once(self, session: bytes, stage: int) -> None:
        """Write down that a stage is being answered; refuse the second time, whoever asks and however close.

        Args:
            session: The 16 bytes by which the vote is known.
            stage: Which stage of the secure sum.

        Raises:
            Refused: If the stage was answered before.
        """
        with closing(self._connect()) as connection:
            try:
                connection.execute("INSERT INTO answers VALUES (?, ?)", (session.hex(), int(stage)))
            except sqlite3.IntegrityError as again:
                raise Refused(f"Stage {int(stage)} was already answered; a stage is answered once.") from again
