"""A release against its charge: every figure that somebody could change after the run is compared and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sealed.toy import DATA, ToyTrainer, toy_plan

from dptune.accounting import Gdp
from dptune.cli import main
from dptune.errors import Corrupt, InvalidInput
from dptune.executors import Processes
from dptune.ledgers import Ledger
from dptune.sealed import compare_release, run
from dptune.sealed._binding import seal_release
from dptune.sealed._signature import Signer


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger and the run that was charged to it."""
    home = tmp_path_factory.mktemp("finished")
    book = Ledger.create(home / "h.ledger")
    book.add("icu", 10.0, 1e-5, "patient")
    run(toy_plan(count=3), ToyTrainer(), DATA, ledger=book, dataset="icu", out=home / "run", executor=Processes(1))
    return home


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def _compare(home: Path) -> Any:
    return compare_release(Ledger(home / "h.ledger").verified(), home / "run" / "release" / "release.json")


def test_a_true_release_agrees_in_everything(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _compare(home)
    wanted = {"epsilon", "delta", "unit", "parameters", "plan", "plan of the charge", "model hash", "model"}
    assert wanted | {"statement text", "head", "data set", "the signature of the run"} <= set(result.compared)
    assert result.not_compared == ()
    path = home / "run" / "release" / "release.json"
    assert main(["ledger", "verify", str(home / "h.ledger"), "--statement", str(path)]) == 0
    said = capsys.readouterr().out
    assert "agrees with the charge in entry 3" in said
    assert "\n  parameters\n" in said
    assert "NOT compared" not in said
    assert main(["ledger", "verify", str(home / "h.ledger"), "--statement", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statement"]["compared"] == list(result.compared)


@pytest.mark.parametrize(("name", "other"), [("epsilon", "0.01"), ("params", '{"x": 9.0}'), ("ledger", "{}")])
def test_a_release_that_states_something_twice_is_refused(home: Path, name: str, other: str) -> None:
    """A reader sees the first value; parsers, and so the comparison, take the last."""
    path = home / "run" / "release" / "release.json"
    text = path.read_text()
    path.write_text(text.replace("{", f'{{"{name}": {other}, ', 1))
    assert json.loads(path.read_text()) == json.loads(text)
    with pytest.raises(Corrupt, match=f"states '{name}' twice"):
        _compare(home)
    path.write_text(text.replace('"params": {', '"params": {"x": 9.0, ', 1))
    assert json.loads(path.read_text()) == json.loads(text)
    with pytest.raises(Corrupt, match="states 'x' twice"):
        _compare(home)


def test_the_ledger_is_not_written_when_a_run_ends(finished: Path) -> None:
    """An entry at the end would tell by its time and place how long the run took."""
    kinds = [entry.body["kind"] for entry in Ledger(finished / "h.ledger").entries()]
    assert kinds == ["ledger", "dataset", "charge"]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "epsilon": (lambda d: d.update(epsilon=0.1), r"epsilon \(stated 0\.1"),
    "epsilon as text": (lambda d: d.update(epsilon="0.1"), r"epsilon \(stated"),
    "no epsilon": (lambda d: d.pop("epsilon"), r"epsilon \(stated null"),
    "delta": (lambda d: d.update(delta=1e-9), r"delta \(stated 1e-09"),
    "unit": (lambda d: d.update(unit="hospital"), r'unit \(stated "hospital", in the ledger "patient"'),
    "data set": (lambda d: d.update(dataset="ward"), "data set"),
    "budget": (lambda d: d["dataset_budget"].update(epsilon=1.0), "budget of the data set"),
    "method": (lambda d: d.update(method="none"), "method"),
    "parameters": (lambda d: d["params"].update(x=0.0), "Different: parameters"),
    "model hash": (lambda d: d.update(model_sha256="0" * 64), "model hash"),
    "lower": (lambda d: d.update(epsilon_lower=0.0), "epsilon_lower"),
    "assumption": (lambda d: d["assumptions"].pop(), "assumptions"),
    "more": (lambda d: d.update(remark="certified"), "remark"),
    "head": (lambda d: d["ledger"].update(head="0" * 64), "head"),
    "entry": (lambda d: d["ledger"].update(entry=2), r"entry \(stated 2"),
    "charge": (lambda d: d["ledger"].update(charge="other"), "no charge"),
    "no seal": (lambda d: d.pop("seal"), r"signature of the run \(missing\)"),
    "digest": (lambda d: d["seal"]["fields"].update(params="0" * 64), "signature of the run"),
    "damaged seal": (lambda d: d.update(seal=[1, 2]), "signature of the run"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_release_is_refused_and_the_difference_named(home: Path, name: str) -> None:
    edit, message = EDITS[name]
    path = home / "run" / "release" / "release.json"
    details = json.loads(path.read_text())
    edit(details)
    path.write_text(json.dumps(details))
    with pytest.raises(Corrupt, match=message) as caught:
        _compare(home)
    assert "\n" not in str(caught.value)


def test_a_release_signed_by_somebody_else_is_refused(home: Path) -> None:
    """All digests and a valid signature, but not by the key that was charged."""
    folder = home / "run" / "release"
    details = json.loads((folder / "release.json").read_text())
    details["params"]["x"] = 0.0
    details.pop("seal")
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "release.json"}
    details["seal"] = seal_release(details, files, Signer(bytes(32), bytes(16)))
    (folder / "release.json").write_text(json.dumps(details))
    with pytest.raises(Corrupt, match="signature of the run"):
        _compare(home)


@pytest.mark.parametrize(
    ("file", "label"),
    [("statement.md", "statement text"), ("statement.html", "statement page"), ("plan.json", "plan"), (None, "model")],
)
def test_files_beside_the_release_are_compared(home: Path, file: str | None, label: str) -> None:
    folder = home / "run" / "release"
    path = folder / (file or json.loads((folder / "release.json").read_text())["model"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=f"Different: {label}\\."):
        _compare(home)
    path.unlink()
    assert _compare(home).not_compared == ((label, f"{path.name} is not beside the release.json"),)


def test_a_charge_of_an_older_version_says_what_cannot_be_compared(home: Path, tmp_path: Path) -> None:
    """Such a charge holds costs alone: epsilon, delta and unit are compared, parameters and model cannot be."""
    path = home / "run" / "release" / "release.json"
    details = json.loads(path.read_text())
    book = Ledger.create(tmp_path / "old.ledger")
    book.add("icu", 10.0, 1e-5, "patient")
    receipt = book.charge("icu", toy_plan(count=3).cost)
    details["ledger"] = {
        "rule": receipt.rule,
        "entry": receipt.number,
        "head": receipt.head,
        "charge": receipt.charge,
    }
    del details["seal"]
    path.write_text(json.dumps(details))
    result = compare_release(book.verified(), path)
    assert {"parameters", "plan", "model hash", "statement text"} <= {name for name, _ in result.not_compared}
    assert "unit" in result.compared
    path.write_text(json.dumps({**details, "epsilon": details["epsilon"] / 2}))
    with pytest.raises(Corrupt, match="epsilon"):
        compare_release(book.verified(), path)


def test_a_run_that_claims_an_earlier_charge_is_compared_with_its_claim(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 10.0, 1e-5)
    plan = toy_plan(count=2)
    book.charge("icu", [Gdp(0.2), plan.cost, plan.cost], charge="march")
    for name in ("one", "two"):
        run(plan, ToyTrainer(), DATA, ledger=book, dataset="icu", charge="march", out=tmp_path / name)
    for name in ("one", "two"):
        path = tmp_path / name / "release" / "release.json"
        assert compare_release(book.verified(), path).not_compared == ()
        details = json.loads(path.read_text())
        details["params"]["x"] = 0.5
        path.write_text(json.dumps(details))
        with pytest.raises(Corrupt, match="parameters"):
            compare_release(book.verified(), path)
    with pytest.raises(InvalidInput, match="used by another run"):
        book.claim("march", "three", "icu", plan.cost)
    book.claim("march", "three", "icu", Gdp(0.2))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ledger": 3}', "[" * 100_000, '{"mode": "rehearsal"}', None])
def test_what_is_not_a_release_is_one_line(
    home: Path, tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert main(["ledger", "verify", str(home / "h.ledger"), "--statement", str(path)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out == ""
