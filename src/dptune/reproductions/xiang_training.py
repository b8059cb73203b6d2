"""Xiang et al.'s table of gains with trainings: accuracy at the same total by the previous bound, theirs and ours.

The slides name neither law nor network nor grid. Taken here: DP-HyPO's network (in colour for CIFAR-10), a grid of
learning rates, batches of 1024, and three laws whose mean is set by the table's first line. Each bound leaves one run
another epsilon at the same total; accuracies are trained on a ladder of epsilons, kept, and read between its rungs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dptune._typing import Array
from dptune.accounting import DpSgd, Runs
from dptune.accounting.calibrate import calibrate_noise
from dptune.randomness import Randomness
from dptune.reproductions.kept import Kept
from dptune.reproductions.needed import have
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Table, Verdict, verdict
from dptune.reproductions.xiang_bounds import LAWS, PRINTED, calibrated_mean, gaussian_base, left

if TYPE_CHECKING:
    from dptune.training.benchmark_data import Split

__all__ = ["FULL", "SMALL", "Scale", "expected", "full", "table_accuracy"]

DELTA, _BATCH = 1e-5, 1024
_SIZES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar-10": 50_000, "svhn": 73_257}
_SAID = {  # the slides: previous -> theirs
    "mnist": {1.0: (0.921, 0.934), 2.0: (0.942, 0.956), 4.0: (0.951, 0.958)},
    "fashion-mnist": {1.0: (0.768, 0.793), 2.0: (0.779, 0.802), 4.0: (0.791, 0.817)},
    "cifar-10": {1.0: (0.412, 0.448), 2.0: (0.467, 0.486), 4.0: (0.504, 0.531)},
    "svhn": {1.0: (0.636, 0.661), 2.0: (0.706, 0.745), 4.0: (0.762, 0.786)},
}
_IN_COLOUR = ("cifar-10", "svhn")
_BOUNDS = ("previous", "theirs", "ours")


@dataclass(frozen=True)
class Scale:
    """How much is trained: data sets, laws, epsilons of one run, learning rates, epochs, and trainings a cell.

    The network in colour is eight times as slow: it has epochs of its own (cut from three before any was looked at).
    """

    data: tuple[str, ...] = ("mnist", "fashion-mnist", "cifar-10")
    laws: tuple[str, ...] = ("geometric", "logarithmic", "poisson")
    ladder: tuple[float, ...] = (0.6, 0.9, 1.4, 2.1, 3.2, 5.0)
    rates: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    epochs: float = 3.0
    trainings: int = 2
    epochs_in_colour: float = 1.0

    def epochs_of(self, data: str) -> float:
        """Epochs of one training on these data."""
        return self.epochs_in_colour if data in _IN_COLOUR else self.epochs


FULL = Scale()
SMALL = Scale(("mnist", "fashion-mnist"), ("geometric",), (0.6, 1.4, 3.2, 5.0), (0.1, 0.5), 0.75, 2)


def full() -> Scale:
    """Everything, with SVHN if its files are there."""
    return replace(FULL, data=(*FULL.data, "svhn")) if have("svhn") else FULL


@lru_cache(maxsize=1)
def _loaded(name: str) -> Split:
    from dptune.training import load  # noqa: PLC0415 - slow imports

    return load(name)


def trained(data: str, epsilon: float, rate: float, epochs: float, seed: int) -> float:
    """The test accuracy of one private training whose own cost is (epsilon, 1e-5)."""
    from dptune.training import Cnn, DpSgdTrainer, Settings  # noqa: PLC0415 - slow imports
    from dptune.training.models import dp_hypo_cnn  # noqa: PLC0415 - the same

    split, records = _loaded(data), _SIZES[data]
    sampling, steps = _BATCH / records, max(1, round(epochs * records / _BATCH))
    noise = calibrate_noise(lambda level: DpSgd(sampling, level, steps), epsilon, DELTA)
    settings = Settings.from_batch(
        _BATCH, records, noise_multiplier=noise, steps=steps, clip_norm=1.0, learning_rate=rate
    )
    plain = dp_hypo_cnn()
    network = Cnn((3, 32, 32), 10, plain.layers, dense=(32,)) if data in _IN_COLOUR else plain
    trainer = DpSgdTrainer(network, settings, validation=split.test)
    return float(trainer.fit({}, split.train, Randomness.rehearsal(seed)).score)


def expected(accuracies: Array, law: Runs) -> float:
    """Expected accuracy of the best of a random number of uniform draws; without any run, a guess of ten classes."""
    n = len(accuracies)
    won = law.gain(np.arange(1, n + 1) / n, np.full(n, 1.0 / n))
    return float(won @ np.sort(accuracies)) + 0.1 * max(0.0, 1.0 - float(won.sum()))


def _ladders(scale: Scale, say: Callable[[str], None], folder: Path | None) -> dict[str, Array]:
    """Accuracies by data: (seed, epsilon, learning rate)."""
    kept = Kept("xiang-trainings", folder)
    shape = (scale.trainings, len(scale.ladder), len(scale.rates))
    progress = Progress(len(scale.data) * math.prod(shape), say)
    found = {}
    for data in scale.data:
        table = np.zeros(shape)
        for place in np.ndindex(shape):
            epsilon, rate, seed = scale.ladder[place[1]], scale.rates[place[2]], place[0]
            key = {"data": data, "epsilon": epsilon, "rate": rate, "epochs": scale.epochs_of(data), "seed": seed}
            cell = (data, epsilon, rate, scale.epochs_of(data), 1000 * seed + place[1])
            known = key in kept
            table[place] = kept.get(key, lambda cell=cell: trained(*cell))  # type: ignore[misc]
            said = f"{data}, epsilon {epsilon:g}, learning rate {rate:g}: {table[place]:.3f}"
            progress.known() if known else progress.done(said)
        found[data] = table
    return found


def _between(ladder: Sequence[float], table: Array, epsilon: float) -> Array:
    """Accuracies by learning rate at an epsilon between the rungs, by straight lines over its logarithm."""
    x = np.log(ladder)
    return np.array([np.interp(math.log(epsilon), x, column) for column in table.T])


def table_accuracy(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """What each bound buys in accuracy at the printed totals."""
    ladders = _ladders(scale, say, folder)
    rows: list[tuple[Cell, ...]] = []
    for name in scale.laws:
        law = LAWS[name](calibrated_mean(gaussian_base(1.0), LAWS[name]))
        for base, total in PRINTED.items():
            own = [left(law, total, who) for who in _BOUNDS]
            for data in scale.data:
                by_seed = np.array(
                    [[expected(_between(scale.ladder, seed, e), law) for e in own] for seed in ladders[data]]
                )
                gains = by_seed[:, 1] - by_seed[:, 0]
                error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
                said = "{:.3f} -> {:.3f}".format(*_SAID[data][base])
                means = [float(value) for value in by_seed.mean(axis=0)]
                rows.append((name, data, total, *own, *means, float(gains.mean()), error, said))
    return Table(
        "Xiang et al., table of gains: accuracy of the best of a random number of runs at the same total, delta 1e-5",
        ("law", "data", "total", *(f"eps {who}" for who in _BOUNDS), *_BOUNDS, "gain", "error", "paper"),
        rows,
        (
            "eps: the epsilon that each bound leaves for one run at this total; then the expected test accuracy of "
            "what is released; gain: theirs minus previous, error: its standard error over seeds.",
            "Taken, for the slides name none: the network of DP-HyPO (in colour for CIFAR-10 and SVHN), learning rates "
            f"{', '.join(f'{rate:g}' for rate in scale.rates)}, batches of 1024, {scale.epochs:g} epochs "
            f"(in colour {scale.epochs_in_colour:g}), clip norm 1, {scale.trainings} trainings a cell; the law's "
            "mean is set by the table's first line. Epsilons of one "
            f"run were trained at {', '.join(f'{e:g}' for e in scale.ladder)} and read between.",
        ),
        _verdicts(rows),
    )


def _verdicts(rows: Sequence[tuple[Cell, ...]]) -> tuple[Verdict, ...]:
    claim = "the improved bound buys accuracy at the same total: "
    most, svhn = ([row for row in rows if (row[1] == "svhn") == last] for last in (False, True))
    first = _gain(claim + "+.007 to +.036 on MNIST, FashionMNIST and CIFAR-10", most)
    if svhn:
        return first, _gain(claim + "+.024 to +.039 on SVHN", svhn)
    missing = (
        "no files: train_32x32.mat and test_32x32.mat go into the folder svhn/ of DPTUNE_DATA, for the full version"
    )
    return first, verdict(claim + "+.024 to +.039 on SVHN", None, missing)


def _gain(claim: str, rows: Sequence[tuple[Cell, ...]]) -> Verdict:
    gains = [float(row[9]) for row in rows]
    clear = [float(row[9]) > 2.0 * float(row[10]) for row in rows]
    more = [float(row[8]) - float(row[7]) for row in rows]
    return verdict(
        claim,
        True if min(gains) > 0.0 else False if max(gains) <= 0.0 else None,
        f"{min(gains):+.4f} to {max(gains):+.4f}, above two standard errors on {sum(clear)} of {len(rows)} rows; "
        f"ours another {min(more):+.4f} to {max(more):+.4f}",
    )
