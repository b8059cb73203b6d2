"""A vote as files for people and machines, and whether they agree with what a client charged.

``vote.json`` follows a published schema and holds the statement as values; Markdown and HTML are rendered from it. A
check trusts no figure of it: everything follows from the plan, which is derived again.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from dptune._codec import from_json
from dptune._version import __version__
from dptune.accounting.attackers import attackers
from dptune.errors import Corrupt, InvalidInput
from dptune.federated.errors import ProtocolError
from dptune.federated.graph import topology
from dptune.federated.statement import Elected, VoteStatement
from dptune.federated.vote_annex import state_vote
from dptune.sealed.rendering import statement_html, statement_markdown

__all__ = ["CheckedVote", "check_vote", "publish_vote", "vote_details", "vote_registry_entry", "vote_schema"]

SCHEMA = {"name": "dptune vote", "version": 1}
_RENDERED = {"statement.md": statement_markdown, "statement.html": statement_html}


def vote_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) that every ``vote.json`` of this version follows.

    Returns:
        Plain JSON values.

    Example:
        >>> vote_schema()["title"]
        'dptune vote, version 1'
    """
    text = resources.files("dptune.federated").joinpath("schemas/vote-1.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def vote_details(elected: Elected) -> dict[str, Any]:
    """The content of ``vote.json``.

    Args:
        elected: what a vote returned.

    Returns:
        Plain JSON values: the configuration, the figures, the plan, and the statement for people.

    Example:
        >>> from dptune.federated import Elected, federate
        >>> found = federate([[0.0, 1.0]] * 20, [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=8.0)
        >>> vote_details(Elected(found.params, found.statement))["guarantee"]
        False
    """
    vote = elected.statement
    return {
        "schema": SCHEMA,
        "dptune": __version__,
        "guarantee": not vote.simulated,
        "params": dict(elected.params),
        "vote": vote.describe(),
        "plan": vote.plan.subject.hex(),
        "readings": attackers(vote.plan.cost()).describe(),
        "statement": state_vote(vote, elected.params).describe(),
    }


def publish_vote(elected: Elected, folder: str | Path) -> Path:
    """Write what a vote may show: ``vote.json``, ``statement.md`` and ``statement.html``.

    Args:
        elected: what :meth:`DpHype.start` returned.
        folder: a folder without a vote in it; it is made if it is not there.

    Returns:
        The folder.

    Raises:
        InvalidInput: there is a vote in the folder, or it cannot be written.

    Example:
        >>> from dptune.federated import Elected, federate, publish_vote
        >>> found = federate([[0.0, 1.0]] * 20, [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=8.0)
        >>> sorted(one.name for one in publish_vote(Elected(found.params, found.statement), "vote").iterdir())
        ['statement.html', 'statement.md', 'vote.json']
    """
    place = Path(folder)
    statement = state_vote(elected.statement, elected.params)
    texts = {name: render(statement) for name, render in _RENDERED.items()}
    texts["vote.json"] = json.dumps(vote_details(elected), indent=1, sort_keys=True, allow_nan=False) + "\n"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if (place / "vote.json").exists():
            raise InvalidInput(f"There is a vote in {place} already. Name another folder.")
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"The vote cannot be written to {place} ({error.strerror}).") from None
    return place


def vote_registry_entry(elected: Elected) -> dict[str, Any]:
    """A vote in the form of the public registries of epsilons.

    Args:
        elected: what a vote returned.

    Returns:
        System, unit, epsilon, delta, relation and method, and what else registries ask for.

    Raises:
        InvalidInput: the vote was simulated, so there is no epsilon to register.

    Example:
        >>> from dptune.federated import Elected, federate
        >>> found = federate([[0.0, 1.0]] * 20, [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=8.0)
        >>> vote_registry_entry(Elected(found.params, found.statement))
        Traceback (most recent call last):
        ...
        dptune.errors.InvalidInput: A simulated vote has no guarantee, so there is no epsilon to register.
    """
    vote = elected.statement
    if vote.simulated:
        raise InvalidInput("A simulated vote has no guarantee, so there is no epsilon to register.")
    return {
        "system": f"federated vote {vote.session}",
        "data_product": "hyperparameters",
        "unit": "client",
        "epsilon": vote.stated_epsilon,
        "delta": vote.delta,
        "relation": vote.plan.neighbours.phrase(),
        "method": "vote",
        "definition": "(epsilon, delta)-differential privacy",
        "model": "distributed, with a secure sum",
        "covers": "the vote; not the training that follows",
        "software": f"dptune {__version__}",
        "verification": {"session": vote.session, "plan": vote.plan.subject.hex()},
    }


@dataclass(frozen=True)
class CheckedVote:
    """What of a published vote was compared and agrees, and what could not be compared, with the reason."""

    session: str
    charged_at: str  # by the clock of the client, before its ballot left
    compared: tuple[str, ...]
    not_compared: tuple[tuple[str, str], ...]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which nothing is stated twice: a reader would see one value, and the check the other."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is stated twice")
    return found


