"""The ledger's file: a table of entries in which every entry's hash covers the one before it, and the sealed state.

An entry is a JSON object. This module appends, reads back and checks; what entries mean is ``ledger.py``'s business.
Entries are never changed or removed. A transaction reads only what the seal covers, in a file that has exactly the
tables made here: no trigger, view, index or column of others. Making, reading, checking and rebuilding the file stay
together, so that its format is said once.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dptune._files import storage_errors, sync_folder, write_durable
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.ledgers import _state
from dptune.ledgers.entries import RAISES, START, Entry, digest, record

__all__ = ["Chain", "Entry", "connect", "ledger_key"]

_APPLICATION = 0x64707475  # "dptu"
_VERSION = 2
_RAISED_VERSION = 3  # of a file with a raise: programs that know no odometer must not charge it
_TABLE = "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)"
_SCHEMA = [("table", "entries", "entries", _TABLE), ("table", "state", "state", _state.SCHEMA)]
_FIRST_VERSION = [
    ("index", "by_charge", "entries", "CREATE INDEX by_charge ON entries (charge)"),
    ("index", "by_dataset", "entries", "CREATE INDEX by_dataset ON entries (dataset, number)"),
    (
        "table",
        "entries",
        "entries",
        "CREATE TABLE entries (\n"
        "  number INTEGER PRIMARY KEY, dataset TEXT, charge TEXT, body TEXT NOT NULL, hash TEXT NOT NULL)",
    ),
]
_PATIENCE = 600.0  # seconds that a process waits for the others
_KEY_BYTES = 32


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there; commits are on the disk when they return.

    A rollback journal, not a write-ahead log: SQLite ignores a damaged log from the first wrong byte on, and with it
    charges that were committed. Waiting for other processes is SQLite's own, at every lock that is taken.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
    )
    try:
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _key_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".key")


def ledger_key(ledger: Path) -> bytes:
    """The key beside a ledger: it seals the ledger and hashes records. Made with the ledger, and never again.

    Args:
        ledger: the ledger's file.

    Returns:
        The key, which must never be printed or copied beside a release.

    Raises:
        Corrupt: the key is not there, or damaged.

    Example:
        >>> from dptune.ledgers import Ledger
        >>> len(ledger_key(Ledger.create("hospital.ledger").path))
        32
    """
    path = _key_path(ledger)
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        raise Corrupt(
            f"The ledger {ledger.name} has no key: {path.name} is not beside it. Restore it from a backup."
        ) from None
    except OSError as error:
        raise DptuneError(f"The ledger's key {path.name} cannot be read ({error.strerror or error}).") from None
    if not 16 <= len(key) <= 64:
        raise Corrupt(f"The ledger's key {path.name} is damaged. Restore it from a backup.")
    return key


def make_key(ledger: Path) -> bytes:
    """The key for a ledger that is being made; of several processes that make one, all get the same."""
    path = _key_path(ledger)
    if not path.exists():
        mine = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        write_durable(mine, secrets.token_bytes(_KEY_BYTES))
        _publish(mine, path)
    return ledger_key(ledger)


def _publish(built: Path, path: Path) -> bool:
    """Give a finished file its name, unless another process was first."""
    try:
        os.link(built, path)
        return True
    except FileExistsError:
        return False
    finally:
        built.unlink(missing_ok=True)
        sync_folder(path.parent)


class Transaction:
    """The chain and its state until the end of the ``with`` block that made it."""

    def __init__(self, connection: sqlite3.Connection, what: str, key: bytes | None) -> None:
        self._connection, self._what = connection, what
        self.state = _state.State(connection, what, key)
        self.appended: list[Entry] = []

    def _broken(self, number: int) -> Corrupt:
        return Corrupt(
            f"{self._what} was changed: entry {number} does not follow from the one before it. "
            "Restore it from a backup and compare its head with the one in the last statement."
        )

    def entry(self, number: int, expected: str) -> Entry:
        """An entry whose hash is known from the state."""
        query = "SELECT number, body, hash FROM entries WHERE number IN (?, ?) ORDER BY number"
        rows = list(self._connection.execute(query, (number - 1, number)))
        if not rows or rows[-1][0] != number:
            raise self._broken(number)
        previous = START if number == 1 else rows[0][2]
        body = rows[-1][1]
        if not isinstance(body, str) or digest(str(previous), number, body) != expected:
            raise self._broken(number)
        return Entry(number, json.loads(body), expected)

    def last(self) -> Entry:
        """The newest entry."""
        return self.entry(self.state.number, self.state.head)

    def all(self) -> list[Entry]:
        """Every entry in order, each checked against the one before and the last against the state."""
        query = "SELECT number, body, hash FROM entries ORDER BY number"
        entries = chained(self._connection.execute(query), self._broken)
        if len(entries) != self.state.number or entries[-1].hash != self.state.head:
            raise self._broken(min(len(entries), self.state.number) + 1)
        return entries

    def append(self, body: dict[str, Any]) -> Entry:
        """Add an entry after the newest one and bring the state up to date."""
        entry = self._insert(body)
        self.state.save(entry.number, entry.hash)
        self.appended.append(entry)
        return entry

    def keep(self, entry: Entry) -> None:
        """Add an entry of another file as it is; the state is written with the first entry that is appended."""
        if self._insert(entry.body) != entry:
            raise self._broken(entry.number)

    def _insert(self, body: dict[str, Any]) -> Entry:
        number = self.state.number + 1
        text = json.dumps(body, sort_keys=True)
        entry = Entry(number, json.loads(text), digest(self.state.head or START, number, text))
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, entry.hash))
        if body["kind"] == "raise":
            self._connection.execute(f"PRAGMA user_version={_RAISED_VERSION}")
        record(self.state, entry)
        self.state.number, self.state.head = number, entry.hash
        return entry


def _schema(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"), key=repr)


def chained(rows: Iterable[Any], broken: Callable[[int], Corrupt]) -> list[Entry]:
    """Entries from rows, each of which must follow from the one before."""
    entries, previous = [], START
    for place, (number, body, stored) in enumerate(rows, 1):
        if number != place or not isinstance(body, str) or digest(previous, number, body) != stored:
            raise broken(place)
        previous = stored
        entries.append(Entry(number, json.loads(body), stored))
    return entries


@dataclass(frozen=True)
class Chain:
    """The file. Every use opens it anew, so processes may come, go and be killed."""

    path: Path

    @property
    def _what(self) -> str:
        return f"The ledger {self.path.name}"

    @property
    def key(self) -> bytes | None:
        """The key, or None where there is none or it may not be read: enough to show and verify, not to charge."""
        try:
            return ledger_key(self.path)
        except DptuneError:
            if _key_path(self.path).exists() and os.access(_key_path(self.path), os.R_OK):
                raise
            return None

    def create(self, *bodies: dict[str, Any]) -> bool:
        """Make the file with these entries, complete when it appears; False if it was there already."""
        with self._errors():
            return _publish(self.build(make_key(self.path), bodies), self.path)

    def build(self, key: bytes, bodies: Sequence[dict[str, Any]], entries: Sequence[Entry] = ()) -> Path:
        """A complete file beside this one, with entries that are kept as they are and new ones after them."""
        path = self.path.with_name(f".{self.path.name}-{secrets.token_hex(4)}")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        path.chmod(0o600)  # whatever the umask
        with contextlib.closing(connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for _, _, _, statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={_VERSION}")
            chain = Transaction(connection, self._what, key)
            for entry in entries:
                chain.keep(entry)
            for body in bodies:
                chain.append(body)
            connection.execute("COMMIT")
        return path

    @contextlib.contextmanager
    def transaction(self, write: bool = False) -> Iterator[Transaction]:
        """All or nothing; durable, and read back, when the block has been left."""
        key = ledger_key(self.path) if write else self.key
        with self._errors(), contextlib.closing(connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                version = self._check_schema(connection)
                chain = Transaction(connection, self._what, key)
                if (version == _RAISED_VERSION) != (RAISES in chain.state):
                    raise self._foreign()
                if chain.state.number == 0:
                    raise Corrupt(f"{self._what} is empty. Restore it from a backup, or use a new name.")
                yield chain
                for entry in chain.appended:  # a write that was swallowed must not be committed as if it were there
                    chain.entry(entry.number, entry.hash)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        self._read_back(chain.appended)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with storage_errors(self._what):
                yield
        except MemoryError:  # how SQLite answers to some damaged lengths
            raise Corrupt(f"{self._what} cannot be read. Restore it from a backup.") from None

    def _read_back(self, entries: Sequence[Entry]) -> None:
        """Read what was committed through a new connection: training starts on what is in the file."""
        if not entries:
            return
        try:
            with self.transaction() as chain:
                for entry in entries:
                    chain.entry(entry.number, entry.hash)
                if chain.state.number < entries[-1].number:
                    raise Corrupt("")
        except Corrupt:
            raise Corrupt(
                f"{self._what} does not hold what was just written to it. Nothing was trained; check the disk, then "
                f"'dptune ledger verify {self.path}'."
            ) from None

    def _check_schema(self, connection: sqlite3.Connection) -> int:
        """The file must be a ledger of a known version, which is returned, with nothing in it that others put there."""
        found = _schema(connection)
        marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found == _FIRST_VERSION and marks == [0, 0]:
            raise InvalidInput(
                f"{self._what} was made by an older version. Bring it up to date with 'dptune ledger rebuild "
                f"{self.path}', which checks and keeps every entry."
            )
        if not found:
            raise Corrupt(f"{self._what} is empty. Restore it from a backup, or use a new name.")
        extra = [f"{kind} {name!r}" for kind, name, *_ in found if name not in ("entries", "state")]
        if extra:
            raise Corrupt(
                f"{self._what} was changed: it has a {extra[0]} that does not belong there. Restore it from a backup."
            )
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        known = marks in ([_APPLICATION, _VERSION], [_APPLICATION, _RAISED_VERSION])
        if found != _SCHEMA or not known or journal != "delete":
            raise self._foreign()
        return int(marks[1])

    def _foreign(self) -> Corrupt:
        return Corrupt(
            f"{self._what} was changed, or made by a newer version: its tables are not those of a ledger. Restore it "
            "from a backup."
        )

    def check(self) -> tuple[list[Entry], dict[str, Any]]:
        """Every entry and the whole state, or :class:`Corrupt` if anything was changed, removed or put in."""
        with self.transaction() as chain:
            self._check_pages(chain._connection)
            return chain.all(), chain.state.everything()

    def _check_pages(self, connection: sqlite3.Connection) -> None:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise Corrupt(f"{self._what} is damaged ({' '.join(str(found[0]).split())}). Restore it from a backup.")

    def rebuild(self, judge: Callable[[list[Entry]], dict[str, Any]]) -> Path:
        """Make the file anew from its entries alone, as a ledger of this version, and keep the old one beside it.

        For a file of the first version, or one whose state or key is lost. ``judge`` refuses entries that do not hold,
        and gives the entry that tells of the rebuilding. Whoever was waiting to write to the old file notices when
        reading back.
        """
        kept = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.old")
        with self._errors(), contextlib.closing(connect(self.path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            entries = self._salvage(connection)
            body = judge(entries)
            built = self.build(make_key(self.path), [body], entries)
            os.link(self.path, kept)
            built.replace(self.path)
            sync_folder(self.path.parent)
        return kept

    def _salvage(self, connection: sqlite3.Connection) -> list[Entry]:
        """The entries of a file of either version, checked as far as that is possible without key and state."""
        schema = _schema(connection)
        if schema == _FIRST_VERSION:
            self._check_columns(connection)
        elif schema != _SCHEMA:
            self._check_schema(connection)

        def broken(number: int) -> Corrupt:
            return Corrupt(f"{self._what} was changed at entry {number}. Restore it from a backup.")

        entries = chained(connection.execute("SELECT number, body, hash FROM entries ORDER BY number"), broken)
        if not entries:
            raise Corrupt(f"{self._what} is empty. Restore it from a backup, or use a new name.")
        if schema == _SCHEMA:
            state = None
            with contextlib.suppress(Corrupt, sqlite3.Error):  # a state that cannot be read is what is mended here
                state = _state.State(connection, self._what, self.key)
            if state is not None and (state.number, state.head) != (len(entries), entries[-1].hash):
                raise broken(min(state.number, len(entries)) + 1)
        return entries

    def _check_columns(self, connection: sqlite3.Connection) -> None:
        """The first version kept two fields of the body in columns of their own."""
        self._check_pages(connection)
        for number, dataset, charge, body in connection.execute("SELECT number, dataset, charge, body FROM entries"):
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                fields = json.loads(body)
                if (fields.get("dataset"), fields.get("charge")) == (dataset, charge):
                    continue
            raise Corrupt(f"{self._what} was changed: the columns of entry {number} are not those of its body.")
