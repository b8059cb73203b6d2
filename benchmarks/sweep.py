"""Is the planner's choice near the best of a small sweep over (part, law of the number of runs, steps)?

    DPTUNE_DATA=... python benchmarks/sweep.py [--data mnist,imdb] [--epsilon 1] [--repeats 3] [--keep rows.jsonl]

Trained on the first records of each training part and judged on its last ones (10,000, or a fifth where that is less),
so the test part is not looked at. A cell is a sealed run at the same total with private validation: tuning on a share
of the records, negative binomial of shape 5 and this mean, the usual steps or half of them. "planner" is what one
command would do, "default" one training by the rule. Rows go to ``--keep`` as they are made; those that are there are
not run again. The best cell of a table is the largest of noisy means, so it is better than the best plan would be; so
there is a second figure: the best cell of all repeats but one, judged by that one, over all repeats.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dptune.accounting import NegativeBinomial
from dptune.executors import Processes
from dptune.methods import Budget, Plan, RandomGuess
from dptune.planner import choose
from dptune.planner.forecast import Forecast, Part
from dptune.planner.kinds import Kind, kind_of_benchmark
from dptune.planner.weighing import subset_offer
from dptune.sealed import run
from dptune.spaces import Space
from dptune.training import Dataset, DpSgdTrainer, TrainedModel

if TYPE_CHECKING:
    from benchmarks.accuracy import DELTA, prepared
else:  # a script's own folder is where it looks first
    from accuracy import DELTA, prepared

JUDGED = 10_000
PARTS, STEPS = ((0.03, 20), (0.03, 60), (0.1, 20)), (1.0, 0.5)  # shares of the records and mean numbers of runs
HELD = 0.5  # of a part, for scores: what the planner takes, too

Make = Callable[[], tuple[Plan, DpSgdTrainer]]


def parted(name: str, kind: Kind) -> tuple[Dataset, Dataset]:
    """The records that are trained on, and those that judge."""
    train = prepared(name, kind).train
    order = np.random.default_rng(11).permutation(len(train))  # some files are sorted by class
    judged = min(JUDGED, len(train) // 5)
    return train.take(order[judged:]), train.take(order[:judged])


def cells(kind: Kind, train: Dataset, epsilon: float) -> Iterator[tuple[str, Make]]:
    """What is compared, each by its name."""
    n, budget = len(train), Budget(epsilon, DELTA)
    usual, space = (
        kind.trainer(train.features, train.classes, n, epsilon=epsilon),
        kind.space(train.features, n, epsilon=epsilon),
    )
    yield "planner", lambda: (choose(usual, space, budget, records=n).plan, usual)
    rule = Space.of([{"learning_rate": usual.settings.learning_rate}])
    yield "default", lambda: (RandomGuess(rule).plan(budget, usual), usual)
    for share in STEPS:
        steps = max(1, round(usual.settings.steps * share))
        trainer = replace(usual, settings=replace(usual.settings, steps=steps))
        tried = _longer(space, 1 / share)
        for fraction, mean in PARTS:
            part = Part(fraction, NegativeBinomial(5.0, mean), HELD, Forecast(0.0, 0.0, 0.0))
            yield f"{fraction:g} x {mean}, {steps} steps", _cell(trainer, tried, budget, n, part)


def _longer(space: Space, factor: float) -> Space:
    """The same ways, learning rate x steps, with other steps."""
    return Space(**{name: one.times(factor) for name, one in space.dimensions})  # type: ignore[union-attr]


def _cell(trainer: DpSgdTrainer, space: Space, budget: Budget, records: int, part: Part) -> Make:
    return lambda: (subset_offer(trainer, space, budget, records, part).plan, trainer)


def accuracies(make: Make, train: Dataset, judge: Dataset, repeats: int) -> Iterator[float]:
    """One sealed run after the other."""
    if repeats <= 0:
        return
    plan, trainer = make()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            model = run(plan, trainer, train, data_is="public", out=out, executor=Processes(1), explain=None).model
        assert isinstance(model, TrainedModel)
        yield model.accuracy(judge)


def main() -> None:
    """Print a table for each data set and total."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist,fashion-mnist,adult,imdb")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    for name in given.data.split(","):
        kind = kind_of_benchmark(name)
        assert kind is not None, name
        train, judge = parted(name, kind)
        for epsilon in map(float, given.epsilon.split(",")):
            table: dict[str, list[float]] = {}
            for cell, make in cells(kind, train, epsilon):
                label = {"data": name, "epsilon": epsilon, "cell": cell}
                values = _kept(given.keep, label)
                for value in accuracies(make, train, judge, given.repeats - len(values)):
                    values.append(value)
                    _keep(given.keep, {**label, "accuracy": value})
                error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
                table[cell] = values[: given.repeats]
                print(f"{name:14} epsilon {epsilon:g}  {cell:22} {np.mean(values):.4f} (error {error:.4f})", flush=True)
            print(f"{name}: {verdict(table)}", flush=True)


def verdict(table: dict[str, list[float]]) -> str:
    """How far the planner is below the best cell, and below one that was chosen by other repeats."""
    runs = np.array(list(table.values()))
    own, usual = (float(np.mean(table[name])) for name in ("planner", "default"))
    best = int(np.argmax(runs.mean(axis=1)))
    said = f"the planner is {runs[best].mean() - own:.4f} below the best ({list(table)[best]})"
    if runs.shape[1] > 1:
        others = runs.sum(axis=1, keepdims=True) - runs
        chosen = np.array([runs[place, repeat] for repeat, place in enumerate(np.argmax(others, axis=0))])
        behind = chosen - np.array(table["planner"])
        error = behind.std(ddof=1) / np.sqrt(len(behind))
        said += f", {behind.mean():.4f} (error {error:.4f}) below what other repeats would choose,"
    both = np.array([*table["planner"], *table["default"]])
    spread = f" (error {both.std(ddof=1) / np.sqrt(len(both)):.4f})" if len(both) > 2 else ""
    others = max(float(np.mean(values)) for name, values in table.items() if name not in ("planner", "default"))
    said += f" and {own - usual:+.4f} from the default; the two together {both.mean():.4f}{spread}, "
    return f"{said}the best other row {others - both.mean():+.4f} from that"


def _kept(path: Path | None, label: dict[str, Any]) -> list[float]:
    """Accuracies that were measured before."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["accuracy"] for row in rows if all(row.get(key) == value for key, value in label.items())]


def _keep(path: Path | None, row: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
