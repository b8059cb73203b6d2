"""``dptune resume`` for a job with code of its own, found again from any folder; errors are one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import dptune
from dptune.cli import main
from dptune.cli._job import Job
from dptune.ledgers import Ledger

JOB = """
[data]
loader = "own_records:load"
[model]
trainer = "own_trainer:trainer"
[space]
x = {low = 0.5, high = 2.0}
[method]
name = "random-stopping"
runs = "binomial:2,1.0"
[budget]
epsilon = 3.0
delta = 1e-5
[run]
ledger = "h.ledger"
dataset = "icu"
workers = 1
"""
RECORDS = """
import numpy as np
from own_numbers import SIZE

def load():
    return np.arange(SIZE)
"""
# A training waits until somebody opens the gate, so the run can be stopped in its middle without any luck.
TRAINER = """
import time
from pathlib import Path
import own_numbers
from dptune.accounting import Gdp

class Gated:
    def cost(self, params):
        return Gdp(0.1)

    def fit(self, params, data, rng):
        while data.max() > 1 and not (Path(own_numbers.__file__).parent / "gate").exists():
            time.sleep(0.02)
        return {"total": data.sum(keepdims=True)}, float(params["x"])

trainer = Gated()
"""


def _job(folder: Path) -> Path:
    folder.mkdir()
    (folder / "job.toml").write_text(JOB)
    (folder / "own_records.py").write_text(RECORDS)
    (folder / "own_trainer.py").write_text(TRAINER)
    (folder / "own_numbers.py").write_text("SIZE = 50\n")
    Ledger.create(folder / "h.ledger").add("icu", 5.0, 1e-4)
    return folder / "job.toml"


def _command(*arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(Path(dptune.__file__).parents[1])}
    command = [sys.executable, "-c", "from dptune.cli import main; main()", *arguments]
    return {"args": command, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def _stopped(job: Path, out: Path, cwd: Path, number: signal.Signals) -> str:
    """Start a run, wait for its charge, stop it; what it complained about."""
    process = subprocess.Popen(**_command("tune", str(job), "--out", str(out)), cwd=cwd)
    ledger = Ledger(job.parent / "h.ledger")
    until = time.monotonic() + 300
    while ledger.status("icu").charges == 0 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    printed, complained = (str(one) for one in process.communicate())
    assert printed == ""
    assert ledger.status("icu").charges == 1
    return str(complained)


def test_a_job_with_code_of_its_own_is_resumed_from_any_folder(tmp_path: Path) -> None:
    job, here, there = _job(tmp_path / "job"), tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    out = tmp_path / "run"
    assert _stopped(job, out, here, signal.SIGKILL) == ""
    shutil.move(tmp_path / "job" / "own_trainer.py", tmp_path / "kept.py")
    refused = subprocess.run(**_command("resume", str(out)), cwd=there, check=False, timeout=300)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert (
        f"The trainer 'own_trainer:trainer' cannot be imported (No module named 'own_trainer') from {job.parent}"
        in (refused.stderr)
    )
    assert f"what it was charged stays charged: mend this, then 'dptune resume {out}' again." in refused.stderr
    shutil.move(tmp_path / "kept.py", tmp_path / "job" / "own_trainer.py")
    (tmp_path / "job" / "gate").touch()
    done = subprocess.run(**_command("resume", str(out), "--json"), cwd=there, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    released = json.loads(done.stdout)
    assert 0.5 <= released["params"]["x"] <= 2.0
    assert dptune.sealed.load_release(out).model["total"].tolist() == [1225]
    assert Ledger(job.parent / "h.ledger").status("icu").charges == 1


def test_a_request_to_end_says_how_to_go_on(tmp_path: Path) -> None:
    job, out = _job(tmp_path / "job"), tmp_path / "run"
    complained = _stopped(job, out, tmp_path, signal.SIGTERM)
    assert complained.count("\n") == 1
    assert f"on 'icu', which stays charged: finish it with 'dptune resume {out}', at no further" in complained


LOADERS = {
    "raise ValueError('patient 17')": "cannot be imported (ValueError; python -c 'import own_loader_0' shows why)",
    "import nowhere_to_be_found": "cannot be imported (No module named 'nowhere_to_be_found')",
    "raise SystemExit(0)": "cannot be imported (SystemExit; python -c",
    "def load(:": "cannot be imported (SyntaxError; python -c",
    "def load():\n    raise SystemExit(0)": "failed (SystemExit)",
    "def load():\n    raise KeyError('patient 17')": "failed (KeyError)",
}


@pytest.mark.parametrize("number", range(len(LOADERS)))
def test_code_that_cannot_be_imported_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    text, said = list(LOADERS.items())[number]
    job = _job(tmp_path / "job")
    (tmp_path / "job" / f"own_loader_{number}.py").write_text(text)
    job.write_text(JOB.replace("own_records", f"own_loader_{number}"))
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "patient" not in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_help_says_that_resuming_runs_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "This runs code" in text
    assert "you trust" in text


def test_a_stored_job_is_the_same_again() -> None:
    job = Job({"data": {"name": "digits"}}, "/somewhere").with_fields("run", workers=2)
    assert job.folder == "/somewhere"
    assert Job.from_stored(json.loads(json.dumps(job.describe()))) == job
    assert Job.from_stored({"data": {"name": "digits"}}) == Job({"data": {"name": "digits"}})


def test_what_parsers_make_of_ctrl_c_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some versions of the parser raise this, others exit by themselves."""

    class Abort(RuntimeError): ...

    def app(**given: Any) -> None:
        raise Abort

    monkeypatch.setattr("dptune.cli.app", app)
    assert main(["price"]) == 2
    assert capsys.readouterr().err == "dptune: Stopped.\n"


INTERRUPTED = textwrap.dedent("""
    import os, signal, sys
    from dptune.cli import main, tune
    def load(job):
        os.kill(os.getpid(), signal.SIGINT)
    tune.load_data = load
    main()
""")


def test_ctrl_c_before_anything_began_is_one_line(tmp_path: Path) -> None:
    job = _job(tmp_path / "job")
    started = _command("tune", str(job), "--out", str(tmp_path / "run"))
    started["args"][2] = INTERRUPTED
    done = subprocess.run(**started, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Stopped." in done.stderr
    assert not (tmp_path / "run").exists()
