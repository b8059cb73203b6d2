"""Sealed runs of small models: one trial at a time against several trials to a worker, which trains them as a stack.

    DPTUNE_DATA=... python benchmarks/executors.py [--trials 32] [--steps 1000] [--rounds 3] [--workers 2]

Random stopping on Adult with logistic regression and with the MLP 64-64 (expected batch 256), two worker processes with
one thread each. Both sides run the same plan from the same secret, hence the same trials with the same noise; they
take turns. The one side is the same trainer without its 'fit_many'. Models that the compiled kernel trains are handed
over one at a time on both sides (the MLP, where there is a kernel): their ratio shows how noisy the others are.
Printed are medians over the rounds: wall and processor time of whole runs (plan check, ledger, start of the workers and
release included) and the wall time from the first hand-over to the last outcome, as the vault tells it; and the
largest difference between scores.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import Budget, Choice, Cost, Float, Poisson, RandomStopping, Space, run
from dptune.executors import Processes
from dptune.methods.plan import Plan
from dptune.randomness import Randomness
from dptune.sealed import read_vault
from dptune.training import Dataset, DpSgdTrainer, Settings, load, softmax
from dptune.training._compiled import kernel
from dptune.training.models import adult_mlp

DELTA = 1e-5


@dataclass(frozen=True)
class OneByOne:
    """The same trainer, without what lets a worker train several candidates together."""

    inner: DpSgdTrainer

    @property
    def settings(self) -> Settings:
        return self.inner.settings

    @property
    def validation(self) -> Dataset | None:
        return self.inner.validation

    @property
    def noise_generator(self) -> str:
        return self.inner.noise_generator

    def cost(self, params: Any) -> Cost:
        return self.inner.cost(params)

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        return self.inner.fit(params, data, rng)


def secret_with(plan: Plan, trials: int) -> bytes:
    """A secret of which this many trials follow."""
    secrets = (number.to_bytes(32, "big") for number in range(10**6))
    return next(secret for secret in secrets if len(plan.start(Randomness(secret)).ask()) == trials)


def processor() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(plan: Plan, trainer: Any, data: Any, workers: int) -> tuple[NDArray[np.float64], dict[int, float]]:
    """A sealed run: wall and processor seconds, wall seconds of training; the scores."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        wall, spent = time.perf_counter(), processor()
        run(plan, trainer, data, out=out, executor=Processes(workers), data_is="public")
        wall, spent = time.perf_counter() - wall, processor() - spent
        reading = read_vault(out, "a benchmark on public records")
    training = max(reading.finished.values()) - min(reading.started.values())
    return np.array([wall, spent, training]), reading.scores


def compare(label: str, trainer: DpSgdTrainer, data: Dataset, trials: int, rounds: int, workers: int) -> None:
    """Both sides in turn."""
    space = Space(lr=Float(0.05, 2.0, log=True), clip=Choice(0.5, 1.0, 2.0))
    plan = RandomStopping(space, Poisson(trials)).plan(Budget(4.0, DELTA), trainer)
    secret = secret_with(plan, trials)
    Randomness.fresh = classmethod(lambda cls: cls(secret))  # type: ignore[method-assign,assignment] # equal trials
    sides: dict[str, Any] = {"one at a time": OneByOne(trainer), "together": trainer}
    times: dict[str, list[NDArray[np.float64]]] = {side: [] for side in sides}
    scores: dict[str, dict[int, float]] = {}
    for _ in range(rounds):
        for side, one in sides.items():
            taken, scores[side] = timed(plan, one, data, workers)
            times[side].append(taken)
    alone, together = (np.median(times[side], axis=0) for side in sides)
    first, second = (np.array([scores[side][i] for i in range(trials)]) for side in sides)
    print(f"{label}: {trials} trials of {trainer.settings.steps} steps, noise {plan.noise_multiplier:.3g}")
    for name, numbers in (("one at a time", alone), ("together", together)):
        print(f"  {name:14} wall {numbers[0]:6.2f} s, processor {numbers[1]:6.2f} s, training {numbers[2]:6.2f} s")
    ratio = alone / together
    print(f"  ratio          wall {ratio[0]:6.2f}x, processor {ratio[1]:6.2f}x, training {ratio[2]:6.2f}x")
    print(f"  scores differ by at most {np.abs(first - second).max():.2g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    split = load("adult")
    settings = Settings.from_batch(
        256, 32_561, noise_multiplier=1.0, steps=options.steps, clip_norm=1.0, learning_rate=0.25
    )
    built = "with the compiled kernel" if kernel is not None else "without compiled code"
    print(f"{platform.machine()}, {os.cpu_count()} processors, numpy {np.__version__}, {built}")
    models: dict[str, Callable[[], Any]] = {
        "logistic regression 105-2, Adult": lambda: softmax(105, 2),
        "MLP 105-64-64-2, Adult": lambda: adult_mlp(105),
    }
    for label, model in models.items():
        trainer = DpSgdTrainer(model(), settings, validation=split.test)
        compare(label, trainer, split.train, options.trials, options.rounds, options.workers)


if __name__ == "__main__":
    main()
