"""A damaged or edited ledger: whatever is changed in its file is noticed, or changes nothing that anybody is told."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dptune.accounting import Gdp
from dptune.cli import main
from dptune.errors import BudgetExceeded, Corrupt, DptuneError, InvalidInput
from dptune.ledgers import Ledger, _chain


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the waiting for the disk, which hundreds of copies do not need."""
    connect = _chain.connect

    def quick(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    monkeypatch.setattr(_chain, "connect", quick)


def _full(path: Path) -> Ledger:
    """A ledger with one data set that is nearly used up, one with room, and a charge that a run claimed."""
    book = Ledger.create(path)
    book.add("icu", 1.0, 1e-5)
    book.add("ward", 3.0, 1e-5)
    for number in range(4):
        book.charge("icu", Gdp(0.1), charge=f"c{number}")
    book.charge("ward", Gdp(0.1), charge="early")
    book.claim("early", "run-1", "ward", Gdp(0.1))
    book.add("night", 0.5, 1e-5)
    book.charge("night", Gdp(0.1), charge="n0")
    book.raise_budget("night", 2.0)
    book.charge("night", Gdp(0.2), charge="n1")
    return book


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        yield database


TRIGGER = "CREATE TRIGGER t BEFORE INSERT ON {} BEGIN SELECT RAISE(IGNORE); END"


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "statement",
    [
        TRIGGER.format("entries"),
        TRIGGER.format("state"),
        "CREATE VIEW v AS SELECT * FROM entries",
        "CREATE TABLE other (x)",
        "CREATE INDEX i ON entries (hash)",
        "CREATE UNIQUE INDEX i ON entries (hash)",
        "ALTER TABLE entries ADD COLUMN dataset TEXT",
        "PRAGMA user_version=2",  # which knows no raise
        "PRAGMA user_version=4",
        "PRAGMA application_id=1",
        "PRAGMA journal_mode=WAL",
        "DROP TABLE state",
        "DELETE FROM state",
        "DELETE FROM state WHERE node = 0",
        "UPDATE state SET content = replace(content, '\"number\":13', '\"number\":12') WHERE node = 0",
    ],
)
def test_what_does_not_belong_there_stops_every_use(tmp_path: Path, statement: str) -> None:
    """A trigger once swallowed 100 of 100 charges; whatever it would do, it is noticed before anything is read."""
    book = _full(tmp_path / "x.ledger")
    with _edit(book.path) as database:
        database.execute(statement)
    uses: list[Callable[[], object]] = [
        book.verify,
        book.datasets,
        book.charges,
        lambda: book.charge("ward", Gdp(0.1)),
        lambda: book.add("more", 1.0, 1e-5),
        lambda: book.paid("c1", "c1"),
        lambda: Ledger(book.path),
    ]
    for use in uses:
        with pytest.raises(Corrupt, match=r"x\.ledger") as caught:
            use()
        assert "\n" not in str(caught.value)


def _nodes(path: Path) -> list[int]:
    with _edit(path) as database:
        return [row[0] for row in database.execute("SELECT node FROM state WHERE node > 0")]


@pytest.mark.usefixtures("fast")
def test_an_edited_budget_or_sum_is_not_read(tmp_path: Path) -> None:
    """Whatever is changed in the state, an exhausted budget stays exhausted."""
    original = _full(tmp_path / "x.ledger")
    edits = [
        "UPDATE state SET content = replace(content, '\"charges\":4', '\"charges\":0') WHERE node = {}",
        "UPDATE state SET content = '{{}}' WHERE node = {}",
        "DELETE FROM state WHERE node = {}",
        "UPDATE state SET content = CAST(content AS BLOB) WHERE node = {}",
    ]
    for number, node in enumerate(_nodes(original.path)):
        for edit in edits:
            copy = tmp_path / f"{number}-{edits.index(edit)}.ledger"
            shutil.copy(original.path, copy)
            shutil.copy(f"{original.path}.key", f"{copy}.key")
            with _edit(copy) as database:
                before = database.execute("SELECT content FROM state WHERE node = ?", (node,)).fetchone()
                database.execute(edit.format(node))
                after = database.execute("SELECT content FROM state WHERE node = ?", (node,)).fetchone()
            with pytest.raises((BudgetExceeded, Corrupt)):
                Ledger(copy).charge("icu", Gdp(0.2))
            if before != after:
                with pytest.raises(Corrupt):
                    Ledger(copy).verify()


