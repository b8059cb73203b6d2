"""Waiting for a public time on a clock that nobody can set.

The wall clock is read once, when a run begins; from then on the time since the machine started counts, sleep included.
A wall clock that is set forward brings no release forward. After a restart of the machine there is only the wall
clock again.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune._codec import from_json

__all__ = ["Deadline"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _boot() -> str | None:
    """Which start of the machine this is; None where nobody says."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text(encoding="ascii").strip()
    return None


@dataclass(frozen=True)
class Deadline:
    """A public time, as seconds on the clock that counts since the machine was started."""

    at: float
    boot: str | None

    @classmethod
    def of(cls, moment: datetime.datetime) -> Deadline:
        """By the wall clock as it stands now."""
        wall = time.time()  # read first: a pause before the other clock is read makes it later, never earlier
        return cls(_now() + moment.timestamp() - wall, _boot())

    @classmethod
    def stored(cls, value: dict[str, Any] | None, moment: datetime.datetime) -> Deadline:
        """The one that was written down, if the machine has not been started again since."""
        known = None if value is None else from_json(value, cls, "a deadline")
        return known if known is not None and known.boot is not None and known.boot == _boot() else cls.of(moment)

    def left(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.at - _now()
