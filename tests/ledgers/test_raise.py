"""A budget that is raised: entries, figures, what verify refuses, and the form of file that older programs refuse."""

from __future__ import annotations

import contextlib
import re
import shlex
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dptune.accounting import Gdp, PureDp
from dptune.accounting.filter import Filter
from dptune.cli import main
from dptune.errors import BudgetExceeded, Corrupt, InvalidInput
from dptune.ledgers import Ledger
from dptune.ledgers._verify import verify_entries
from dptune.ledgers.entries import Entry

FULL = Gdp(0.265)  # epsilon .9875 of 1 at delta 1e-5: it fits by exact composition alone


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 1.0, 1e-5)
    return book


def test_a_raise_before_the_first_charge_is_another_opening(book: Ledger) -> None:
    status = book.raise_budget("icu", 3.0, 1e-4)
    assert (status.epsilon, status.delta, status.rule) == (3.0, 1e-4, "open")
    assert book.charge("icu", Gdp(0.8)).rule == "fixed"  # by exact composition, as if it had been opened so
    book.verify()


def test_a_raise_after_a_charge_is_an_odometer(book: Ledger) -> None:
    book.charge("icu", FULL)
    assert book.status("icu").left == 0.0
    with pytest.raises(BudgetExceeded):
        book.charge("icu", Gdp(0.1))
    status = book.raise_budget("icu", 4.0)
    assert (status.epsilon, status.delta, status.rule) == (4.0, 1e-5, "odometer")
    assert 0.98 <= status.spent < 4.0
    assert 0.0 < status.left < 4.0
    receipt = book.charge("icu", Gdp(0.1))
    assert receipt.rule == "odometer"
    assert book.status("icu").spent <= 4.0
    assert book.terms("icu", receipt.number)[0] == (4.0, 1e-5)
    assert book.terms("icu", receipt.number - 1)[0] == (1.0, 1e-5)  # for the raise itself: what was in force before
    book.verify()
    with pytest.raises(BudgetExceeded):
        book.charge("icu", Gdp(2.0))


def test_a_raise_keeps_orders_and_weights_of_the_opening(book: Ledger) -> None:
    book.charge("icu", Gdp(0.1))
    book.raise_budget("icu", 3.0)
    book.raise_budget("icu", 8.0, 1e-4)
    opened = Filter.of(1.0, 1e-5)
    last = book.entries()[-1].body["filter"]
    assert (tuple(last["orders"]), tuple(last["weights"])) == (opened.orders, opened.weights)
    assert last["infinite"] == pytest.approx(10 * opened.infinite)
    assert last["raised"] is True
    book.verify()


def test_what_is_no_raise_is_refused(book: Ledger) -> None:
    book.charge("icu", FULL)
    head = book.head
    for figures, words in (
        ((0.5, 1e-5), "cannot be lowered"),
        ((2.0, 1e-6), "cannot be lowered"),
        ((1.0, 1e-5), "already"),
        ((1.000001, 1e-5), r"counts for more\. Epsilon [\d.]+, delta 1e-05 is enough"),
        ((501.0, 1e-5), "epsilon"),
    ):
        with pytest.raises(InvalidInput, match=words):
            book.raise_budget("icu", *figures)
    with pytest.raises(InvalidInput, match="no data set 'ward'"):
        book.raise_budget("ward", 2.0)
    assert book.head == head


