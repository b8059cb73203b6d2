"""The method that ``docs/contributing.md`` shows, taken from that page: planned, priced, run, resumed, audited, called.

It lives in a folder of its own, as a user's would: nothing of dptune names it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Gdp, compose
from dptune.audit.tuning_games import TuningGame, play_tuning
from dptune.cli import main
from dptune.errors import InvalidInput
from dptune.ledgers import Ledger
from dptune.methods import Budget, Line, Method, Plan, known_methods, method_named, plan_from_json, registry
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.randomness import Randomness
from dptune.sealed import load_release, run
from dptune.spaces import Choice, Float, Space
from dptune.testing.searches import check_method

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "contributing.md"
CODE = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
BUDGET = Budget(2.0, 1e-5)
SPACE = Space(x=Float(0.5, 2.0), clip=Choice(0.1, 1.0))


class Summing:
    """A Gaussian mechanism on a sum; higher x scores higher."""

    def cost(self, params: dict[str, Any]) -> Gdp:
        return Gdp(1.0 / params["noise_multiplier"])

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        noise = float(np.random.default_rng(rng.integers(2**31)).normal())
        return {"sum": np.array([float(np.sum(data)) + params["noise_multiplier"] * noise])}, params["x"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the file; whatever was registered is forgotten afterwards."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setattr(registry, "_PLANS", dict(registry._PLANS))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "best_of_k.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("best_of_k", None)


@pytest.fixture
def module(folder: Path) -> ModuleType:
    assert folder.exists()
    return importlib.import_module("best_of_k")


def test_the_file_is_short() -> None:
    assert len(CODE.splitlines()) < 80


def test_it_is_planned_and_priced(module: ModuleType) -> None:
    plan = check_method(module.BestOfK(SPACE, 3), BUDGET, Summing(), lambda trial: trial.params["x"], range(3))
    assert 0.97 * BUDGET.epsilon < plan.price() <= BUDGET.epsilon
    assert plan.cost.epsilon(1e-5) == compose(*[Gdp(1.0 / (plan.noise or 0.0))] * 3).epsilon(1e-5)
    assert plan.theorem == "docs/theorems/compose.md"
    edited = json.loads(plan.to_json())
    edited["settings"]["count"] = 30  # thirty runs for the price of three
    with pytest.raises(InvalidInput, match="its settings cost"):
        plan_from_json(edited)


def test_a_trainer_without_a_score_is_refused(module: ModuleType) -> None:
    class Unscored(Summing):
        validation = None

    with pytest.raises(InvalidInput, match="unpaid release"):
        module.BestOfK(SPACE, 3).plan(BUDGET, Unscored())


def test_it_runs_inside_the_seal(module: ModuleType, tmp_path: Path) -> None:
    plan = module.BestOfK(SPACE, 3).plan(BUDGET, Summing())
    ledger = Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 5.0, 1e-4)
    release = run(plan, Summing(), np.arange(50.0), ledger=ledger, dataset="icu", out=tmp_path / "run")
    assert release.method == "best-of-k"
    assert release.epsilon == plan.price()
    assert release.model["sum"].shape == (1,)
    assert ledger.status("icu").charges == 1


def _total(params: Mapping[str, Any], model: Any) -> float:
    return math.inf if model is None else float(model["sum"][0])


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_audited(module: ModuleType, workers: int) -> None:
    plan = module.BestOfK(SPACE, 2).plan(BUDGET, Summing())
    worlds = (np.zeros(5), np.array([0.0, 0, 0, 0, 0, 1.0]))
    game = TuningGame("ntnv", plan, Summing(), worlds, _total, 60, data_is="synthetic")
    found = play_tuning(game, workers=workers, randomness=Randomness.rehearsal(3))
    assert not found.broken
    assert found.upper == plan.price()
    assert found.bound.low < plan.price()


# The command line.

JOB = """
[data]
loader = "own_job:load"
kind = "synthetic"
[model]
trainer = "own_job:trainer"
[space]
x = {low = 0.5, high = 2.0}
[method]
name = "best_of_k:BestOfK"
count = 2
[budget]
epsilon = 3.0
delta = 1e-5
[run]
ledger = "h.ledger"
dataset = "icu"
workers = 1
"""
# A training waits until somebody opens the gate, so the run can be killed in its middle without any luck.
OWN = """
import time
from pathlib import Path
import numpy as np
from dptune.accounting import Gdp

def load():
    return np.arange(50)

class Gated:
    def cost(self, params):
        return Gdp(1.0 / params["noise_multiplier"])

    def fit(self, params, data, rng):
        while data.max() > 1 and not (Path(__file__).parent / "gate").exists():
            time.sleep(0.02)
        return {"total": data.sum(keepdims=True)}, float(params["x"])

