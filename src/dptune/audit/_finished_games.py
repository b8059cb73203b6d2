"""Finished games in a file, one JSON line each chunk, so that an interrupted audit goes on where it stopped.

The first line says what is being played and holds the seed of its randomness (these games protect nobody's data); a
file of another audit is refused, a line that was cut off is played again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.randomness import Randomness

__all__ = ["FinishedGames"]


class FinishedGames:
    """What the attacker saw of finished games, by world and chunk; with a path they survive the process."""

    def __init__(self, path: Path | None, about: Mapping[str, Any], randomness: Randomness | None = None) -> None:
        self._path = path
        self.seen: dict[tuple[int, int], list[float]] = {}
        secret = (randomness or Randomness.fresh()).secret()
        if path is not None and path.is_file():
            secret = self._read(path, about)
        self.randomness = Randomness(secret)
        if path is not None:
            self._rewrite({**about, "seed": secret.hex()})

    def _read(self, path: Path, about: Mapping[str, Any]) -> bytes:
        lines = path.read_text().splitlines()
        try:
            head = json.loads(lines[0])
            secret = bytes.fromhex(head.pop("seed"))
        except (IndexError, KeyError, ValueError, AttributeError):
            raise InvalidInput(
                f"{path} is not the state of an audit; name a new file, or the one that was begun."
            ) from None
        if head != json.loads(json.dumps(about)):
            raise InvalidInput(f"{path} belongs to another game; name a new file, or repeat its options.")
        for line in lines[1:]:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                self.seen[int(entry["world"]), int(entry["chunk"])] = entry["seen"]
        return secret

    def _rewrite(self, head: Mapping[str, Any]) -> None:
        assert self._path is not None  # only called with a file
        lines = [json.dumps(head), *(self._line(*where) for where in self.seen)]
        try:
            self._path.write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise InvalidInput(f"'state' cannot be written: {error.strerror}.") from None

    def _line(self, world: int, chunk: int) -> str:
        return json.dumps({"world": world, "chunk": chunk, "seen": self.seen[world, chunk]})

    def keep(self, world: int, chunk: int, seen: list[float]) -> None:
        """Remember a finished chunk."""
        self.seen[world, chunk] = seen
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(self._line(world, chunk) + "\n")
