"""The ledger: admission, refusal, hash chain, several processes at once, damage."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dptune.accounting import DpSgd, Gdp, Geometric, PureDp, select
from dptune.errors import BudgetExceeded, Corrupt, DptuneError, InvalidInput
from dptune.ledgers import Ledger, _chain


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "hospital.ledger")
    book.add("icu", 3.0, 1e-5)
    return book


def test_a_charge_is_there_once_and_covers_its_cost(ledger: Ledger) -> None:
    cost = select(DpSgd(0.01, 2.0, 200), Geometric(5))
    receipt = ledger.charge("icu", cost, charge="run-1")
    assert ledger.charge("icu", cost, charge="run-1") == receipt
    status = ledger.status("icu")
    assert status.charges == 1
    assert cost.epsilon(1e-5) <= status.spent <= 3.0
    assert 0 < status.left < 3.0
    assert Ledger(ledger.path).head == receipt.head == ledger.verify()


def test_the_first_charge_may_use_the_whole_budget_by_exact_composition(ledger: Ledger) -> None:
    low, high = 0.1, 3.0
    for _ in range(30):
        mu = (low + high) / 2
        low, high = (mu, high) if Gdp(mu).epsilon(1e-5) <= 3.0 else (low, mu)
    receipt = ledger.charge("icu", Gdp(low))
    assert receipt.rule == "fixed"
    status = ledger.status("icu")
    assert status.spent == pytest.approx(3.0, abs=1e-6)
    assert status.left == 0.0
    with pytest.raises(BudgetExceeded, match="leaves nothing for later ones"):
        ledger.charge("icu", PureDp(0.001))
    ledger.verify()


def test_charges_fixed_together_compose_exactly_and_later_ones_do_not(ledger: Ledger) -> None:
    receipt = ledger.charge("icu", [Gdp(0.4), Gdp(0.4), Gdp(0.4)])
    assert receipt.rule == "fixed"  # 0.69-GDP: epsilon 2.87, more than the filter admits
    other = Ledger.create(ledger.path.with_name("other.ledger"))
    other.add("icu", 3.0, 1e-5)
    assert [other.charge("icu", Gdp(0.4)).rule for _ in range(2)] == ["renyi", "renyi"]
    with pytest.raises(BudgetExceeded):
        other.charge("icu", Gdp(0.4))


def test_a_refusal_does_not_contradict_itself(ledger: Ledger) -> None:
    """A charge that is refused may have a smaller epsilon than a Gaussian one that would be admitted."""
    ledger.add("wide", 10.0, 1e-5)
    ledger.charge("wide", Gdp(0.95))
    left = ledger.status("wide").left
    refused = PureDp(0.999 * left)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge("wide", refused)
    said = str(caught.value)
    assert "largest Gaussian" not in said
    assert "with this one they would cost about 1" in said
    with_it = float(said.partition("would cost about ")[2].split()[0].rstrip("."))
    assert with_it > 10.0


def test_a_single_charge_costs_what_it_costs_alone(ledger: Ledger) -> None:
    cost = Gdp(0.5)
    assert ledger.charge("icu", cost).rule == "renyi"
    assert ledger.status("icu").spent == pytest.approx(cost.epsilon(1e-5))
    assert ledger.charges()[0].epsilon == pytest.approx(cost.epsilon(1e-5))
    ledger.charge("icu", Gdp(0.05))
    assert ledger.status("icu").spent > cost.epsilon(1e-5)


def test_a_refusal_says_what_is_left_and_changes_nothing(ledger: Ledger) -> None:
    ledger.charge("icu", Gdp(0.4))
    head = ledger.head
    with pytest.raises(
        BudgetExceeded,
        match=r"epsilon 4\.3.*'icu' \(epsilon 3.*together cost 1\.\d+, with this one they would "
        r"cost about [4-9]\.\d+\. The largest Gaussian charge that would still be admitted is 1\.\d+",
    ):
        ledger.charge("icu", Gdp(1.0))
    assert ledger.head == head
    # What it says is left is really admitted.
    left = ledger.status("icu").left
    low, high = 0.01, 1.0
    for _ in range(30):
        mu = (low + high) / 2
        low, high = (mu, high) if Gdp(mu).epsilon(1e-5) < 0.999 * left else (low, mu)
    ledger.charge("icu", Gdp(low))
    ledger.verify()


def test_budgets_are_given_once_to_known_names(ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match="already"):
        ledger.add("icu", 9.0, 1e-5)
    with pytest.raises(InvalidInput, match=r"no data set 'icu2' .*known: icu"):
        ledger.charge("icu2", Gdp(0.1))
    with pytest.raises(InvalidInput, match="no ledger"):
        Ledger(ledger.path.with_name("none.ledger"))
    with pytest.raises(InvalidInput, match="delta"):
        ledger.add("x", 1.0, 0.0)
    ledger.charge("icu", Gdp(0.1), charge="a")
    with pytest.raises(Corrupt, match="other costs"):
        ledger.charge("icu", Gdp(0.2), charge="a")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET body = replace(body, '\"icu\"', '\"ICU\"') WHERE number = 2",
        "DELETE FROM entries WHERE number = 3",
        "UPDATE entries SET hash = iif(hash LIKE 'f%', 'e', 'f') || substr(hash, 2) WHERE number = 4",
        "UPDATE entries SET number = 9 WHERE number = 4",
    ],
)
def test_a_changed_entry_shows(ledger: Ledger, damage: str) -> None:
    for _ in range(3):
        ledger.charge("icu", Gdp(0.1))
    with sqlite3.connect(ledger.path) as database:
        assert database.execute(damage).rowcount == 1
    database.close()
    with pytest.raises(Corrupt):
        ledger.verify()


def test_a_consistent_but_lying_entry_shows(ledger: Ledger) -> None:
    """Somebody who rewrites the whole chain still has to charge what the cost says."""
    ledger.charge("icu", Gdp(0.1))
    with ledger._chain.transaction(write=True) as chain:
        body = dict(chain.all()[-1].body)
        body |= {"charge": "x", "curve": {"values": [1e-6] * len(body["curve"]["values"]), "infinite": 0.0}}
        chain.append(body)
    with pytest.raises(Corrupt, match="less than its cost"):
        ledger.verify()


def test_a_rolled_back_ledger_shows(ledger: Ledger) -> None:
    early = ledger.path.read_bytes()
    receipt = ledger.charge("icu", Gdp(0.1))
    ledger.verify(receipt.head)
    ledger.path.write_bytes(early)
    with pytest.raises(Corrupt, match="rolled back"):
        ledger.verify(receipt.head)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 300])
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ledger"
    path.write_bytes(content)
    with pytest.raises(DptuneError, match=r"x\.ledger") as caught:
        Ledger(path)
    assert "\n" not in str(caught.value)


def test_a_full_disk_charges_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself says that the disk is full; the ledger stays as it was."""
    connect = _chain.connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count=1")
        return connection

    ledger.charge("icu", Gdp(0.1))
    head = ledger.head
    monkeypatch.setattr(_chain, "connect", small)
    with pytest.raises(DptuneError, match=r"full.*free some space"):
        ledger.charge("icu", [Gdp(0.001 + 1e-6 * k) for k in range(100)])  # more than one page
    monkeypatch.undo()
    assert ledger.verify() == ledger.head == head
    assert ledger.status("icu").charges == 1


