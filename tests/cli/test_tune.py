"""``dptune tune``, ``resume``, ``ledger`` and ``demo`` from end to end, and what they say to bad input."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from dptune.cli import main
from dptune.ledgers import Ledger

JOB = """
[data]
name = "digits"
validation = "test"
[model]
steps = 20
batch_size = 128
[space]
learning_rate = {low = 0.1, high = 10.0, log = true}
clip_norm = [0.3, 1.0]
[method]
name = "random-stopping"
runs = "geometric:3"
[budget]
epsilon = 2.0
delta = 1e-4
[run]
ledger = "h.ledger"
dataset = "digits"
workers = 1
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    assert main(["ledger", "add", str(tmp_path / "h.ledger"), "digits", "--epsilon", "5", "--delta", "1e-4"]) == 0
    return Ledger(tmp_path / "h.ledger")


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_job_from_a_file(job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    shown = _json(capsys, "tune", str(job), "--out", str(out))
    release = json.loads((out / "release" / "release.json").read_text())
    assert {"params", "epsilon", "delta", "epsilon_lower", "method", "dataset"} <= set(release)
    assert shown["epsilon"] == release["epsilon"] <= 2.0
    assert release["method"] == "random-stopping"
    assert release["dataset"] == "digits"
    assert 0.1 <= release["params"]["learning_rate"] <= 10.0
    # The statement's epsilon is what the plan in the release costs.
    priced = _json(capsys, "price", "--plan", str(out / "release" / "plan.json"))
    assert (priced["epsilon"], priced["delta"]) == (release["epsilon"], release["delta"])

    status = _json(capsys, "ledger", "show", str(ledger.path))
    assert status["datasets"][0]["charges"] == 1
    assert status["head"] == release["ledger"]["head"]
    checked = _json(capsys, "ledger", "verify", str(ledger.path), "--statement", str(out / "release" / "release.json"))
    assert checked["verified"] is True

    assert main(["resume", str(out)]) == 0
    assert "Nothing to do" in capsys.readouterr().out
    assert _json(capsys, "resume", str(out))["resumed"] is False
    assert main(["ledger", "show", str(ledger.path)]) == 0
    assert "Renyi" in capsys.readouterr().out


def test_a_job_names_its_clipping_and_its_optimiser(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the charge if there is none of that name; named by the statement if there is."""
    written = job.read_text()
    job.write_text(written.replace("[space]", 'clipping = "rough"\n[space]'))
    assert main(["tune", str(job), "--out", str(tmp_path / "no")]) == 2
    assert "'clipping' must be one of flat, automatic, quantile" in capsys.readouterr().err
    job.write_text(written.replace("[space]", 'clipping = "automatic"\noptimizer = "adambc"\n[space]'))
    out = tmp_path / "run"
    _json(capsys, "tune", str(job), "--out", str(out))
    release = json.loads((out / "release" / "release.json").read_text())
    assert "automatic clipping" in release["training"]
    assert "AdamBC(" in release["training"]
    assert "automatic clipping" in (out / "release" / "statement.md").read_text()
    status = _json(capsys, "ledger", "show", str(ledger.path))
    assert status["datasets"][0]["charges"] == 1


METHODS = {
    "random-stopping": 'runs = "geometric:2"',
    "adaptive": 'runs = "geometric:2"\ndensity = [0.8, 1.5]',
    "subset": 'runs = "geometric:2"\nfraction = 0.2\ninner = "adaptive"\nfinal = "all"',
    "noisy-best": "shards = 10\ngrid = 2",
    "threshold": "shards = 10\ngrid = 2",
    "vote": "clients = 10\nvotes = 2\ngrid = 2",
    "naive": "grid = 2",
    "random-guess": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["digits", "adult"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_and_its_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, method: str, data: str
) -> None:
    """The epsilon that a release states is the one that its plan costs."""
    if data == "adult":
        request.getfixturevalue("data_root")
    text = JOB.split("[method]", maxsplit=1)[0].replace('"digits"', f'"{data}"').replace("steps = 20", "steps = 15")
    path = tmp_path / "job.toml"
    path.write_text(f'{text}[method]\nname = "{method}"\n{METHODS[method]}\n[budget]\nepsilon = 3.0\ndelta = 1e-5\n')
    out = tmp_path / "run"
    release = _json(capsys, "tune", str(path), "--out", str(out), "--workers", "2")
    priced = _json(capsys, "price", "--plan", str(out / "release" / "plan.json"))
    assert priced["epsilon"] == release["epsilon"] <= 3.0
    assert release["method"] == method
    assert (release["model"] is not None) or release["params"]


@pytest.mark.slow
def test_flags_alone_with_private_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(600, 5)) + y[:, None], y=y)
    flags = [
        "--data",
        str(tmp_path / "d.npz"),
        "--classes",
        "2",
        "--records",
        "600",
        "--epsilon",
        "4",
        "--delta",
        "1e-4",
    ]
    flags += ["--method", "subset", "--runs", "geometric:2", "--fraction", "0.3", "--workers", "1"]
    shown = _json(capsys, "tune", *flags, "--out", str(tmp_path / "run"))
    assert shown["epsilon"] <= 4.0
    assert any("exact integer noise (a discrete Gaussian" in text for text in shown["assumptions"])


def test_without_a_method_the_planner_chooses_and_says_why(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace('name = "random-stopping"', "").replace('validation = "test"', ""))
    capsys.readouterr()
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Chosen: ")
    assert "held back" in printed
    assert ledger.status("digits").charges == 1


def test_one_training_without_tuning_is_called_that(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace('name = "random-stopping"', 'name = "random-guess"').replace('runs = "geometric:3"', ""))
    capsys.readouterr()
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 0
    assert "released by one untuned training on digits" in capsys.readouterr().out
    assert ledger.status("digits").charges == 1


def test_a_rehearsal_says_so(job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r")
    shown = _json(capsys, "tune", str(job), "--out", out, "--seed", "4", "--data-is", "public")
    assert shown["watermark"] == "NO GUARANTEE"
    assert shown["replay"] == "exact"
    assert ledger.status("digits").charges == 0


@pytest.mark.slow
def test_a_rehearsal_offers_a_public_time_of_release(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = str(tmp_path / "r")
    _json(capsys, "tune", str(job), "--out", rehearsal, "--seed", "4", "--data-is", "public")
    assert main(["tune", str(job), "--out", str(tmp_path / "run"), "--rehearsal", rehearsal]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "(--release-at auto) would release nothing before such a time" in text
    assert json.loads((tmp_path / "run" / "release" / "release.json").read_text())["replay"] == "exact"
    assert ledger.status("digits").charges == 1


def test_an_edited_plan_is_refused(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its price is not shown, and a run whose stored plan was edited is not continued."""
    shown = _json(capsys, "tune", str(job), "--out", str(tmp_path / "run"))
    stored = tmp_path / "run" / "release" / "plan.json"
    assert _json(capsys, "price", "--plan", str(stored))["epsilon"] == shown["epsilon"]
    plan = json.loads(stored.read_text())
    cheap = tmp_path / "cheap.json"
    cheap.write_text(json.dumps({**plan, "cost": {"cost": "pure", "epsilon": 0.01}}))
    assert main(["price", "--plan", str(cheap)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "states a cost of epsilon 0.00980098, but its settings cost 1.9" in said.err
    database = tmp_path / "run" / "vault" / "inside" / "run.db"
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        terms = json.loads(connection.execute("SELECT value FROM facts WHERE name = 'terms'").fetchone()[0])
        terms["plan"]["cost"] = {"cost": "pure", "epsilon": 0.01}
        connection.execute("UPDATE facts SET value = ? WHERE name = 'terms'", (json.dumps(terms),))
        connection.execute("UPDATE facts SET value = '\"open\"' WHERE name = 'state'")
    shutil.rmtree(tmp_path / "run" / "release")
    before = ledger.head
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "its settings cost" in capsys.readouterr().err
    assert ledger.head == before


STILL = """
import signal, sys
from pathlib import Path
from dptune.cli import main
from dptune.sealed import Vault
begun, begin = Path(sys.argv.pop(1)), Vault.begin

def still(self, *trials):
    begin(self, *trials)
    begun.touch()
    signal.pause()

Vault.begin = still
main()
"""


def test_a_job_that_was_killed_is_resumed(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut off when its first training has begun; it stands still there, so that it cannot be over before the kill."""
    job.write_text(JOB.replace("geometric:3", "tnb:1,3"))
    out, begun = tmp_path / "run", tmp_path / "begun"
    command = [sys.executable, "-c", STILL, str(begun), "tune", str(job), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not begun.exists():
        time.sleep(0.05)
    assert begun.exists(), process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    printed, complained = process.communicate()
    assert (printed, complained) == (b"", b"")
    assert process.returncode == -signal.SIGKILL
    shown = _json(capsys, "resume", str(out))
    assert shown["epsilon"] <= 2.0
    assert ledger.status("digits").charges == 1
    with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db")) as database:
        rows = database.execute("SELECT count(*), count(DISTINCT number) FROM outcomes").fetchone()
    assert rows[0] == rows[1] >= 1


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    text = capsys.readouterr().out
    assert "Privacy statement: digits" in text
    assert "accuracy of the released model" in text
    release = json.loads((tmp_path / "demo" / "release" / "release.json").read_text())
    assert release["method"] == "subset"
    assert release["epsilon_lower"] <= release["epsilon"] <= 3.0


BAD = [
    ("low = 0.1, high = 10.0", "low = 10.0, high = 0.1", "'low' must be below 'high'"),
    ('name = "random-stopping"', 'name = "grid"', "Unknown method 'grid'"),
    ("delta = 1e-4", "", "no 'delta'"),
    ("epsilon = 2.0", "epsilon = -1.0", "'epsilon' must"),
    ("epsilon = 2.0", "epsilon = 30.0", "would exceed the budget of 'digits'"),
    ("epsilon = 2.0", "epsilon = 29.0", "Everybody has digits: with --data-is public it needs no budget"),
    ('dataset = "digits"', 'dataset = "mnist"', "no data set 'mnist'"),
    ('ledger = "h.ledger"', 'ledger = "none.ledger"', "There is no ledger"),
    ('name = "digits"\n', 'name = "cifar"\n', "no data set called 'cifar'"),
    ('name = "digits"\n', "", "exactly one of"),
    ("[budget]", "[buget]", "no section [buget]"),
    ("steps = 20", "epochs = 20", "no field 'epochs'"),
    ('runs = "geometric:3"', 'runs = "uniform:3"', "Cannot read the runs"),
    ('runs = "geometric:3"', "shards = 3", "no setting 'shards'"),
    ('name = "random-stopping"', "fraction = 0.1", "belongs to a method"),
    ("clip_norm = [0.3, 1.0]", "clip_norm = 3", "must be a list of choices"),
    ("steps = 20", 'trainer = "nowhere:trainer"', "cannot be imported"),
    ("workers = 1", "seed = 3", "rehearsal needs data that is marked"),
    ("workers = 1", 'executor = "slurm"', "must be 'processes' or 'ray'"),
    ("workers = 1", 'release_at = "soon"', "release_at"),
    ("[data]", "[data", "is not TOML"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[message for _, _, message in BAD])
def test_bad_input_is_one_line_and_charges_nothing(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    job.write_text(JOB.replace(old, new))
    capsys.readouterr()
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err
    assert not (tmp_path / "run").exists()
    assert ledger.status("digits").charges == 0


def test_a_trainer_without_cost(job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine_without_cost.py").write_text(
        "class T:\n    def fit(self, p, d, r): return None, 0.0\ntrainer = T()\n"
    )
    job.write_text(JOB.replace("steps = 20", 'trainer = "mine_without_cost:trainer"'))
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 2
    assert "declares no cost" in capsys.readouterr().err
    assert ledger.status("digits").charges == 0


def test_a_loader_that_fails_is_one_line(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it says may quote records, so only its type is shown."""
    (tmp_path / "mine_that_fails.py").write_text("def load():\n    raise ValueError('patient 17')\n")
    text = JOB.replace('name = "digits"\nvalidation = "test"', 'loader = "mine_that_fails:load"')
    job.write_text(text)
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "failed (ValueError)" in said
    assert "patient" not in said
    assert said.count("\n") == 1
    assert ledger.status("digits").charges == 0


@pytest.mark.slow
def test_a_continuous_sampling_rate_under_a_line(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = JOB.replace("clip_norm = [0.3, 1.0]", "sampling_rate = {low = 0.03, high = 0.15, log = true}")
    job.write_text(text)
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) == 2
    assert "costs='line'" in capsys.readouterr().err
    job.write_text(text.replace('runs = "geometric:3"', 'runs = "tnb:1,3"\ncosts = "line"'))
    shown = _json(capsys, "tune", str(job), "--out", str(tmp_path / "run"))
    assert shown["epsilon"] <= 2.0
    assert 0.03 <= shown["params"]["sampling_rate"] <= 0.15
    assert shown["params"]["noise_multiplier"] > 0.3
    assert any("one Renyi line" in sentence for sentence in shown["assumptions"])
    price = _json(capsys, "price", "--plan", str(tmp_path / "run" / "release" / "plan.json"))
    assert price["epsilon"] == shown["epsilon"]
    line = json.loads((tmp_path / "run" / "release" / "plan.json").read_text())["settings"]["tuning"]["base"]["line"]
    base = {"rate": shown["params"]["sampling_rate"], "noise": shown["params"]["noise_multiplier"]}
    accountant = RdpAccountant(line["orders"])
    step = dp_event.PoissonSampledDpEvent(base["rate"], dp_event.GaussianDpEvent(base["noise"]))
    accountant.compose(step, 20)
    assert (np.array(accountant.rdp) <= line["slope"] * np.array(line["orders"])).all()
    assert ledger.status("digits").charges == 1


def test_damaged_files_are_one_line(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.path.write_bytes(b"no database" * 1000)
    for arguments in (
        ["tune", str(job), "--out", str(tmp_path / "run")],
        ["ledger", "show", str(ledger.path)],
        ["ledger", "verify", str(ledger.path)],
        ["resume", str(tmp_path / "nothing")],
    ):
        capsys.readouterr()
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert said.out == ""
    assert not (tmp_path / "run").exists()


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from dptune.cli import main
main()
"""


@pytest.mark.parametrize("limit", [100, 3000, 30_000])
def test_a_full_disk_is_one_line_and_loses_nothing(job: Path, ledger: Ledger, tmp_path: Path, limit: int) -> None:
    """No file may grow beyond the limit, as on a disk that is full: writing fails in the ledger or in the vault."""
    before = ledger.path.read_bytes()
    command = [sys.executable, "-c", FULL, str(limit), "tune", str(job), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Nothing was lost" in done.stderr
    assert ledger.path.read_bytes() == before
    assert ledger.verify() == ledger.head
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_in_the_middle_loses_nothing(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ledger and vault fit, a model does not: the run is charged, stops with one line, goes on once there is room."""
    text = JOB.replace("[model]", '[model]\nkind = "mlp"\nhidden = [512]').replace("geometric:3", "tnb:1,3")
    job.write_text(text)
    out = tmp_path / "run"
    command = [sys.executable, "-c", FULL, "140000", "tune", str(job), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "could not be read or written" in done.stderr
    assert ledger.status("digits").charges == 1
    assert not (out / "release").exists()
    head = ledger.verify()
    shown = _json(capsys, "resume", str(out))
    assert shown["epsilon"] <= 2.0
    assert ledger.head == head


def test_a_damaged_run_folder_is_one_line(
    job: Path, ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _json(capsys, "tune", str(job), "--out", str(tmp_path / "run"))
    head = ledger.head
    for damage in ("run.db", "secret", "terms"):
        out = tmp_path / damage
        shutil.copytree(tmp_path / "run", out)
        shutil.rmtree(out / "release")
        with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db")) as connection, connection:
            connection.execute("UPDATE facts SET value = '\"open\"' WHERE name = 'state'")
            if damage == "terms":
                connection.execute("UPDATE facts SET value = '{}' WHERE name = 'terms'")
        if damage == "run.db":
            (out / "vault" / "inside" / "run.db").write_bytes(b"damaged" * 5000)
        if damage == "secret":
            (out / "vault" / "inside" / "secret").write_bytes(b"short")
        capsys.readouterr()
        assert main(["resume", str(out)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "backup" in said.err or "cannot be continued" in said.err
    assert ledger.head == head
