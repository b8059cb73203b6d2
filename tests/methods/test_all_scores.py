"""Every method on every score: numbers, unbalanced classes, ranks, and units of several rows, in this process.

The loop, the search and the calls of the trainer are those of sealed runs (``audit._inline``); each is compared with
what the natural score would have given, so that a score that a method ignores would show.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from dptune import Float, Space, UnitDataset
from dptune.audit._inline import Runner
from dptune.data import Dataset
from dptune.methods import Budget, known_methods, method_named, plan_from_json
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.scores import AbsoluteError, Auc, Balanced, Score, SquaredError
from dptune.training import DpSgdTrainer, Mlp, Regression, Settings

RECORDS = 240
SPACE = Space(learning_rate=Float(0.05, 0.5, log=True))
SMALL = {"shards": 3, "clients": 3, "votes": 1, "grid": 2, "runs": "geometric:2", "fraction": 0.5}
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (RECORDS, 3))
RARE = (X[:, 0] + 0.1 * RNG.normal(size=RECORDS) > 0.8).astype(int)
CLASSES = Dataset(X, RARE, 2, feature_range=(0, 1))
NUMBERS = RegressionDataset(X, 5 * X[:, 0] - X[:, 1], feature_range=(0, 1), target_range=(-2, 6))
KEYS = np.arange(RECORDS) // 2

CASES: dict[str, tuple[Score, Any]] = {  # "network": with a hidden layer, the others are linear
    "absolute": (AbsoluteError(), NUMBERS),
    "absolute, network": (AbsoluteError(), NUMBERS),
    "squared, network": (SquaredError(0.5), NUMBERS),
    "balanced, network": (Balanced((0.8, 0.2)), CLASSES),
    "auc, network": (Auc((0.8, 0.2)), CLASSES),
    "squared": (SquaredError(0.5), NUMBERS),
    "absolute, units": (AbsoluteError(), UnitDataset(NUMBERS, KEYS, 2)),
    "balanced": (Balanced((0.8, 0.2)), CLASSES),
    "balanced, units": (Balanced((0.8, 0.2)), UnitDataset(CLASSES, KEYS, 2)),
    "auc": (Auc((0.8, 0.2)), CLASSES),
    "auc, units": (Auc((0.8, 0.2)), UnitDataset(CLASSES, KEYS, 2)),
}


def _ours(name: str) -> bool:
    return method_named(name).__module__.startswith("dptune.")


def _trainer(score: Score, hidden: tuple[int, ...]) -> DpSgdTrainer:
    model = Regression(3, hidden, target_range=(-2, 6)) if score.numbers else Mlp(3, 2, hidden)
    settings = Settings.from_batch(60, RECORDS, noise_multiplier=1.0, steps=3, clip_norm=0.5, learning_rate=1.0)
    return DpSgdTrainer(model, settings, score=score)


SLOW = ("squared, network", "auc, network", "absolute, units")  # the others have their scores, models and units


@pytest.mark.parametrize("case", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in CASES])
@pytest.mark.parametrize("name", [one for one in known_methods() if _ours(one)])
def test_every_method_takes_every_score(name: str, case: str) -> None:
    score, data = CASES[case]
    trainer, kind = _trainer(score, (4,) if "network" in case else ()), method_named(name)
    given = {key: SMALL[key] for key in SMALL if key in _settings_of(kind)}
    method = method_from_settings(kind, given, Surroundings(SPACE, 0.3, RECORDS, score))
    plan = method.plan(Budget(30.0, 1e-4), trainer)
    assert plan_from_json(plan.to_json()) == plan
    if plan.validation is not None:
        assert plan.validation.score == score
    for seed in range(20):  # some laws of runs give none
        outcome, vault, _ = Runner().run(plan, trainer, data, Randomness.rehearsal(seed))
        if vault.scores:
            break
    assert outcome.params
    found = [one for one in vault.scores.values() if one != 0.0]
    assert np.isfinite(found).all()
    assert found or plan.validation is None


def _settings_of(kind: type[Any]) -> set[str]:
    accepted = set(inspect.signature(kind).parameters)
    if "method" in accepted:
        accepted |= {"runs"}
    return accepted | ({"grid"} if "candidates" in accepted else set())
