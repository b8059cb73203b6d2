"""What whitening gains, by data set and size, and which way of the learning rate suits it: chosen without the set.

    DPTUNE_DATA=... python benchmarks/whitening.py [--sets digits,mnist:1200] [--repeats 3] [--epsilon 3]
        [--features gradients-and-brightness] [--share 0.04]

Each set is the first records of a training part (digits: all of it); figures are from training records that are not
among them, for digits from its test part. Each cell is the mean of ``--repeats`` trainings at the same total epsilon,
untuned. A column is a way (learning rate x clip norm x steps) for 60,000 records at epsilon 1, brought to the set's
size by the rule of ``dptune.planner.kinds``; "without it" is the way that the other sets would choose. Features and
share are those that were the default of images when the way was chosen, or what the flags say.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
from dataclasses import replace

import numpy as np

from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_named
from dptune.randomness import Randomness
from dptune.training import Dataset, DpSgdTrainer, load
from dptune.training.features import named_features
from dptune.training.whitening import Whitening

DELTA = 1e-5
WAYS = (1200.0, 1800.0, 2400.0, 3200.0, 4800.0)
JUDGED = 5000


def prepared(name: str, features: str) -> tuple[Dataset, Dataset]:
    """The records that are trained on and those that judge, with features of images."""
    data, _, size = name.partition(":")
    train, test = load(data)
    if size:
        train, test = train.take(np.arange(int(size))), train.take(np.arange(len(train) - JUDGED, len(train)))
    make = named_features(features)
    return train.map(make, (-1.0, 1.0)), test.map(make, (-1.0, 1.0))


def line(train: Dataset, judge: Dataset, epsilon: float, whitened: bool, share: float, repeats: int) -> list[float]:
    """The accuracy by way."""
    kind = replace(kind_named("image"), whitened=whitened)
    trainer = kind.trainer(train.features, train.classes, len(train), epsilon=epsilon)
    if trainer.whitening is not None:
        trainer = replace(trainer, whitening=Whitening(share))
    noise = calibrate_noise(lambda level: trainer.cost({"noise_multiplier": level}), epsilon, DELTA)
    usual = 2400.0 if whitened else 3200.0  # the way that the trainer's own learning rate has
    return [_mean(trainer, noise, way / usual, train, judge, repeats) for way in WAYS]


def _mean(trainer: DpSgdTrainer, noise: float, factor: float, train: Dataset, judge: Dataset, repeats: int) -> float:
    params = {"noise_multiplier": noise, "learning_rate": trainer.settings.learning_rate * factor}
    fitted = [trainer.fit(params, train, Randomness.fresh()) for _ in range(repeats)]
    return float(np.mean([one.model.accuracy(judge) for one in fitted]))


def main() -> None:
    """Print two lines for each set, then what the others would choose for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="digits,mnist:1200,mnist:6000,fashion-mnist:1200,fashion-mnist:6000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--features", default="gradients-and-brightness")
    parser.add_argument("--share", type=float, default=0.04, help="of the signal for second moments")
    options = parser.parse_args()
    table: dict[str, list[float]] = {}
    print(f"{'way':28}" + "".join(f"{way:8.0f}" for way in WAYS))
    for name in options.sets.split(","):
        train, judge = prepared(name, options.features)
        for whitened in (False, True):
            found = line(train, judge, options.epsilon, whitened, options.share, options.repeats)
            label = f"{name} {'whitened' if whitened else 'plain'}"
            print(f"{label:28}" + "".join(f"{one:8.4f}" for one in found), flush=True)
        table[name] = found
    for name, found in table.items():
        others = [values for other, values in table.items() if other.partition(":")[0] != name.partition(":")[0]]
        if others:
            chosen = int(np.argmax(np.sum(others, axis=0)))
            print(f"{name}: chosen without it {WAYS[chosen]:.0f}: {found[chosen]:.4f}; the best {max(found):.4f}")


if __name__ == "__main__":
    main()
