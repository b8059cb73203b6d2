"""Landscapes of public data sets: what accuracy which settings reach, measured once and kept in ``landscapes.jsonl``.

    DPTUNE_DATA=... python benchmarks/landscapes.py [--data mnist,digits] [--keep benchmarks/landscapes.jsonl]

One line of JSON for each training: the data set, the settings, the accuracy on public test records. Lines that are
there are not computed again, so that it can be stopped and goes on. Sizes are small (at most 6,000 records for training
and 2,000 for the figure) so that all of it takes minutes, but for two large ones: 50,000 records as one command treats
them, judged on 10,000 other records of the training part. ``benchmarks/defaults.py`` and ``benchmarks/forecast.py``
read the table. Trainings are seeded: a line can be made again.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from dptune.accounting import DpSgd
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_named
from dptune.randomness import Randomness
from dptune.training import Adam, Dataset, DpSgdTrainer, Momentum, Settings, Split, load, softmax
from dptune.training.benchmark_data import imdb
from dptune.training.features import named_features
from dptune.training.whitening import Whitening

KEEP = Path(__file__).with_name("landscapes.jsonl")
RECORDS, TESTED = 6000, 2000
WORDS = 2048  # buckets of reviews, the default when these were trained
SHARE = 0.04  # of whitening, likewise
EPSILON, DELTA = 3.0, 1e-5
WAYS = tuple(800.0 * 2**place for place in range(5))
SHORT = (100.0, 200.0, 400.0)  # shorter ways, for few records
RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
UNIT, TABLE = "unit", "table"  # kinds: features of length one (images, texts); what a schema makes
LARGE = "large"  # many images with the defaults of their kind, at epsilon 1
LARGE_EPSILON, LARGE_PART, JUDGED = 1.0, 0.03, 10_000
LARGE_WAYS = tuple(2400.0 * 2.0**octave for octave in (-3, -2, -1, 0, 1, 2, 3))
_BATCH = 256


@dataclass(frozen=True)
class Cell:
    """One training: what it is about and how it is done."""

    data: str
    kind: str
    steps: int
    clip: float
    pace: float  # of kind "unit" the way (learning rate x clip norm x steps), of kind "table" Adam's learning rate
    part: float = 1.0  # of the records
    noise: float = 1.0  # times the noise of EPSILON
    repeat: int = 0


@dataclass(frozen=True)
class Row:
    """A cell with what came out."""

    cell: Cell
    records: int
    tested: int
    accuracy: float


def images(name: str) -> Split:
    """A benchmark's first records, with oriented gradients."""
    train, test = load(name)
    make = named_features("oriented-gradients")
    return Split(
        train.take(_some(train, RECORDS)).map(make, (-1, 1)), test.take(_some(test, TESTED)).map(make, (-1, 1))
    )


def plain(name: str) -> Split:
    """A benchmark's records as they are."""
    train, test = imdb(WORDS) if name == "imdb" else load(name)
    return Split(train.take(_some(train, RECORDS)), test.take(_some(test, TESTED)))


def large(name: str) -> Split:
    """A benchmark's training part with the features of its kind: all but the last 10,000, and those."""
    data, make = load(name).train, named_features(kind_named("image").features)
    some = [
        data.take(np.arange(start, end)) for start, end in ((0, len(data) - JUDGED), (len(data) - JUDGED, len(data)))
    ]
    return Split(*(part.map(make, (-1, 1)) for part in some))


