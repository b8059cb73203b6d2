"""Progress of a reproduction: how many parts are done, and about how long the rest takes.

Only public data and simulations are reproduced, so the fraction of the work may be shown; sealed runs never show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Progress", "silent"]


def silent(line: str) -> None:
    """Progress for nobody."""
    del line


class Progress:
    """Counts parts of equal size and says how long the rest will take if it goes on like this."""

    def __init__(self, parts: int, say: Callable[[str], None] = silent) -> None:
        self._parts, self._say, self._done, self._known, self._began = parts, say, 0, 0, time.monotonic()

    def known(self) -> None:
        """Count a part that an earlier call had finished: it took no time and says nothing about the rest."""
        self._known += 1

    def done(self, what: str) -> None:
        """Say that one more part is done."""
        self._done += 1
        taken, here = time.monotonic() - self._began, self._done + self._known
        left = taken / self._done * max(self._parts - here, 0)
        self._say(f"{what}: {here} of {self._parts}, {taken:.0f} s so far, about {left:.0f} s left")
