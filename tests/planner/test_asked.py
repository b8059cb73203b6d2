"""A method that the caller asks for: by its name, as it is, or refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.planner.asked import asked_for, tried_space
from dptune.spaces import Space
from dptune.training import DpSgdTrainer, Settings, softmax

SPACE = dpt.Space(learning_rate=dpt.Float(0.1, 1.0, log=True))
SETTINGS = Settings.from_batch(50, 400, noise_multiplier=1.0, steps=5, clip_norm=1.0, learning_rate=0.5)
TRAINER = DpSgdTrainer(softmax(2, 2), SETTINGS)
BUDGET = dpt.Budget(4.0, 1e-4)


def test_a_name_and_the_method_itself_plan_the_same() -> None:
    held = dpt.PrivateValidation.of(0.2, 400)
    by_name = asked_for("random-stopping", TRAINER, SPACE, BUDGET, records=400, runs=dpt.Geometric(3))
    itself = asked_for(dpt.RandomStopping(SPACE, dpt.Geometric(3), validation=held), TRAINER, SPACE, BUDGET)
    assert by_name.plan == itself.plan
    assert by_name.explanation.startswith("As asked for: random-stopping. The total, tuning included, is epsilon 4 ")


def test_a_part_is_scored_on_its_own_share() -> None:
    plan = asked_for("subset", TRAINER, SPACE, BUDGET, records=400).plan
    assert plan.validation is not None
    assert plan.price() <= 4.0


@pytest.mark.parametrize(
    ("method", "runs", "words"),
    [
        ("subsett", None, "Unknown method 'subsett'"),
        (dpt.RandomStopping(SPACE, dpt.Geometric(3)), dpt.Geometric(3), "'runs' is for the name of a method"),
        (7, None, "'method' must be the name of a method, or one itself; got int"),
        ("random-guess", dpt.Geometric(3), "has no setting 'runs'"),
    ],
)
def test_what_is_no_method_is_refused(method: Any, runs: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        asked_for(method, TRAINER, SPACE, BUDGET, records=400, runs=runs)


def test_a_list_of_candidates_needs_the_method_itself() -> None:
    with pytest.raises(InvalidInput, match="give the method itself"):
        asked_for("random-stopping", TRAINER, Space.of([{"learning_rate": 0.5}]), BUDGET, records=400)


def test_spaces_come_from_one_place() -> None:
    whole = dpt.Subset(dpt.RandomStopping(SPACE, dpt.Geometric(3)), 0.3)
    assert tried_space({"learning_rate": dpt.Float(0.1, 1.0, log=True)}, None) == SPACE
    assert tried_space(None, whole) == tried_space(SPACE, "subset") == SPACE
    assert tried_space(None, None) is None
    with pytest.raises(InvalidInput, match="has a space of its own"):
        tried_space(SPACE, whole)
    with pytest.raises(InvalidInput, match="must be Float, Int or Choice"):
        tried_space({"learning_rate": 0.1}, None)  # type: ignore[dict-item] # as a user may


def test_one_call_runs_the_method_that_it_was_asked_for(tmp_path: Any) -> None:
    x = np.random.default_rng(0).uniform(size=(400, 2))
    told: dict[str, Any] = {"records": 400, "classes": 2, "data_is": "synthetic", "seed": 1, "explain": None}
    release = dpt.tune(
        (x, (x[:, 0] > 0.5).astype(int)), method="random-guess", epsilon=4, delta=1e-4, out=tmp_path / "one", **told
    )
    assert release.method == "random-guess"
