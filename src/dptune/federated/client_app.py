"""Voting for Flower's ``ClientApp``: decorate a function that returns one loss per candidate.

    app = ClientApp()

    @ballot(app, policy=Policy(max_epsilon=1, min_clients=20), ledger="votes.ledger")
    def losses(candidates, context):
        return [train_and_validate(candidate) for candidate in candidates]

Only "ready", a refusal by the client's own policy, and the answers of the secure sum leave:
:func:`only_votes` builds every reply from scratch, and no exception text of the user's code is sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dptune.federated.errors import MissingExtra, ProtocolError
from dptune.federated.flower_wire import ACTION, Value, read, reply_with
from dptune.federated.keys import Identity
from dptune.federated.policy import Policy, VoteLedger
from dptune.federated.vote_plan import Candidate, VotePlan
from dptune.federated.voter import Voter

try:
    from flwr.app import ConfigRecord, Context, Message
    from flwr.clientapp import ClientApp
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("flwr", "flower") from missing

__all__ = ["LossFunction", "ballot", "only_votes"]

LossFunction = Callable[[Sequence[Candidate], Context], Sequence[float]]
"""Takes the candidates and Flower's context, returns one loss per candidate (smaller is better)."""

T = TypeVar("T")
_STATE = "dptune.vote"
_log = logging.getLogger("dptune.federated")


def only_votes(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """A Flower mod: whatever the app returned or raised, reply with the vote's own record alone."""
    try:
        values = read(call_next(message, context))
    except ProtocolError as bad:
        values = {"refused": str(bad)}
    except Exception:
        _log.exception("The vote failed on this client; the server is told only that it did.")
        values = {"refused": "The client could not answer."}
    return reply_with(message, values)


def ballot(
    app: ClientApp,
    *,
    policy: Policy | Callable[[Context], Policy],
    ledger: Path | str | Callable[[Context], Path],
    identity: Identity | Callable[[Context], Identity] | None = None,
    candidates: Sequence[Candidate] | None = None,
) -> Callable[[LossFunction], LossFunction]:
    """Register a loss function with a ``ClientApp``.

    Policy, ledger and identity may be functions of Flower's context, for settings that differ between nodes.

    Args:
        app: Flower's app of this client.
        policy: What this client allows.
        ledger: The file in which it writes down what it has given.
        identity: Its long-lived key, for votes with a roster.
        candidates: The only list that this client accepts; any list if left out.

    Returns:
        A decorator for a function that takes the candidates and Flower's context and returns one loss for each
        (smaller is better). It is called on the client; losses never leave it.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from dptune.federated import Policy, ballot
        >>> app = ClientApp()
        >>> @ballot(app, policy=Policy(max_epsilon=1.0, min_clients=20), ledger="votes.ledger")
        ... def losses(candidates, context):
        ...     return [abs(candidate["lr"] - 0.1) for candidate in candidates]
        >>> losses([{"lr": 0.1}], None)
        [0.0]
    """

    def register(losses: LossFunction) -> LossFunction:
        @app.query(ACTION, mods=[only_votes])
        def vote(message: Message, context: Context) -> Message:
            voter = Voter(
                _resolve(policy, context),
                VoteLedger(ledger(context) if callable(ledger) else ledger),
                None if identity is None else _resolve(identity, context),
            )
            values = read(message)
            if "plan" in values:
                answer = _evaluate(voter, values, candidates, losses, context)
                if identity is not None:
                    answer["identity"] = _resolve(identity, context).public
            else:
                answer = _sum(voter, values, context)
            context.state[_STATE] = ConfigRecord({"voter": voter.freeze()})
            return reply_with(message, answer)

        return losses

    return register


def _resolve(value: T | Callable[[Context], T], context: Context) -> T:
    return value(context) if callable(value) else value


def _evaluate(
    voter: Voter,
    values: dict[str, Value],
    own: Sequence[Candidate] | None,
    losses: LossFunction,
    context: Context,
) -> dict[str, Value]:
    plan = VotePlan.from_json(str(values["plan"]))
    proposed = json.loads(str(values.get("candidates", "[]")))
    voter.agree(plan, proposed, own)
    try:
        voter.evaluated([float(loss) for loss in losses(proposed, context)])
    except Exception:  # a failure depends on the data: vote by lot, tell nobody
        _log.exception("The local evaluation failed; this client votes by lot.")
        voter.failed()
    return {"ready": "yes"}


def _sum(voter: Voter, values: dict[str, Value], context: Context) -> dict[str, Value]:
    request = values.get("request")
    if not isinstance(request, bytes):
        raise ProtocolError("The message is neither a plan nor a request of the secure sum.")
    if _STATE not in context.state.config_records:
        raise ProtocolError("The sum was asked for before this client was ready.")
    frozen = context.state.config_records[_STATE]["voter"]
    if not isinstance(frozen, bytes):
        raise ProtocolError("The state of this client is damaged.")
    voter.thaw(frozen)
    return {"answer": voter.answer(request)}
