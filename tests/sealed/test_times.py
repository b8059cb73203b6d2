"""Public times of release: ahead when they are given, kept on a clock that cannot be set, stated as late if missed."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, cut_off, toy_plan

from dptune._codec import to_values
from dptune.errors import InvalidInput
from dptune.executors import Work
from dptune.ledgers import Ledger
from dptune.randomness import Randomness
from dptune.sealed import Release, Vault, _clock, resume, run
from dptune.sealed import loop as _loop
from dptune.sealed._clock import Deadline
from dptune.sealed.loop import Loop

HOUR = 3600.0


@dataclass
class Clocks:
    """The machine's two clocks, and how long was slept on them."""

    wall: float = 1.9e9
    boot: float = 5000.0
    slept: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks(wall=time.time())
    fake = SimpleNamespace(time=lambda: made.wall, clock_gettime=lambda _: made.boot)
    monkeypatch.setattr(_clock, "time", fake)
    monkeypatch.setattr(_loop, "time", SimpleNamespace(monotonic=time.monotonic, sleep=made.sleep))
    monkeypatch.setattr(_loop, "_HEARTBEAT", 60.0)
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 10.0, 1e-5)
    return book


def _in_an_hour(clocks: Clocks) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clocks.wall + HOUR, datetime.UTC)


class Passing(ToyTrainer):
    """Something happens to the clocks while it trains."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        type(self).happens()
        return super().fit(params, data, rng)


def _go(out: Path, ledger: Ledger, moment: datetime.datetime, trainer: Any = None) -> Release:
    return run(
        toy_plan(count=1),
        trainer or ToyTrainer(),
        DATA,
        out=out,
        ledger=ledger,
        dataset="icu",
        executor=Inline(),
        release_at=moment.isoformat(),
    )


def test_a_time_that_is_kept_is_stated(tmp_path: Path, ledger: Ledger, clocks: Clocks) -> None:
    moment = _in_an_hour(clocks)
    release = _go(tmp_path / "run", ledger, moment)
    assert clocks.slept == pytest.approx(HOUR, abs=1e-3)
    assert (release.details["late"], release.details["released"]) == (False, moment.isoformat())
    assert (
        f"| Public time of release | {moment.isoformat()}, fixed before the run began, and kept |" in release.statement
    )
    for path in (release.path, *release.path.iterdir(), tmp_path / "run"):
        assert path.stat().st_mtime == pytest.approx(moment.timestamp(), abs=1e-3)


def test_the_machines_own_clocks_are_waited_for(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "vault", {}, Randomness.rehearsal(1))
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.3)
    Loop(vault, Inline().open(Work(ToyTrainer(), DATA, bytes(32), vault.path))).wait_until(Deadline.of(moment))
    assert datetime.datetime.now(datetime.UTC) >= moment


def test_a_clock_that_is_set_forward_brings_nothing_forward(
    tmp_path: Path, ledger: Ledger, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_forward() -> None:
        clocks.wall += 48 * HOUR

    monkeypatch.setattr(Passing, "happens", staticmethod(set_forward))
    release = _go(tmp_path / "run", ledger, _in_an_hour(clocks), Passing())
    assert clocks.slept == pytest.approx(HOUR, abs=1e-3)
    assert release.details["late"] is False


def test_a_run_that_takes_too_long_is_stated_as_late(
    tmp_path: Path, ledger: Ledger, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Passing, "happens", staticmethod(lambda: clocks.pass_(2 * HOUR)))
    moment = _in_an_hour(clocks)
    release = _go(tmp_path / "run", ledger, moment, Passing())
    assert clocks.slept == 0.0
    receipt = ledger.receipt(release.details["ledger"]["charge"])
    assert receipt is not None
    assert release.details["late"] is True
    assert release.details["released"] == receipt.time  # never a time that was not kept
    assert release.details["release_at"] == moment.isoformat()
    assert f"LATE: {moment.isoformat()} was fixed, and this release appeared after it" in release.statement
    assert "not covered by the guarantee" in release.statement
    assert (release.path / "release.json").stat().st_mtime != pytest.approx(moment.timestamp(), abs=1)


def test_a_release_that_is_late_because_of_a_crash_is_stated_as_late(
    tmp_path: Path, ledger: Ledger, clocks: Clocks
) -> None:
    options = {"ledger": ledger, "dataset": "icu", "release_at": _in_an_hour(clocks).isoformat()}
    cut_off(toy_plan(count=1), ToyTrainer(), tmp_path / "run", **options)
    assert clocks.slept == pytest.approx(HOUR, abs=1e-3)
    clocks.pass_(1.0)
    assert resume(tmp_path / "run", ToyTrainer(), DATA, executor=Inline()).details["late"] is True


def test_a_resumed_run_waits_on_the_same_clock(tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = _in_an_hour(clocks)
    before = Deadline.of(moment)
    clocks.wall += 48 * HOUR
    assert Deadline.stored(to_values(before), moment).left() == pytest.approx(HOUR)
    monkeypatch.setattr(_clock, "_boot", lambda: "another start of the machine")
    assert Deadline.stored(to_values(before), moment).left() == pytest.approx(-47 * HOUR)
    assert Deadline.stored(None, moment).left() == pytest.approx(-47 * HOUR)


def test_without_a_public_time_none_is_claimed(tmp_path: Path, ledger: Ledger) -> None:
    release = run(
        toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "run", ledger=ledger, dataset="icu", executor=Inline()
    )
    assert "none was fixed: when this release appeared is not covered" in release.statement
    assert release.details["late"] is False


@pytest.mark.parametrize("seconds", [0.0, 1.0, 1e6])
def test_a_time_that_has_passed_is_refused_before_the_charge(tmp_path: Path, ledger: Ledger, seconds: float) -> None:
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    with pytest.raises(InvalidInput, match=r"'release_at' is a public time .* has passed"):
        _go(tmp_path / "run", ledger, moment)
    assert not (tmp_path / "run").exists()
    assert ledger.status("icu").charges == 0