CHARGER = textwrap.dedent("""
    import json, sys
    from dptune.accounting import Gdp
    from dptune.errors import BudgetExceeded
    from dptune.ledgers import Ledger
    path, who, count, mu = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    ledger, done = Ledger(path), []
    for number in range(count):
        try:
            done.append(ledger.charge("icu", Gdp(mu), charge=f"{who}-{number}").charge)
        except BudgetExceeded:
            pass
    print(json.dumps(done))
""")


def _two_processes(path: Path, count: int, mu: float) -> list[list[str]]:
    command = [sys.executable, "-c", CHARGER, str(path)]
    both = [subprocess.Popen([*command, who, str(count), str(mu)], stdout=subprocess.PIPE) for who in "ab"]
    return [json.loads(one.communicate()[0]) for one in both]


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_two_processes_charge_one_ledger(tmp_path: Path, count: int) -> None:
    """Every charge that was confirmed is there, once; the budget is never exceeded."""
    ledger = Ledger.create(tmp_path / "shared.ledger")
    ledger.add("icu", 3.0, 1e-5)
    mu = 0.9 * 0.63 / (2 * count) ** 0.5  # all of them fit
    done = _two_processes(ledger.path, count, mu)
    assert [len(one) for one in done] == [count, count]
    names = [entry.body["charge"] for entry in ledger.entries() if entry.body["kind"] == "charge"]
    assert sorted(names) == sorted(done[0] + done[1])
    assert len(set(names)) == 2 * count
    ledger.verify()


