"""Optuna objectives as trainers: the real package's suggestions, what is refused, and the example."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import Inline

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.integrations.objectives import from_objective
from dptune.sealed import load_release
from dptune.trainer import has_own_score

pytest.importorskip("optuna", reason="Optuna is not installed; it is in the extra 'dev'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "optuna_objective.py"
DATA = np.arange(1.0, 41.0)
TOLD: dict[str, Any] = {"cost": dpt.PureDp(0.1), "direction": "maximize", "score_is": "public"}


def _objective(trial: Any, data: Any) -> Any:
    rate = trial.suggest_float("rate", 0.1, 1.0, log=True)
    depth = trial.suggest_int("depth", 1, 3)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    trial.set_user_attr("model", {"sum": np.array([data.sum() + trial.user_attrs["rng"].normal(0, 1e3)])})
    return rate + depth + (kind == "a")


def test_the_space_is_read_off_the_suggestions() -> None:
    trainer, space = from_objective(_objective, DATA, **TOLD)
    assert space == dpt.Space(rate=dpt.Float(0.1, 1.0, log=True), depth=dpt.Int(1, 3), kind=dpt.Choice("a", "b"))
    fitted = trainer.fit({"rate": 0.5, "depth": 2, "kind": "a"}, DATA, np.random.default_rng(0))
    assert fitted.score == 3.5
    again = trainer.fit({"rate": 0.5, "depth": 2, "kind": "a"}, DATA, np.random.default_rng(0))
    assert fitted.model["sum"] == again.model["sum"]  # all randomness is the run's


def test_no_record_is_looked_at_for_the_space() -> None:
    seen: list[Any] = []

    def objective(trial: Any, data: Any) -> Any:
        seen.append(data.tolist())
        return trial.suggest_float("rate", 0.1, 1.0), {}  # an empty model is one

    from_objective(objective, DATA, **TOLD)
    first = list(seen)
    seen.clear()
    from_objective(objective, DATA[:3] * 100, **TOLD)
    assert seen == first


def test_smaller_may_be_better_and_a_private_value_is_ignored() -> None:
    trainer, _ = from_objective(_objective, DATA, **{**TOLD, "direction": "minimize"})
    assert trainer.fit({"rate": 0.5, "depth": 2, "kind": "b"}, DATA, np.random.default_rng(0)).score == -2.5
    assert has_own_score(trainer)
    unscored, space = from_objective(_objective, DATA, **{**TOLD, "score_is": "private"})
    assert not has_own_score(unscored)
    with pytest.raises(InvalidInput, match="PrivateValidation"):
        dpt.RandomStopping(space, dpt.Geometric(2)).plan(dpt.Budget(2, 1e-5), unscored)


def test_it_runs_inside_the_seal(tmp_path: Path) -> None:
    trainer, space = from_objective(_objective, DATA, **TOLD)
    plan = dpt.RandomStopping(space, dpt.Geometric(3)).plan(dpt.Budget(2, 1e-5), trainer)
    release = dpt.run(plan, trainer, DATA, out=tmp_path / "run", executor=Inline(), data_is="synthetic")
    assert set(release.params) == {"rate", "depth", "kind"}
    assert release.outcome == "model"


def _conditional(trial: Any, data: Any) -> Any:
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return trial.suggest_float("rate", 0.1, 1.0) if kind == "a" else 0.0, {}


def _reporting(trial: Any, data: Any) -> Any:
    trial.report(trial.suggest_float("rate", 0.1, 1.0), 1)


def _pruning(trial: Any, data: Any) -> Any:
    trial.suggest_float("rate", 0.1, 1.0)
    return trial.should_prune()


def _modelless(trial: Any, data: Any) -> Any:
    return trial.suggest_float("rate", 0.1, 1.0)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (_conditional, "depends on earlier suggestions"),
        (_reporting, "reports intermediate values or prunes"),
        (_pruning, "reports intermediate values or prunes"),
        (_modelless, "hands over no model"),
        (lambda trial, data: (0.0, {}), "suggests no parameter"),
        (lambda trial, data: data.missing, "fails on blank records"),
        (lambda trial: 0.0, "called as objective\\(trial, data\\)"),
    ],
)
def test_what_cannot_be_paid_for_is_refused(objective: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        from_objective(objective, DATA, **TOLD)


@pytest.mark.parametrize("wrong", [{"direction": "up"}, {"score_is": "noisy"}, {"cost": 3.0}])
def test_what_is_declared_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        from_objective(_objective, DATA, **{**TOLD, **wrong})


def test_the_example_runs_and_is_short(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert load_release(tmp_path / "run").epsilon is not None
    assert re.search(r"on digits, epsilon [\d.]+ at delta 1e-05\)", done.stdout)


def test_the_example_changes_six_lines_of_a_study() -> None:
    texts = [EXAMPLE.with_name(name).read_text() for name in ("optuna_before.py", "optuna_objective.py")]
    before, after = (text.split('"""', 2)[2].splitlines() for text in texts)
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ") and line[2:].strip()]
    assert max(sum(line.startswith(sign) for line in changes) for sign in "-+") <= 6
    assert max(len(before), len(after)) < 40


@pytest.mark.slow
def test_the_study_runs() -> None:
    study = EXAMPLE.with_name("optuna_before.py")
    done = subprocess.run([sys.executable, str(study), "3"], capture_output=True, text=True, check=True)
    assert re.search(r"accuracy 0\.\d+ with", done.stdout)
