"""How clip norms, momentum, whitening's share, hashed words and what else is constant were chosen: on training records.

    DPTUNE_DATA=... python benchmarks/choose_constants.py [--topics clip,tables,share,words,quantile,free,automatic]
        [--data imdb:20000] [--fit] [--quick] [--keep benchmarks/constants.jsonl]

One line of JSON for each training of the kind's default, untuned, with one thing changed, at the same total epsilon:
trained on the first training records, judged on the last 10,000, or a fifth where that is less. The test part is not
looked at. Lines that are there are not computed again. Trainings are seeded: a line can be made again.

Then, or with ``--fit`` at once, a table for each topic, and what the *other* data sets would choose for each one.
``--quick`` trains a few cells of 1,000 records.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import bz2
import functools
import hashlib
import itertools
import json
import math
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Floats
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import Kind, kind_of_benchmark
from dptune.randomness import Randomness
from dptune.training import Adam, Automatic, Dataset, DpSgdTrainer, Momentum, Quantile, Sgd, load
from dptune.training.benchmark_data import data_root
from dptune.training.features import named_features
from dptune.training.free_trainer import FreeTrainer
from dptune.training.whitening import Whitening

KEEP = Path(__file__).with_name("constants.jsonl")
DELTA = 1e-5
JUDGED = 10_000
EPSILONS = (1.0, 3.0)
LARGE = ("fashion-mnist:50000", "mnist:50000", "imdb:20000")
SMALL = ("fashion-mnist:6000", "mnist:6000", "imdb:6000")
TABLES = ("adult:24000", "adult:4000")
CLIPS, TABLE_CLIPS = (0.03, 0.1, 0.3, 1.0), (0.3, 1.0, 3.0)
PACES, TABLE_RATES = (0.5, 1.0, 2.0), (0.01, 0.02, 0.05)
SHARES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
MOMENTA = (0.0, 0.5)
STEPS, RATE = 400, 0.1
CHOSEN_WORDS = "8192"
TEXT_WORK = 5e9  # numbers that a training on words may read, the default when words were compared
QUANTILES = (0.5, 0.75, 0.9, 0.95)
REACHES = (0.125, 0.25, 0.5)
TOPICS = ("clip", "tables", "share", "words", "quantile", "free", "automatic")


@dataclass(frozen=True)
class Cell:
    """One training: the kind's default, but for what is named here."""

    topic: str
    data: str
    epsilon: float
    clip: float = 0.1
    pace: float = 1.0  # times the rule's way (learning rate x clip norm x steps); of tables Adam's rate for 300 steps
    momentum: float = 0.9
    share: float | None = None  # of whitening; None: the kind's own, 0: not whitened
    words: str = ""  # of texts: how many buckets, and what goes into them
    steps: int = STEPS  # 0: as many as the planner takes
    quantile: float = 0.0  # of gradients' norms that the clip norm follows; 0: it stays as it is
    reach: float = 0.0  # of the hyperparameter-free optimiser; 0: the kind's learning rate
    automatic: bool = False  # clipping that divides every gradient by its norm
    repeat: int = 0


@dataclass(frozen=True)
class Row:
    """A cell with what came out."""

    cell: Cell
    accuracy: float
    seconds: float


def _words(name: str) -> str:
    return CHOSEN_WORDS if name.startswith("imdb") else ""


def clip_cells() -> Iterator[Cell]:
    """Clip norms with three ways each; momentum at the default."""
    for epsilon in EPSILONS:
        for name in (*LARGE, *SMALL):
            repeats = 3 if name in SMALL[:2] else 1
            for repeat in range(repeats):
                usual = Cell("clip", name, epsilon, words=_words(name), repeat=repeat)
                yield from (replace(usual, clip=clip, pace=pace) for clip in CLIPS for pace in PACES)
                yield from (replace(usual, momentum=one) for one in MOMENTA)


def table_cells() -> Iterator[Cell]:
    """Clip norms of tables with three learning rates each."""
    for name, repeats in zip(TABLES, (3, 5), strict=True):
        for repeat in range(repeats):
            for epsilon in EPSILONS:
                for clip in TABLE_CLIPS:
                    yield from (Cell("tables", name, epsilon, clip, pace, repeat=repeat) for pace in TABLE_RATES)


def share_cells() -> Iterator[Cell]:
    """Shares of the signal that second moments get; 0: not whitened."""
    for repeat in range(2):
        for epsilon in EPSILONS:
            for name in (LARGE[0], LARGE[1], SMALL[0], SMALL[1]):
                yield from (Cell("share", name, epsilon, share=one, repeat=repeat) for one in (0.0, *SHARES))


