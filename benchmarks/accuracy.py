"""What one command reaches: accuracy of released models on test records that no run looked at.

    DPTUNE_DATA=... python benchmarks/accuracy.py [--data mnist,adult] [--epsilon 1] [--validation private]
        [--repeats 5] [--features scattering] [--runs 60] [--keep rows.jsonl]

Each repetition is a sealed run of what ``dptune tune --data X --epsilon E`` plans, nothing else given. The test part is
split into halves by a fixed permutation: one half is the public validation (where there is one), the other half gives
the figure. ``--method default`` trains the rule of the kind once, untuned, at the same total. ``--features`` replaces
those of the kind. ``--runs`` asks for tuning with about so many runs, also where the planner would train once. Rows go
to ``--keep`` as they are made, and those that are there already are not run again.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune.accounting import NegativeBinomial
from dptune.accounting.calibrate import calibrate_noise
from dptune.executors import Processes
from dptune.methods import Budget
from dptune.planner import choose
from dptune.planner.kinds import Kind, kind_of_benchmark
from dptune.randomness import Randomness
from dptune.sealed import run
from dptune.training import Dataset, DpSgdTrainer, Split, TrainedModel, load
from dptune.training.features import named_features

DELTA = 1e-5
HALVES = 7  # the seed of the permutation that halves a test part


def prepared(name: str, kind: Kind) -> Split:
    """A benchmark with the features of its kind."""
    make = named_features(kind.features)
    return Split(*(part if kind.features == "none" else part.map(make, (-1.0, 1.0)) for part in load(name)))


def halves(test: Dataset) -> tuple[Dataset, Dataset]:
    """The public validation half, and the half for the figure."""
    order = np.random.default_rng(HALVES).permutation(len(test))
    return test.take(order[: len(test) // 2]), test.take(order[len(test) // 2 :])


def tuned(split: Split, kind: Kind, epsilon: float, validation: str, repeats: int, runs: float | None = None) -> Any:
    """One sealed run after another: accuracy, seconds and parameters of each."""
    law = None if runs is None else NegativeBinomial(5.0, runs)
    public, unseen = halves(split.test)
    n, data = len(split.train), split.train
    begin = time.perf_counter()
    scored = public if validation == "public" else None
    trainer = kind.trainer(data.features, data.classes, n, epsilon=epsilon, validation=scored)
    space = kind.space(data.features, n, epsilon=epsilon)
    advice = choose(trainer, space, Budget(epsilon, DELTA), records=n, runs=law)
    planned = time.perf_counter() - begin
    print(advice.explanation, flush=True)
    for _ in range(repeats):
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            release = run(
                advice.plan, trainer, data, data_is="public", out=Path(folder) / "run", executor=Processes(1),
                explain=None,
            )  # fmt: skip
            model = release.model
        assert isinstance(model, TrainedModel)
        yield model.accuracy(unseen), planned + time.perf_counter() - begin, dict(release.params)


def untuned(split: Split, kind: Kind, epsilon: float, repeats: int) -> Any:
    """The rule of the kind, trained once on everything at the same total."""
    _, unseen = halves(split.test)
    trainer = kind.trainer(split.train.features, split.train.classes, len(split.train), epsilon=epsilon)
    one = trainer.settings
    noise = calibrate_noise(lambda level: trainer.cost({"noise_multiplier": level}), epsilon, DELTA)
    for _ in range(repeats):
        begin = time.perf_counter()
        model = _fit(trainer, noise, split.train)
        yield model.accuracy(unseen), time.perf_counter() - begin, {"learning_rate": one.learning_rate}


def _fit(trainer: DpSgdTrainer, noise: float, data: Dataset) -> Any:
    return trainer.fit({"noise_multiplier": noise}, data, Randomness.fresh()).model


def main() -> None:
    """Print a line for each data set, epsilon and kind of validation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist,fashion-mnist,adult,imdb")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--validation", default="private,public")
    parser.add_argument("--method", default="tuned,default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--features", help="other features than the kind of data has")
    parser.add_argument("--runs", type=float, help="tune with about so many runs, whatever the planner expects")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    for name in given.data.split(","):
        kind = kind_of_benchmark(name)
        assert kind is not None, name
        kind = kind if given.features is None else replace(kind, features=given.features)
        split = prepared(name, kind)
        for epsilon in map(float, given.epsilon.split(",")):
            wanted = [("tuned", one) for one in given.validation.split(",")] + [("default", "none")]
            for method, validation in wanted:
                if method in given.method.split(","):
                    line(split, name, kind, epsilon, method, validation, given)


def line(split: Split, name: str, kind: Kind, epsilon: float, method: str, validation: str, given: Any) -> None:
    """Run what is not kept yet of one setting, and print its mean, error, worst run and time."""
    label = {
        "data": name,
        "epsilon": epsilon,
        "method": method,
        "validation": validation,
        "features": kind.features,
        "runs": given.runs,
    }
    rows = _kept(given.keep, label)
    left = max(0, given.repeats - len(rows))
    made = untuned(split, kind, epsilon, left) if method == "default" else None
    if made is None:
        made = tuned(split, kind, epsilon, validation, left, given.runs) if left else ()
    for accuracy, seconds, params in made:
        row = {**label, "accuracy": accuracy, "seconds": seconds, "params": params}
        rows.append(row)
        if given.keep is not None:
            with given.keep.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
    values = np.array([row["accuracy"] for row in rows])
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    seconds = float(np.mean([row["seconds"] for row in rows]))
    print(
        f"{name:14} epsilon {epsilon:g}  {method:8} {validation:8} {values.mean():.4f} (error {error:.4f}, worst "
        f"{values.min():.4f}, {len(values)} runs)  {seconds:.0f} s",
        flush=True,
    )


def _kept(path: Path | None, label: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows that were made before."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if all(row.get(key) == value for key, value in label.items())]


if __name__ == "__main__":
    main()
