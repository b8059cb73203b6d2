"""Several trials to a worker: each has the outcome that it has alone, whatever its peers do and whoever dies."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, StackingTrainer, ToyTrainer, held, toy_plan

from dptune.accounting import Cost, Poisson
from dptune.errors import Stopped
from dptune.executors import Processes, Result, Task, Work
from dptune.executors._worker import _train
from dptune.executors.base import dead
from dptune.executors.models import open_model
from dptune.methods import Budget, PrivateValidation, RandomStopping
from dptune.methods.parts import ALL, Shard
from dptune.methods.plan import Plan
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.sealed import Release, Vault, read_vault, resume, run
from dptune.sealed._stacks import MOST, kinds, shares
from dptune.sealed.loop import Loop
from dptune.spaces import Float, Space
from dptune.training import Dataset, DpSgdTrainer, Mlp, Settings, softmax

REHEARSED: dict[str, Any] = {"seed": 5, "data_is": "synthetic"}
DEADLY = 1.3


def _go(trainer: Any, out: Path, count: int = 8, workers: int = 1, **options: Any) -> Release:
    executor = options.pop("executor", Processes(workers))
    return run(toy_plan(count=count), trainer, DATA, out=out, executor=executor, **{**REHEARSED, **options})


@dataclass
class Here:
    """A session in this process: what a worker does with a hand-over, without the worker."""

    work: Work
    slots: int = 1
    sizes: list[int] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def submit(self, *tasks: Task) -> None:
        self.sizes.append(len(tasks))
        self.results += _train(self.work.trainer, self.work.data, self.work.secret, tasks)

    def wait(self, seconds: float) -> Result | None:
        del seconds
        return self.results.pop(0)

    def close(self) -> None:
        self.results.clear()


def _loop(
    trainer: Any, folder: Path, *, plan: Plan | None = None, data: Any = DATA, workers: int = 1
) -> tuple[Loop, Here]:
    """The loop of a run up to its choice, in this process, with the randomness of the rehearsals."""
    source = Randomness.rehearsal(REHEARSED["seed"])
    vault = Vault.open(folder) if folder.exists() else Vault.create(folder, {}, source)
    session = Here(Work(trainer, data, source.secret(), folder), workers)
    loop = Loop(vault, session, kind=kinds(trainer, folder / "search.log"))
    loop.search((plan or toy_plan(count=8)).start(source))
    return loop, session


def _first(plan: Plan | None = None) -> list[Trial]:
    return (plan or toy_plan(count=8)).start(Randomness.rehearsal(REHEARSED["seed"])).ask()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The scores of eight trials that were trained one at a time."""
    return _loop(ToyTrainer(), tmp_path_factory.mktemp("calm") / "vault")[0].vault.outcomes()


def _trial(index: int, shard: int | None = None, **params: Any) -> Trial:
    return Trial(index, params, ALL if shard is None else ALL.narrowed(Shard(4, shard)))


# Which trials go together.


@pytest.mark.parametrize(
    ("count", "workers", "sizes"),
    [(1, 2, [1]), (3, 2, [1, 2]), (8, 2, [4, 4]), (9, 1, [9]), (40, 2, [10] * 4), (33, 1, [11] * 3), (5, 8, [1] * 5)],
)
def test_every_worker_gets_about_the_same(count: int, workers: int, sizes: list[int]) -> None:
    hands = shares([_trial(i) for i in range(count)][::-1], lambda trial: True, workers)
    assert [len(hand) for hand in hands] == sizes
    assert [i for hand in hands for i in hand] == list(range(count))


def test_hand_overs_are_never_larger_than_the_limit_and_hold_every_trial_once() -> None:
    for count in range(1, 120, 7):
        for workers in (1, 2, 3, 8):
            hands = shares([_trial(i, i % 3) for i in range(count)], lambda trial: trial.part, workers)
            assert sorted(i for hand in hands for i in hand) == list(range(count))
            assert max(map(len, hands)) <= MOST
            assert all(len({i % 3 for i in hand}) == 1 for hand in hands)


def test_trials_of_different_parts_shapes_or_starts_stay_apart() -> None:
    class Shaped:
        def fit_many(self) -> None: ...

        def shape(self, params: dict[str, Any]) -> Any:
            return {"alone": None, "odd": [1]}.get(params["x"], params["x"])

    kind = kinds(Shaped(), Path(os.devnull))
    assert kind is not None
    assert kind(_trial(0, x=1)) == kind(_trial(1, x=1)) != kind(_trial(2, x=2))
    assert kind(_trial(0, x=1)) != kind(_trial(1, shard=0, x=1)) != kind(_trial(1, shard=1, x=1))
    assert kind(_trial(0, x=1)) != kind(Trial(0, {"x": 1}, warm_start=3))
    for alone in ("alone", "odd"):
        assert kind(_trial(0, x=alone)) is None
    assert kind(_trial(0)) is None  # raises: a failure of its own
    assert kinds(ToyTrainer(), Path(os.devnull)) is None