def word_cells() -> Iterator[Cell]:
    """Ways to make a row of a review, with as many steps as the planner takes for so many numbers."""
    for repeat in range(2):
        for epsilon in EPSILONS:
            for name, some in (("imdb:20000", WORDS), ("imdb:6000", WORDS[:5])):
                yield from (Cell("words", name, epsilon, words=one, steps=0, repeat=repeat) for one in some)


def quantile_cells() -> Iterator[Cell]:
    """Quantiles for adaptive clipping, which begins at a clip norm of 1; 0: the fixed clip norm of the kind."""
    for epsilon in EPSILONS:
        for name in (*LARGE, *SMALL, *TABLES):
            for repeat in range(3 if name in (*SMALL[:2], *TABLES) else 1):
                for one in (0.0, *QUANTILES):
                    pace = 0.02 if name in TABLES else 1.0
                    clip = 1.0 if one or name in TABLES else 0.1
                    yield Cell("quantile", name, epsilon, clip, pace, words=_words(name), quantile=one, repeat=repeat)


def free_cells() -> Iterator[Cell]:
    """How far the hyperparameter-free optimiser goes in a step; 0: the untuned rule of the kind, for comparison."""
    for epsilon in EPSILONS:
        for name in (*LARGE, *SMALL, *TABLES):
            for repeat in range(3 if name in (*SMALL[:2], *TABLES) else 1):
                usual = Cell("free", name, epsilon, words=_words(name), steps=0, repeat=repeat)
                yield from (replace(usual, reach=one) for one in (0.0, *REACHES))


def automatic_cells() -> Iterator[Cell]:
    """Automatic clipping with the rule of the kind, beside the rule."""
    for epsilon in EPSILONS:
        for name in (*LARGE, *SMALL):
            for repeat in range(3):
                usual = Cell("automatic", name, epsilon, words=_words(name), steps=0, repeat=repeat)
                yield from (usual, replace(usual, automatic=True))


CELLS: dict[str, Callable[[], Iterator[Cell]]] = {
    "clip": clip_cells, "tables": table_cells, "share": share_cells, "words": word_cells,
    "quantile": quantile_cells, "free": free_cells, "automatic": automatic_cells,
}  # fmt: skip
QUICK = (
    Cell("clip", "mnist:1000", 3.0),
    Cell("clip", "mnist:1000", 3.0, clip=1.0),
    Cell("share", "mnist:1000", 3.0, share=0.0),
    Cell("tables", "adult:1000", 3.0, clip=1.0, pace=0.02),
    Cell("words", "imdb:1000", 3.0, words="512", steps=0),
    Cell("quantile", "adult:1000", 3.0, clip=1.0, pace=0.02, quantile=0.9),
    Cell("free", "adult:1000", 3.0, steps=0, reach=0.25),
    Cell("automatic", "mnist:1000", 3.0, steps=0, automatic=True),
)

# What becomes a number: single words, pairs of neighbours too, words but common ones; counts are damped by a root or
# by presence alone.
WORDS = ("1024", "2048", "4096", "8192", "16384", "2048 pairs", "4096 pairs", "8192 pairs", "2048 without common words",
         "4096 without common words", "2048 presence", "4096 presence")  # fmt: skip
_WORD = re.compile(r"[a-z']+")


@functools.lru_cache(maxsize=2**20)
def _code(word: str) -> int:
    return zlib.crc32(word.encode())


@functools.cache
def _common() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # noqa: PLC0415 - one candidate needs it

    return frozenset(ENGLISH_STOP_WORDS)


def hashed(text: str, words: str) -> Floats:
    """The row of one review, as ``words`` says."""
    buckets, _, how = words.partition(" ")
    found = _WORD.findall(text.lower())
    if how == "without common words":
        found = [word for word in found if word not in _common()]
    if how == "pairs":
        found = [*found, *(f"{one} {other}" for one, other in itertools.pairwise(found))]
    counts = Counter(found)
    codes = np.array([_code(word) for word in counts], np.int64)
    size = np.ones(len(counts)) if how == "presence" else np.sqrt(np.array(list(counts.values()), np.float64))
    row = np.bincount((codes >> 1) % int(buckets), np.where(codes & 1, size, -size), int(buckets))
    unit: Floats = (row / max(float(np.linalg.norm(row)), 1e-9)).astype(np.float32)
    return unit


