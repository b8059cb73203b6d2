"""Running the leaderboard: one cell after the other, each kept as a line when it is finished.

A cell is a data set, a total, an entrant and the number of a repetition. Cells go by repetition first, so that a race
that was stopped is a whole table with fewer repetitions; called again with the same folder it goes on. A folder keeps
one protocol: cells of different rules are never put together.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dptune import _validate
from dptune._files import write_durable
from dptune._version import __version__
from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.leaderboard.entrants import ENTRANTS, entrant
from dptune.leaderboard.setting import BENCHMARKS, SEEN, Setting, setting
from dptune.sealed import Release, run

__all__ = ["Cell", "Protocol", "Race", "finished", "race"]

_CELLS, _PROTOCOL = "cells.jsonl", "protocol.json"
_VALIDATIONS = ("private", "public")


@dataclass(frozen=True)
class Protocol:
    """The rules that all cells of a folder share.

    Args:
        validation: "private": scores come from private records, noised and paid for; "public": from a half of the
            test part.
        delta: the delta of every total.

    Raises:
        InvalidInput: a figure is out of range.
    """

    validation: str = "private"
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if self.validation not in _VALIDATIONS:
            raise InvalidInput(f"'validation' must be 'private' or 'public'; got {self.validation!r}.")
        _validate.real("delta", self.delta, 0.0, 1.0, low_open=True, high_open=True)


@dataclass(frozen=True)
class Race:
    """What is to be run.

    Args:
        data: names of benchmarks.
        epsilons: totals.
        methods: names of entrants.
        repetitions: how often each is run.
        protocol: the rules.

    Raises:
        InvalidInput: a name is unknown or a figure out of range.
    """

    data: tuple[str, ...]
    epsilons: tuple[float, ...] = (1.0, 3.0)
    methods: tuple[str, ...] = tuple(name for name, one in ENTRANTS.items() if one.guaranteed)
    repetitions: int = 3
    protocol: Protocol = Protocol()

    def __post_init__(self) -> None:
        for field in ("data", "epsilons", "methods"):
            once = tuple(dict.fromkeys(getattr(self, field)))  # a name that is said twice is run once
            if not once:
                raise InvalidInput(
                    f"'{field.removesuffix('s') if field == 'epsilons' else field}' names nothing to run."
                )
            object.__setattr__(self, field, once)
        for name in self.methods:
            entrant(name)
        for name in self.data:
            if name not in BENCHMARKS:
                raise InvalidInput(f"'data' must be among {', '.join(BENCHMARKS)}; got {name!r}.")
        for epsilon in self.epsilons:
            _validate.real("epsilon", epsilon, 0.0, low_open=True)
        _validate.integer("repetitions", self.repetitions, 1)

    def cells(self) -> Iterator[Cell]:
        """All cells: by repetition first, then by data set, so that features are computed once for each."""
        for repetition in range(self.repetitions):
            for data in self.data:
                for epsilon in self.epsilons:
                    for method in self.methods:
                        yield Cell(data, epsilon, method, repetition)


@dataclass(frozen=True)
class Cell:
    """One run: a data set, a total, an entrant, and the number of the repetition."""

    data: str
    epsilon: float
    method: str
    repetition: int


def race(
    todo: Race,
    out: Path,
    *,
    workers: int = 1,
    seconds: float | None = None,
    tell: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[dict[str, Any]]:
    """Run every cell that is not finished yet, each kept as soon as it is.

    Args:
        todo: what is to be run.
        out: the folder that keeps finished cells.
        workers: how many processes train the runs of one cell.
        seconds: after this time no further cell is begun; 0: none, only what is finished is read.
        tell: is given a line for each finished cell.
        clock: what measures that time.

    Returns:
        All finished cells of the folder that belong to this race.

    Raises:
        InvalidInput: the folder holds cells of another protocol, or data are missing.
    """
    begun = clock()
    if seconds is not None:
        _validate.real("seconds", seconds, 0.0)
    done = {_cell(row) for row in finished(out)}
    public = todo.protocol.validation == "public"
    missing = [cell for cell in todo.cells() if cell not in done]
    for cell in missing[:1] if seconds != 0 else ():
        setting(cell.data, cell.epsilon, todo.protocol.delta, public=public)  # its files, before anything is written
    _settle(out, todo.protocol)
    for cell in missing:
        if seconds is not None and clock() - begun >= seconds:
            break
        given = setting(cell.data, cell.epsilon, todo.protocol.delta, public=public)
        row = {**asdict(cell), **_run(cell, given, workers)}
        _keep(out, row)
        if tell is not None:
            tell(f"{cell.data} epsilon {cell.epsilon:g} {cell.method}: {row['accuracy']:.4f}, {row['seconds']:.0f} s")
    wanted = set(todo.cells())
    return [row for row in finished(out) if _cell(row) in wanted]


def _run(cell: Cell, given: Setting, workers: int) -> dict[str, Any]:
    """One sealed run: accuracy on the unseen half, what it cost, and how long it took."""
    begun, used = time.perf_counter(), _processor()
    plan, trainer = entrant(cell.method).enter(given)
    with tempfile.TemporaryDirectory() as folder:
        release = run(
            plan,
            trainer,
            given.train,
            data_is="public",
            out=Path(folder) / "run",
            executor=Processes(workers),
            explain=None,
            seed=None if plan.guaranteed else secrets.randbits(63),  # a yardstick runs as a rehearsal only
        )
        model = release.model
    accuracy = 1.0 / given.train.classes if model is None else float(_accuracy(model, given))
    return {
        "accuracy": accuracy,
        "seconds": time.perf_counter() - begun,
        "processor_seconds": _processor() - used,
        "charged": plan.price() if plan.guaranteed else None,
        "no_model": model is None,
        "params": _plain(release),
        "records": len(given.unseen),
        "settings_saw_data": cell.data in SEEN,
        "dptune": __version__,
    }


def _accuracy(model: Any, given: Setting) -> float:
    value: float = model.accuracy(given.unseen)
    return value


def _plain(release: Release) -> dict[str, Any]:
    """The released parameters that are plain values."""
    return {key: value for key, value in release.params.items() if isinstance(value, int | float | str)}


def _processor() -> float:
    """Processor time of this process and of its workers that have ended, in seconds."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _settle(out: Path, protocol: Protocol) -> None:
    """The folder, with this protocol; refuses one that keeps another."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder {out} cannot be made ({error.strerror}); give another 'out'.") from None
    path = out / _PROTOCOL
    if not path.exists():
        write_durable(path, (json.dumps(asdict(protocol)) + "\n").encode())
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if known != asdict(protocol):
        raise InvalidInput(f"The folder {out} holds cells of another protocol ({known}). Use another folder.")


def _keep(out: Path, row: dict[str, Any]) -> None:
    """Add a finished cell as one line, on disk before anything else begins."""
    with (out / _CELLS).open("ab") as stream:
        torn = stream.tell() > 0 and not (out / _CELLS).read_bytes().endswith(b"\n")
        stream.write((("\n" if torn else "") + json.dumps(row) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def finished(out: Path) -> list[dict[str, Any]]:
    """The finished cells of a folder; a line that was cut off is none.

    Args:
        out: the folder.

    Returns:
        One dictionary for each cell.
    """
    path = out / _CELLS
    lines: Sequence[bytes] = path.read_bytes().split(b"\n") if path.exists() else ()
    rows: dict[Cell, dict[str, Any]] = {}
    for line in lines:
        try:
            row = json.loads(line)
            rows.setdefault(_cell(row), row)
        except (ValueError, KeyError, TypeError):
            continue
    return list(rows.values())


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(str(row["data"]), float(row["epsilon"]), str(row["method"]), int(row["repetition"]))