trainer = Gated()
"""


def _job(folder: Path, method: str = "best_of_k:BestOfK") -> Path:
    (folder / "job.toml").write_text(JOB.replace("best_of_k:BestOfK", method))
    (folder / "own_job.py").write_text(OWN)
    Ledger.create(folder / "h.ledger").add("icu", 5.0, 1e-4)
    return folder / "job.toml"


def _command(*arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src")}
    command = [sys.executable, "-m", "dptune", *arguments]
    return {"args": command, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def test_a_killed_run_is_resumed_by_the_command_line(folder: Path) -> None:
    job, out = _job(folder), folder / "run"
    process = subprocess.Popen(**_command("tune", str(job), "--out", str(out)))
    ledger, until = Ledger(folder / "h.ledger"), time.monotonic() + 300
    while ledger.status("icu").charges == 0 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.communicate() == ("", "")
    (folder / "gate").touch()
    done = subprocess.run(**_command("resume", str(out), "--json"), check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    released = json.loads(done.stdout)
    assert released["method"] == "best-of-k"
    assert ledger.status("icu").charges == 1
    assert load_release(out).model["total"].tolist() == [1225]


def test_an_installed_package_offers_it_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "best-of-k" not in known_methods()
    with pytest.raises(InvalidInput, match="Unknown method 'best-of-k'"):
        method_named("best-of-k")
    described = folder / "best_of_k-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: best_of_k\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[dptune.methods]\nbest-of-k = best_of_k:BestOfK\n")
    importlib.invalidate_caches()
    found = method_named("best-of-k")
    assert found.__name__ == "BestOfK"
    made = method_from_settings(found, {"count": 2}, Surroundings(SPACE))
    stored = folder / "plan.json"
    stored.write_text(made.plan(BUDGET, Summing()).to_json())
    for known in (registry._METHODS, registry._PLANS):  # as in another process
        monkeypatch.delitem(known, "best-of-k")
    sys.modules.pop("best_of_k")
    assert main(["price", "--plan", str(stored), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "best-of-k"


def test_a_plan_does_not_import_what_it_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = folder / "plan.json"
    stored.write_text(
        json.dumps({"method": "best_of_k:BestOfK", "settings": {}, "epsilon": 1, "delta": 1e-5, "default": {}})
    )
    assert main(["price", "--plan", str(stored)]) == 2
    assert "Unknown method" in capsys.readouterr().err
    assert "best_of_k" not in sys.modules


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("best_of_k:Nothing", "cannot be imported"),
        ("nowhere:BestOfK", "cannot be imported (No module named 'nowhere')"),
        ("best_of_k:compose", "is not a class that derives from dptune.methods.Method"),
        ("best-of-k", "Unknown method 'best-of-k'"),
    ],
)
def test_a_method_that_is_not_there_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], method: str, said: str
) -> None:
    assert main(["tune", str(_job(folder, method)), "--out", str(folder / "run")]) == 2
    complained = capsys.readouterr().err
    assert complained.count("\n") == 1
    assert said in complained
    assert not (folder / "run").exists()


# The registry.


OURS = [name for name in known_methods() if method_named(name).__module__.startswith("dptune.")]


@pytest.mark.parametrize("name", OURS)
def test_every_registered_method_can_be_made_of_a_job_and_planned(name: str) -> None:
    space = Space(lr=Float(0.5, 2.0, log=True)) if name == "linear-scaling" else SPACE
    made = method_from_settings(method_named(name), {}, Surroundings(space))
    plan = check_method(
        made, Budget(8.0, 1e-5), Summing(), lambda trial: trial.params["lr" if "lr" in trial.params else "x"], range(1)
    )
    assert plan.method == name == made.name
    assert (_ROOT / plan.theorem).exists()


def test_methods_and_plans_have_the_same_names() -> None:
    assert set(OURS) == {name for name, plan in registry._PLANS.items() if plan.__module__.startswith("dptune.")}
    assert len(OURS) >= 9


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="calls itself 'adaptive', as Adaptive of dptune"):
        type("Other", (Method,), {"name": "adaptive"})
    with pytest.raises(InvalidInput, match="give it another name"):
        type("OtherPlan", (Plan,), {"method": "subset"})


def test_settings_are_read_by_the_fields_of_the_class() -> None:
    job = Surroundings(SPACE, 0.1, 5000)
    subset: Any = method_from_settings(
        method_named("subset"), {"inner": "adaptive", "density": [0.5, 2], "costs": "line:0.1", "final": "all"}, job
    )
    assert (subset.fraction, subset.final, subset.method.density) == (0.1, "all", (0.5, 2))
    assert subset.method.costs == Line(0.1)
    assert subset.method.validation.denominator == pytest.approx(50)  # a tenth of the tenth that is tuned on
    with pytest.raises(InvalidInput, match="needs 'records'"):
        method_from_settings(method_named("subset"), {}, Surroundings(SPACE, 0.1))
    for name, settings, said in (
        ("subset", {"inner": "vote"}, "'inner' must be one of adaptive, random-stopping here; got 'vote'"),
        ("vote", {"shards": 3}, "The method 'vote' has no setting 'shards'"),
        ("adaptive", {"costs": "line:x"}, "Cannot read the line 'x'"),
    ):
        with pytest.raises(InvalidInput, match=said):
            method_from_settings(method_named(name), settings, job)
