"""Ctrl-C and SIGTERM in the middle of ``dptune tune``, then ``dptune resume``: the same winner, charged once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dptune.ledgers import Ledger

# Six trainings, one after the other. The secret is given, so that a calm run has the same candidates and noise.
JOB = """
[data]
name = "digits"
validation = "test"
[model]
steps = 20
batch_size = 128
[space]
learning_rate = {low = 0.1, high = 10.0, log = true}
[method]
name = "random-stopping"
runs = "binomial:6,1.0"
[budget]
epsilon = 3.0
delta = 1e-4
[run]
ledger = "h.ledger"
dataset = "digits"
workers = 1
"""
SCRIPT = """
from dptune.randomness import Randomness
Randomness.fresh = classmethod(lambda cls: cls(bytes(range(32))))
from dptune.cli import main
main()
"""
# After the first outcome the workers are not heard any more: the run waits, alive, and cannot end before the signal.
DEAF = """
import time
from pathlib import Path
from dptune.executors import Processes

class Deaf:
    def __init__(self, session):
        self.session, self.heard = session, False

    def __getattr__(self, name):
        return getattr(self.session, name)

    def wait(self, seconds):
        if self.heard:  # the outcome was kept: the loop waits for the next one
            Path({waiting!r}).touch()
            time.sleep(seconds)
            return None
        result = self.session.wait(seconds)
        self.heard = result is not None
        return result

opened = Processes.open
Processes.open = lambda self, work: Deaf(opened(self, work))
"""


def _start(*arguments: str, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + SCRIPT, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _finished(folder: Path) -> int:
    database = folder / "vault" / "inside" / "run.db"
    if not database.exists():
        return 0
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
        return int(connection.execute("SELECT count(*) FROM outcomes").fetchone()[0])


def _released(folder: Path) -> dict[str, Any]:
    details: dict[str, Any] = json.loads((folder / "release" / "release.json").read_text())
    return details


def _prepare(folder: Path) -> tuple[Path, Ledger]:
    folder.mkdir()
    (folder / "job.toml").write_text(JOB)
    ledger = Ledger.create(folder / "h.ledger")
    ledger.add("digits", 5.0, 1e-4)
    return folder / "run", ledger


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The release of the run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("calm") / "job"
    out, _ = _prepare(folder)
    process = _start("tune", str(folder / "job.toml"), "--out", str(out))
    _, complained = process.communicate()
    assert process.returncode == 0, complained
    assert _finished(out) == 6
    return _released(out)


@pytest.mark.parametrize(("number", "everybody"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_stopped_run_is_finished_by_resume(
    tmp_path: Path, calm: dict[str, Any], number: signal.Signals, everybody: bool
) -> None:
    """Ctrl-C reaches the whole group of processes, workers too; SIGTERM the command alone."""
    out, ledger = _prepare(tmp_path / "job")
    waiting = tmp_path / "waiting"
    deaf = DEAF.format(waiting=str(waiting))
    process = _start("tune", str(tmp_path / "job" / "job.toml"), "--out", str(out), before=deaf)
    while process.poll() is None and not waiting.exists():
        time.sleep(0.02)
    assert waiting.exists(), process.communicate()
    if everybody:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    printed, complained = process.communicate()
    assert process.returncode == 2
    assert printed == ""
    assert complained.count("\n") == 1
    assert "dptune resume" in complained
    assert _finished(out) == 1
    assert not (out / "release").exists()
    assert ledger.status("digits").charges == 1
    head = ledger.head
    resumed = _start("resume", str(out), "--json")
    printed, complained = resumed.communicate()
    assert resumed.returncode == 0, complained
    assert ledger.head == head
    assert _finished(out) == 6
    found = _released(out)
    for same in ("params", "model_sha256", "epsilon", "epsilon_lower"):
        assert found[same] == calm[same]
