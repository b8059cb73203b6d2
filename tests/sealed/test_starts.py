"""Two starts in one folder: the first run wins, the second is refused and touches nothing."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import sqlite3
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.sealed.toy import DATA, CutOff, Inline, ToyTrainer, cut_off, is_blank, toy_plan

from dptune.errors import DptuneError
from dptune.ledgers import Ledger
from dptune.sealed import Release, Vault, load_release, resume, run

ROUNDS = 20


def _go(out: Path) -> Release:
    return run(toy_plan(count=1), ToyTrainer(), DATA, out=out, executor=Inline(), data_is="synthetic")


def _racer(base: Path, barrier: Any, results: Connection) -> None:
    """One of two processes: a start in every folder, at the same moment as the other one."""
    for number in range(ROUNDS):
        barrier.wait(300)
        try:
            results.send(("released", _go(base / str(number)).details["ledger"]["charge"]))
        except DptuneError as error:
            results.send(("refused", str(error)))


def test_of_two_starts_at_once_one_wins_every_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, channels = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
    racers = [context.Process(target=_racer, args=(tmp_path, barrier, sender)) for _, sender in channels]
    for racer in racers:
        racer.start()
    said = []
    for _ in range(ROUNDS):
        assert all(receiver.poll(300) for receiver, _ in channels)
        said.append(sorted(receiver.recv() for receiver, _ in channels))
    for racer in racers:
        racer.join(300)
        assert racer.exitcode == 0
    for number, ((no, why), (yes, charge)) in enumerate(said):
        assert (no, yes) == ("refused", "released")
        assert "already a run" in why or "Another process is working" in why
        out = tmp_path / str(number)
        assert load_release(out).details["ledger"]["charge"] == charge
        ledger = Ledger(out / "run.ledger")
        assert ledger.receipt(charge) is not None
        assert ledger.status("data").charges == 1
        ledger.verify()


@pytest.mark.parametrize(("owner", "name"), [(Ledger, "add"), (Ledger, "charge"), (Vault, "begin"), (Vault, "finish")])
def test_a_second_start_at_any_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    step, refused = getattr(owner, name), []

    def interrupted(*arguments: Any, **named: Any) -> Any:
        result = step(*arguments, **named)
        monkeypatch.setattr(owner, name, step)
        for start in (_go, _continue):
            with pytest.raises(DptuneError, match="Another process is working on the run") as caught:
                start(tmp_path / "run")
            refused.append(caught.value)
        return result

    monkeypatch.setattr(owner, name, interrupted)
    release = _go(tmp_path / "run")
    assert len(refused) == 2
    assert load_release(tmp_path / "run").params == release.params
    assert Ledger(tmp_path / "run" / "run.ledger").status("data").charges == 1


def _continue(out: Path) -> Release:
    if not (out / "vault").exists():
        return _go(out)  # nothing to continue yet
    return resume(out, ToyTrainer(), DATA, executor=Inline())


def test_a_start_that_is_refused_takes_back_only_what_it_made(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    Ledger.create(out / "run.ledger").add("data", 0.01, 1e-9)  # left by somebody else, and too small
    with pytest.raises(DptuneError, match=r"exceed the budget.*nothing was charged"):
        _go(out)
    assert sorted(path.name for path in out.iterdir()) == ["notes.txt", "run.ledger", "run.ledger.key"]
    assert Ledger(out / "run.ledger").status("data").charges == 0


def test_a_release_is_not_made_without_its_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is removed and made anew while the run is under way."""
    fit = ToyTrainer.fit

    def replace_ledger(self: ToyTrainer, *arguments: Any) -> Any:
        for path in (tmp_path / "run").glob("run.ledger*"):
            path.unlink()
        Ledger.create(tmp_path / "run" / "run.ledger").add("data", 3.0, 1e-5)
        return fit(self, *arguments)

    monkeypatch.setattr(ToyTrainer, "fit", replace_ledger)
    with pytest.raises(DptuneError, match="no longer holds the charge") as caught:
        _go(tmp_path / "run")
    assert "nothing was charged" not in str(caught.value).lower()
    assert not (tmp_path / "run" / "release").exists()


