"""What an experiment has computed so far, in a file of JSON lines, so that one that was cut off goes on from there.

Only public data and simulations are reproduced, so results may be kept in the clear. They lie in the folder that
``--out`` names, or in the user's cache folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from dptune.errors import InvalidInput

__all__ = ["Kept", "cache_folder", "keep_in"]

ValueT = TypeVar("ValueT")
_CHOSEN: ContextVar[Path | None] = ContextVar("folder of kept results", default=None)


def cache_folder() -> Path:
    """Where results are kept between calls: the folder chosen by :func:`keep_in`, or the user's cache."""
    chosen = _CHOSEN.get()
    if chosen is not None:
        return chosen
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "dptune"


@contextmanager
def keep_in(folder: Path | None) -> Iterator[None]:
    """Keep results in this folder for as long as the block lasts; None changes nothing."""
    token = _CHOSEN.set(folder if folder is not None else _CHOSEN.get())
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def _name(key: Mapping[str, object]) -> str:
    return json.dumps(dict(key), sort_keys=True)


class Kept:
    """Values by key in one file, each computed once and appended when it is known.

    A line that was cut off when the process died is left out and computed again.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self._path = (folder or cache_folder()) / f"{name}.jsonl"
        self._known: dict[str, object] = {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = self._path.read_text(encoding="utf-8") if self._path.is_file() else ""
        except OSError as error:
            raise InvalidInput(
                f"Results cannot be kept in {self._path.parent} ({error.strerror}); choose another folder with --out."
            ) from error
        self._whole = not text or text.endswith("\n")
        for line in text.splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            stored = json.loads(line)
            self._known[stored["key"]] = stored["value"]
        except (ValueError, KeyError, TypeError):
            return  # cut off: computed again

    def __contains__(self, key: Mapping[str, object]) -> bool:
        return _name(key) in self._known

    def get(self, key: Mapping[str, object], make: Callable[[], ValueT]) -> ValueT:
        """The value of this key, made if it is not known; values survive JSON unchanged (numbers and lists of them)."""
        name = _name(key)
        if name not in self._known:
            self._known[name] = made = make()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(("" if self._whole else "\n") + json.dumps({"key": name, "value": made}) + "\n")
            self._whole = True
        return self._known[name]  # type: ignore[return-value]  # what this key's maker made
