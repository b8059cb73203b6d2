"""``dpt.tune`` that is stopped by a real signal: one line after Ctrl-C, and the same call finishes what was charged.

The records are a regression's, so that a number to predict is resumed too. The secret is given, so that the release of
a run that nobody disturbs is known.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, toy_plan

import dptune as dpt
from dptune.errors import Interrupted, InvalidInput
from dptune.ledgers import Ledger
from dptune.planner.stopping import stops_in_one_line
from dptune.sealed import Release
from dptune.sealed._terms import terms_of

# After the first outcome the workers are not heard any more: the run waits, alive, and cannot end before the signal.
SCRIPT = """
import sys, time, types
from pathlib import Path
import numpy as np
import dptune as dpt
import dptune.planner.asked
from dptune.executors import Processes
from dptune.randomness import Randomness

Randomness.fresh = classmethod(lambda cls: cls(bytes(range(32))))
folder, how, resume = Path(sys.argv[1]), sys.argv[2], None

class Deaf:
    def __init__(self, session):
        self.session, self.heard = session, False
    def __getattr__(self, name):
        return getattr(self.session, name)
    def wait(self, seconds):
        if self.heard:
            (folder / "waiting").touch()
            time.sleep(seconds)
            return None
        result = self.session.wait(seconds)
        self.heard = result is not None
        return result

if how == "deaf":
    opened = Processes.open
    Processes.open = lambda self, work: Deaf(opened(self, work))
if how == "again":
    resume = folder / "run"

def choose(trainer, space, budget, **told):  # a plan that is made at once
    if how == "planning":
        (folder / "waiting").touch()
        while True:  # in short naps: a signal that comes just before one would else be heard after it
            time.sleep(0.05)
    scored = dpt.PrivateValidation.of(0.2, 300, noise=16.0)
    method = dpt.RandomStopping(space, dpt.Geometric(6), validation=scored)
    return types.SimpleNamespace(plan=method.plan(budget, trainer), explanation="")

dptune.planner.asked.choose = choose
dptune.sealed._under_way._attackers = lambda *told: None  # of the statement, and takes seconds
rows = np.random.default_rng(5)
X = rows.random((300, 3))
y = X @ [1.0, -0.5, 0.2] + 0.1 * rows.standard_normal(300)
release = dpt.tune(
    (X, y), target_range=(-1, 2), records=300, epsilon=3, delta=1e-4, resume=resume,
    ledger=folder / "h.ledger", dataset="flats", out=folder / "run", executor=Processes(1), explain=None,
)
print(release.outcome, release.model.predict(X[:1])[0])
"""


def _start(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _until_it_waits(folder: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not (folder / "waiting").exists():
        time.sleep(0.02)
    assert (folder / "waiting").exists(), process.communicate()


def _prepared(folder: Path) -> Ledger:
    folder.mkdir()
    ledger = Ledger.create(folder / "h.ledger")
    ledger.add("flats", 3.0, 1e-4)
    return ledger


def _released(folder: Path) -> dict[str, Any]:
    details: dict[str, Any] = json.loads((folder / "run" / "release" / "release.json").read_text())
    return {name: details[name] for name in ("params", "model_sha256", "epsilon", "outcome")}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("calm") / "job"
    _prepared(folder)
    process = _start(folder, "calm")
    printed, complained = process.communicate()
    assert process.returncode == 0, complained
    assert printed.startswith("model ")
    return _released(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_regression_that_was_stopped_is_finished_by_the_same_call(
    tmp_path: Path, calm: dict[str, Any], number: signal.Signals
) -> None:
    folder = tmp_path / "job"
    ledger = _prepared(folder)
    process = _start(folder, "deaf")
    _until_it_waits(folder, process)
    os.killpg(process.pid, number)  # Ctrl-C reaches the workers too
    printed, complained = process.communicate()
    assert printed == ""
    if number == signal.SIGINT:
        assert process.returncode == 1
        assert complained.count("\n") == 1
        run = str(folder / "run")
        assert complained.startswith(f"dptune: Stopped. The run in {run} was charged epsilon ")
        assert f"finish it with the same call and resume={run!r}, at no further charge." in complained
    head = ledger.head
    assert ledger.status("flats").charges == 1
    again = _start(folder, "again")
    printed, complained = again.communicate()
    assert again.returncode == 0, complained
    assert ledger.head == head
    assert _released(folder) == calm
    told: dict[str, Any] = {"target_range": (-1, 2), "records": 300, "delta": 1e-4, "resume": folder / "run"}
    with pytest.raises(InvalidInput, match=r"has epsilon 3 at delta 0\.0001, not 2 at 0\.0001; finish it with"):
        dpt.tune((np.zeros((9, 3)), np.zeros(9)), epsilon=2, **told)
    with pytest.raises(InvalidInput, match="a run is finished in its own folder"):
        dpt.tune((np.zeros((9, 3)), np.zeros(9)), epsilon=3, out=tmp_path, **told)


def test_ctrl_c_while_planning_is_one_line_and_nothing_is_charged(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    ledger = _prepared(folder)
    process = _start(folder, "planning")
    _until_it_waits(folder, process)
    os.killpg(process.pid, signal.SIGINT)
    printed, complained = process.communicate()
    assert (process.returncode, printed) == (1, "")
    assert complained == "dptune: Stopped before anything was charged.\n"
    assert ledger.status("flats").charges == 0
    assert not (folder / "run").exists()


def _pressed(*told: object) -> Any:
    raise KeyboardInterrupt


@stops_in_one_line
def _tuned(ledger: Ledger, *, stop: str, **options: Any) -> Release:
    """What ``tune`` does at its end, stopped at some place."""
    if stop == "planning":
        _pressed()
    beat = _pressed if stop == "training" else None
    told: dict[str, Any] = {"ledger": ledger, "dataset": "flats", "executor": Inline(), "beat": beat}
    release = dpt.run(toy_plan(count=2), ToyTrainer(), DATA, **told, **options)
    return _pressed() if stop == "after the run" else release


@pytest.mark.parametrize("stop", ["training", "after the run"])
@pytest.mark.parametrize("named", [True, False])
def test_however_often_ctrl_c_is_pressed_a_charged_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str, named: bool
) -> None:
    ledger, pressed = _prepared(tmp_path / "job"), [stop == "after the run"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dptune.sealed._under_way._attackers", lambda plan: None)  # of the statement: takes seconds

    def impatient(vault: Any) -> Any:
        if not pressed[0]:
            pressed[0] = True
            raise KeyboardInterrupt
        return terms_of(vault)

    monkeypatch.setattr("dptune.sealed.interrupt.terms_of", impatient)
    with pytest.raises(Interrupted, match=r"was charged epsilon .* finish it with the same call and resume=") as caught:
        _tuned(ledger, stop=stop, **({"out": tmp_path / "run"} if named else {}))
    assert ledger.status("flats").charges == 1
    assert caught.value.folder is not None
    assert (caught.value.folder / "vault").exists()


def test_a_run_that_would_claim_an_earlier_charge_does_not_say_that_nothing_was_charged(tmp_path: Path) -> None:
    ledger = _prepared(tmp_path / "job")
    with pytest.raises(Interrupted, match=r"claimed the charge 'march', which was made earlier and stays charged\.$"):
        _tuned(ledger, stop="planning", charge="march", out=tmp_path / "run")
    with pytest.raises(Interrupted, match=r"^Stopped before anything was charged\.$"):
        _tuned(ledger, stop="planning", out=tmp_path / "run")
