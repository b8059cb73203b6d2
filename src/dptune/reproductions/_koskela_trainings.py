"""Private trainings for Koskela and Kulkarni's Figures 2, 3 and 4: one for each cell, made once and kept in a file.

MNIST is trained with the network of Opacus' example, FashionMNIST with 120-120 units, both with tanh (a tempered
sigmoid); CIFAR-10 by a last layer on frozen public features (oriented gradients: the paper's pre-trained ResNet20 is
not to be had) and IMDB by a linear layer on hashed words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.randomness import Randomness
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress

if TYPE_CHECKING:
    from dptune.training import Cnn, Mlp
    from dptune.training.benchmark_data import Split

__all__ = ["RATES", "SHARE", "SIZES", "Training", "Trainings", "trained"]

RATES = {"mnist": 0.0213, "fashion-mnist": 0.0213, "cifar-10": 0.0256, "imdb": 0.0256}  # Table 1
SHARE = 0.1  # of the records, for tuning
SIZES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar-10": 50_000, "imdb": 25_000}
WORDS = 2048  # buckets of reviews
CLASSES = {"mnist": 10, "fashion-mnist": 10, "cifar-10": 10, "imdb": 2}
_CLIP = {"mnist": 1.0, "fashion-mnist": 3.0, "cifar-10": 3.0, "imdb": 1.0}  # Table 2


@dataclass(frozen=True)
class Training:
    """One training: everything its result depends on."""

    data: str
    adam: bool
    part: str  # "all", "subset" or "rest"
    noise: float
    rate: float  # learning rate
    records: int
    epochs: float
    sampling: float  # the rate of DP-SGD's batches

    @property
    def steps(self) -> int:
        """Steps of DP-SGD."""
        return max(1, round(self.epochs / self.sampling))


class Trainings:
    """Trainings by cell, each made once and appended to a file, so that a run that was cut off goes on from there."""

    def __init__(self, folder: Path | None, progress: Progress) -> None:
        self._kept, self._progress = Kept("koskela-trained", folder), progress
        self._asked: set[Training] = set()

    def accuracy(self, cell: Training) -> float:
        return self._result(cell)[0]

    def seconds(self, cell: Training) -> float:
        return self._result(cell)[1]

    def _result(self, cell: Training) -> list[float]:
        def make() -> list[float]:
            made = list(trained(cell))
            self._progress.done(f"{cell.data}, {cell.part}, noise {cell.noise:.2f}, learning rate {cell.rate:.3g}")
            return made

        if cell not in self._asked:  # every cell is asked for twice
            self._asked.add(cell)
            if asdict(cell) in self._kept:
                self._progress.known()
        return self._kept.get(asdict(cell), make)


def _grey_gradients(x: Floats) -> Floats:
    """Frozen public features of CIFAR-10: oriented gradients of the mean colour, 576 of them."""
    from dptune.training import oriented_gradients  # noqa: PLC0415 - slow imports

    return oriented_gradients(x.reshape(len(x), 3, 1024).mean(axis=1), side=32)


def _order(name: str, records: int) -> tuple[Indices, Array]:
    """Which records are taken, in random order, and a lot for each, which says whether tuning sees it."""
    rng = np.random.default_rng(0)
    places = rng.permutation(SIZES[name])[:records]
    return places, rng.random(records)


@lru_cache(maxsize=1)
def _loaded(name: str, records: int) -> Split:
    """So many records for training, and at most 10,000 for testing."""
    from dptune.training import Split, load  # noqa: PLC0415 - slow imports
    from dptune.training.benchmark_data import imdb  # noqa: PLC0415 - the same

    split = imdb(WORDS) if name == "imdb" else load(name)
    places = np.sort(_order(name, records)[0])
    test = split.test.take(np.arange(0, len(split.test), max(1, len(split.test) // 10_000)))
    change: Callable[[Floats], Floats] | None = _grey_gradients if name == "cifar-10" else None
    parts = (split.train.take(places), test)
    return Split(*(part.map(change) if change else part for part in parts))


def _model(name: str) -> Mlp | Cnn:
    from dptune.training import Cnn, Mlp, softmax  # noqa: PLC0415 - slow imports
    from dptune.training.models import dp_hypo_cnn  # noqa: PLC0415 - the same

    if name == "mnist":
        return Cnn((1, 28, 28), 10, dp_hypo_cnn().layers, dense=(32,), activation="tanh")
    if name == "fashion-mnist":
        return Mlp(784, 10, (120, 120))
    return softmax({"cifar-10": 576, "imdb": WORDS}[name], CLASSES[name])


def trained(cell: Training) -> tuple[float, float]:
    """Test accuracy of one private training, and its processor seconds without those of the test."""
    from dptune.training import Adam, DpSgdTrainer, Settings, Sgd  # noqa: PLC0415 - slow imports

    split = _loaded(cell.data, cell.records)
    places, lots = _order(cell.data, cell.records)
    coins = lots[np.argsort(places)] < SHARE
    kept = {"all": np.ones_like(coins), "subset": coins, "rest": ~coins}[cell.part]
    share = {"all": 1.0, "subset": SHARE, "rest": 1.0 - SHARE}[cell.part]
    settings = Settings(
        sampling_rate=cell.sampling,
        noise_multiplier=cell.noise,
        steps=cell.steps,
        clip_norm=_CLIP[cell.data],
        learning_rate=cell.rate,
        batch_size=cell.sampling * share * cell.records,  # public: never the private size of the part
        optimizer=Adam() if cell.adam else Sgd(),
    )
    trainer = DpSgdTrainer(_model(cell.data), settings)
    train = split.train.take(np.flatnonzero(kept))
    began = time.process_time()
    fitted = trainer.fit({}, train, Randomness.rehearsal(int(1e6 * cell.noise) % 2**31))
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):  # a training that diverged
        said = fitted.model.predict(split.test.x)
    return float(np.mean(said == split.test.y)), seconds
