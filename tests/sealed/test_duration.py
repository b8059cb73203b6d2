"""A public time of release from public facts: the plan, a rehearsal's seconds, the number of workers."""

from __future__ import annotations

import datetime
import math
import os
import time
from pathlib import Path

import pytest
from tests.sealed.toy import DATA, Inline, StackingTrainer, ToyTrainer, toy_plan

from dptune.accounting import Gaussian, Geometric
from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.methods import Adaptive, Budget, NoisyBest, RandomStopping, Subset
from dptune.sealed import duration, run
from dptune.sealed.duration import likely_seconds, measured_seconds, offered_time
from dptune.spaces import Float, Space

SPACE = Space(x=Float(0, 1))
ONE = Processes(1)


class _Fixed:
    def cost(self, params: object) -> Gaussian:
        return Gaussian(20.0)


def _trainings(mean: float) -> int:
    """The smallest k with P(K <= k) >= .999 for a geometric law, in closed form."""
    return math.ceil(math.log(0.001) / math.log1p(-1.0 / mean))


def test_the_likely_duration_in_closed_form() -> None:
    budget, trainer = Budget(3, 1e-5), _Fixed()
    stopping = RandomStopping(SPACE, Geometric(10))
    plan = stopping.plan(budget, trainer)
    assert likely_seconds(plan, 2.0, 1) == pytest.approx(3.0 * _trainings(10) + 60)
    assert likely_seconds(plan, 2.0, 4) == pytest.approx(3.0 * math.ceil(_trainings(10) / 4) + 60)
    subset = Subset(stopping, 0.1).plan(budget, trainer)
    assert likely_seconds(subset, 2.0, 1) == pytest.approx(3.0 * (_trainings(10) + 1) + 60)
    adaptive = Adaptive(SPACE, Geometric(4), density=(0.9, 1.2), batch=2).plan(budget, trainer)
    assert likely_seconds(adaptive, 2.0, 8) == pytest.approx(3.0 * math.ceil(_trainings(4) / 2) + 60)
    # Stacks of eight in the rehearsal: a last stack that is smaller may take as long as one of eight.
    assert likely_seconds(plan, 2.0, 4, 8) == pytest.approx(3.0 * (math.ceil(_trainings(10) / 4) + 8) + 60)
    asks = math.ceil(_trainings(4) / 2)
    assert likely_seconds(adaptive, 2.0, 8, 2) == pytest.approx(3.0 * (math.ceil(_trainings(4) / 2) + 2 * asks) + 60)
    shards = NoisyBest(SPACE.grid(3), 5).plan(budget, trainer)
    assert likely_seconds(shards, 2.0, 2) == pytest.approx(3.0 * 8 + 60)


def test_a_rehearsal_measures_and_a_sealed_run_does_not(tmp_path: Path) -> None:
    slow, began = ToyTrainer(seconds=0.3), time.monotonic()
    rehearsed = run(toy_plan(count=3), slow, DATA, out=tmp_path / "a", executor=ONE, seed=1, data_is="synthetic")
    assert 0.3 <= rehearsed.details["seconds_per_training"] <= (time.monotonic() - began) / 3
    assert measured_seconds(tmp_path / "a") == (rehearsed.details["seconds_per_training"], 1)
    sealed = run(toy_plan(count=1), slow, DATA, out=tmp_path / "b", executor=ONE, rehearsal=tmp_path / "a", dataset="b")
    assert "seconds_per_training" not in sealed.details
    assert sealed.details["release_at"] is None
    with pytest.raises(InvalidInput, match="not a rehearsal"):
        offered_time(toy_plan(), tmp_path / "b", 1)


def test_trainings_that_share_a_worker_share_its_time(tmp_path: Path) -> None:
    trainer, began = StackingTrainer(slow=0.8), time.monotonic()
    rehearsed = run(toy_plan(count=8), trainer, DATA, out=tmp_path / "a", executor=ONE, seed=1, data_is="synthetic")
    assert 0.1 <= rehearsed.details["seconds_per_training"] <= (time.monotonic() - began) / 8
    assert measured_seconds(tmp_path / "a") == (rehearsed.details["seconds_per_training"], 8)


def test_auto_takes_the_offered_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "a", executor=ONE, seed=1, data_is="synthetic")
    offered = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    monkeypatch.setattr(duration, "offered_time", lambda *_: offered)  # sooner, so that the test need not wait
    plan = toy_plan(count=1)
    release = run(
        plan,
        ToyTrainer(),
        DATA,
        out=tmp_path / "b",
        executor=Inline(),
        rehearsal=tmp_path / "a",
        release_at="auto",
        data_is="synthetic",
    )
    taken = datetime.datetime.fromisoformat(release.details["release_at"])
    assert taken == offered
    assert release.details["late"] or release.details["released"] == release.details["release_at"]


def test_auto_without_a_rehearsal_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="needs the folder of a rehearsal"):
        run(toy_plan(), ToyTrainer(), DATA, out=tmp_path / "run", executor=ONE, release_at="auto")
    assert not (tmp_path / "run").exists()


def test_the_offer_does_not_depend_on_the_secret(tmp_path: Path) -> None:
    """It is the same before and after any run: a function of plan, rehearsal, workers and the clock."""
    run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "a", executor=ONE, seed=1, data_is="synthetic")
    now = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    few, many = (toy_plan(count=n) for n in (1, 14))
    assert offered_time(few, tmp_path / "a", 2, now) == offered_time(many, tmp_path / "a", 2, now)


def test_the_environment_says_how_many_trainings_run_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for said, expected in (("3", 3), (" 12 ", 12)):
        monkeypatch.setenv("DPTUNE_WORKERS", said)
        assert duration.workers_of(None) == duration.workers_of(Processes()) == expected
        assert duration.workers_of(Processes(2)) == 2
    for wrong in ("0", "two", "1.5", "-1", "5000", "9" * 5000):
        monkeypatch.setenv("DPTUNE_WORKERS", wrong)
        with pytest.raises(InvalidInput, match="DPTUNE_WORKERS must be a whole number from 1 to 4096"):
            run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "run", data_is="synthetic")
        assert not (tmp_path / "run").exists()
    monkeypatch.delenv("DPTUNE_WORKERS")
    assert duration.workers_of(None) == os.cpu_count()