def test_a_shape_that_talks_is_not_heard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Talking(StackingTrainer):
        def shape(self, params: Any) -> int:
            print("one more trial")
            return 1

    _loop(Talking(), tmp_path / "vault")
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "vault" / "search.log").read_text().count("one more trial") == 8


# Outcomes.


def test_a_stack_gives_what_single_trials_give(tmp_path: Path, calm: dict[int, float]) -> None:
    sizes = tmp_path / "sizes"
    release = _go(StackingTrainer(stacked=str(sizes)), tmp_path / "run", workers=2)
    assert sizes.read_text().split() == ["4", "4", "4"]  # the last is the rehearsal's repetition
    reading = read_vault(tmp_path / "run", "test")
    assert reading.scores == calm
    assert release.params == reading.params[max(calm, key=lambda i: calm[i])]
    assert release.details["replay"] == "exact"
    assert release.details["trained_together"] == 4


def test_one_that_raises_fails_and_its_peers_do_not(
    tmp_path: Path, calm: dict[int, float], capfd: pytest.CaptureFixture[str]
) -> None:
    loop, session = _loop(StackingTrainer(fail_below=1.4), tmp_path / "vault")
    failed = {trial.index for trial in _first() if trial.params["x"] < 1.4}
    assert 0 < len(failed) < 8
    assert loop.vault.outcomes() == {i: -math.inf if i in failed else score for i, score in calm.items()}
    assert session.sizes == [8]
    assert "RuntimeError: diverged" in capfd.readouterr().err  # in a worker: the vault's log
    assert loop.repeats(_first())


