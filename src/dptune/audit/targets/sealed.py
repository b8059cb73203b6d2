"""The target of the sealed runner as it is: ledger, vault, release folder and worker processes, nothing left out.

A run takes about a second, most of it for starting a worker, so there are a hundred or so for each world, shared by
two processes. Every fourth run is cut off after its first trial and continued by :func:`dptune.sealed.resume`. The
randomness is the operating system's: seeds play no part.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.accounting import Geometric, PureDp, Runs
from dptune.audit.implementations import Target
from dptune.audit.targets.runner import Responses, stopping_plan
from dptune.errors import Stopped
from dptune.executors import Processes
from dptune.executors.base import Result, Session, Task, Work
from dptune.sealed import Release, load_release, read_vault, resume, run

__all__ = ["Observed", "observe", "sealed"]

Start = Callable[..., Release]

_TRAINER = Responses(({"yes": 0.4, "no": 0.6}, {"yes": 0.6, "no": 0.4}), PureDp(0.41))


@dataclass(frozen=True)
class Observed:
    """What a run released, and, for the curator alone, how many trials it had."""

    answer: str
    trials: int


@dataclass
class _Cut:
    """A session that stops the run when it asks for a second trial."""

    inner: Session
    lives: int = 1

    @property
    def slots(self) -> int:
        return 1

    def submit(self, *tasks: Task) -> None:
        if self.lives == 0:
            raise Stopped("cut off")
        self.lives -= 1
        self.inner.submit(*tasks)

    def wait(self, seconds: float) -> Result | None:
        return self.inner.wait(seconds)

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class _Cutting:
    """This machine's processes, one of them, and a cut after the first trial."""

    name: str = "cutting"

    def open(self, work: Work) -> Session:
        return _Cut(Processes(1).open(work))


def _one(start: Start, runs: Runs, world: int, number: int) -> Observed:
    """A real run in folders of its own."""
    plan, data = stopping_plan(_TRAINER, runs), np.full(1, float(world))
    with tempfile.TemporaryDirectory(prefix="dptune-audit-") as folder:
        out = Path(folder) / "run"
        options: dict[str, Any] = {"dataset": "audited", "data_is": "synthetic", "out": out}
        if number % 4 == 3:
            with contextlib.suppress(Stopped):
                start(plan, _TRAINER, data, executor=_Cutting(), **options)
            if not (out / "release").is_dir():
                resume(out, _TRAINER, data, executor=Processes(1))
        else:
            start(plan, _TRAINER, data, executor=Processes(1), **options)
        released = load_release(out)  # from the folder, as anyone who gets it does
        trials = len(read_vault(out, "an audit of the number of runs").scores)
        return Observed("default" if released.model is None else str(released.model), trials)


def observe(world: int, games: int, runs: Runs, start: Start = run, workers: int = 2) -> list[Observed]:
    """Many real runs; ``start`` is :func:`dptune.sealed.run` or a broken version of it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return list(pool.map(partial(_one, start, runs, world), range(games)))


def sealed(start: Start = run, workers: int = 2) -> Target:
    """Randomised response, the likelier answer ranked lowest; the attacker opens the release folder."""

    def draw(world: int, games: int, seed: int) -> Array:
        del seed
        return np.array([float(one.answer == "yes") for one in observe(world, games, Geometric(2), start, workers)])

    return Target("sealed run", stopping_plan(_TRAINER, Geometric(2)).cost, draw, (0.5,))