def _some(data: Dataset, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(1).permutation(len(data))[:count]


def breast_cancer() -> Split:
    """scikit-learn's 569 cases, each column scaled to [0, 1]."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - one of several sources

    x, y = load_breast_cancer(return_X_y=True)
    return _split(x / x.max(axis=0), y, 400)


def synthetic(seed: int) -> Split:
    """Clusters of scikit-learn's generator: 20, 60 or 100 columns, 2, 3 or 5 classes."""
    from sklearn.datasets import make_classification  # noqa: PLC0415

    width, classes = (20, 60, 100)[seed % 3], (2, 3, 5)[seed % 3]
    x, y = make_classification(
        RECORDS + TESTED, width, n_informative=width // 3, n_redundant=width // 5, n_classes=classes, flip_y=0.05,
        class_sep=0.8, random_state=seed,
    )  # fmt: skip
    return _split(np.clip(x / 6, -1, 1), y, RECORDS)


def _split(x: np.ndarray, y: np.ndarray, count: int) -> Split:
    order = np.random.default_rng(2).permutation(len(x))
    x, y, classes = x[order].astype(np.float32), y[order].astype(np.int64), int(y.max()) + 1
    return Split(Dataset(x[:count], y[:count], classes), Dataset(x[count:], y[count:], classes))


SETS: dict[str, tuple[str, Callable[[], Split]]] = {
    "digits": (UNIT, lambda: images("digits")),
    "mnist": (UNIT, lambda: images("mnist")),
    "fashion-mnist": (UNIT, lambda: images("fashion-mnist")),
    "cifar-10": (UNIT, lambda: images("cifar-10")),
    "imdb": (UNIT, lambda: plain("imdb")),
    "mnist-large": (LARGE, lambda: large("mnist")),
    "fashion-mnist-large": (LARGE, lambda: large("fashion-mnist")),
    "adult": (TABLE, lambda: plain("adult")),
    "breast-cancer": (TABLE, breast_cancer),
    "synthetic-0": (TABLE, lambda: synthetic(0)),
    "synthetic-1": (TABLE, lambda: synthetic(1)),
    "synthetic-2": (TABLE, lambda: synthetic(2)),
}


def cells(name: str) -> Iterator[Cell]:
    """What is trained on a data set: a grid for the defaults, parts and noise for the forecast."""
    kind = SETS[name][0]
    if kind == LARGE:
        for part, repeats in ((1.0, 2), (LARGE_PART, 4)):
            for repeat in range(repeats):
                yield from (Cell(name, kind, 400, 0.1, way, part=part, repeat=repeat) for way in LARGE_WAYS)
        yield from (Cell(name, kind, 400, 0.1, way, noise=1.5) for way in LARGE_WAYS[2:5])
        return
    if kind == TABLE:
        for steps in (100, 300):
            yield from (Cell(name, kind, steps, 1.0, rate) for rate in RATES)
        return
    for steps in (100, 400):
        for clip in (0.1, 1.0):
            yield from (Cell(name, kind, steps, clip, way) for way in WAYS)
    for part in (1.0, 0.2):
        yield from (Cell(name, kind, 400, 0.1, way, part=part) for way in SHORT)
    for repeat in (0, 1):
        yield from (Cell(name, kind, 400, 0.1, way, part=0.2, repeat=repeat) for way in WAYS)
    for noise in (1.5, 2.25):
        yield from (Cell(name, kind, 400, 0.1, way, noise=noise) for way in (*SHORT, *WAYS))
    yield from (Cell(name, kind, 400, 0.1, 3200.0, part=0.2, repeat=repeat) for repeat in range(2, 6))


@functools.cache
def _noise(rate: float, steps: int) -> float:
    return calibrate_noise(lambda level: DpSgd(rate, level, steps), EPSILON, DELTA)


def train(cell: Cell, split: Split) -> Row:
    """One training on a part with the settings of the whole: a way means the same there, with more noise."""
    data = split.train.take(np.arange(round(cell.part * len(split.train))))
    trainer = _as_one_command(cell, split.train) if cell.kind == LARGE else _described(cell, data, len(split.train))
    seed = int.from_bytes(hashlib.blake2b(json.dumps(asdict(cell)).encode(), digest_size=6).digest(), "big")
    accuracy = float(trainer.fit({}, data, Randomness.rehearsal(seed)).model.accuracy(split.test))
    return Row(cell, len(data), len(split.test), accuracy)


def _as_one_command(cell: Cell, data: Dataset) -> DpSgdTrainer:
    """The trainer of the kind, whitening included, with another way; on a part, batches are smaller."""
    usual = kind_named("image").trainer(data.features, data.classes, len(data), epsilon=LARGE_EPSILON)
    least = _least_noise(data.features, data.classes, len(data))
    settings = replace(
        usual.settings,
        noise_multiplier=cell.noise * least,
        learning_rate=cell.part * cell.pace / (usual.settings.steps * usual.settings.clip_norm),
        batch_size=cell.part * usual.settings.batch_size,
    )
    return replace(usual, settings=settings, whitening=Whitening(SHARE))


@functools.cache
def _least_noise(features: int, classes: int, records: int) -> float:
    usual = kind_named("image").trainer(features, classes, records, epsilon=LARGE_EPSILON)
    one = replace(usual, whitening=Whitening(SHARE))
    return calibrate_noise(lambda level: one.cost({"noise_multiplier": level}), LARGE_EPSILON, DELTA)


def _described(cell: Cell, data: Dataset, everything: int) -> DpSgdTrainer:
    """A linear model with the cell's own settings."""
    rate = 0.1 if cell.kind == UNIT else min(0.25, max(_BATCH, everything / 32) / everything)
    pace = cell.pace if cell.kind == TABLE else cell.part * cell.pace / (cell.steps * cell.clip)
    settings = Settings(
        rate, cell.noise * _noise(rate, cell.steps), steps=cell.steps, clip_norm=cell.clip, learning_rate=pace,
        batch_size=rate * len(data), optimizer=Momentum(0.9) if cell.kind == UNIT else Adam(),
    )  # fmt: skip
    return DpSgdTrainer(softmax(data.features, data.classes), settings)


def read(path: Path = KEEP) -> list[Row]:
    """The table."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Row(Cell(**line.pop("cell")), **line) for line in lines]


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--keep", type=Path, default=KEEP)
    given = parser.parse_args()
    known = {row.cell for row in read(given.keep)}
    for name in given.data.split(","):
        missing = [cell for cell in cells(name) if cell not in known]
        split = SETS[name][1]() if missing else None
        for cell in missing:
            assert split is not None
            row = train(cell, split)
            with given.keep.open("a") as stream:
                stream.write(json.dumps({**asdict(row), "accuracy": round(row.accuracy, 5)}) + "\n")
        print(f"{name}: {len(missing)} trainings", flush=True)


if __name__ == "__main__":
    main()