@pytest.mark.parametrize("asked", [Gdp(0.05), Gdp(0.7), PureDp(3.0), [Gdp(0.2)] * 3])
def test_the_refusal_names_the_command_that_admits_the_charge(
    book: Ledger, asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exact command, and no much smaller one: what it names is what the charge needs."""
    book.charge("icu", FULL)
    with pytest.raises(BudgetExceeded, match="nothing was charged") as caught:
        book.charge("icu", asked, "second")
    (command,) = re.findall(r"`dptune (.*)`", str(caught.value))
    words = shlex.split(command)
    assert words[:4] == ["ledger", "raise", str(book.path), "icu"]
    assert main(words) == 0
    assert "with probability at least 1 - delta" in capsys.readouterr().out
    assert book.charge("icu", asked, "second").rule == "odometer"
    status = book.status("icu")
    assert 0.999 * status.epsilon <= status.spent <= status.epsilon
    book.verify()


def test_a_raise_is_shown(book: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    book.charge("icu", Gdp(0.1))
    book.raise_budget("icu", 2.0)
    assert main(["ledger", "show", str(book.path)]) == 0
    assert "odometer" in capsys.readouterr().out


def _forged(book: Ledger, change: Any) -> list[Entry]:
    entries = book.entries()
    return [Entry(one.number, change(one.number, one.body), one.hash) for one in entries]


@pytest.mark.parametrize(
    "fields",
    [
        {"weights": [1.0 / 19 - 1e-9] * 19},
        {"epsilon": 0.5},
        {"delta": 1e-6},
        {"infinite": 1e-5},
        {"raised": False},
        {"epsilon": 1.01},
    ],
)
def test_verify_refuses_another_rule(book: Ledger, fields: dict[str, Any]) -> None:
    book.charge("icu", FULL)
    book.raise_budget("icu", 3.0)

    def change(number: int, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "filter": {**body["filter"], **fields}} if body["kind"] == "raise" else body

    verify_entries(_forged(book, lambda _, body: body))
    with pytest.raises(Corrupt, match=r"Entry 4 of the ledger (raises the budget|cannot be understood)"):
        verify_entries(_forged(book, change))


def test_verify_refuses_what_the_budget_of_its_time_did_not_admit(book: Ledger) -> None:
    """A charge that only the raised budget admits, put before the raise."""
    book.charge("icu", Gdp(0.1))
    book.raise_budget("icu", 3.0)
    book.charge("icu", Gdp(0.4))
    entries = book.entries()
    swapped = [*entries[:3], Entry(4, {**entries[4].body, "rule": "renyi"}, "a"), Entry(5, entries[3].body, "b")]
    with pytest.raises(Corrupt, match="exceeds the budget of 'icu'"):
        verify_entries(swapped)
    renamed = [*entries[:4], Entry(5, {**entries[4].body, "rule": "renyi"}, "a")]
    with pytest.raises(Corrupt, match="exceeds the budget of 'icu'"):
        verify_entries(renamed)


def test_a_ledger_with_a_raise_is_of_another_version(book: Ledger) -> None:
    """Programs that know no odometer refuse it instead of admitting charges under a filter that is none."""

    def version() -> int:
        with contextlib.closing(sqlite3.connect(book.path)) as database:
            return int(database.execute("PRAGMA user_version").fetchone()[0])

    book.charge("icu", Gdp(0.1))
    assert version() == 2
    book.raise_budget("icu", 2.0)
    assert version() == 3
    Ledger.rebuild(book.path)
    assert version() == 3
    book.verify()
    assert book.charge("icu", Gdp(0.1)).rule == "odometer"


def test_a_charge_opens_a_new_data_set_or_leaves_nothing(book: Ledger) -> None:
    with pytest.raises(BudgetExceeded):
        book.charge("new", PureDp(2.0), opening=(1.0, 1e-5))
    assert not book.knows("new")
    assert book.charge("new", PureDp(1.0), opening=(1.0, 1e-5)).rule == "fixed"
    assert book.status("new").epsilon == 1.0
    with pytest.raises(BudgetExceeded):  # the budget of the first one holds
        book.charge("new", PureDp(1.0), opening=(50.0, 1e-5))
    book.verify()


def test_of_several_runs_at_once_one_opens_the_data_set(book: Ledger) -> None:
    """Its budget holds for all: each of them alone would have fitted the budget that it brought."""
    barrier = threading.Barrier(6)

    def go(number: int) -> str:
        barrier.wait(60)
        try:
            return Ledger(book.path).charge("new", FULL, f"run {number}", opening=(1.0 + number / 100, 1e-5)).rule
        except BudgetExceeded:
            return "refused"

    with ThreadPoolExecutor(6) as pool:
        said = sorted(pool.map(go, range(6)))
    assert said == ["fixed", *["refused"] * 5]
    assert book.status("new").charges == 1
    book.verify()
