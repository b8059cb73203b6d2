"""The ledger's file: a table of entries in which every entry's hash covers the one before it.

An entry is a JSON object. This module appends and checks; what entries mean is ``ledger.py``'s business. Entries are
never changed or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import Corrupt
from dptune.sealed._files import connect, storage_errors

__all__ = ["Chain", "Entry", "connect"]

START = "0" * 64
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
  number INTEGER PRIMARY KEY, dataset TEXT, charge TEXT, body TEXT NOT NULL, hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_dataset ON entries (dataset, number);
CREATE INDEX IF NOT EXISTS by_charge ON entries (charge);
"""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    number: int
    body: dict[str, Any]
    hash: str


def _digest(previous: str, number: int, body: str) -> str:
    return hashlib.blake2b(f"{previous}\n{number}\n{body}".encode(), digest_size=32).hexdigest()


def _entry(row: tuple[int, str, str]) -> Entry:
    return Entry(row[0], json.loads(row[1]), row[2])


class Transaction:
    """Exclusive access to the chain until the end of the ``with`` block that made it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _select(self, condition: str, *values: object) -> list[Entry]:
        query = f"SELECT number, body, hash FROM entries {condition}"
        return [_entry(row) for row in self._connection.execute(query, values)]

    def last(self, dataset: str | None = None) -> Entry | None:
        """The newest entry, of the whole chain or of one data set."""
        if dataset is None:
            found = self._select("ORDER BY number DESC LIMIT 1")
        else:
            found = self._select("WHERE dataset = ? ORDER BY number DESC LIMIT 1", dataset)
        return found[0] if found else None

    def first(self, dataset: str) -> Entry | None:
        """The entry that opened a data set."""
        found = self._select("WHERE dataset = ? ORDER BY number LIMIT 1", dataset)
        return found[0] if found else None

    def charge(self, charge: str) -> list[Entry]:
        """The entries made under one charge's name."""
        return self._select("WHERE charge = ? ORDER BY number", charge)

    def all(self, dataset: str | None = None) -> list[Entry]:
        """Every entry, in order."""
        if dataset is None:
            return self._select("ORDER BY number")
        return self._select("WHERE dataset = ? ORDER BY number", dataset)

    def append(self, body: dict[str, Any]) -> Entry:
        """Add an entry after the newest one."""
        head = self.last()
        number = 1 if head is None else head.number + 1
        text = json.dumps(body, sort_keys=True)
        digest = _digest(START if head is None else head.hash, number, text)
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
            (number, body.get("dataset"), body.get("charge"), text, digest),
        )
        return Entry(number, json.loads(text), digest)


@dataclass(frozen=True)
class Chain:
    """The file. Every use opens it anew, so processes may come, go and be killed."""

    path: Path

    @property
    def _what(self) -> str:
        return f"The ledger {self.path.name}"

    def create(self) -> None:
        """Make an empty file with the table in it."""
        with storage_errors(self._what), contextlib.closing(connect(self.path)) as connection:
            connection.executescript(_SCHEMA)

    @contextlib.contextmanager
    def transaction(self, write: bool = False) -> Iterator[Transaction]:
        """All or nothing; durable when the block has been left."""
        with storage_errors(self._what), contextlib.closing(connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield Transaction(connection)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def check(self) -> list[Entry]:
        """Every entry, or :class:`Corrupt` if one was changed, removed or put in."""
        with self.transaction() as chain:
            rows = list(chain._connection.execute("SELECT number, body, hash FROM entries ORDER BY number"))
        previous = START
        for place, (number, body, digest) in enumerate(rows, 1):
            if number != place or _digest(previous, number, body) != digest:
                raise Corrupt(
                    f"{self._what} was changed: entry {place} does not follow from the one before it. "
                    "Restore it from a backup and compare its head with the one in the last statement."
                )
            previous = digest
        return [_entry(row) for row in rows]
