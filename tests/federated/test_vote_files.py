"""The statement of a federated vote: the officer's questions, every form from one value, and a check that notices."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.report.samples import plans, public

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from dptune.accounting.attackers import attackers, of_a_hundred
from dptune.cli import main
from dptune.errors import Corrupt, InvalidInput
from dptune.federated import Elected, Policy, Roster, VoteLedger, VoteStatement, publish_vote
from dptune.federated.vote_annex import state_vote
from dptune.federated.vote_files import check_vote, vote_registry_entry, vote_schema
from dptune.federated.vote_plan import VotePlan
from dptune.sealed.amounts import at_most
from dptune.sealed.content import statement_from_json
from dptune.sealed.rendering import statement_html, statement_markdown

CANDIDATES = [{"lr": rate} for rate in (0.1, 0.2, 0.5, 1.0, 2.0)]
SESSION = bytes(range(16))


def _elected(mode: str = "roster", contributed: int = 37, simulated: bool = False) -> Elected:
    plan = VotePlan.calibrated(
        CANDIDATES, votes=2, epsilon=2.0, delta=1e-5, clients=40, dropout=0.2, colluding=2
    )  # fmt: skip
    vote = VoteStatement.of(plan, contributed=contributed, mode=mode, session=SESSION, simulated=simulated)
    return Elected({"lr": 0.5}, vote)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published vote and the ledger of a client that took part."""
    home = tmp_path_factory.mktemp("vote")
    elected = _elected()
    roster = Roster.of(bytes([number]) * 32 for number in range(40))
    policy = Policy(2.0, 20, min_colluding=2, roster=roster)
    VoteLedger(home / "votes.ledger").charge(SESSION, elected.statement.plan, policy)
    publish_vote(elected, home / "vote")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def test_it_answers_the_questions_of_every_statement() -> None:
    of_a_run = public(plans()["subset"]).statement
    found = state_vote(_elected().statement, {"lr": 0.5})
    simulated = state_vote(_elected(simulated=True).statement, {"lr": 0.5})
    for one in (found, simulated):
        assert [answer.key for answer in one.answers] == [answer.key for answer in of_a_run.answers]
        assert all(answer.text or answer.points for answer in one.answers)
    assert found.warnings == ()
    said = " ".join(text for answer in simulated.answers for text in answer.text)
    assert "Nobody." in said
    assert "rightly names" not in said  # no strength of protection


def test_a_vote_reads_as_one_that_took_place() -> None:
    """Read off the statement of a real one: five clients, of which one fell silent, one vote each."""
    plan = VotePlan.calibrated(CANDIDATES, votes=1, epsilon=4.0, delta=1e-5, clients=5, dropout=0.2, colluding=1)
    least, more = (VoteStatement.of(plan, contributed=n, mode="open", session=SESSION) for n in (4, 5))
    said = {one.key: " ".join((*one.text, *one.points)) for one in state_vote(least, {}).answers}
    assert "voted for its best one and" in said["what"]
    assert f"known as {SESSION.hex()}" in said["what"]  # by which a client finds it, and when it was
    assert "the fewest clients that were allowed, 4. No more are in the result." in said["how strongly"]
    assert "while nobody can compute the noise" in said["how long"]
    assert "names roles, not people" in said["promises"]
    other = {one.key: " ".join(one.text) for one in state_vote(more, {}).answers}
    assert f"With the 5 that are in the result it is epsilon {at_most(more.epsilon)}" in other["how strongly"]
    assert "training" not in {row.name: row.text for row in state_vote(least, {}).glossary}["Certificate"]


def test_page_one_states_the_budget_and_what_an_attack_reaches() -> None:
    elected = _elected()
    plan = elected.statement.plan
    said = " ".join(next(one for one in state_vote(elected.statement, {}).answers if one.key == "how strongly").text)
    assert "epsilon 2.0000 at delta 1e-05" in said
    assert f"at most {of_a_hundred(attackers(plan.cost()).power)} of 100" in said
    assert elected.statement.epsilon < plan.spent() <= plan.epsilon  # more noise than the fewest clients add


def test_the_way_of_the_keys_is_said_first_where_nobody_signed_them() -> None:
    assert state_vote(_elected("open").statement, {}).warnings[0].startswith("OPEN MODE")
    text = statement_markdown(state_vote(_elected(simulated=True).statement, {}))
    assert text.startswith("**NO GUARANTEE.")
    assert "Nobody. This is a simulation" in text


def test_all_forms_are_one_statement(made: Path) -> None:
    stored = json.loads((made / "vote" / "vote.json").read_text())
    schema = vote_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(stored, schema)
    statement = statement_from_json(stored["statement"])
    assert (made / "vote" / "statement.md").read_text() == statement_markdown(statement)
    assert (made / "vote" / "statement.html").read_text() == statement_html(statement)
    assert stored["vote"]["neighbours"] == "one client replaced"


def test_a_vote_of_another_version_is_for_that_version(home: Path) -> None:
    place = home / "vote" / "vote.json"
    stored = json.loads(place.read_text())
    place.write_text(json.dumps({**stored, "dptune": "0.0.9"}))
    with pytest.raises(InvalidInput, match="another version of dptune; check it with that one"):
        check_vote(place, home / "votes.ledger")


def test_every_special_word_is_explained() -> None:
    statement = state_vote(_elected().statement, {"lr": 0.5})
    text = statement_markdown(statement).partition("## Glossary")[0].lower()
    explained = {row.name.lower() for row in statement.glossary}
    asked = ("secure sum", "roster", "ballot", "epsilon", "delta", "client", "server", "ledger", "candidate", "mask")
    for word in (*asked, "digest", "split view", "discrete gaussian", "collude"):
        assert word in text
        assert word in explained


