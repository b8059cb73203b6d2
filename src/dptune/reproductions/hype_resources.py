"""DP-Hype's Table IV again: what a vote takes, by our secure sum and by Flower's SecAgg+, and what clients train.

The paper times a simulation on a graphics card and counts SecAgg+ messages; here everything runs in one process on one
core, so bytes can be compared with the paper's and seconds only with each other.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dptune.federated.local import iid_partition, paper_candidates
from dptune.reproductions import hype, hype_accuracy
from dptune.reproductions._hype_networks import NetworkBank
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Table, Verdict, verdict

__all__ = ["FULL", "SMALL", "Scale", "table4"]

ValueT = TypeVar("ValueT")
_PAPER = {50: (33.78, 29.72, 16.66), 100: (61.02, 49.36, 28.36), 250: (147.30, 111.38, 193.13)}
"""Table IV, voting: KB up, KB down, seconds by number of clients."""
_TRAINED = {"mnist": {50: 120.22, 100: 63.78, 250: 26.53}, "cifar-10": {50: 131.36, 100: 71.78, 250: 29.51},
            "adult": {50: 50.52, 100: 27.05, 250: 12.74}}  # fmt: skip
"""Table IV, local evaluation: seconds of one client."""
_ORDER = ("adult", "mnist", "cifar-10")  # from the fastest to the slowest, as the paper says


@dataclass(frozen=True)
class Scale:
    """How much is measured: numbers of clients, the largest for SecAgg+, repetitions, and sizes of local training."""

    clients: tuple[int, ...] = (50, 100, 250)
    secagg_up_to: int = 100
    repeat: int = 3  # cut from five for time, before any full run
    local: hype_accuracy.Scale = hype_accuracy.FULL


FULL, SMALL = Scale(), Scale((50, 100), 50, 1, hype_accuracy.SMALL)


def voting(kind: str, n: int) -> tuple[float, float, float]:
    """Bytes up and down of one client and processor seconds of all parties, for one run of one way to sum votes."""
    from dptune.reproductions import secure_sums  # noqa: PLC0415 - needs the extra 'flower'

    run: dict[str, Callable[[], secure_sums.Cost]] = {
        "our sum": lambda: secure_sums.sum_over_flower(n),
        "our vote": lambda: secure_sums.vote_over_flower(n),
        "SecAgg+": lambda: secure_sums.secagg_plus(n, 0.3, 1.0),  # every share is needed, as in the paper
    }
    with secure_sums.quiet_flower():
        cost = run[kind]()
    return cost.up, cost.down, cost.cpu


def local_seconds(data: str, n: int, scale: hype_accuracy.Scale) -> float:
    """Processor seconds in which one client trains and scores the 100 candidates: the median of five clients."""
    task, rng = hype_accuracy._task(data, scale.records), np.random.default_rng(1)
    bank = NetworkBank(paper_candidates(), task.x.shape[1] - 1, task.classes, scale.hidden)
    taken = []
    with threadpool_limits(limits=1):
        for part in iid_partition(len(task.y), n, rng)[:5]:
            began = time.process_time()
            hype._local(bank, task, part, scale.epochs, rng)
            taken.append(time.process_time() - began)
    return statistics.median(taken)


def _measured(kept: Kept, key: dict[str, Cell], make: Callable[[], ValueT], progress: Progress, what: str) -> ValueT:
    """What an earlier call measured, or what this one does; every part is kept and told on its own."""
    known = key in kept
    value = kept.get(key, make)
    progress.known() if known else progress.done(what)
    return value


def table4(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """Voting by our sum, by a whole vote and by SecAgg+; then local training."""
    kept, rows = Kept("hype-table4", folder), list[tuple[Cell, ...]]()
    kinds = [(k, n) for n in scale.clients for k in ("our sum", "our vote", "SecAgg+")
             if k != "SecAgg+" or n <= scale.secagg_up_to]  # fmt: skip
    progress = Progress(len(kinds) * scale.repeat + len(scale.clients) * len(scale.local.data), say)
    for kind, n in kinds:
        runs = []
        for take in range(1, scale.repeat + 1):
            key: dict[str, Cell] = {"kind": kind, "clients": n, "take": take}
            run = partial(voting, kind, n)
            runs.append(_measured(kept, key, run, progress, f"{kind}, {n} clients, {take} of {scale.repeat}"))
        (up, down, _), cpu = runs[0], statistics.median(one[2] for one in runs)
        paper = "{:g} / {:g} KB, {:g} s".format(*_PAPER[n]) if kind == "SecAgg+" and n in _PAPER else "-"
        rows.append((n, kind, up / 1000, down / 1000, cpu, paper))
    for data in scale.local.data:
        for n in scale.clients:
            key = {"local": data, "clients": n, "scale": repr(scale.local)}
            train = partial(local_seconds, data, n, scale.local)
            taken = _measured(kept, key, train, progress, f"local training, {data}, {n} clients")
            rows.append((n, f"local, {data}", "-", "-", taken, f"{_TRAINED[data].get(n, float('nan')):g} s"))
    return Table(
        "DP-Hype, Table IV: what a vote on 100 candidates takes",
        ("clients", "what", "KB up", "KB down", "CPU s", "paper"),
        rows,
        (
            "KB: payload of one client, up and down; CPU s: processor seconds of all parties together (voting) or of "
            "one client for its 100 candidates (local). SecAgg+ with .3 n shares that are all needed, as in the paper.",
            "our sum: the secure sum alone; our vote: with noise, account and a ledger on disk for every client, "
            "tolerating a fifth of them dropping out, which the paper's setting does not.",
            f"Local: {scale.local.records} records, {scale.local.epochs} epochs, one hidden layer of "
            f"{scale.local.hidden}, on a processor; the paper's seconds are of its networks on a graphics card, whose "
            f"memory is not measured here. SecAgg+ is run up to n = {scale.secagg_up_to}: its time grows about with n "
            "cubed.",
        ),
        _verdicts(rows),
    )


def _verdicts(rows: list[tuple[Cell, ...]]) -> tuple[Verdict, ...]:
    sums = [row for row in rows if row[1] == "our sum"]
    votes = [row for row in rows if row[1] == "our vote"]
    flower = {int(row[0]): row for row in rows if row[1] == "SecAgg+"}
    most = max(max(float(row[2]), float(row[3])) for row in votes)
    slowest = max(float(row[4]) for row in votes)
    local = {
        str(what): [float(row[4]) for row in rows if row[1] == what]
        for what in dict.fromkeys(row[1] for row in rows)
        if str(what).startswith("local")
    }
    by_data = list(zip(*(local[f"local, {name}"] for name in _ORDER if f"local, {name}" in local), strict=True))
    ratios = [float(flower[int(row[0])][4]) / max(float(row[4]), 1e-9) for row in sums if int(row[0]) in flower]
    beside = [
        f"n = {n}: {float(row[2]):.1f} / {float(row[3]):.1f} KB, paper {_PAPER[n][0]:g} / {_PAPER[n][1]:g}"
        for n, row in flower.items()
        if n in _PAPER
    ]
    alike = [0.5 < float(row[i + 2]) / _PAPER[n][i] < 2.0 for n, row in flower.items() if n in _PAPER for i in (0, 1)]
    return (
        verdict(
            "a vote takes kilobytes for each client and minutes in all (Table IV, section V-D)",
            most < 1000.0 and slowest < 240.0,
            f"our vote: at most {most:.1f} KB and {slowest:.1f} s of processor time",
        ),
        verdict(
            "SecAgg+ takes 33.78 / 29.72, 61.02 / 49.36 and 147.30 / 111.38 KB up and down (Table IV)",
            all(alike) if alike else None,
            ("; ".join(beside) if beside else "it was not run") + " (alike is read as within a factor of two)",
        ),
        verdict(
            "SecAgg+ is a clear overhead (section V-D)",
            min(ratios) > 2.0 if ratios else None,
            f"it takes {min(ratios):.0f} to {max(ratios):.0f} times the processor time of our sum"
            if ratios
            else "it was not run",
        ),
        verdict(
            "local training takes less time with more clients; Adult takes least, then MNIST, then CIFAR-10 (V-D)",
            all(a > b for times in local.values() for a, b in itertools.pairwise(times))
            and all(sorted(each) == list(each) for each in by_data),
            "; ".join(f"{name[7:]} {', '.join(f'{t:.2f}' for t in times)} s" for name, times in local.items()),
        ),
    )