MANY = textwrap.dedent("""
    import collections, json, os, sys
    from dptune.accounting import Gdp
    from dptune.errors import BudgetExceeded
    from dptune.ledgers import Ledger
    from dptune.accounting.filter import Filter
    path, mu = sys.argv[1], float(sys.argv[2])
    Filter.of(3.0, 1e-5).curve(Gdp(mu))  # once for all
    Gdp(mu).epsilon(1e-5)
    ready, go = os.pipe()
    results, result = os.pipe()
    for who in range(20):
        if os.fork() == 0:
            os.close(go)
            os.read(ready, 1)  # returns when the parent closes its end: all start at once
            for number in range(5):
                try:
                    Ledger.create(path).charge("icu", Gdp(mu), f"{who}-{number}")
                    said = "admitted"
                except BudgetExceeded:
                    said = "refused"
                except BaseException as error:
                    said = repr(error).replace("\\n", " ")[:200]
                os.write(result, (said + "\\n").encode())
            os._exit(0)
    os.close(go)
    os.close(result)
    with os.fdopen(results) as stream:
        print(json.dumps(collections.Counter(line.strip() for line in stream)))
""")


@pytest.mark.parametrize(("mu", "fit"), [(0.02, 100), (0.1, None)])
def test_twenty_processes_lose_no_charge_to_a_lock(tmp_path: Path, mu: float, fit: int | None) -> None:
    """Each of 100 charges is admitted or refused by the budget, whoever else is writing."""
    ledger = Ledger.create(tmp_path / "shared.ledger")
    ledger.add("icu", 3.0, 1e-5)
    done = subprocess.run([sys.executable, "-c", MANY, str(ledger.path), str(mu)], stdout=subprocess.PIPE, check=True)
    said = json.loads(done.stdout)
    assert set(said) <= {"admitted", "refused"}
    assert sum(said.values()) == 100
    assert said["admitted"] == ledger.status("icu").charges == len(ledger.charges())
    assert fit is None or said["admitted"] == fit
    assert Gdp(mu * said["admitted"] ** 0.5).epsilon(1e-5) <= 3.0
    ledger.verify()


def test_several_processes_may_make_one_ledger(tmp_path: Path) -> None:
    """All of them end up with the same file and the same key."""
    path = tmp_path / "new.ledger"
    script = "import sys; from dptune.ledgers import Ledger; print(Ledger.create(sys.argv[1]).head)"
    command = [sys.executable, "-c", script, str(path)]
    several = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    heads = {one.communicate()[0] for one in several}
    assert heads == {f"{Ledger(path).verify()}\n".encode()}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new.ledger", "new.ledger.key"]


def test_two_processes_stop_at_the_budget(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "shared.ledger")
    ledger.add("icu", 3.0, 1e-5)
    mu = 0.1
    done = _two_processes(ledger.path, 30, mu)
    names = [entry.body["charge"] for entry in ledger.entries() if entry.body["kind"] == "charge"]
    assert sorted(names) == sorted(done[0] + done[1])
    assert 35 < len(names) < 60
    assert Gdp(mu * len(names) ** 0.5).epsilon(1e-5) <= 3.0
    ledger.verify()
