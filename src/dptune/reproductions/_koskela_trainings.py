"""Private trainings for Koskela and Kulkarni's Figures 2 and 3: one for each cell, made once and kept in a file."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dptune.randomness import Randomness
from dptune.reproductions.progress import Progress

if TYPE_CHECKING:
    from dptune.training.benchmark_data import Split

__all__ = ["RATE", "SHARE", "Training", "Trainings", "trained"]

RATE = 0.0213  # Table 1
SHARE = 0.1  # of the records, for tuning
_CLIP = {"mnist": 1.0, "fashion-mnist": 3.0}


@dataclass(frozen=True)
class Training:
    """One training: everything its result depends on."""

    data: str
    adam: bool
    part: str  # "all", "subset" or "rest"
    noise: float
    rate: float  # learning rate
    records: int
    epochs: int

    @property
    def key(self) -> str:
        return json.dumps(self.__dict__, sort_keys=True)


class Trainings:
    """Trainings by cell, each made once and appended to a file, so that a run that was cut off goes on from there."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._progress = folder / "koskela-trainings.jsonl", progress
        self._known: dict[str, tuple[float, float]] = {}
        if self._path.is_file():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                stored = json.loads(line)
                self._known[stored["cell"]] = (stored["accuracy"], stored["seconds"])

    def accuracy(self, cell: Training) -> float:
        return self._result(cell)[0]

    def seconds(self, cell: Training) -> float:
        return self._result(cell)[1]

    def _result(self, cell: Training) -> tuple[float, float]:
        if cell.key not in self._known:
            self._known[cell.key] = trained(cell)
            with self._path.open("a", encoding="utf-8") as file:
                accuracy, seconds = self._known[cell.key]
                print(json.dumps({"cell": cell.key, "accuracy": accuracy, "seconds": seconds}), file=file)
            self._progress.done(f"{cell.data}, {cell.part}, noise {cell.noise:.2f}, learning rate {cell.rate:g}")
        return self._known[cell.key]


@lru_cache(maxsize=1)
def _loaded(name: str) -> Split:
    from dptune.training import load  # noqa: PLC0415 - slow imports

    return load(name)


def trained(cell: Training) -> tuple[float, float]:
    """Test accuracy of one private training, and its processor seconds."""
    from dptune.training import Adam, DpSgdTrainer, Mlp, Settings, Sgd  # noqa: PLC0415 - slow imports

    split = _loaded(cell.data)
    rng = np.random.default_rng(0)
    places = rng.permutation(len(split.train))[: cell.records]
    coins = rng.random(cell.records) < SHARE
    kept = {"all": places, "subset": places[coins], "rest": places[~coins]}[cell.part]
    train = split.train.take(np.sort(kept))
    share = {"all": 1.0, "subset": SHARE, "rest": 1.0 - SHARE}[cell.part]
    steps = round(cell.epochs / RATE)
    settings = Settings(
        sampling_rate=RATE,
        noise_multiplier=cell.noise,
        steps=steps,
        clip_norm=_CLIP[cell.data],
        learning_rate=cell.rate,
        batch_size=RATE * share * cell.records,  # public: never the private size of the part
        optimizer=Adam() if cell.adam else Sgd(),
    )
    trainer = DpSgdTrainer(Mlp(784, 10, (120, 120)), settings, validation=split.test)
    began = time.process_time()
    fitted = trainer.fit({}, train, Randomness.rehearsal(int(1e6 * cell.noise) % 2**31))
    return float(fitted.score), time.process_time() - began
