"""How much accuracy depends on rate and steps: landscapes of public data sets, and the planner's model fitted on them.

    DPTUNE_DATA=... python benchmarks/steps.py [--data mnist,imdb] [--repeats 2] [--fit] [--keep benchmarks/steps.jsonl]

One line of JSON for each training of the kind's default, untuned, with another sampling rate and number of steps and
the same way (learning rate x clip norm x steps; of tables three learning rates): trained on the first training
records, judged on the last 10,000, or a fifth where that is less. The test part is not looked at. Lines that are there
are not computed again. Trainings are seeded: a line can be made again.

Then, or with ``--fit`` at once, the model of ``dptune.planner.steps`` is fitted to the lines of each data set: what
noise loses (hunger, at 60,000 records and epsilon 1) and what few steps lose (haste). It is scored with the medians of
the *other* data sets: the mean error of what it predicts that a cell loses against the best one; and what the cell that
it would take has, its time counted, against the best cell and against one that does not know (a tenth, 400 steps).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import functools
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from dptune.accounting import Gaussian
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.defaults import TABLE_STAKES
from dptune.planner.expected import scarcity
from dptune.planner.kinds import Kind, kind_of_benchmark
from dptune.planner.steps import TOLL
from dptune.randomness import Randomness
from dptune.training import Dataset, DpSgdTrainer, load
from dptune.training.benchmark_data import imdb
from dptune.training.features import named_features
from dptune.training.whitening import Whitening

KEEP = Path(__file__).with_name("steps.jsonl")
DELTA = 1e-5
JUDGED = 10_000
EPSILONS = (1.0, 3.0)
GRID = (
    (0.05, 100), (0.1, 100), (0.2, 100), (0.05, 200), (0.1, 200), (0.2, 200), (0.05, 400), (0.1, 400), (0.2, 400),
    (0.05, 800), (0.1, 800),
)  # fmt: skip
SETS = ("fashion-mnist:50000", "mnist:50000", "imdb:20000", "adult:24000", "fashion-mnist:6000", "mnist:6000",
        "imdb:6000", "adult:4000")  # fmt: skip
FEATURES = {"fashion-mnist": 976, "mnist": 976, "imdb": 2048, "adult": 108}
BEFORE = (0.1, 400)
SHARE = 0.04  # of whitening, the default when these were trained
TABLE_RATES = (0.01, 0.02, 0.05)  # Adam's learning rates for 300 steps


@dataclass(frozen=True)
class Cell:
    """One training."""

    data: str
    epsilon: float
    rate: float
    steps: int
    pace: float  # times the rule's way; of tables the learning rate for 300 steps
    repeat: int = 0


@dataclass(frozen=True)
class Row:
    """A cell with what came out."""

    cell: Cell
    noise: float
    accuracy: float


def prepared(name: str) -> tuple[Kind, Dataset, Dataset]:
    """The kind, the records that are trained on, those that judge."""
    data, _, size = name.partition(":")
    kind, whole = kind_of_benchmark(data), (imdb(FEATURES[data]) if data == "imdb" else load(data)).train
    assert kind is not None, name
    order = np.random.default_rng(11).permutation(len(whole))  # some files are sorted by class
    judges = min(JUDGED, len(whole) // 5)
    some = whole.take(np.r_[order[: int(size)], order[len(whole) - judges :]])
    if kind.features != "none":
        some = some.map(named_features(kind.features), (-1.0, 1.0))
    return kind, some.take(np.arange(int(size))), some.take(np.arange(int(size), len(some)))


def cells(name: str, repeats: int) -> Iterator[Cell]:
    """What is trained on a data set."""
    paces = TABLE_RATES if name.startswith("adult") else (1.0,)
    for repeat in range(repeats):
        for epsilon in EPSILONS:
            yield from (Cell(name, epsilon, *one, pace, repeat) for one in GRID for pace in paces)


def trainer(cell: Cell, kind: Kind, data: Dataset) -> DpSgdTrainer:
    """The kind's default with the cell's rate and steps, and the noise that its total asks for."""
    usual = kind.trainer(data.features, data.classes, len(data), epsilon=cell.epsilon)
    own = usual.settings
    longer = cell.pace * 300 / cell.steps if kind.name == "table" else own.learning_rate * own.steps / cell.steps
    made = replace(
        usual,
        whitening=None if usual.whitening is None else Whitening(SHARE),
        settings=replace(
            own,
            sampling_rate=cell.rate,
            batch_size=cell.rate * len(data),
            steps=cell.steps,
            learning_rate=longer if kind.name == "table" else longer * cell.pace,
        ),
    )
    return replace(made, settings=replace(made.settings, noise_multiplier=_noise(made, cell.epsilon)))


def _noise(made: DpSgdTrainer, epsilon: float) -> float:
    one = made.settings
    return _calibrated(replace(made, settings=replace(one, learning_rate=1.0)), epsilon)


@functools.cache
def _calibrated(made: DpSgdTrainer, epsilon: float) -> float:
    return calibrate_noise(lambda level: made.cost({"noise_multiplier": level}), epsilon, DELTA)


def train(cell: Cell, kind: Kind, data: Dataset, judges: Dataset) -> Row:
    """One seeded training."""
    one = trainer(cell, kind, data)
    seed = int.from_bytes(hashlib.blake2b(json.dumps(asdict(cell)).encode(), digest_size=6).digest(), "big")
    accuracy = one.fit({}, data, Randomness.rehearsal(seed)).model.accuracy(judges)
    return Row(cell, one.settings.noise_multiplier, float(accuracy))


def read(path: Path = KEEP) -> list[Row]:
    """The table."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Row(Cell(**line.pop("cell")), **line) for line in lines]