def test_a_client_verifies_it_with_one_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ledger", "verify", str(home / "votes.ledger"), "--statement", str(home / "vote" / "vote.json")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "the plan that the client charged" in said
    assert re.search(r"what this client charged at \d{4}-\d\d-\d\dT\S+ for the vote 0001", said)
    assert (
        "whether keys were signed by a roster\nNOT compared:\n  the number of clients in the result and the eps" in said
    )
    assert "  the winner: ballots are hidden" in said
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True


def _changed(path: Path, **changes: Any) -> None:
    stored = json.loads(path.read_text())
    for name, value in changes.items():
        place = stored["vote"] if name in stored["vote"] else stored
        assert place[name] != value
        place[name] = value
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.5},
        {"stated_epsilon": 1.0},
        {"stated_epsilon": 3.0},
        {"delta": 1e-6},
        {"contributed": 39},
        {"contributed": 5},
        {"clients": 400},
        {"colluding": 3},
        {"sigma": 0.5},
        {"digest": "0" * 64},
        {"mode": "open"},
        {"mode": "closed"},
        {"session": "ff" * 16},
        {"session": "no"},
        {"neighbours": "record added or removed"},
        {"split_view_safe": "yes"},
        {"params": {"lr": 2.0}},
        {"guarantee": False},
        {"plan": "0" * 64},
        {"schema": {"name": "dptune vote", "version": 2}},
        {"statement": {}},
    ],
    ids=str,
)
def test_what_was_changed_does_not_verify(
    home: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "vote" / "vote.json"
    _changed(path, **changes)
    assert main(["ledger", "verify", str(home / "votes.ledger"), "--statement", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_a_forged_mode_is_noticed_and_the_number_of_clients_is_the_publishers_word(home: Path) -> None:
    forged = publish_vote(_elected("open"), home / "open") / "vote.json"
    with pytest.raises(Corrupt, match="these differ: whether keys were signed by a roster"):
        check_vote(forged, home / "votes.ledger")
    found = check_vote(publish_vote(_elected(contributed=40), home / "more") / "vote.json", home / "votes.ledger")
    assert not any("epsilon of what happened" in one for one in found.compared)
    assert any("epsilon of what happened" in name for name, _ in found.not_compared)


def test_a_ledger_that_did_not_write_the_mode_says_so(home: Path) -> None:
    with closing(sqlite3.connect(home / "votes.ledger")) as database:
        database.execute("DROP TABLE modes")
    found = check_vote(home / "vote" / "vote.json", home / "votes.ledger")
    assert "whether keys were signed by a roster" in dict(found.not_compared)
    assert VoteLedger(home / "votes.ledger").spent()[0] == 2.0


def test_what_is_stated_twice_does_not_verify(home: Path) -> None:
    path = home / "vote" / "vote.json"
    path.write_text('{"guarantee": false, ' + path.read_text()[1:])
    with pytest.raises(Corrupt, match="is not a vote as it was published"):
        check_vote(path, home / "votes.ledger")


def test_a_changed_page_does_not_verify_and_a_missing_one_is_named(home: Path) -> None:
    path, ledger = home / "vote" / "vote.json", home / "votes.ledger"
    (home / "vote" / "statement.md").unlink()
    assert ("statement.md", "it is not beside vote.json") in check_vote(path, ledger).not_compared
    (home / "vote" / "statement.html").write_text("fine")
    with pytest.raises(Corrupt, match=r"these differ: statement\.html"):
        check_vote(path, ledger)


def test_bad_input_is_one_clear_error(home: Path) -> None:
    path = home / "vote" / "vote.json"
    with pytest.raises(InvalidInput, match="There is no ledger"):
        check_vote(path, home / "nowhere")
    (home / "words").write_text("words")
    with pytest.raises(InvalidInput, match="not a client's ledger"):
        check_vote(path, home / "words")
    VoteLedger(home / "other.ledger").answer_once(SESSION, 1)
    with pytest.raises(Corrupt, match="has no charge for this vote"):
        check_vote(path, home / "other.ledger")
    publish_vote(_elected(simulated=True), home / "simulated")
    with pytest.raises(InvalidInput, match="was simulated"):
        check_vote(home / "simulated" / "vote.json", home / "votes.ledger")
    with pytest.raises(InvalidInput, match="a vote in"):
        publish_vote(_elected(), home / "vote")
    with pytest.raises(InvalidInput, match="cannot be written"):
        publish_vote(_elected(), home / "words" / "vote")


def test_the_entry_for_registries() -> None:
    entry = vote_registry_entry(_elected())
    assert {"system", "unit", "epsilon", "delta", "relation", "method"} <= entry.keys()
    assert (entry["unit"], entry["epsilon"]) == ("client", 2.0)
    with pytest.raises(InvalidInput, match="simulated"):
        vote_registry_entry(_elected(simulated=True))


def test_the_command_writes_a_simulated_vote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "vote"
    assert main(["vote", "--clients", "12", "--candidates", "8", "--votes", "2", "--out", str(out)]) == 0
    assert str(out / "statement.html") in capsys.readouterr().out
    assert json.loads((out / "vote.json").read_text())["guarantee"] is False
    for shown in (out, out / "vote.json"):
        assert main(["report", str(shown)]) == 2
        assert "has its page already" in capsys.readouterr().err
