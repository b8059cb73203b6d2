"""Keyed checks of what a vault holds: whatever was changed, removed or put in is noticed before anything is released.

Every row has a check under a key that follows from the run's secret; one more check covers the number of rows and
the sum of all theirs, so that a row that is missing, or an older one in its place, is noticed too. A model's check is
part of its outcome. The secret's file carries a checksum of its own. When the secret is destroyed at the release,
nothing can be checked any more, and nothing needs to be: the release is out.

These checks are against damage and careless hands. Whoever owns the vault has the key as well.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from dptune.randomness import SEED_BYTES, Randomness

__all__ = ["SCHEMA", "SECRET_BYTES", "Damaged", "Rows", "Value", "pack_secret", "unpack_secret"]

Value = str | int | float | None

SCHEMA = {
    "facts": "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, mac BLOB NOT NULL)",
    "trials": "CREATE TABLE trials (number INTEGER PRIMARY KEY, trial TEXT NOT NULL, started REAL NOT NULL, "
    "deaths INTEGER NOT NULL, mac BLOB NOT NULL)",
    "outcomes": "CREATE TABLE outcomes (number INTEGER PRIMARY KEY, score REAL, error TEXT, output TEXT, model TEXT, "
    "finished REAL NOT NULL, mac BLOB NOT NULL)",
    "reads": "CREATE TABLE reads (time REAL NOT NULL, reader TEXT NOT NULL, what TEXT NOT NULL, reason TEXT NOT NULL)",
    "seal": "CREATE TABLE seal (number INTEGER PRIMARY KEY, count INTEGER NOT NULL, sum BLOB NOT NULL, "
    "mac BLOB NOT NULL)",
}
_SEALED = {"facts": 2, "trials": 4, "outcomes": 6}  # columns before the check; the first one is the key
_KEYS = {"facts": "name", "trials": "number", "outcomes": "number"}
_MAC_BYTES = 32
_CHECKSUM = b"dptune secret"

SECRET_BYTES = SEED_BYTES + _MAC_BYTES


class Damaged(Exception):
    """Something in a vault is not what was put there; the vault turns it into a line that tells no secret."""


def pack_secret(secret: bytes) -> bytes:
    """The content of the secret's file: the secret and its checksum."""
    return secret + hashlib.blake2b(secret, digest_size=_MAC_BYTES, person=_CHECKSUM).digest()


def unpack_secret(content: bytes) -> bytes:
    """The secret, if no bit of its file was changed."""
    secret = content[:SEED_BYTES]
    if not hmac.compare_digest(content, pack_secret(secret)):
        raise Damaged("secret")
    return secret


def _encode(value: Value | bytes) -> bytes:
    """Type, length and content: no two lists of values have the same encoding."""
    if isinstance(value, bytes):
        kind, content = b"b", value
    elif isinstance(value, float):
        kind, content = b"f", value.hex().encode()
    else:
        kind, content = type(value).__name__[:1].encode(), str(value).encode()
    return b"%s%d:" % (kind, len(content)) + content


@dataclass(frozen=True)
class Rows:
    """The rows of one vault inside one transaction, every one checked when it is read."""

    connection: sqlite3.Connection
    randomness: Randomness

    @functools.cached_property
    def _key(self) -> bytes:
        return self.randomness.child("vault", "checks").secret()

    def mac(self, *parts: Value | bytes) -> bytes:
        """The check of some values in their order."""
        state = hashlib.blake2b(key=self._key, digest_size=_MAC_BYTES)
        for part in parts:
            state.update(_encode(part))
        return state.digest()

    def create(self) -> None:
        """Make the tables, with the check of nothing."""
        for statement in SCHEMA.values():
            self.connection.execute(statement)
        self._write_seal(0, bytes(_MAC_BYTES))

    def all(self, table: str) -> list[tuple[Value, ...]]:
        """Every row of a table, in order, without the checks."""
        rows = self.connection.execute(f"SELECT * FROM {table} ORDER BY {_KEYS[table]}").fetchall()
        return [self._checked(table, row) for row in rows]

    def get(self, table: str, key: str | int) -> tuple[Value, ...] | None:
        """One row, or None."""
        query = f"SELECT * FROM {table} WHERE {_KEYS[table]} = ?"
        row = self.connection.execute(query, (key,)).fetchone()
        return None if row is None else self._checked(table, row)

    def put(self, table: str, *values: Value) -> None:
        """Add a row, or put it in the place of the one with the same key."""
        assert len(values) == _SEALED[table] and not isinstance(values[0], float | None)  # noqa: PT018 - one contract
        count, total = self._seal()
        before = self.get(table, values[0])
        marks = ", ".join("?" * (len(values) + 1))
        mac = self.mac(table, *values)
        if before is not None:
            count, total = count - 1, _xor(total, self.mac(table, *before))
        self.connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (*values, mac))
        self._write_seal(count + 1, _xor(total, mac))

    def check(self) -> None:
        """Look at everything: the file, what kinds of things are in it, every row, and that none is missing."""
        if self.connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise Damaged("file")
        found = self.connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if len(found) != len(SCHEMA) or set(found) != set(SCHEMA.items()):  # damaged names may not even be texts
            raise Damaged("tables")
        count, total = 0, bytes(_MAC_BYTES)
        for table in _SEALED:
            for row in self.all(table):
                count, total = count + 1, _xor(total, self.mac(table, *row))
        if self._seal() != (count, total):
            raise Damaged("rows")

    def _checked(self, table: str, row: Sequence[Value | bytes]) -> tuple[Value, ...]:
        values, mac = row[: _SEALED[table]], row[-1]
        if not isinstance(mac, bytes) or not hmac.compare_digest(mac, self.mac(table, *values)):
            raise Damaged(table)
        return tuple(value for value in values if not isinstance(value, bytes))

    def _seal(self) -> tuple[int, bytes]:
        rows = self.connection.execute("SELECT number, count, sum, mac FROM seal").fetchall()
        if len(rows) != 1 or rows[0][3] != self.mac("seal", *rows[0][:3]):
            raise Damaged("seal")
        return int(rows[0][1]), bytes(rows[0][2])

    def _write_seal(self, count: int, total: bytes) -> None:
        mac = self.mac("seal", 1, count, total)
        self.connection.execute("INSERT OR REPLACE INTO seal VALUES (1, ?, ?, ?)", (count, total, mac))


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(_MAC_BYTES)
