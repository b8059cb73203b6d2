"""The final training of a run is alone, so it may use the processors of all workers. Its model is the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune._threads import ALONE, threads_alone
from dptune.executors._worker import _train
from dptune.executors.base import Task
from dptune.executors.processes import environment
from dptune.methods.trial import Trial
from dptune.trainer import fit_many
from dptune.training import DpSgdTrainer, Settings, softmax


@dataclass(frozen=True)
class Counting:
    """Its score is how many threads it has."""

    threads: int = 1

    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return {"w": np.zeros(2)}, float(self.threads)

    def with_threads(self, threads: int) -> Counting:
        return Counting(threads)


def score(*, final: bool) -> float:
    trial = Trial(0, {}, seed_label=("trial", 0), final=final)
    [result] = _train(Counting(), [1.0, 2.0], bytes(32), [Task(0, trial.to_json())])
    assert result.error is None
    return result.score


def test_the_final_training_alone_gets_the_threads_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv(ALONE, "3")
    assert score(final=True) == 3.0
    assert score(final=False) == 1.0
    monkeypatch.delenv(ALONE)
    assert score(final=True) == 1.0


@pytest.mark.parametrize(
    ("said", "expected"), [("", 1), ("0", 1), ("2", 2), ("99", 4), ("many", 1), ("-3", 1), ("9" * 5000, 1)]
)
def test_no_more_threads_than_there_are_processors(said: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setenv(ALONE, said)
    assert threads_alone() == expected


def test_workers_know_how_many_they_are(tmp_path: Path) -> None:
    assert environment(tmp_path, workers=5)[ALONE] == "5"
    assert environment(tmp_path)["OMP_NUM_THREADS"] == "1"


def test_a_number_of_threads_that_the_user_gave_stays() -> None:
    settings = Settings(0.1, 1.0, steps=1, clip_norm=1.0, learning_rate=1.0, batch_size=10)
    assert DpSgdTrainer(softmax(2, 2), settings).with_threads(4).threads == 4
    assert DpSgdTrainer(softmax(2, 2), settings, threads=1).with_threads(4).threads == 1


class Passing:
    """Trains in its own way, and passes all other names on to a trainer that has threads and stacks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Inner(), name)

    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return {"w": np.zeros(1)}, 7.0


class Inner(Counting):
    def fit_many(self, params: Any, data: Any, rngs: Any) -> list[tuple[Any, float]]:
        return [({"w": np.zeros(1)}, -1.0) for _ in params]


class Failing(Counting):
    def with_threads(self, threads: int) -> Failing:
        raise RuntimeError


class Overridden(Inner):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return {"w": np.zeros(1)}, 8.0


@pytest.mark.parametrize(("trainer", "expected"), [(Passing(), 7.0), (Failing(), 1.0), (Overridden(), 8.0)])
@pytest.mark.parametrize("final", [True, False])
def test_no_other_trainer_takes_the_place_of_the_declared_one(trainer: Any, expected: float, final: bool) -> None:
    trials = [Trial(place, {}, seed_label=("trial", place), final=final) for place in range(2)]
    results = list(_train(trainer, [1.0, 2.0], bytes(32), [Task(one.index, one.to_json()) for one in trials]))
    assert [one.error for one in results] == [None, None]
    assert [one.score for one in results] == [expected, expected]
    assert [
        score for _, score in fit_many(trainer, [{}, {}], [], [np.random.default_rng(seed) for seed in (1, 2)])
    ] == [expected, expected]


def test_a_class_with_a_constructor_of_its_own_gets_threads() -> None:
    class Own(DpSgdTrainer):
        def __init__(self, features: int) -> None:
            settings = Settings(0.1, 1.0, steps=1, clip_norm=1.0, learning_rate=1.0, batch_size=10)
            super().__init__(softmax(features, 2), settings)
            object.__setattr__(self, "remembered", features)

    made = Own(3).with_threads(4)
    assert (type(made), made.threads, vars(made)["remembered"]) == (Own, 4, 3)