def _texts(words: str) -> Dataset:
    with bz2.open(data_root() / "imdb" / "imdb_train.tsv.bz2", "rt", encoding="utf-8", newline="\n") as stream:
        lines = [line.rstrip("\n").split("\t", 3) for line in stream]
    labels = np.array([one[0] in {"1", "pos", "positive"} for one in lines], np.int64)
    return Dataset(np.array([hashed(one[3], words) for one in lines]), labels, 2, public=True)


@functools.lru_cache(maxsize=1)
def prepared(name: str, words: str) -> tuple[Kind, Dataset, Dataset]:
    """The kind, the records that are trained on, those that judge."""
    data, _, size = name.partition(":")
    kind = kind_of_benchmark(data)
    assert kind is not None, name
    whole = _texts(words) if data == "imdb" else load(data).train
    order = np.random.default_rng(11).permutation(len(whole))  # some files are sorted by class
    judges = min(JUDGED, len(whole) // 5)
    some = whole.take(np.r_[order[: int(size)], order[len(whole) - judges :]])
    if kind.features != "none":
        some = some.map(named_features(kind.features), (-1.0, 1.0))
    return kind, some.take(np.arange(int(size))), some.take(np.arange(int(size), len(some)))


def trainer(cell: Cell, kind: Kind, data: Dataset) -> DpSgdTrainer:
    """The kind's default with what the cell changes, and the noise that its total asks for."""
    if cell.share is not None:
        kind = replace(kind, whitened=cell.share > 0)
    if kind.name == "table" and cell.topic != "free":
        kind = replace(kind, whitened=False)  # as tables were trained on when these were compared
    if cell.topic == "words":
        kind = replace(kind, work=TEXT_WORK)
    made = kind.trainer(data.features, data.classes, len(data), epsilon=cell.epsilon)
    if cell.share:
        made = replace(made, whitening=Whitening(share=cell.share))
    if cell.automatic:
        made = replace(made, settings=replace(made.settings, clipping=Automatic()))
    if not cell.steps:
        return _noised(made, cell.epsilon)
    own = made.settings
    table = kind.name == "table"
    way = own.learning_rate * own.clip_norm * own.steps * cell.pace
    slower = (1 - cell.momentum) / (1 - 0.9)  # a step of less momentum goes less far
    settings = replace(
        own,
        sampling_rate=RATE,
        batch_size=RATE * len(data),
        steps=cell.steps,
        clip_norm=cell.clip,
        learning_rate=cell.pace * 300 / cell.steps if table else slower * way / (cell.clip * cell.steps),
        clipping=Quantile(cell.quantile) if cell.quantile else own.clipping,
        optimizer=Adam() if table else Momentum(cell.momentum) if cell.momentum else Sgd(),
    )
    return _noised(replace(made, settings=settings), cell.epsilon)


def _noised(made: DpSgdTrainer, epsilon: float) -> DpSgdTrainer:
    one = made.settings
    share = made.whitening.share if made.whitening is not None else None
    noise = _noise(one.sampling_rate, one.steps, share, epsilon, made)
    return replace(made, settings=replace(one, noise_multiplier=noise))


_NOISE: dict[Any, float] = {}


def _noise(rate: float, steps: int, share: float | None, epsilon: float, made: DpSgdTrainer) -> float:
    key = (rate, steps, share, epsilon)
    if key not in _NOISE:
        _NOISE[key] = calibrate_noise(lambda level: made.cost({"noise_multiplier": level}), epsilon, DELTA)
    return _NOISE[key]


def train(cell: Cell) -> Row:
    """One seeded training."""
    kind, data, judges = prepared(cell.data, cell.words)
    one: Any = trainer(cell, kind, data)
    if cell.reach:
        one = FreeTrainer(one, reach=cell.reach)
    text = json.dumps(_changed(cell), sort_keys=True)
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")
    begun = time.process_time()
    model = one.fit({}, data, Randomness.rehearsal(seed)).model
    seconds = time.process_time() - begun
    return Row(cell, round(float(model.accuracy(judges)), 5), round(seconds, 1))


def _changed(cell: Cell) -> dict[str, Any]:
    """What a cell says beside the defaults of its fields, so that a further field changes no line."""
    usual = {one.name: one.default for one in fields(Cell)}
    return {name: value for name, value in asdict(cell).items() if usual[name] != value}


def read(path: Path = KEEP) -> list[Row]:
    """The table."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Row(Cell(**line.pop("cell")), **line) for line in lines]


def make(wanted: Iterable[Cell], keep: Path | None) -> list[Row]:
    """The rows of these cells; what is missing is trained, one data set after the other."""
    known = {row.cell: row for row in (read(keep) if keep is not None else ())}
    for cell in sorted(set(wanted) - set(known), key=lambda one: (one.topic, one.data, one.words, one.repeat)):
        known[cell] = train(cell)
        if keep is not None:
            with keep.open("a") as stream:
                stream.write(json.dumps({**asdict(known[cell]), "cell": _changed(cell)}) + "\n")
    return list(known.values())


def _label(cell: Cell) -> str:
    """What a cell changes, without the data set, the epsilon and the repeat."""
    words = {
        "words": cell.words,
        "share": f"share {cell.share:g}" if cell.share else "not whitened",
        "quantile": f"quantile {cell.quantile:g}" if cell.quantile else "fixed clip norm",
        "free": f"reach {cell.reach:g}" if cell.reach else "the rule of the kind",
        "automatic": "automatic clipping" if cell.automatic else "the rule of the kind",
        "tables": f"clip {cell.clip:g}, learning rate {cell.pace:g}",
    }
    slower = "" if cell.momentum == 0.9 else f", momentum {cell.momentum:g}"
    return words.get(cell.topic, f"clip {cell.clip:g}, way x {cell.pace:g}{slower}")


DEFAULTS = {"clip": "clip 0.1, way x 1", "tables": "clip 1, learning rate 0.02", "share": "share 0.16",
            "words": "8192", "quantile": "quantile 0.5", "free": "reach 0.125",
            "automatic": "the rule of the kind"}  # fmt: skip


def means(rows: list[Row]) -> dict[tuple[str, float], dict[str, list[float]]]:
    """Accuracies by data set and epsilon, then by what was changed."""
    found: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda one: (one.cell.data, one.cell.epsilon, one.cell.repeat)):
        column = found.setdefault((row.cell.data, row.cell.epsilon), {})
        column.setdefault(_label(row.cell), []).append(row.accuracy)
    return found


def _cell(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ({np.std(values, ddof=1) / math.sqrt(len(values)):.4f})"


def show(topic: str, rows: list[Row]) -> None:
    """Print what one topic found: a line for each setting, then what the other data sets would choose."""
    columns = means([row for row in rows if row.cell.topic == topic])
    if not columns:
        return
    print(f"\n| {topic} | " + " | ".join(f"{name}, epsilon {epsilon:g}" for name, epsilon in columns) + " |")
    for label in _labels(columns):
        cells = (_cell(column[label]) if label in column else "" for column in columns.values())
        print(f"| {label} | " + " | ".join(cells) + " |")
    for group, chosen in chosen_without(topic, rows).items():
        own = [column for (name, _), column in columns.items() if _group(name) == group]
        reached, best = (
            max(float(np.mean([_gain(column, label, DEFAULTS[topic]) for column in own])) for label in labels)
            for labels in ([chosen], _labels(columns))
        )
        print(f"chosen without {group}: {chosen}; there it is {reached:+.4f} from the default, the best {best:+.4f}")


def chosen_without(topic: str, rows: list[Row]) -> dict[str, str]:
    """For each data set the setting that the *others* would choose: the largest mean over their columns."""
    columns = means([row for row in rows if row.cell.topic == topic])
    found = {}
    for group in dict.fromkeys(_group(name) for name, _ in columns):
        others = [column for (name, _), column in columns.items() if _group(name) != group]
        if others:
            gained = {label: [_gain(column, label, DEFAULTS[topic]) for column in others] for label in _labels(columns)}
            found[group] = max(gained, key=lambda label: float(np.mean(gained[label])))
    return found


def _labels(columns: dict[tuple[str, float], dict[str, list[float]]]) -> list[str]:
    return list(dict.fromkeys(label for column in columns.values() for label in column))


def _group(name: str) -> str:
    return name.partition(":")[0]


def _gain(column: dict[str, list[float]], label: str, default: str) -> float:
    if label not in column or default not in column:
        return -math.inf
    return float(np.mean(column[label]) - np.mean(column[default]))


def main() -> None:
    """Train what is missing, and print a table for each topic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", default=",".join(TOPICS))
    parser.add_argument("--data", help="some data sets alone, with commas between them")
    parser.add_argument("--fit", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a few small cells, not kept")
    parser.add_argument("--keep", type=Path, default=KEEP)
    given = parser.parse_args()
    if given.quick:
        rows = make(QUICK, None)
    elif given.fit:
        rows = read(given.keep)
    else:
        wanted = [cell for topic in given.topics.split(",") for cell in CELLS[topic]()]
        some = None if given.data is None else set(given.data.split(","))
        rows = make([cell for cell in wanted if some is None or cell.data in some], given.keep)
    for topic in given.topics.split(","):
        show(topic, rows)


if __name__ == "__main__":
    main()
