"""``dptune ledger``: what it lists, that it fits a terminal, and what it says to bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dptune.accounting import DpSgd, Gdp, Geometric, select
from dptune.cli import main
from dptune.ledgers import Ledger, Purpose


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 3.0, 1e-5, "patient")
    book.add("a data set with a name that is far too long for one column of a table", 1.0, 1e-6)
    return book


def test_show_lists_every_charge(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    cost = select(DpSgd(0.01, 4.0, 100), Geometric(3))
    purpose = Purpose("random-stopping", cost.epsilon(1e-5), 1e-5, "0" * 64, "0" * 112)
    receipt = ledger.charge("icu", cost, "first", purpose=purpose)
    ledger.charge("icu", Gdp(0.1), "second")
    assert main(["ledger", "show", str(ledger.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    first, second = shown["charges"]
    assert (first["number"], first["time"], first["charge"]) == (receipt.number, receipt.time, "first")
    assert (first["method"], second["method"]) == ("random-stopping", "gdp")
    assert first["epsilon"] == cost.epsilon(1e-5)
    assert second["epsilon"] == Gdp(0.1).epsilon(1e-5)
    assert max(first["epsilon"], second["epsilon"]) < second["total"] <= first["total"] + 3.0
    assert second["total"] == shown["datasets"][0]["spent"]
    assert main(["ledger", "show", str(ledger.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "something else than the sum of their epsilons" in " ".join(lines)
    listed = [line for line in lines if "random-stopping" in line]
    assert len(listed) == 1
    assert listed[0].endswith(f"{first['epsilon']:8.4f} {first['total']:8.4f}")


def test_totals_never_fall_and_cover_the_composition(ledger: Ledger) -> None:
    for number in range(6):
        ledger.charge("icu", Gdp(0.1 + 0.01 * number))
    charges = ledger.charges()
    totals = [charge.total for charge in charges if charge.total is not None]
    assert totals == sorted(totals)
    for count, total in enumerate(totals, 1):
        composed = sum((0.1 + 0.01 * number) ** 2 for number in range(count)) ** 0.5
        assert Gdp(composed).epsilon(1e-5) <= total <= 3.0


ADD = ("--epsilon", "1", "--delta", "1e-5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "none.ledger"), "There is no ledger"),
        (("show", "."), "There is no ledger"),
        (("verify", "none.ledger"), "There is no ledger"),
        (("verify", "h.ledger", "--statement", "."), "cannot be read"),
        (("rebuild", "none.ledger"), "There is no ledger"),
        (("rebuild", "text"), "cannot be read"),
        (("show", "text"), "cannot be read"),
        (("show", "nothing"), "is empty"),
        (("add", "nothing", "icu", *ADD), "is empty"),
        (("add", ".", "icu", *ADD), "There is no ledger"),
        (("add", "none/h.ledger", "icu", *ADD), "No such file"),
        (("add", "h.ledger", "icu", *ADD), "already has"),
        (("add", "h.ledger", "", *ADD), "data set's name"),
        (("add", "h.ledger", "x" * 201, *ADD), "data set's name"),
        (("add", "h.ledger", "two\nlines", *ADD), "data set's name"),
        (("add", "h.ledger", "lone \udc80", *ADD), "data set's name"),
        (("add", "h.ledger", "x", "--unit", "", *ADD), "unit of privacy"),
        (("add", "h.ledger", "x", "--epsilon", "nan", "--delta", "1e-5"), "epsilon"),
        (("add", "h.ledger", "x", "--epsilon", "-1", "--delta", "1e-5"), "epsilon"),
        (("add", "h.ledger", "x", "--epsilon", "one", "--delta", "1e-5"), "epsilon"),
        (("add", "h.ledger", "x", "--epsilon", "1", "--delta", "1"), "delta"),
    ],
)
def test_bad_input_is_one_line(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    head = ledger.head
    monkeypatch.chdir(ledger.path.parent)
    Path("text").write_text("not a ledger\n" * 1000)
    Path("nothing").write_bytes(b"")
    assert main(["ledger", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err
    assert ledger.head == head


def test_a_unit_with_several_records_is_declared_when_it_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "h.ledger")
    common = ["--epsilon", "3", "--delta", "1e-5", "--unit", "patient"]
    assert main(["ledger", "add", path, "icu", *common, "--most-records", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["neighbours"] == "at most 5 records added or removed"
    assert main(["ledger", "add", path, "ward", *common]) == 0
    assert "One record for each patient is assumed" in capsys.readouterr().out
    assert main(["ledger", "add", path, "none", *common, "--most-records", "0"]) == 2