def _read(path: Path) -> tuple[Elected, dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
        if (found["schema"], found["dptune"]) != (SCHEMA, __version__):  # words and figures are those of its version
            raise InvalidInput(f"{path} was made by another version of dptune; check it with that one.")
        vote, params = from_json(found["vote"], VoteStatement, "a vote"), dict(found["params"])
        vote.plan.check_account()
        bytes.fromhex(vote.session)
    except (OSError, ValueError, KeyError, TypeError, ProtocolError) as bad:
        if isinstance(bad, InvalidInput) and "another version" in str(bad):
            raise
        raise Corrupt(f"{path} is not a vote as it was published. Take it from where it was published.") from None
    return Elected(params, vote), found


def check_vote(path: Path, ledger: Path) -> CheckedVote:
    """Compute every figure of a published vote anew, and compare its plan with what a client charged.

    Args:
        path: the ``vote.json``; both forms of the statement are looked for beside it.
        ledger: the ledger of a client that took part.

    Returns:
        What was compared and agrees.

    Raises:
        Corrupt: something differs; the line says what.
        InvalidInput: the ledger cannot be read, another version wrote the vote, or it was simulated.
    """
    elected, found = _read(path)
    vote, plan = elected.statement, elected.statement.plan
    if vote.simulated:
        raise InvalidInput("This vote was simulated: no client charged anything, so there is nothing to verify.")
    same, missing = _Same(), []
    _compare_figures(same, elected, found)
    for name, render in _RENDERED.items():
        beside = path.parent / name
        if beside.is_file():
            same.expect(name, beside.read_bytes() == render(state_vote(vote, elected.params)).encode())
        else:
            missing.append((name, "it is not beside vote.json"))
    subject, epsilon, delta, clients, at, mode = _charged(ledger, vote.session)
    same.expect("the plan that the client charged", subject == plan.subject.hex())
    same.expect("the epsilon and delta that it charged", (epsilon, delta) == (plan.epsilon, plan.delta))
    same.expect("the number of clients that it agreed to", clients == plan.clients)
    if mode is not None:
        same.expect("whether keys were signed by a roster", mode == vote.mode)
    else:
        missing.append(("whether keys were signed by a roster", "this ledger is of a version that did not write it"))
    if same.other:
        raise Corrupt(f"{path.name} is not what was charged; these differ: {', '.join(same.other)}. Do not trust it.")
    missing.append(
        (
            "the number of clients in the result and the epsilon of what happened",
            "a client does not know how many took part; the epsilon that it charged holds for the fewest allowed",
        )
    )
    missing.append(("the winner", "ballots are hidden, so nobody can check it; the guarantee does not rest on it"))
    return CheckedVote(vote.session, at, tuple(same.names), tuple(missing))


@dataclass
class _Same:
    """What agrees, and what does not."""

    names: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def expect(self, name: str, holds: bool) -> None:
        (self.names if holds else self.other).append(name)


def _compare_figures(same: _Same, elected: Elected, found: dict[str, Any]) -> None:
    """Every figure that is stated against the same one, computed from the plan.

    How many clients took part is the file's word: it must be possible, and its epsilon must follow from it.
    """
    vote, plan = elected.statement, elected.statement.plan
    least = topology(plan.clients, plan.dropout, plan.colluding).minimum
    possible = least <= vote.contributed <= plan.clients and vote.mode in ("roster", "open")
    if not possible:
        same.other.append("number of clients in the result")
    else:
        session = bytes.fromhex(vote.session)
        again = VoteStatement.of(plan, contributed=vote.contributed, mode=vote.mode, session=session)
        if vote.epsilon != again.epsilon:
            same.other.append("epsilon of what happened")
        same.expect("every figure that follows from the plan", vote == again and vote_details(elected) == found)


def _charged(ledger: Path, session: str) -> tuple[str, float, float, int, str, str | None]:
    """What a client's ledger says of a session; no mode, if it is of a version that did not write it."""
    if not ledger.is_file():
        raise InvalidInput(f"There is no ledger {ledger}. Give the file in which a client writes its votes.")
    try:
        with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute(
                "SELECT subject, epsilon, delta, clients, at FROM charges WHERE session = ?", (session,)
            ).fetchone()
            kept = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'modes'").fetchone()
            mode = kept and database.execute("SELECT mode FROM modes WHERE session = ?", (session,)).fetchone()
    except sqlite3.Error:
        raise InvalidInput(f"{ledger} is not a client's ledger of votes.") from None
    if row is None:
        raise Corrupt(f"The ledger {ledger.name} has no charge for this vote: its client did not take part in it.")
    return str(row[0]), float(row[1]), float(row[2]), int(row[3]), str(row[4]), str(mode[0]) if mode else None