def test_entries_alone_cannot_be_rolled_back(tmp_path: Path) -> None:
    book = _full(tmp_path / "x.ledger")
    with _edit(book.path) as database:
        database.execute("DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)")
    for use in (book.verify, book.charges, lambda: book.head):
        with pytest.raises(Corrupt, match="was changed"):
            use()
    with pytest.raises(Corrupt, match="was changed"):
        Ledger.rebuild(book.path)


def test_a_write_that_is_swallowed_is_noticed_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = _full(tmp_path / "x.ledger")
    connect = _chain.connect

    def swallowing(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("CREATE TEMP TRIGGER t BEFORE INSERT ON main.entries BEGIN SELECT RAISE(IGNORE); END")
        return connection

    head = book.head
    with monkeypatch.context() as patch:
        patch.setattr(_chain, "connect", swallowing)
        with pytest.raises(Corrupt):
            book.charge("ward", Gdp(0.1))
    assert book.verify() == head


def test_a_commit_that_is_lost_is_noticed_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that drops writes: what is read back through a new connection is the old file."""
    book = _full(tmp_path / "x.ledger")
    old, connect, opened = book.path.read_bytes(), _chain.connect, []

    def dropping(path: Path) -> sqlite3.Connection:
        opened.append(path)
        if len(opened) == 3:  # the first reads the budget, the second charges, the third reads back
            path.write_bytes(old)
        return connect(path)

    monkeypatch.setattr(_chain, "connect", dropping)
    with pytest.raises(Corrupt, match="does not hold what was just written"):
        book.charge("ward", Gdp(0.1))
    assert len(opened) == 3


def test_the_key_is_needed_to_charge_and_not_to_look(tmp_path: Path) -> None:
    book = _full(tmp_path / "x.ledger")
    key, head = Path(f"{book.path}.key"), book.head
    kept = key.read_bytes()
    assert key.stat().st_mode & 0o777 == book.path.stat().st_mode & 0o777 == 0o600
    key.unlink()
    assert book.verify() == head
    assert not book.has_key
    with pytest.raises(Corrupt, match="has no key"):
        book.charge("ward", Gdp(0.1))
    key.write_bytes(bytes(32))
    for use in (book.verify, book.charges, lambda: book.charge("ward", Gdp(0.1))):
        with pytest.raises(Corrupt, match="key beside the ledger"):
            use()
    key.write_bytes(kept)
    book.charge("ward", Gdp(0.1))
    assert book.has_key
    book.verify()


def _try(use: Callable[[], object]) -> object:
    """What a use says; damage that was noticed is None."""
    try:
        return use()
    except (BudgetExceeded, InvalidInput) as error:
        return str(error)
    except DptuneError as error:
        return "several lines" if "\n" in str(error) else None


def _told(path: Path) -> list[object]:
    """Everything that a ledger says and admits; the last two write."""

    def rule(dataset: str, mu: float, name: str) -> object:
        receipt = Ledger(path).charge(dataset, Gdp(mu), name)
        return receipt.rule, receipt.number, name == "c1" and receipt.head

    uses: list[Callable[[], object]] = [
        lambda: Ledger(path).verify(),
        lambda: (Ledger(path).charges(), Ledger(path).head),
        lambda: Ledger(path).datasets(),
        lambda: Ledger(path).paid("early", "run-1"),
        lambda: Ledger(path).claim("early", "run-2", "ward", Gdp(0.1)),  # was used
        lambda: rule("icu", 0.1, "c1"),  # the first receipt
        lambda: rule("icu", 0.2, "new"),  # refused by the budget
        lambda: rule("ward", 0.1, "new"),
        lambda: rule("night", 0.2, "n1"),  # admitted after a raise
        lambda: rule("night", 1.0, "more"),  # refused by the raised budget
        lambda: Ledger(path).terms("night"),
        lambda: Ledger(path).terms("ward"),
    ]
    return [_try(use) for use in uses]


@pytest.mark.parametrize("flips", [60, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("fast")
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, flips: int) -> None:
    original = _full(tmp_path / "x.ledger")
    content = original.path.read_bytes()
    copy = tmp_path / "copy.ledger"
    key = Path(f"{original.path}.key").read_bytes()
    Path(f"{copy}.key").write_bytes(key)
    copy.write_bytes(content)
    expected = _told(copy)
    assert None not in expected
    chance = random.Random(20)
    noticed = 0
    for bit in [chance.randrange(8 * len(content)) for _ in range(flips)]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        Path(f"{copy}-journal").unlink(missing_ok=True)
        copy.write_bytes(damaged)
        for number, (said, true) in enumerate(zip(_told(copy), expected, strict=True)):
            assert said is None or said == true, f"bit {bit} of byte {bit // 8}: use {number}"
            noticed += number == 0 and said is None
    assert noticed > flips // 4  # most of the rest are in parts of pages that hold nothing


@pytest.mark.parametrize("flips", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("fast")
def test_a_flipped_bit_in_the_journal_of_a_killed_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flips: int
) -> None:
    """Cut off in the middle of a commit, then damaged: what is told is the old state, or the damage."""
    book = _full(tmp_path / "x.ledger")
    expected = {"old": _listed(book.path)}
    connect = _chain.connect

    def spilling(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA cache_size=1")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(_chain, "connect", spilling)
        with contextlib.suppress(KeyboardInterrupt), book._chain.transaction(write=True) as chain:
            body = {**chain.last().body, "run": "cut off"}
            for number in range(3):
                chain.append({**body, "claimed": f"c{number}", "kind": "claim"})
            half, journal = book.path.read_bytes(), Path(f"{book.path}-journal").read_bytes()
            raise KeyboardInterrupt
    assert len(journal) > 4096
    chance = random.Random(21)
    copy = tmp_path / "copy.ledger"
    Path(f"{copy}.key").write_bytes(Path(f"{book.path}.key").read_bytes())
    for bit in [None, *(chance.randrange(8 * len(journal)) for _ in range(flips))]:
        damaged = bytearray(journal)
        if bit is not None:
            damaged[bit // 8] ^= 1 << bit % 8
        copy.write_bytes(half)
        Path(f"{copy}-journal").write_bytes(damaged)
        said = _try(lambda: _listed(copy))
        assert said == expected["old"] or (bit is not None and said is None), f"bit {bit}"


def _listed(path: Path) -> object:
    book = Ledger(path)
    return book.charges(), book.datasets(), book.verify()


def test_damage_is_one_line_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = _full(tmp_path / "x.ledger")
    with _edit(book.path) as database:
        database.execute("UPDATE entries SET body = CAST(x'ff' AS TEXT) WHERE number = 3")
    for command in ("show", "verify"):
        assert main(["ledger", command, str(book.path)]) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert said.out == ""


FIRST_VERSION = """
CREATE TABLE IF NOT EXISTS entries (
  number INTEGER PRIMARY KEY, dataset TEXT, charge TEXT, body TEXT NOT NULL, hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_dataset ON entries (dataset, number);
CREATE INDEX IF NOT EXISTS by_charge ON entries (charge);
"""


def _first_version(path: Path, book: Ledger) -> None:
    """The same entries in a file as the first version wrote it."""
    with _edit(book.path) as new, _edit(path) as old:
        old.execute("PRAGMA journal_mode=WAL")
        old.executescript(FIRST_VERSION)
        for entry, (body,) in zip(book.entries(), new.execute("SELECT body FROM entries"), strict=True):
            names = entry.body.get("dataset"), entry.body.get("charge")
            old.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (entry.number, *names, body, entry.hash))


def test_a_ledger_of_the_first_version_is_refused_and_can_be_rebuilt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, path = _full(tmp_path / "x.ledger"), tmp_path / "old.ledger"
    _first_version(path, book)
    assert main(["ledger", "show", str(path)]) == 2
    assert "dptune ledger rebuild" in capsys.readouterr().err
    assert main(["ledger", "rebuild", str(path)]) == 0
    new = Ledger(path)
    assert new.charges() == book.charges()
    assert new.datasets() == book.datasets()
    new.verify(book.head)  # the statements of before still hold
    assert [entry.body["kind"] for entry in new.entries()][-1] == "rebuilt"
    with pytest.raises(BudgetExceeded):
        new.charge("icu", Gdp(0.2))


def test_the_columns_of_the_first_version_are_compared_with_the_bodies(tmp_path: Path) -> None:
    """After an UPDATE of the column that admission read, 18 more charges fitted a budget that was used up."""
    book, path = _full(tmp_path / "x.ledger"), tmp_path / "old.ledger"
    _first_version(path, book)
    with _edit(path) as database:
        database.execute("UPDATE entries SET dataset = 'gone' WHERE number > 3")
    with pytest.raises(Corrupt, match="columns of entry 4"):
        Ledger.rebuild(path)


def test_a_lost_state_or_key_is_rebuilt_from_the_entries(tmp_path: Path) -> None:
    book = _full(tmp_path / "x.ledger")
    before = book.charges()
    with _edit(book.path) as database:
        database.execute("UPDATE state SET content = 'x'")
    with pytest.raises(Corrupt):
        book.charges()
    kept = Ledger.rebuild(book.path)
    assert kept.is_file()
    assert book.charges() == before
    Path(f"{book.path}.key").unlink()
    Ledger.rebuild(book.path)
    book.verify()
    book.charge("ward", Gdp(0.1))
