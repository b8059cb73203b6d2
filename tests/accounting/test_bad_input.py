"""Bad input to the accounting: one clear error that names the parameter, never a number and never a traceback.

Guards the constructors and functions of ``dptune.accounting``: a value that gets past them must be usable everywhere,
or the price could be wrong in silence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from dptune.accounting import (
    Binomial,
    Cost,
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    PureDp,
    compose,
    cost_from_json,
    disjoint,
    mixture,
    parallel,
    select,
    select_adaptive,
    subsample,
)
from dptune.accounting.runs import parse_runs, runs_from_json
from dptune.errors import InvalidInput

NEVER: list[object] = [math.nan, math.inf, -math.inf, -1.0, "1", None, [1.0], True, 1j]
Maker = Callable[[Any], object]

PARAMETERS: list[tuple[str, Maker, list[object]]] = [
    ("mu", Gdp, [0.0, 1e9]),
    ("noise_multiplier", Gaussian, [0.0, 1e-9, 1e30]),
    ("noise_multiplier", Laplace, [0.0, 1e30]),
    ("epsilon", PureDp, [1e30]),
    ("sigma", DiscreteGaussian, [0.0, 1e30]),
    ("sensitivity", lambda v: DiscreteGaussian(3.0, v), [0, 1.5, 1e30]),
    ("sampling_rate", lambda v: DpSgd(v, 1.0, 10), [0.0, 1.0001, 2]),
    ("noise_multiplier", lambda v: DpSgd(0.1, v, 10), [0.0, 1e30]),
    ("steps", lambda v: DpSgd(0.1, 1.0, v), [0, 1.5, 1e30]),
    ("mean", Geometric, [0.0, 0.999, 1e30]),
    ("mean", Logarithmic, [0.5, 1e30]),
    ("mean", lambda v: NegativeBinomial(1.0, v), [0.5]),
    ("shape", lambda v: NegativeBinomial(v, 5.0), [-1.5, 1e30]),
    ("mean", Poisson, [0.0, 1e30]),
    ("trials", lambda v: Binomial(v, 0.5), [0, 1.5, 1e30]),
    ("probability", lambda v: Binomial(5, v), [0.0, 1.01]),
    ("delta", lambda v: Gdp(1.0).epsilon(v), [0.0, 1.0, 2.0]),
    ("delta", lambda v: Gdp(1.0).epsilon_lower(v), [0.0, 1.0]),
    ("delta", lambda v: select(Gdp(1.0), Geometric(3)).epsilon(v), [0.0, 1.0]),
    ("delta", lambda v: select(Gdp(1.0), Geometric(3)).epsilon_lower(v), [0.0, 1.0]),
    ("delta", lambda v: PureDp(1.0).epsilon(v), [0.0, 1.0]),
    ("delta", lambda v: parallel(Gdp(1.0), Gdp(2.0)).epsilon(v), [0.0, 1.0]),
    ("epsilon", lambda v: Gdp(1.0).delta(v), [-0.1]),
    ("rate", lambda v: subsample(Gdp(1.0), v), [0.0, 1.5]),
    ("rate", lambda v: disjoint(Gdp(1.0), Gdp(1.0), v), [1.5, -0.1]),
    ("density c", lambda v: select_adaptive(Gdp(1.0), Geometric(3), (v, 2.0)), [0.0, 1.1]),
    ("density C", lambda v: select_adaptive(Gdp(1.0), Geometric(3), (0.5, v)), [0.9, 1e30]),
    ("weight", lambda v: mixture([(v, Gdp(1.0)), (0.5, Gdp(2.0))]), [1.5]),
    ("fraction", lambda v: Geometric(3).hit_probability(v), [1.5]),
    ("level", lambda v: Geometric(3).quantile(v), [1.0]),
    ("k", lambda v: Geometric(3).probability(v), [1.5]),
]


@pytest.mark.parametrize(
    ("name", "make", "value"),
    [
        pytest.param(name, make, value, id=f"{i}-{name}-{value}")
        for i, (name, make, special) in enumerate(PARAMETERS)
        for value in [*NEVER, *special]
    ],
)
def test_numbers_outside_are_refused_by_name(name: str, make: Maker, value: object) -> None:
    with pytest.raises(InvalidInput, match=name) as caught:
        make(value)
    message = str(caught.value)
    assert "\n" not in message
    assert "must be" in message


def test_a_shape_without_this_mean_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shape"):
        NegativeBinomial(-0.999999, 50.0)


@pytest.mark.parametrize("value", [None, 1.0, "gdp", Gdp, object(), Geometric(3)])
def test_only_costs_are_costs(value: object) -> None:
    makers: list[Callable[[Any], object]] = [
        lambda v: select(v, Geometric(3)),
        lambda v: subsample(v, 0.5),
        lambda v: disjoint(v, Gdp(1.0), 0.5),
        lambda v: disjoint(Gdp(1.0), v, 0.5),
        lambda v: compose(Gdp(1.0), v),
        parallel,
        lambda v: mixture([(1.0, v)]),
    ]
    for make in makers:
        with pytest.raises(InvalidInput, match="must be a cost"):
            make(value)


@pytest.mark.parametrize("value", [None, 3, "geometric:3", Gdp(1.0), Geometric])
def test_only_laws_are_laws(value: object) -> None:
    with pytest.raises(InvalidInput, match="runs"):
        select(Gdp(1.0), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 1.0, (1.0,), (0.5, 1.0, 2.0), "ab1"])
def test_density_is_a_pair(value: object) -> None:
    with pytest.raises(InvalidInput, match="density"):
        select_adaptive(Gdp(1.0), Geometric(3), value)  # type: ignore[arg-type]


def test_nothing_is_not_a_cost() -> None:
    for make in (compose, parallel):
        with pytest.raises(InvalidInput, match="at least one"):
            make()
    for weights in ([], [(0.5, Gdp(1.0))], [(0.9, Gdp(1.0)), (0.2, Gdp(2.0))], [(0.0, Gdp(1.0))]):
        with pytest.raises(InvalidInput, match="sum to 1"):
            mixture(weights)


def test_direction_is_named() -> None:
    with pytest.raises(InvalidInput, match="direction"):
        Gdp(1.0).profile([0.0], "both")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="direction"):
        Gdp(1.0).roc([0.5], "")  # type: ignore[arg-type]


GDP = {"cost": "gdp", "mu": 1.0}


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        {},
        {"cost": "unheard-of"},
        {"cost": None},
        {"cost": "gdp"},
        {"cost": "gdp", "mu": None},
        {"cost": "gdp", "mu": "1"},
        {"cost": "gdp", "mu": math.nan},
        {"cost": "gdp", "mu": 1.0, "nu": 2.0},
        {"cost": "pure"},
        {"cost": "dpsgd", "sampling_rate": 0.1, "noise_multiplier": 1.0, "steps": 0},
        {"cost": "select", "base": GDP},
        {"cost": "select", "base": GDP, "runs": {"law": "geometric"}},
        {"cost": "select", "base": GDP, "runs": {"law": "geometric", "mean": 0.5}},
        {"cost": "select", "base": GDP, "runs": {"law": "unheard-of"}},
        {"cost": "select", "base": GDP, "runs": {"law": ["geometric"]}},
        {"cost": "select", "base": GDP, "runs": 3},
        {"cost": "select", "base": 3, "runs": {"law": "geometric", "mean": 5}},
        {"cost": "select", "base": GDP, "runs": {"law": "geometric", "mean": 5}, "density": [2.0, 3.0]},
        {"cost": "select", "base": GDP, "runs": {"law": "geometric", "mean": 5}, "density": [0.5]},
        {"cost": "subsample", "inner": GDP, "rate": 0.0},
        {"cost": "subsample", "inner": None, "rate": 0.5},
        {"cost": "disjoint", "tune": GDP, "base": GDP, "rate": 1.5},
        {"cost": "compose", "parts": []},
        {"cost": "compose", "parts": [3]},
        {"cost": "compose", "parts": GDP},
        {"cost": "parallel", "parts": []},
        {"cost": "mixture", "weights": [0.1, 0.1], "parts": [GDP, {"cost": "gdp", "mu": 2.0}]},
        {"cost": "mixture", "weights": [1.0], "parts": [GDP, {"cost": "gdp", "mu": 2.0}]},
        {"cost": "mixture", "weights": [-1.0, 2.0], "parts": [GDP, {"cost": "gdp", "mu": 2.0}]},
        {"cost": "mixture", "weights": ["x", 1.0], "parts": [GDP, {"cost": "gdp", "mu": 2.0}]},
        {"cost": "mixture", "weights": [], "parts": []},
    ],
    ids=str,
)
def test_stored_costs_are_checked_like_new_ones(data: object) -> None:
    """A ledger is a file: what it says must pass the same gates, or a price could be understated."""
    text = data if isinstance(data, str) else json.dumps(data)
    with pytest.raises(InvalidInput) as caught:
        cost_from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [None, 3, [], {}, {"law": "x"}, {"law": "poisson"}, {"law": "poisson", "mean": -1}])
def test_stored_laws_are_checked(data: object) -> None:
    with pytest.raises(InvalidInput):
        runs_from_json(data)


@pytest.mark.parametrize(
    "text", ["", "geometric", "geometric:", "geometric:x", "geometric:1,2", "tnb:1", "poisson:nan", "x:1"]
)
def test_texts_of_laws_are_checked(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_runs(text)


@pytest.mark.parametrize(
    "cost",
    [
        Gdp(20.0),
        Gdp(1e-6),
        Gaussian(1e6),
        Gaussian(0.05),
        Laplace(0.05),
        Laplace(1e6),
        PureDp(500.0),
        DiscreteGaussian(0.05),
        DpSgd(1e-9, 0.05, 1),
        select(Gdp(1e-6), Geometric(1e9)),
        select(Gdp(20.0), Geometric(1e9)),
        select(PureDp(500.0), Geometric(10)),
        select(Gdp(1.0), Poisson(1e6)),
        select(Gdp(1.0), NegativeBinomial(1e6, 50.0)),
        select(Gdp(1.0), NegativeBinomial(-0.9, 50.0)),
        select(Gdp(1.0), NegativeBinomial(5e-324, 50.0)),
        select_adaptive(Gdp(1.0), Geometric(10), (1e-9, 1e6)),
        subsample(PureDp(500.0), 1e-12),
        disjoint(Gdp(20.0), Gdp(1e-6), 1e-9),
    ],
    ids=str,
)
def test_the_largest_allowed_values_have_a_price(cost: Cost) -> None:
    """At the edges of what is accepted: a number or infinity, at least the certificate, and no warning."""
    epsilon = cost.epsilon(1e-5)
    assert epsilon >= 0.0
    assert not math.isnan(epsilon)
    assert 0.0 <= cost.delta(1.0) <= 1.0