@pytest.mark.parametrize("wrong", ["fewer", "none", "broken"])
def test_a_stack_that_returns_something_else_is_trained_one_by_one(
    tmp_path: Path, calm: dict[int, float], wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _loop(StackingTrainer(wrong=wrong), tmp_path / "vault")[0].vault.outcomes() == calm
    assert "Traceback" in capfd.readouterr().err


class _Scoreless(StackingTrainer):
    """Scores of every second candidate are no numbers."""

    def fit_many(self, params: Any, data: Any, rngs: Any) -> Any:
        fitted = super().fit_many(params, data, rngs)
        return [(model, math.nan if i % 2 else score) for i, (model, score) in enumerate(fitted)]


def test_a_score_that_is_no_number_is_a_failure_of_its_own(tmp_path: Path, calm: dict[int, float]) -> None:
    expected = {i: -math.inf if i % 2 else score for i, score in calm.items()}
    assert _loop(_Scoreless(), tmp_path / "vault")[0].vault.outcomes() == expected


def test_a_trainer_that_ignores_its_generators_is_found(tmp_path: Path) -> None:
    assert _loop(StackingTrainer(), tmp_path / "a")[0].repeats(_first())
    assert not _loop(StackingTrainer(own_noise=True), tmp_path / "b")[0].repeats(_first())


def test_trainers_that_cannot_stack_get_one_trial_at_a_time(tmp_path: Path) -> None:
    assert _loop(ToyTrainer(), tmp_path / "alone", workers=2)[1].sizes == [1] * 8
    assert _loop(StackingTrainer(), tmp_path / "together", workers=2)[1].sizes == [4, 4]


# Deaths and interruptions.


def test_one_that_kills_its_process_fails_and_its_peers_do_not(tmp_path: Path, calm: dict[int, float]) -> None:
    _go(StackingTrainer(die_below=DEADLY), tmp_path / "run", workers=2)
    reading = read_vault(tmp_path / "run", "test")
    deadly = {i for i, p in reading.params.items() if p["x"] < DEADLY}
    assert len(deadly) == 1
    assert reading.scores == {i: -math.inf if i in deadly else score for i, score in calm.items()}
    shaken = {i for hand in (range(4), range(4, 8)) if deadly & set(hand) for i in hand}
    assert reading.deaths == {i: 3 if i in deadly else 1 for i in shaken}  # together, then twice alone


def _workers() -> list[int]:
    """Worker processes of this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if parent == str(os.getpid()) and "dptune.executors._worker" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


def test_a_worker_killed_with_a_stack_under_way_changes_nothing(tmp_path: Path, calm: dict[int, float]) -> None:
    sizes, gate = tmp_path / "sizes", tmp_path / "gate"
    killed: list[int] = []

    def kill() -> None:
        while not held(gate):
            time.sleep(0.02)
        killed.extend(_workers())
        os.kill(killed[0], signal.SIGKILL)
        gate.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    release = _go(StackingTrainer(stacked=str(sizes), gate=str(gate)), tmp_path / "run")
    killer.join()
    assert len(killed) == 1
    reading = read_vault(tmp_path / "run", "test")
    assert reading.scores == calm
    assert reading.deaths == dict.fromkeys(range(8), 1)
    assert sizes.read_text().split() == ["8"]  # alone from then on
    assert release.details["replay"] == "exact"


def test_a_death_in_a_stack_costs_no_member_a_try_of_its_own(
    tmp_path: Path, calm: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack dies, then trial 3 meets one more kill from outside, which a trial alone would survive."""
    submit, killed = Here.submit, [tuple(range(8)), (3,)]

    def kill(self: Here, *tasks: Task) -> None:
        indices = tuple(task.index for task in tasks)
        if indices in killed:
            killed.remove(indices)
            self.results += dead(indices)
        else:
            submit(self, *tasks)

    monkeypatch.setattr(Here, "submit", kill)
    loop, _ = _loop(StackingTrainer(), tmp_path / "vault")
    assert not killed
    assert loop.vault.outcomes() == calm


def test_a_run_cut_off_in_a_stack_hands_over_the_same_again(
    tmp_path: Path, calm: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first outcomes stand, and the rest of the stack has the peers that it had, with any number of workers."""
    sizes, finish = tmp_path / "sizes", Vault.finish
    trainer = StackingTrainer(stacked=str(sizes))

    def cut(self: Vault, number: int, *rest: Any) -> None:
        if number == 6:
            raise OSError("the disk is gone")
        finish(self, number, *rest)

    monkeypatch.setattr(Vault, "finish", cut)
    with pytest.raises(Stopped):
        _go(trainer, tmp_path / "run")
    monkeypatch.undo()
    before = read_vault(tmp_path / "run", "test")
    assert set(before.scores) == set(range(6))
    assert before.deaths == {}
    release = resume(tmp_path / "run", trainer, DATA, executor=Processes(2))
    after = read_vault(tmp_path / "run", "test")
    assert after.scores == calm
    assert {i: after.finished[i] for i in before.finished} == before.finished
    assert sizes.read_text().split() == ["8", "8", "8"]  # cut off, continued, repeated
    assert release.details["replay"] == "exact"


def test_after_a_death_a_continued_run_trains_the_stack_one_by_one(tmp_path: Path, calm: dict[int, float]) -> None:
    """Also if the run was cut off when the death had been noted for one of them only."""
    vault = Vault.create(tmp_path / "vault", {}, Randomness.rehearsal(REHEARSED["seed"]))
    vault.begin({trial.index: trial.to_json() for trial in _first()})
    assert vault.death(3) == 1
    loop, session = _loop(StackingTrainer(), tmp_path / "vault")
    assert session.sizes == [1] * 8
    assert vault.outcomes() == calm
    assert loop.repeats(_first())


# Private training.


@dataclass(frozen=True)
class _Alone:
    """A DP-SGD trainer without its ``fit_many``."""

    inner: DpSgdTrainer

    @property
    def validation(self) -> Dataset | None:
        return self.inner.validation

    def cost(self, params: Any) -> Cost:
        return self.inner.cost(params)

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        return self.inner.fit(params, data, rng)


def _records(count: int, seed: int) -> Dataset:
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(count, 6)).astype(np.float32)
    return Dataset(x, (x @ np.arange(6.0) + chance.normal(size=count) > 0).astype(np.int64), 2)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("model", [softmax(6, 2), Mlp(6, 2, (5,), "tempered_sigmoid")], ids=["regression", "network"])
def test_private_training_in_stacks_equals_private_training_alone(tmp_path: Path, model: Mlp, private: bool) -> None:
    settings = Settings(
        sampling_rate=0.1, noise_multiplier=1.0, steps=40, clip_norm=1.0, learning_rate=1.0, batch_size=60.0
    )
    validation = PrivateValidation(0.2, 120.0, 4.0) if private else None
    trainer = DpSgdTrainer(model, settings, validation=None if private else _records(500, 2))
    method = RandomStopping(Space(lr=Float(0.1, 4.0, log=True)), Poisson(9), validation=validation)
    plan = method.plan(Budget(5.0, 1e-5), trainer)
    loops = {}
    for name, one in (("together", trainer), ("alone", _Alone(trainer))):
        loops[name], session = _loop(one, tmp_path / name, plan=plan, data=_records(600, 1))
        assert max(session.sizes) == (len(_first(plan)) if name == "together" else 1)
        assert loops[name].repeats(_first(plan))  # to the last bit
    together, alone = loops["together"].vault, loops["alone"].vault
    scores = together.outcomes()
    assert len(scores) > 3
    assert scores == pytest.approx(alone.outcomes(), abs=1e-2)  # a record or two may fall on the other side
    for number in scores:
        models = [open_model(vault.model(number) or b"") for vault in (together, alone)]
        np.testing.assert_allclose(models[0].parameters, models[1].parameters, rtol=1e-5, atol=1e-5)
