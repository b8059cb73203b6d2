"""What admission reads: a dictionary in the ledger's file in which nothing can be changed, added or removed unnoticed.

Keys are spread over 256 nodes. The root holds the digest of every node and the head of the chain, and is sealed by a
keyed hash under the ledger's key (``LEDGER.key``). A look-up checks the seal and the node's digest, so a charge reads
a few kilobytes, all of them verified, however many entries there are. Whoever has the key can seal anything; then the
chain, checked against the statements, is what is left (``docs/sealed_runs.md``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator, MutableMapping
from typing import Any

from dptune.errors import Corrupt

__all__ = ["SCHEMA", "State", "key_id"]

SCHEMA = "CREATE TABLE state (node INTEGER PRIMARY KEY, content TEXT NOT NULL)"
_ROOT = 0
_NODES = 256
_EMPTY = "0" * 64


def _digest(node: int, content: str) -> str:
    return hashlib.blake2b(f"{node}\n{content}".encode(), digest_size=32).hexdigest()


def _seal(key: bytes, content: str) -> str:
    return hashlib.blake2b(content.encode(), key=key, digest_size=32, person=b"dptune ledger").hexdigest()


def key_id(key: bytes) -> str:
    """A name of the key from which nothing about it follows: it tells a lost key from a damaged file."""
    return hashlib.blake2b(key=key, digest_size=16, person=b"dptune key id").hexdigest()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class State(MutableMapping[str, Any]):
    """The dictionary as one transaction sees it. Values are plain JSON; a value that was read must not be changed."""

    def __init__(self, connection: sqlite3.Connection, what: str, key: bytes | None) -> None:
        """Read and check the root; with no key its seal is not checked, and nothing can be written."""
        self._connection, self._what, self._key = connection, what, key
        self._nodes: dict[int, dict[str, Any]] = {}
        self._changed: set[int] = set()
        self.number, self.head = 0, ""
        self._digests = [_EMPTY] * _NODES
        stored = self._content(_ROOT)
        if stored is not None:
            self._open(stored)

    def _open(self, stored: str) -> None:
        seal, _, content = stored.partition("\n")
        try:
            root = json.loads(content)
            name, self.number, self.head = root["key"], root["number"], root["head"]
            digests = root["nodes"]
            self._digests = [digests[64 * node : 64 * node + 64] for node in range(_NODES)]
        except (ValueError, TypeError, KeyError):
            raise self._damaged() from None
        if self._key is None:
            return
        if not hmac.compare_digest(seal.encode(), _seal(self._key, content).encode()):
            if name != key_id(self._key):
                raise Corrupt(
                    f"The key beside {self._what[:1].lower()}{self._what[1:]} is not the one that it was sealed with. "
                    "Restore the key from a backup."
                )
            raise self._damaged()

    def _damaged(self) -> Corrupt:
        return Corrupt(f"{self._what} was changed: what it holds is not what was sealed. Restore it from a backup.")

    def _content(self, node: int) -> str | None:
        row = self._connection.execute("SELECT content FROM state WHERE node = ?", (node,)).fetchone()
        if row is not None and not isinstance(row[0], str):
            raise self._damaged()
        return None if row is None else row[0]

    def _node(self, number: int) -> dict[str, Any]:
        """The content of a node (1 to 256), checked."""
        if number not in self._nodes:
            self._nodes[number] = self._checked(number, self._content(number))
        return self._nodes[number]

    def _checked(self, number: int, content: str | None) -> dict[str, Any]:
        expected = self._digests[number - 1]
        if content is None and expected == _EMPTY:
            return {}
        if content is None or _digest(number, content) != expected:
            raise self._damaged()
        return dict(json.loads(content))

    @staticmethod
    def _place(key: str) -> int:
        return 1 + hashlib.blake2b(key.encode(), digest_size=1).digest()[0]

    def __getitem__(self, key: str) -> Any:
        return self._node(self._place(key))[key]

    def __setitem__(self, key: str, value: Any) -> None:
        number = self._place(key)
        self._node(number)[key] = value
        self._changed.add(number)

    def __delitem__(self, key: str) -> None:
        raise TypeError("Nothing is removed from a ledger.")

    def __iter__(self) -> Iterator[str]:
        return iter(self.everything())

    def __len__(self) -> int:
        return len(self.everything())

    def everything(self) -> dict[str, Any]:
        """All keys and values, every node checked."""
        rows = dict(self._connection.execute("SELECT node, content FROM state"))
        if not set(rows) <= set(range(_NODES + 1)):
            raise self._damaged()
        found: dict[str, Any] = {}
        for number in range(1, _NODES + 1):
            content = rows.get(number)
            found |= self._checked(number, content if content is None else str(content))
        return found

    def save(self, number: int, head: str) -> None:
        """Write what was changed, with the chain's new head, under the seal."""
        if self._key is None:
            raise Corrupt(f"{self._what} has no key, so it cannot be written. Restore the key from a backup.")
        put = "INSERT OR REPLACE INTO state VALUES (?, ?)"
        for node in sorted(self._changed):
            content = _text(self._nodes[node])
            self._connection.execute(put, (node, content))
            self._digests[node - 1] = _digest(node, content)
        self._changed.clear()
        self.number, self.head = number, head
        root = _text({"key": key_id(self._key), "number": number, "head": head, "nodes": "".join(self._digests)})
        self._connection.execute(put, (_ROOT, f"{_seal(self._key, root)}\n{root}"))
