"""A toy method and toy trainers for tests of the seal: K runs over random numbers, each a Gaussian mechanism."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dptune.accounting import Cost, Gdp, Geometric, select
from dptune.executors import Result, Session, Task, Work
from dptune.executors._worker import _train, try_blank
from dptune.methods.budget import Budget
from dptune.methods.plan import Plan
from dptune.methods.trial import Outcome, Selection, Trial
from dptune.randomness import Randomness
from dptune.sealed import run
from dptune.spaces import Float, Space

MU = 0.5
RUNS = Geometric(6)
DATA = np.arange(40.0)


@dataclass
class ToySearch:
    """Random stopping: all trials at once, the best wins, ties by an independent uniform."""

    plan: ToyPlan
    randomness: Randomness
    scores: dict[int, float] = field(default_factory=dict)
    asked: bool = False

    @property
    def count(self) -> int:
        if self.plan.count is not None:
            return self.plan.count
        u = self.randomness.uniform("K")
        return 1 + math.floor(math.log(u) / math.log1p(-1.0 / RUNS.expected))

    @property
    def done(self) -> bool:
        return self.asked and len(self.scores) == self.count

    def ask(self) -> list[Trial]:
        if self.asked:
            return []
        self.asked = True
        trials = []
        for index in range(self.count):
            x = 1.0 + self.randomness.integer_bits(16, "candidate", index) / 2.0**16
            trials.append(Trial(index, {"x": x}, seed_label=("trial", index), declared=Gdp(self.plan.mu)))
        return trials

    def tell(self, outcome: Outcome) -> None:
        assert outcome.index not in self.scores
        self.scores[outcome.index] = outcome.score

    def result(self) -> Selection:
        alive = {i: s for i, s in self.scores.items() if s > -math.inf}
        if not alive:
            return Selection(self.plan.default)
        winner = max(alive, key=lambda i: (alive[i], self.randomness.uniform("tie", i)))
        x = 1.0 + self.randomness.integer_bits(16, "candidate", winner) / 2.0**16
        final = None
        if self.plan.final:
            final = Trial(self.count, {"x": x}, seed_label=("final",), final=True)
        return Selection({"x": x}, Trial(winner, {"x": x}), final)


@dataclass(frozen=True)
class ToyPlan(Plan):
    """A plan of the toy method: ``count`` fixes K (for tests that need a certain number of trials)."""

    mu: float
    count: int | None
    final: bool

    method: ClassVar[str] = "toy"
    theorem: ClassVar[str] = "docs/theorems/select.md"
    assumptions: ClassVar[tuple[str, ...]] = ("The score is computed on public records.",)
    expected_runs: ClassVar[float] = RUNS.expected
    space: ClassVar[Space] = Space(x=Float(0.0, 2.0))
    scored: ClassVar[bool] = False

    @property
    def cost(self) -> Cost:
        return self.budget.covering(select(Gdp(self.mu), RUNS))

    @property
    def noise(self) -> float:
        return 1.0 / self.mu

    def start(self, randomness: Randomness) -> ToySearch:
        return ToySearch(self, randomness)


@dataclass(frozen=True)
class UnsafePlan(ToyPlan):
    """The same without a guarantee."""

    method: ClassVar[str] = "unsafe toy"
    guaranteed: ClassVar[bool] = False


def toy_plan(
    epsilon: float = 3.0, mu: float = MU, guaranteed: bool = True, count: int | None = None, final: bool = False
) -> ToyPlan:
    """A plan of the toy method."""
    return (ToyPlan if guaranteed else UnsafePlan)(Budget(epsilon, 1e-5), {"x": 0.0}, mu, count, final)


def wait_at(gate: Path, free: int) -> None:
    """Let the first ``free`` trainings through, the others when somebody makes this file."""
    with gate.with_name(f"{gate.name}.begun").open("ab", buffering=0) as stream:
        stream.write(b".")
        place = stream.tell()
    while place > free and not gate.exists():
        time.sleep(0.01)


def held(gate: Path, free: int = 0) -> bool:
    """Whether a training waits at the gate."""
    begun = gate.with_name(f"{gate.name}.begun")
    return begun.exists() and begun.stat().st_size > free


def is_blank(data: Any) -> bool:
    """Whether records are the made-up ones on which a run is tried: numbers from 0 to 1."""
    return bool(np.max(data, initial=0.0) <= 1.0)


@dataclass(frozen=True)
class ToyTrainer:
    """Adds noise to a sum. The options make it slow, chatty, faulty, or blind to its generator."""

    seconds: float = 0.0
    fail_below: float = 0.0  # raise for x below this
    die_below: float = 0.0  # kill the process for x below this
    die_once: str = ""  # kill the process the first time this file is not there
    shout: bool = False  # print scores to everything that is at hand
    own_noise: bool = False  # ignore the generator
    scale: float = 1.0
    gate: str = ""  # a file: trainings wait until it is there, but for the first few
    before_gate: int = 0  # how many those are

    def cost(self, params: Mapping[str, Any]) -> Cost:
        return Gdp(MU)

    def fit(self, params: Mapping[str, Any], data: Any, rng: np.random.Generator) -> tuple[Any, float]:
        if is_blank(data):  # tried before the charge: none of the options is about that
            return {"total": np.zeros(1), "x": np.zeros(1)}, 0.0
        time.sleep(self.seconds)
        if self.gate:
            wait_at(Path(self.gate), self.before_gate)
        x = float(params["x"])
        if x < self.fail_below:
            raise RuntimeError(f"diverged at {x!r}")
        if x < self.die_below:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.die_once and not Path(self.die_once).exists():
            Path(self.die_once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        noise = np.random.default_rng() if self.own_noise else rng
        total = float(np.sum(data)) + noise.normal(0.0, 1.0 / MU)
        score = self.scale * (total + x)
        if self.shout:
            _shout(score)
        return {"total": np.array([total]), "x": np.array([x])}, score


@dataclass(frozen=True)
class StackingTrainer(ToyTrainer):
    """The same, several at a time; a member that raises or kills does so to its whole stack."""

    stacked: str = ""  # a file that gets a line for every stack: how many there were
    slow: float = 0.0  # seconds that every stack takes
    wrong: str = ""  # "fewer", "none" or "broken": what is returned instead of a result for each

    def fit_many(self, params: Sequence[Mapping[str, Any]], data: Any, rngs: Sequence[Any]) -> Any:
        if self.stacked:
            with Path(self.stacked).open("a") as stream:
                stream.write(f"{len(params)}\n")
        time.sleep(self.slow)
        fitted = [self.fit(one, data, rng) for one, rng in zip(params, rngs, strict=True)]
        return {"": fitted, "fewer": fitted[1:], "none": None, "broken": [*fitted[1:], ("a model", "no score")]}[
            self.wrong
        ]


@dataclass
class _InlineSession:
    """What a worker does, in this process."""

    work: Work
    slots: int = 1
    results: list[Result] = field(default_factory=list)

    def submit(self, *tasks: Task) -> None:
        self.results += _train(self.work.trainer, self.work.data, self.work.secret, tasks, self.work.pickle)

    def attempt(self, task: Task) -> Result:
        return try_blank(self.work.trainer, self.work.data, task, self.work.pickle)

    def wait(self, seconds: float) -> Result | None:
        del seconds
        return self.results.pop(0)

    def close(self) -> None:
        self.results.clear()


@dataclass(frozen=True)
class Inline:
    """An executor without workers, for tests of what surrounds the training."""

    name: str = "inline"

    def open(self, work: Work) -> Session:
        return _InlineSession(work)


class CutOff(BaseException):
    """The end of a process, as far as a run can tell."""


def cut_off(plan: Plan, trainer: Any, out: Path, data: Any = DATA, **options: Any) -> None:
    """A run that ends just before its release appears."""
    module = sys.modules["dptune.sealed._under_way"]
    if "ledger" not in options:
        options = {"data_is": "synthetic", **options}  # it keeps a ledger of its own

    def end(*_: Any) -> None:
        raise CutOff

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "publish_release", end)
        with pytest.raises(CutOff):
            run(plan, trainer, data, out=out, executor=Inline(), **options)


def _shout(score: float) -> None:
    print("score", score, flush=True)
    print("score", score, file=sys.stderr, flush=True)
    logging.getLogger().warning("score %r", score)
    warnings.warn(f"score {score!r}", stacklevel=1)
    os.write(1, f"{score!r}\n".encode())
    with tempfile.NamedTemporaryFile("wb", delete=False) as stream:
        stream.write(np.float64(score).tobytes() + np.float32(score).tobytes())
    Path("checkpoint.txt").write_text(repr(score))
