"""Data and trainers that kill or hold up the process they are in at a chosen moment: no luck with the time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.accounting import Cost, Gdp


class Fragile:
    """Data whose arrival in a process kills it, or never ends; ``counter`` is a byte for each arrival.

    ``deadly`` and ``endless`` say at which arrivals.
    """

    def __init__(self, counter: str, deadly: tuple[int, ...], endless: tuple[int, ...] = ()) -> None:
        self.counter, self.deadly, self.endless = counter, deadly, endless

    def __reduce__(self) -> Any:
        return _arrive, (self.counter, self.deadly, self.endless)


def _arrive(counter: str, deadly: tuple[int, ...], endless: tuple[int, ...]) -> Fragile:
    path = Path(counter)
    arrivals = len(path.read_bytes()) if path.exists() else 0
    path.write_bytes(bytes(arrivals + 1))
    if arrivals in deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    while arrivals in endless:
        time.sleep(60.0)
    return Fragile(counter, deadly, endless)


@dataclass(frozen=True)
class KillsOnce:
    """A trainer that kills its process the first time; its score is x."""

    path: str

    def cost(self, params: Mapping[str, Any]) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        if not Path(self.path).exists():
            Path(self.path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {}, float(params["x"])


@dataclass(frozen=True)
class LeavesAChild:
    """A trainer whose process dies while a child that it forked lives on, with a copy of all that was open.

    The child ends when ``path`` is removed.
    """

    path: str

    def cost(self, params: Mapping[str, Any]) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        if params["x"] < 1.0:
            Path(self.path).touch()
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            while Path(self.path).exists():
                time.sleep(0.05)
            os._exit(0)
        return {}, float(params["x"])