@dataclass(frozen=True)
class Fit:
    """One data set at both epsilons: mean accuracy and logarithm of noise by cell, and the two constants."""

    name: str
    cells: dict[tuple[float, float, int], tuple[float, float]]
    hunger: float
    haste: float
    errors: tuple[float, float]

    @property
    def records(self) -> int:
        """How many records were trained on."""
        return int(self.name.partition(":")[2])

    def lost(self, epsilon: float, hunger: float, haste: float) -> dict[tuple[float, int], float]:
        """What every cell is predicted to lose against boundless steps."""
        more = scarcity(self.records, epsilon)
        found = {(rate, steps): noise for (own, rate, steps), (_, noise) in self.cells.items() if own == epsilon}
        return {cell: hunger * more * noise + haste / cell[1] for cell, noise in found.items()}


def fitted(name: str, rows: list[Row]) -> Fit:
    """Least squares: an accuracy for each epsilon, minus hunger and haste."""
    by_cell: dict[tuple[float, float, int], list[Row]] = {}
    for row in rows:
        by_cell.setdefault((row.cell.epsilon, row.cell.rate, row.cell.steps), []).append(row)
    least = {epsilon: calibrate_noise(Gaussian, epsilon, DELTA) for epsilon in EPSILONS}
    cells = {
        key: (
            float(np.mean([row.accuracy for row in found])),
            math.log(found[0].noise / key[1] / math.sqrt(key[2]) / least[key[0]]),
        )
        for key, found in by_cell.items()
    }
    records = int(name.partition(":")[2])
    table = np.array(
        [
            [*(float(eps == one) for one in EPSILONS), -scarcity(records, eps) * noise, -1 / steps]
            for (eps, _, steps), (_, noise) in cells.items()
        ]
    )
    means = np.array([mean for mean, _ in cells.values()])
    found = np.linalg.lstsq(table, means, rcond=None)[0]
    spread = np.sum((table @ found - means) ** 2) / (len(means) - table.shape[1])
    errors = np.sqrt(spread * np.diag(np.linalg.inv(table.T @ table)))
    return Fit(name, cells, float(found[2]), float(found[3]), (float(errors[2]), float(errors[3])))


def score(one: Fit, epsilon: float, hunger: float, haste: float, features: int) -> tuple[float, float, float]:
    """With constants of other data sets: the mean error of predicted losses; the chosen cell's accuracy against the
    best one's, and against that of a cell that does not know."""
    lost = one.lost(epsilon, hunger, haste)
    real = {cell: one.cells[epsilon, *cell][0] for cell in lost}
    gap = np.array([lost[cell] + real[cell] for cell in lost])
    taken = min(lost, key=lambda cell: lost[cell] + TOLL * features * one.records * cell[0] * cell[1] / 1e9)
    return float(np.mean(np.abs(gap - gap.mean()))), max(real.values()) - real[taken], real[taken] - real[BEFORE]


def print_fit(rows: list[Row]) -> None:
    """The constants of every data set, and how the model of the others does on it."""
    names = [name for name in SETS if any(row.cell.data == name for row in rows)]
    fits = [fitted(name, [row for row in rows if row.cell.data == name]) for name in names]
    print("| records | hunger | haste | epsilon | error of a predicted loss | below the best cell | above .1 x 400 |")
    scores = []
    for one in fits:
        data = one.name.partition(":")[0]
        table = data == "adult"
        others = [
            other for other in fits if other.name.partition(":")[0] != data and not other.name.startswith("adult")
        ]
        hunger, haste = (float(np.median([getattr(other, name) for other in others])) for name in ("hunger", "haste"))
        less = TABLE_STAKES if table else 1.0
        for epsilon in EPSILONS:
            made = score(one, epsilon, less * hunger, less * haste, FEATURES[data])
            scores.append(made)
            print(
                f"| {one.name} | {one.hunger:.4f} ({one.errors[0]:.4f}) | {one.haste:.3f} ({one.errors[1]:.3f}) | "
                f"{epsilon:g} | {made[0]:.4f} | {made[1]:.4f} | {made[2]:+.4f} |"
            )
    kept = [one for one in fits if not one.name.startswith("adult")]
    hunger, haste = (float(np.median([getattr(one, name) for one in kept])) for name in ("hunger", "haste"))
    error, below, above = np.mean(scores, axis=0)
    print(f"medians without tables: hunger {hunger:.4f}, haste {haste:.3f}")
    print(f"means: error {error:.4f}, below the best {below:.4f}, above .1 x 400 {above:+.4f}")


def main() -> None:
    """Train what is missing, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=KEEP)
    parser.add_argument("--fit", action="store_true", help="train nothing")
    given = parser.parse_args()
    known = {row.cell for row in read(given.keep)}
    for name in [] if given.fit else given.data.split(","):
        missing = [cell for cell in cells(name, given.repeats) if cell not in known]
        made = prepared(name) if missing else None
        for cell in missing:
            assert made is not None
            row = train(cell, *made)
            kept = {**asdict(row), "noise": round(row.noise, 5), "accuracy": round(row.accuracy, 5)}
            with given.keep.open("a") as stream:
                stream.write(json.dumps(kept) + "\n")
        print(f"{name}: {len(missing)} trainings", flush=True)
    print_fit(read(given.keep))


if __name__ == "__main__":
    main()
