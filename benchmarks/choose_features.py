"""How the default features of images were chosen: candidates compared on training records alone.

    DPTUNE_DATA=... python benchmarks/choose_features.py [--repeats 3] [--quick] [--only more]

The first 50,000 records of a training part train, its last 10,000 judge; no test part is looked at. Every candidate is
trained once a repeat by the default of images, whitened, untuned, with 400 steps, at the same total epsilon, with seeds
that are fixed. Then the gain of the chosen ones on few records, other ways for them, what else was tried, and the kinds
of features that the search began with: pixels, oriented gradients, scattering (``--only`` prints one of these tables).
About half an hour of one core; ``--quick`` compares two candidates on 6,000 records.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dptune._typing import Floats
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_named
from dptune.randomness import Randomness
from dptune.training import Dataset, load
from dptune.training.features import named_features
from dptune.training.gradients import oriented_gradients
from dptune.training.whitening import Whitening

DELTA = 1e-5
SIDE = 28
STEPS, WAY = 400, 2400.0
SHARE = 0.04  # of whitening, the default when features were chosen
SETS = ("mnist", "fashion-mnist")
FEW = ("mnist:1200", "mnist:6000", "fashion-mnist:1200", "fashion-mnist:6000", "digits:1078")
BEFORE, CHOSEN = "gradients-and-brightness", "two-scale-gradients"

# A candidate is a list of gradients (blur in pixels, cell, directions), and whether a small picture stands beside them.
CANDIDATES: dict[str, tuple[list[tuple[float, int, int]], bool]] = {
    "9 directions, picture (before)": ([(0.0, 4, 9)], True),
    "12 + blurred 12, picture (chosen)": ([(0.0, 4, 12), (1.5, 7, 12)], True),
    "12 + blurred 12": ([(0.0, 4, 12), (1.5, 7, 12)], False),
    "12 directions, picture": ([(0.0, 4, 12)], True),
    "9 + 9 in cells of 7, picture": ([(0.0, 4, 9), (0.0, 7, 9)], True),
    "16 directions, picture": ([(0.0, 4, 16)], True),
}

# What was tried by hand on the same records, and is not in the table above.
MORE: dict[str, tuple[list[tuple[float, int, int]], bool]] = {
    "a third scale, picture": ([(0.0, 4, 12), (1.5, 7, 12), (3.0, 14, 12)], True),
    "12 + blurred 12 + more blurred 12, picture": ([(0.0, 4, 12), (1.5, 7, 12), (2.5, 7, 12)], True),
    "12 + blurred 12 in cells of 4, picture": ([(0.0, 4, 12), (1.5, 4, 12)], True),
    "16 + blurred 16, picture": ([(0.0, 4, 16), (1.5, 7, 16)], True),
    "cells of 2, picture": ([(0.0, 2, 4)], True),
}


def _centred_pixels(x: Floats) -> Floats:
    rows = np.asarray(x, np.float32)
    rows = rows - rows.mean(axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return unit


# The kinds of features that the first search compared; those that have too many numbers are not whitened.
FIRST: dict[str, Callable[[Floats], Floats]] = {
    "pixels, centred": _centred_pixels,
    "oriented gradients, not centred": oriented_gradients,
    "oriented gradients": named_features("oriented-gradients"),
    "the same, picture": named_features("gradients-and-brightness"),
    "scattering": named_features("scattering"),
    "chosen": named_features("two-scale-gradients"),
}
FIRST_SETS = ("mnist", "fashion-mnist", "mnist:6000", "fashion-mnist:6000")


def candidate(parts: list[tuple[float, int, int]], picture: bool) -> Callable[[Floats], Floats]:
    """The features of a candidate, many records at a time: what is trained here is never released."""

    def make(x: Floats) -> Floats:
        made = []
        for begin in range(0, len(x), 250):
            images = np.asarray(x[begin : begin + 250], np.float32).reshape(-1, SIDE, SIDE)
            found = [_unit(_gradients(images, *part)) for part in parts]
            if picture:
                found.append(0.5 * _unit(images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))))
            row = np.concatenate(found, axis=1)
            made.append(row / np.maximum(np.linalg.norm(row, axis=1, keepdims=True), 1e-6))
        return np.concatenate(made).astype(np.float32)

    return make


def _unit(part: Floats) -> Floats:
    flat = part.reshape(len(part), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    unit: Floats = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return unit


def _gradients(images: Floats, blur: float, cell: int, directions: int) -> Floats:
    if blur:
        weights = _gaussian(blur)
        images = weights @ images @ weights.T
    down, right = np.zeros_like(images), np.zeros_like(images)
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    right[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    size = np.sqrt(np.hypot(down, right))
    place = np.arctan2(down, right) * np.float32(directions / (2 * math.pi))
    centres = (np.arange(SIDE // cell) + 0.5) * cell
    spread = np.maximum(0.0, 1.0 - np.abs(np.arange(SIDE) + 0.5 - centres[:, None]) / cell).astype(np.float32)
    found = []
    for direction in range(directions):
        gap = np.abs(place - np.float32(direction))
        gap = np.minimum(gap, np.abs(gap - np.float32(directions)))
        found.append(spread @ (size * np.maximum(np.float32(0.0), 1 - gap)) @ spread.T)
    rooted: Floats = np.sqrt(np.stack(found, axis=1))
    return rooted


def _gaussian(deviation: float) -> Floats:
    reach = math.ceil(2.5 * deviation)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (steps / deviation) ** 2)
    matrix = np.zeros((SIDE, SIDE))
    for row in range(SIDE):
        np.add.at(matrix[row], np.clip(row + steps, 0, SIDE - 1), weights / weights.sum())
    return matrix.astype(np.float32)


def prepared(name: str, make: Callable[[Floats], Floats]) -> tuple[Dataset, Dataset]:
    """Training records with features: the first train, the last judge (10,000; of digits what is left)."""
    data, _, size = name.partition(":")
    part = load(data).train
    count = int(size or 50_000)
    judges = min(10_000, len(part) - count)
    rows = part.take(np.r_[np.arange(count), np.arange(len(part) - judges, len(part))])
    whole = rows.map(make, (-1.0, 1.0))
    return whole.take(np.arange(count)), whole.take(np.arange(count, len(rows)))


def trained(train: Dataset, judge: Dataset, epsilon: float, repeats: int, way: float, steps: int | None) -> Floats:
    """Accuracies of the default, with a way and a number of steps (None: its own)."""
    usual = kind_named("image").trainer(train.features, train.classes, len(train), epsilon=epsilon)
    own = usual.settings
    steps = steps or own.steps
    rate = own.learning_rate * own.steps / steps * way / WAY  # the kind has a longer way for what is not whitened
    whitening = None if usual.whitening is None else Whitening(SHARE)
    one = replace(usual, settings=replace(own, steps=steps, learning_rate=rate), whitening=whitening)
    noise = calibrate_noise(lambda level: one.cost({"noise_multiplier": level}), epsilon, DELTA)
    keys = [Randomness.rehearsal(seed) for seed in range(repeats)]
    fitted = [one.fit({"noise_multiplier": noise}, train, key) for key in keys]
    return np.array([each.model.accuracy(judge) for each in fitted])


def _cell(values: Floats) -> str:
    return f"{values.mean():.4f} ({values.std(ddof=1) / math.sqrt(len(values)):.4f})"


def compare(names: list[str], sets: tuple[str, ...], epsilons: tuple[float, ...], repeats: int) -> None:
    """Print a line for each candidate."""
    print(
        "| candidate | features | " + " | ".join(f"{one}, epsilon {eps:g}" for one in sets for eps in epsilons) + " |"
    )
    for name in names:
        cells = []
        for one in sets:
            train, judge = prepared(one, candidate(*(CANDIDATES | MORE)[name]))
            cells += [_cell(trained(train, judge, epsilon, repeats, WAY, STEPS)) for epsilon in epsilons]
        print(f"| {name} | {train.features} | " + " | ".join(cells) + " |", flush=True)


def first(repeats: int) -> None:
    """Print a line for each kind of features, as the default of images would train them."""
    print("| kind | features | " + " | ".join(f"{one}, epsilon {eps}" for one in FIRST_SETS for eps in (1, 3)) + " |")
    for name, make in FIRST.items():
        cells, width = [], 0
        for one in FIRST_SETS:
            train, judge = prepared(one, make)
            width = train.features
            cells += [_cell(trained(train, judge, epsilon, repeats, WAY, STEPS)) for epsilon in (1.0, 3.0)]
        print(f"| {name} | {width} | " + " | ".join(cells) + " |", flush=True)


def few(repeats: int) -> None:
    """Print a line for each small set: the default before and the chosen one, with its own number of steps."""
    print("| records, epsilon 3 | before | chosen |")
    for name in FEW:
        made = [prepared(name, named_features(features)) for features in (BEFORE, CHOSEN)]
        cells = [_cell(trained(*one, 3.0, repeats, WAY, None)) for one in made]
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)


def ways(repeats: int) -> None:
    """Print a line for each other way with the chosen features."""
    print("| way | " + " | ".join(f"{one}, epsilon {epsilon}" for one in SETS for epsilon in (1, 3)) + " |")
    both = [prepared(one, named_features(CHOSEN)) for one in SETS]
    for way in (1800.0, 3200.0):
        cells = [_cell(trained(*one, epsilon, repeats, way, STEPS)) for one in both for epsilon in (1.0, 3.0)]
        print(f"| {way:.0f} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    names, repeats = list(CANDIDATES), parser.get_default("repeats")
    tables: dict[str, Callable[[], None]] = {
        "both": lambda: compare(names[:2], SETS, (1.0, 3.0), repeats),
        "few": lambda: few(repeats + 2),
        "ways": lambda: ways(repeats),
        "others": lambda: compare(names[2:], SETS, (3.0,), repeats),
        "more": lambda: compare(list(MORE), SETS, (3.0,), repeats),
        "first": lambda: first(repeats),
    }
    parser.add_argument("--only", choices=list(tables), help="one table")
    given = parser.parse_args()
    repeats = given.repeats
    if given.quick:
        compare(names[:2], ("mnist:6000", "fashion-mnist:6000"), (3.0,), repeats)
        return
    for name, table in tables.items():
        if given.only in (None, name):
            table()


if __name__ == "__main__":
    main()
