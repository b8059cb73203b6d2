"""Spaces: quantiles, priors, grids, JSON, and refusals."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dptune.errors import InvalidInput
from dptune.spaces import Candidates, Choice, Float, Int, Space, from_optuna, space_from_json

SPACE = Space(lr=Float(1e-4, 1, log=True), steps=Int(10, 20), clip=Choice(0.1, 1, 10, weights=[1, 2, 1]))


@given(st.floats(0, 1))
def test_quantiles_stay_inside(u: float) -> None:
    params = SPACE.draw(lambda i: min(max(u, 1e-17), 1 - 2.0**-53))
    assert 1e-4 <= params["lr"] <= 1
    assert 10 <= params["steps"] <= 20
    assert params["clip"] in (0.1, 1, 10)


def test_float_quantiles_are_the_priors() -> None:
    assert Float(1e-4, 1, log=True).at(0.5) == pytest.approx(1e-2)
    assert Float(2, 6).at(0.25) == pytest.approx(3)


@pytest.mark.parametrize("one", [Int(3, 9), Int(1, 30, log=True), Choice("a", "b", "c", weights=[1, 2, 5])])
def test_draws_follow_the_law_that_is_priced(one: Int | Choice) -> None:
    """Chi-square on a seeded sample: false alarms are impossible unless the code changes; level 1e-6."""
    uniforms = np.random.default_rng(1).random(20_000)
    seen = Counter(one.at(float(u)) for u in uniforms)
    law = one.law()
    assert math.fsum(share for _, share in law) == pytest.approx(1, abs=1e-12)
    assert set(seen) <= {value for value, _ in law}
    observed = [seen[value] for value, _ in law]
    assert chisquare(observed, [share * 20_000 for _, share in law]).pvalue > 1e-6


def test_operating_system_randomness_differs_between_draws() -> None:
    assert len({SPACE.draw()["lr"] for _ in range(8)}) == 8


def test_grid_has_every_combination_and_the_priors_product() -> None:
    grid = SPACE.grid(lr=5, steps=3)
    assert len(grid) == 5 * 3 * 3
    assert {item["steps"] for item in grid.items} == {10, 15, 20}
    assert sorted({item["lr"] for item in grid.items}) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1])
    middle = [w for item, w in zip(grid.items, grid.prior, strict=True) if item["clip"] == 1]
    assert math.fsum(middle) == pytest.approx(0.5)


def test_settings_of_dp_hypo() -> None:
    space = Space(lr=Float(1e-4, 10, log=True), clip=Float(0.3, 6))
    grid = space.grid(lr=16, clip=20)
    assert len(grid) == 320
    rates = sorted({item["lr"] for item in grid.items})
    assert np.diff(np.log10(rates)) == pytest.approx(np.full(15, 1 / 3))


@pytest.mark.parametrize("space", [SPACE, SPACE.grid(3), Space.of([{"a": 1}, {"a": 2, "b": "x"}], [3, 1])])
def test_json_round_trip_in_any_key_order(space: Any) -> None:
    again = space_from_json(json.loads(json.dumps(space.describe(), sort_keys=True)))
    assert again == space
    assert again.draw(lambda i: 0.3) == space.draw(lambda i: 0.3)
    assert again.default == space.default


def test_encoding_is_in_the_unit_cube() -> None:
    grid = SPACE.grid(4)
    codes = grid.encode(grid.items)
    assert codes.shape == (len(grid), 3)
    assert codes.min() == 0
    assert codes.max() == 1
    direct = SPACE.encode(grid.items)
    assert direct.shape == (len(grid), 5)
    assert direct.min() >= -1e-12
    assert direct.max() <= 1 + 1e-12
    mixed = Candidates([{"a": 1, "kind": "x"}, {"a": 3, "kind": "y"}])
    assert mixed.encode(mixed.items).tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Float(2, 1), "below 'high'"),
        (lambda: Float(0, 1, log=True), "must be positive"),
        (lambda: Float(float("nan"), 1), "'low'"),
        (lambda: Int(5, 2), "not exceed"),
        (lambda: Int(1.5, 2), "whole number"),  # type: ignore[arg-type]
        (lambda: Int(0, 2, log=True), "start at 1"),
        (Choice, "at least one value"),
        (lambda: Choice(1, 1), "must differ"),
        (lambda: Choice([1]), "numbers, strings"),
        (lambda: Choice(1, 2, weights=[1]), "one weight for each"),
        (lambda: Choice(1, 2, weights=[1, 0]), "weight"),
        (Space, "at least one parameter"),
        (lambda: Space(lr=0.1), "Float, Int or Choice"),  # type: ignore[arg-type]
        (lambda: Candidates([]), "at least one"),
        (lambda: Candidates([{"a": 1}, {"a": 1}]), "equal"),
        (lambda: Candidates([3]), "dictionary"),  # type: ignore[list-item]
        (SPACE.grid, "number of points"),
        (lambda: SPACE.grid(3, nope=2), "No parameter 'nope'"),
        (lambda: SPACE.grid(3, clip=2), "every value of a Choice"),
        (lambda: space_from_json({"space": "product"}), "Not a space"),
    ],
)
def test_refusals_say_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


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
