"""Optuna's distributions, trials and studies as spaces; the real package draws, and judges our draws."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from dptune.errors import InvalidInput
from dptune.integrations.optuna import from_optuna
from dptune.spaces import Choice, Float, Int, Space, space_from_json


@pytest.fixture
def optuna() -> Any:
    """The real package."""
    found = pytest.importorskip("optuna", reason="Optuna is not installed; it is in the extra 'dev'")
    found.logging.set_verbosity(found.logging.ERROR)
    return found


def _offered(optuna: Any) -> dict[str, Any]:
    kinds = optuna.distributions
    return {
        "lr": kinds.FloatDistribution(1e-3, 1.0, log=True),
        "momentum": kinds.FloatDistribution(0.0, 0.9, step=0.1),
        "decay": kinds.FloatDistribution(0.05, 0.9, step=0.17),
        "fixed": kinds.FloatDistribution(0.5, 0.5),
        "depth": kinds.IntDistribution(1, 4),
        "batch": kinds.IntDistribution(1, 64, log=True),
        "width": kinds.IntDistribution(8, 24, step=8),
        "act": kinds.CategoricalDistribution(("relu", "tanh", None)),
    }


def test_optuna_distributions_become_a_space(optuna: Any) -> None:
    space = from_optuna(_offered(optuna))
    assert space == Space(
        lr=Float(1e-3, 1.0, log=True),
        momentum=Choice(*(i * 0.1 for i in range(10))),
        decay=Choice(*(0.05 + i * 0.17 for i in range(5)), 0.9),
        fixed=Choice(0.5),
        depth=Int(1, 4),
        batch=Int(1, 64, log=True),
        width=Choice(8, 16, 24),
        act=Choice("relu", "tanh", None),
    )
    assert space_from_json(json.loads(json.dumps(space.describe()))) == space


def test_what_optuna_draws_lies_in_the_space_and_back(optuna: Any) -> None:
    """The trials of a real study, and draws from the space as Optuna's own distributions judge them."""
    offered = _offered(optuna)
    space = from_optuna(offered)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(100):
        trial = study.ask(offered)
        for name, one in space.dimensions:
            assert one.contains(trial.params[name]), (name, trial.params[name])
        study.tell(trial, 0.0)
        assert from_optuna(trial) == space
    for params in (space.draw() for _ in range(100)):
        for name, value in params.items():
            one = offered[name]
            assert one._contains(one.to_internal_repr(value)), (name, value)
    for source in (study, study.trials[0], optuna.search_space.intersection_search_space(study.trials)):
        assert dict(from_optuna(source).dimensions) == dict(space.dimensions)


def test_a_study_whose_trials_differ_gives_what_they_share(optuna: Any) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    with pytest.raises(InvalidInput, match="no finished trial"):
        from_optuna(study)

    def objective(trial: Any) -> float:
        if trial.number % 2:
            trial.suggest_int("depth", 1, 3)
        return float(trial.suggest_float("lr", 1e-3, 1.0, log=True))

    study.optimize(objective, n_trials=4)
    assert from_optuna(study) == Space(lr=Float(1e-3, 1.0, log=True))


def test_what_optuna_cannot_mean(optuna: Any) -> None:
    with pytest.raises(InvalidInput, match="numbers, strings and booleans"), pytest.warns(UserWarning, match="Choices"):
        from_optuna({"shape": optuna.distributions.CategoricalDistribution(((1, 2), (3, 4)))})
    with pytest.raises(InvalidInput, match="not Float, Int or Categorical"):
        from_optuna({"lr": 0.1})
    with pytest.raises(InvalidInput, match="a trial or a study"):
        from_optuna(3)


def test_optuna_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna.distributions", None)
    with pytest.raises(InvalidInput, match="not installed"):
        from_optuna({})
