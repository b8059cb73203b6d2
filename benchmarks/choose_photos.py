"""How the default of photographs was chosen: features, ways, rates and steps compared on training records alone.

    DPTUNE_DATA=... python benchmarks/choose_photos.py [--repeats 2] [--keep rows.jsonl] [--quick] [--only-paces]

The first 40,000 records of CIFAR-10's training part train, its last 10,000 judge; no test part is looked at. The noise
is that of 40,000 records. Seeds are fixed; candidates and the chosen one are trained several times, other cells once.
Rows that ``--keep`` holds are not trained again. About half an hour of one core and 7 GB of memory; ``--quick``
compares two candidates on 1,000 records.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Floats
from dptune.accounting.calibrate import calibrate_noise
from dptune.randomness import Randomness
from dptune.training import Dataset, DpSgdTrainer, Momentum, Settings, load, softmax
from dptune.training.levelled import leaves, levelling
from dptune.training.scattering import mirrored_scattering, rooted_scattering

DELTA = 1e-5
SIDE, COLOURS, CLASSES = 32, 3, 10
CLIP = 0.1
BEFORE, CHOSEN = "mirrored", "roots, level 8"

# What a candidate computes, and the level in means to which directions of synthetic images are brought, if they are.
CANDIDATES: dict[str, tuple[Callable[[Floats, int, int], Floats], float | None]] = {
    BEFORE: (mirrored_scattering, None),
    "mirrored, level 8": (mirrored_scattering, 8.0),
    "roots": (rooted_scattering, None),
    "roots, level 4": (rooted_scattering, 4.0),
    CHOSEN: (rooted_scattering, 8.0),
    "roots, level 16": (rooted_scattering, 16.0),
}
WAYS = (1600.0, 2263.0, 3200.0, 4525.0)
CELLS = ((0.05, 400), (0.1, 200), (0.1, 400), (0.2, 200), (0.1, 800))
PACES = (
    (0.05, 600),
    (0.1, 200),
    (0.1, 400),
    (0.1, 800),
    (0.2, 300),
)  # with the chosen way; the planner's are among them
REPEATED = (
    {(name, 0.1, 200, 3200.0, 3.0) for name in (BEFORE, "mirrored, level 8", CHOSEN)}
    | {(CHOSEN, 0.1, 400, way, 3.0) for way in (2400.0, 3200.0)}
    | {(CHOSEN, *pace, 2400.0, epsilon) for pace in PACES for epsilon in (1.0, 3.0)}
)


@functools.lru_cache(maxsize=2)
def _made(make: Callable[[Floats, int, int], Floats], count: int) -> Floats:
    """Features of the first records to train and of the last ones to judge, not levelled."""
    x = load("cifar-10").train.x
    chosen = np.concatenate([x[:count], x[-(count // 4) :]]).astype(np.float32)
    return make(chosen.reshape(len(chosen), -1), SIDE, COLOURS)


@functools.lru_cache(maxsize=1)
def prepared(name: str, count: int) -> tuple[Dataset, Dataset]:
    """Records that train and records that judge; what is trained here is never released, so products are numpy's."""
    make, level = CANDIDATES[name]
    x = _made(make, count)
    if level is not None:
        lens = levelling(make(leaves(1000, SIDE, COLOURS), SIDE, COLOURS), level)
        x = x.copy()
        for begin in range(0, len(x), 1000):
            rows = x[begin : begin + 1000]
            rows -= ((rows @ lens.directions) * lens.taken) @ lens.directions.T
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    labels = load("cifar-10").train.y
    both = Dataset(x, np.concatenate([labels[:count], labels[-(count // 4) :]]), classes=CLASSES)
    return both.take(np.arange(count)), both.take(np.arange(count, len(x)))


def trained(what: dict[str, Any]) -> dict[str, Any]:
    """One training: what was asked, with its accuracy and processor seconds."""
    train, judge = prepared(what["candidate"], what["records"])
    plenty = what["epsilon"] * len(train) / 60_000
    settings = Settings.from_batch(
        what["rate"] * len(train),
        len(train),
        noise_multiplier=1.0,
        steps=what["steps"],
        clip_norm=CLIP,
        learning_rate=what["way"] * min(plenty, math.sqrt(plenty)) / (what["steps"] * CLIP),
        optimizer=Momentum(0.9),
    )
    one = DpSgdTrainer(softmax(train.features, CLASSES), settings)
    noise = calibrate_noise(lambda level: one.cost({"noise_multiplier": level}), what["epsilon"], DELTA)
    begun = time.process_time()
    model = one.fit({"noise_multiplier": noise}, train, Randomness.rehearsal(what["seed"])).model
    seconds = time.process_time() - begun
    return {**what, "noise": noise, "accuracy": model.accuracy(judge), "seconds": round(seconds, 1)}


class Rows:
    """Trainings that were made, in a file if there is one."""

    def __init__(self, keep: Path | None, records: int, repeats: int) -> None:
        self.keep, self.records, self.repeats = keep, records, repeats
        text = keep.read_text() if keep is not None and keep.exists() else ""
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def cell(self, candidate: str, rate: float, steps: int, way: float, epsilon: float = 3.0) -> str:
        """The mean accuracy, its standard error and the seconds of a training; missing rows are trained."""
        asked = {"candidate": candidate, "rate": rate, "steps": steps, "way": way, "epsilon": epsilon}
        repeats = self.repeats if tuple(asked.values()) in REPEATED else 1
        found = [self._row({**asked, "records": self.records, "seed": seed}) for seed in range(repeats)]
        values = np.array([row["accuracy"] for row in found])
        error = f"{values.std(ddof=1) / math.sqrt(len(values)):.4f}" if len(values) > 1 else "one run"
        return f"{values.mean():.4f} ({error}) | {np.mean([row['seconds'] for row in found]):.0f} s"

    def _row(self, asked: dict[str, Any]) -> dict[str, Any]:
        for row in self.rows:
            if asked.items() <= row.items():
                return row
        row = trained(asked)
        self.rows.append(row)
        if self.keep is not None:
            with self.keep.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return row


def features(rows: Rows, names: list[str]) -> None:
    """Print a line for each candidate, at a way of 3200."""
    print("| candidate, rate .1, 200 steps | epsilon 3 | processor time |")
    for name in names:
        print(f"| {name} | {rows.cell(name, 0.1, 200, 3200.0)} |", flush=True)


def ways(rows: Rows) -> None:
    """Print a line for each way with the chosen features."""
    print("| way, rate .1, 200 steps | epsilon 3 | processor time |")
    for way in WAYS:
        print(f"| {way:.0f} | {rows.cell(CHOSEN, 0.1, 200, way)} |", flush=True)


def cells(rows: Rows, way: float) -> None:
    """Print a line for each rate and number of steps with the chosen features."""
    print(f"| rate, steps, way {way:.0f} | epsilon 3 | processor time |")
    for rate, steps in CELLS:
        print(f"| {rate}, {steps} | {rows.cell(CHOSEN, rate, steps, way)} |", flush=True)


def both(rows: Rows) -> None:
    """Print the default before and the chosen one at two epsilons, with 400 steps."""
    print("| rate .1, 400 steps | epsilon | accuracy | processor time |")
    for epsilon in (1.0, 3.0):
        for name, way in ((BEFORE, 3200.0), (CHOSEN, 3200.0), (CHOSEN, 2400.0)):
            print(f"| {name}, way {way:.0f} | {epsilon:g} | {rows.cell(name, 0.1, 400, way, epsilon)} |", flush=True)


def paces(rows: Rows) -> None:
    """Print a line for each rate and number of steps with the chosen features and the chosen way."""
    print("| rate, steps, way 2400 | epsilon | accuracy | processor time |")
    for epsilon in (1.0, 3.0):
        for rate, steps in PACES:
            print(f"| {rate}, {steps} | {epsilon:g} | {rows.cell(CHOSEN, rate, steps, 2400.0, epsilon)} |", flush=True)


def main() -> None:
    """Print five tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only-paces", action="store_true", help="the last table alone")
    given = parser.parse_args()
    rows = Rows(given.keep, 1000 if given.quick else 40_000, given.repeats)
    if given.quick:
        features(rows, [BEFORE, CHOSEN])
        return
    if given.only_paces:
        paces(rows)
        return
    features(rows, list(CANDIDATES))
    cells(rows, 3200.0)
    ways(rows)
    both(rows)
    paces(rows)


if __name__ == "__main__":
    main()
