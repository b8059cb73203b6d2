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


@pytest.mark.parametrize(("said", "expected"), [("", 1), ("0", 1), ("2", 2), ("99", 4), ("many", 1), ("-3", 1)])
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