def test_the_sentence_that_nothing_was_charged_is_true(tmp_path: Path) -> None:
    """What fails in the same way before and after the charge says so only before."""

    class Broken(Inline):
        def open(self, work: Any) -> Any:
            raise DptuneError("no workers today.")

    out = tmp_path / "run"
    with pytest.raises(DptuneError, match=r"^no workers today. Nothing was charged.$"):
        run(toy_plan(count=1), ToyTrainer(), DATA, out=out, executor=Broken(), data_is="synthetic")
    assert not out.exists()
    cut_off(toy_plan(count=1), ToyTrainer(), out)
    with pytest.raises(DptuneError, match=r"^no workers today.$"):
        resume(out, ToyTrainer(), DATA, executor=Broken())


def _sql(statement: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return damage


LEDGER_DAMAGE: dict[str, Callable[[Path], None]] = {
    "seal": _sql("UPDATE state SET content = 'x' || content WHERE node = 0"),
    "trigger": _sql("CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END"),
    "table": _sql("DROP TABLE state"),
    "mark": _sql("PRAGMA application_id = 7"),
    "short key": lambda path: _write(path.with_name(f"{path.name}.key"), b"short"),
    "another key": lambda path: _write(path.with_name(f"{path.name}.key"), bytes(32)),
    "cut": lambda path: _write(path, path.read_bytes()[:5000]),
    "no file": Path.unlink,
}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.mark.parametrize("kind", LEDGER_DAMAGE)
def test_a_damaged_ledger_does_not_say_that_a_charged_run_was_not_charged(tmp_path: Path, kind: str) -> None:
    """The same damage, before a run was charged and after."""
    ledger = Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    cut_off(toy_plan(count=1), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu")
    LEDGER_DAMAGE[kind](ledger.path)
    with pytest.raises(DptuneError) as caught:
        resume(tmp_path / "run", ToyTrainer(), DATA, executor=Inline())
    assert "nothing was charged" not in str(caught.value).lower()
    with pytest.raises(DptuneError, match=r"Nothing was charged\.$"):
        run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "b", ledger=ledger.path, dataset="icu")
    assert not (tmp_path / "b").exists()


def test_a_charge_that_another_run_used_was_charged(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    plan = toy_plan(count=1)
    ledger.charge("icu", plan.cost, "paid ahead")
    options: dict[str, Any] = {"ledger": ledger, "dataset": "icu", "charge": "paid ahead", "executor": Inline()}
    run(plan, ToyTrainer(), DATA, out=tmp_path / "a", **options)
    with pytest.raises(DptuneError, match="was used by another run") as caught:
        run(plan, ToyTrainer(), DATA, out=tmp_path / "b", **options)
    assert "nothing was charged" not in str(caught.value).lower()


HALF = "half \ud800 a character"


class Garbled(ToyTrainer):
    """Raises, prints and is called what no file takes."""

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        if is_blank(data):
            return super().fit(params, data, rng)
        print(HALF, file=sys.stderr)
        raise RuntimeError(HALF)


def test_texts_that_cannot_be_written_stop_nothing(tmp_path: Path) -> None:
    release = run(toy_plan(count=2), Garbled(), DATA, out=tmp_path / "a", executor=Inline(), data_is="synthetic")
    assert release.params == {"x": 0.0}  # all failed
    book = Ledger.create(tmp_path / "h.ledger")
    with pytest.raises(DptuneError, match="printable"):  # what would stand in every statement is refused at once
        book.add("icu", 10.0, 1e-5, unit=f"person {HALF}")
    with pytest.raises(DptuneError, match="holds half a character"):
        run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "c", dataset=HALF, executor=Inline())
    assert not (tmp_path / "c").exists()


def test_a_cut_off_run_leaves_nothing_that_stops_it(tmp_path: Path) -> None:
    """An end in the middle of destroying the secret: the rest is destroyed, the release stays."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dptune.sealed.vault.remove_tree", _end)
        with pytest.raises(CutOff):
            _go(out)
    inside = out / "vault" / "inside"
    assert list((inside / "models").iterdir())
    again = resume(out, ToyTrainer(), DATA, executor=Inline())
    assert again.params == load_release(out).params
    assert not list((inside / "models").iterdir())
    shutil.copy(out / "release" / "plan.json", inside / "secret.gone")  # or before it was overwritten
    resume(out, ToyTrainer(), DATA, executor=Inline())
    assert not (inside / "secret.gone").exists()


def _end(*_: Any) -> None:
    raise CutOff
