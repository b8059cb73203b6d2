"""Where the constants of the defaults and of the planner's forecast come from: landscapes of public data sets.

    DPTUNE_DATA=... python benchmarks/defaults.py [--data mnist,fashion-mnist,imdb] [--repeats 2] [--epsilon 1]

For each data set a random fifth and a random twentieth of the training part are trained on as the kind's defaults say,
over a grid of ways (learning rate x clip norm x steps), with the noise of the total epsilon. A way means the same on a
part of the records: noise over batch size grows as the batch shrinks. Accuracies are those on the public test part.

The script prints the landscapes; for each data set the way that is best on the *others* and what it loses there (leave
one out); and the constants of :mod:`dptune.planner.forecast`: how fast accuracy falls with the octaves from the best
way, how much flatter that is on more records, what less data costs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import DpSgd
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_of_benchmark
from dptune.randomness import Randomness
from dptune.training import Dataset, load
from dptune.training.features import named_features

WAYS = tuple(400.0 * 2**place for place in range(7))
PARTS = (0.05, 0.2)
DELTA = 1e-5
Landscape = NDArray[np.float64]


def landscape(name: str, epsilon: float, repeats: int) -> Landscape:
    """Accuracies by part and way."""
    kind, split, rng = kind_of_benchmark(name), load(name), np.random.default_rng(1)
    assert kind is not None
    make, records = named_features(kind.features), len(split.train)
    some = split.train.take(rng.permutation(records)[: round(PARTS[-1] * records)]).map(make, (-1.0, 1.0))
    test = split.test.take(rng.permutation(len(split.test))[:5000]).map(make, (-1.0, 1.0))
    found = np.zeros((len(PARTS), len(WAYS)))
    for row, share in enumerate(PARTS):
        part = some.take(np.arange(round(share * records)))
        for column, way in enumerate(WAYS):
            runs = [_accuracy(name, part, test, way, share, epsilon) for _ in range(repeats)]
            found[row, column] = np.mean(runs)
    return found


def _accuracy(name: str, part: Dataset, test: Dataset, way: float, share: float, epsilon: float) -> float:
    """One training on a part with the settings of the whole."""
    kind = kind_of_benchmark(name)
    assert kind is not None
    whole = kind.trainer(part.features, part.classes, round(len(part) / share), epsilon=epsilon)
    one = whole.settings
    noise = calibrate_noise(lambda level: DpSgd(one.sampling_rate, level, one.steps), epsilon, DELTA)
    params = {
        "noise_multiplier": noise,
        "batch_size": one.batch_size * share,
        "learning_rate": share * way / (one.steps * one.clip_norm),
    }
    return float(whole.fit(params, part, Randomness.fresh()).model.accuracy(test))


def bowl(row: Landscape) -> float:
    """Accuracy lost per square octave from the best way, over three octaves to either side."""
    octaves = np.arange(len(row)) - int(np.argmax(row))
    near = (np.abs(octaves) <= 3) & (octaves != 0)
    return float(np.sum((row.max() - row[near]) * octaves[near] ** 2) / np.sum(octaves[near] ** 4.0))


def main() -> None:
    """Print landscapes, ways chosen without each data set, and the forecast's constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist,fashion-mnist,imdb")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    print("part  " + "  ".join(f"{way:5g}" for way in WAYS))
    found: dict[str, Landscape] = {}
    for name in given.data.split(","):
        found[name] = landscape(name, given.epsilon, given.repeats)
        for share, row in zip(PARTS, found[name], strict=True):
            print(f"{share:4g}  " + "  ".join(f"{value:.3f}" for value in row) + f"  {name}", flush=True)
    for name, rows in found.items():
        others = [other[-1] - other[-1].max() for key, other in found.items() if key != name]
        if others:
            chosen = int(np.argmax(np.mean(others, axis=0)))
            lost = rows[-1].max() - rows[-1][chosen]
            print(f"without {name}: way {WAYS[chosen]:g}, which loses {lost:.4f} on its larger part")
    steep, flat = (float(np.mean([bowl(rows[place]) for rows in found.values()])) for place in (0, -1))
    grown = np.log(PARTS[-1] / PARTS[0])
    hunger = float(np.mean([(rows[-1].max() - rows[0].max()) / grown for rows in found.values()]))
    print(f"bowl {steep:.4f} on the small part, {flat:.4f} on the larger; e-fold noise costs {hunger:.4f}")


if __name__ == "__main__":
    main()
