"""What a run came to: exit codes, the first line of a statement, rehearsals, vaults, predictions."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.cli import main
from dptune.sealed import read_rehearsal, read_vault, run
from dptune.training import DpSgdTrainer, Mlp, Settings

JOB = """
[data]
loader = "outcome_code:load"
[model]
trainer = "outcome_code:TRAINER"
[space]
x = {{low = 0.5, high = 2.0}}
[method]
name = "random-stopping"
runs = "{runs}"
[budget]
epsilon = 3.0
delta = 1e-5
[run]
workers = 1
dataset = "outcomes"
"""
CODE = """
import numpy as np
from dptune.accounting import Gdp

def load():
    return np.arange(1.0, 9.0)

class Trainer:
    def cost(self, params):
        return Gdp(0.1)

    def fit(self, params, data, rng):
        if data.max() > 1 and params["x"] < {below}:  # the blank ones are not above 1
            raise RuntimeError("diverged on these records")
        return {{"x": np.array([params["x"]])}}, params["x"]

TRAINER = Trainer()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def made(runs: str, below: float) -> Path:
        (tmp_path / "job.toml").write_text(JOB.format(runs=runs))
        (tmp_path / "outcome_code.py").write_text(CODE.format(below=below))
        sys.modules.pop("outcome_code", None)
        return tmp_path / "job.toml"

    yield made
    sys.modules.pop("outcome_code", None)


def test_a_release_with_a_model_exits_with_0(job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(job("binomial:2,1.0", 0)), "--out", str(tmp_path / "run")]) == 0
    assert "NO MODEL" not in capsys.readouterr().out
    release = dpt.load_release(tmp_path / "run")
    assert release.outcome == release.details["outcome"] == "model"
    assert release.details["chance_of_no_model"] == 0.0
    assert release.statement.startswith("# Privacy statement")
    assert "which is data: opening it runs no code" in release.statement


def test_a_release_without_a_model_says_so_first_and_exits_with_3(
    job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = job("poisson:2", 9), tmp_path / "run"
    assert main(["tune", str(path), "--out", str(out)]) == 3
    shown = capsys.readouterr().out
    assert shown.startswith("NO MODEL was released")
    assert "released WITHOUT A MODEL" in " ".join(shown.split())
    release = dpt.load_release(out)
    assert release.outcome == release.details["outcome"] == "no model"
    assert release.model is None
    assert release.details["chance_of_no_model"] == pytest.approx(math.exp(-2))
    first = release.statement.splitlines()[0]
    assert first.startswith("**NO MODEL was released")
    assert "The full cost is charged. If nothing is wrong, this happens with probability 0.14" in first
    assert main(["resume", str(out)]) == 3  # nothing to do, and still no model
    assert main(["resume", str(out), "--json"]) == 3
    # By release.json alone: a copy of the release says the same.
    (out / "release").rename(tmp_path / "copy")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "copy"), "nothing.csv"]) == 2
    assert "has no model" in capsys.readouterr().err


def test_a_rehearsal_shows_everything(job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = job("binomial:6,1.0", 1.25), tmp_path / "run"
    assert main(["tune", str(path), "--out", str(out), "--seed", "3", "--data-is", "synthetic"]) == 0
    shown, found = capsys.readouterr().out, read_rehearsal(out)
    assert len(found.trials) == 6
    assert 0 < len(found.failed) < 6
    for trial in found.trials:
        assert (f"{trial.score:.4f}" if trial.score > -math.inf else "failed") in shown
        assert trial.seconds is not None
        assert trial.seconds >= 0
    assert "Traceback (most recent call last)" in shown
    assert shown.count("RuntimeError: diverged on these records") == 2  # its traceback once, and the summary
    assert f"{len(found.failed)} of 6 trainings failed, silently in a sealed run" in shown
    assert "seconds each" in shown


def test_a_sealed_run_has_no_report_and_its_vault_logs_every_reading(
    job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["tune", str(job("binomial:4,1.0", 1.25)), "--out", str(out)]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().out
    with pytest.raises(dpt.InvalidInput, match="is a sealed run"):
        read_rehearsal(out)
    assert main(["vault", "show", str(out)]) == 2
    assert main(["vault", "show", str(out), "--reason", " "]) == 2
    assert "needs a reason" in capsys.readouterr().err
    assert main(["vault", "show", str(out), "--reason", "all trainings fail?"]) == 0
    shown = capsys.readouterr().out
    reading = read_vault(out, "test")
    assert shown.startswith("NOT TO BE RELEASED")
    assert all(f"{score:.4f}" in shown for score in reading.scores.values() if math.isfinite(score))
    assert "all trainings fail?" in shown
    assert [row[3] for row in reading.reads] == ["all trainings fail?", "test"]
    assert main(["vault", "show", str(out), "--reason", "again", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["trial"] for one in found["trials"]] == [0, 1, 2, 3]
    assert [one["reason"] for one in found["reads"]] == ["all trainings fail?", "test", "again"]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network that was released."""
    out = tmp_path_factory.mktemp("released") / "run"
    rng = np.random.default_rng(0)
    data = dpt.Dataset(rng.normal(size=(200, 3)), (rng.random(200) < 0.5).astype(int), 2)
    settings = Settings(0.2, 1.0, steps=5, clip_norm=1.0, learning_rate=0.5, batch_size=40.0)
    trainer = DpSgdTrainer(Mlp(3, 2, (4,)), settings, validation=data)
    space = dpt.Space(learning_rate=dpt.Float(0.1, 1.0))
    plan = dpt.RandomStopping(space, dpt.Geometric(2)).plan(dpt.Budget(3, 1e-4), trainer)
    release = run(plan, trainer, data, out=out, seed=1, data_is="synthetic")
    assert release.details["model"] == "model.npz"
    return out


@pytest.mark.parametrize("kind", ["npz", "csv", "csv with names"])
def test_predictions_of_a_released_model(
    released: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    file = tmp_path / f"records.{kind[:3]}"
    if kind == "npz":
        np.savez(file, x=x)
    else:
        np.savetxt(file, x, delimiter=",", header="a,b,c" if "names" in kind else "", comments="", fmt="%.9g")
    out = tmp_path / "out" / "predictions.csv"
    assert main(["predict", str(released), str(file), "--out", str(out)]) == 0
    assert (
        "7 predictions of TrainedModel(network with hidden layers 4: 3 features, 2 classes" in capsys.readouterr().out
    )
    rows = list(csv.DictReader(out.read_text().splitlines()))
    model = dpt.load_release(released).model
    assert [int(row["prediction"]) for row in rows] == model.predict(x).tolist()
    found = np.array([[float(row["probability_0"]), float(row["probability_1"])] for row in rows])
    np.testing.assert_allclose(found, model.predict_proba(x), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", None, "cannot be read"),
        ("words.json", b"1,2,3", "must be an .npz"),
        ("empty.csv", b"a,b,c\n", "no records"),
        ("words.csv", b"1,2,3\n1,x,3\n", "Record 2 of"),
        ("short.csv", b"1,2,3\n1,2\n", "Record 2 of"),
        ("narrow.csv", b"1,2\n3,4\n", "rows of 3 numbers"),
        ("broken.npz", b"PK\x03\x04junk", "must be an .npz"),
    ],
)
def test_records_that_cannot_be_predicted_are_one_line(
    released: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["predict", str(released), str(tmp_path / name), "--out", str(tmp_path / "p.csv")]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "p.csv").exists()
