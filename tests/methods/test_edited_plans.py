"""A plan says what its settings cost and nothing else: an edited one is refused, whatever was edited."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.methods.test_conformance import BUDGET, METHODS

from dptune._codec import to_values
from dptune.accounting import Gaussian, Gdp, Geometric, PureDp, RenyiLine
from dptune.errors import InvalidInput
from dptune.methods import Plan, plan_from_json
from dptune.methods.parts import Coin, DataPart

Fields = dict[str, Any]


class Toy:
    """A cost that follows the steps alone: nothing to calibrate, so plans are quick."""

    def cost(self, params: dict[str, Any]) -> Gaussian:
        return Gaussian(200.0 / math.sqrt(params.get("steps", 100)))

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, 0.0


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    names = (
        "geometric", "logarithmic, validated", "costs averaged", "costs largest", "adaptive grid", "subset 1",
        "subset 2", "subset costs", "noisy best", "threshold", "threshold sparse", "vote", "naive", "optimum", "guess",
    )  # fmt: skip
    return {name: METHODS[name].plan(BUDGET, Toy()) for name in names}


def _edited(plan: Plan, change: Callable[[Fields], Any]) -> Plan:
    fields = json.loads(plan.to_json())
    change(fields)
    assert fields != json.loads(plan.to_json())  # the edit is one
    return plan_from_json(json.dumps(fields))


def test_an_unedited_plan_passes(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        assert plan_from_json(plan.to_json()) == plan


def test_a_cheaper_cost_is_refused_whatever_the_method(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        with pytest.raises(InvalidInput, match="edited" if plan.guaranteed else "'cost'"):
            _edited(plan, _set("cost", value=PureDp(0.01).describe()))
        with pytest.raises(TypeError):
            replace(plan, cost=PureDp(0.01))  # type: ignore[call-arg] # nor can it be claimed in Python


def _set(*path: Any, value: Any) -> Callable[[Fields], None]:
    def change(fields: Fields) -> None:
        place: Any = fields
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def _drop_kind(fields: Fields) -> None:
    fields["settings"]["tuning"]["base"]["kinds"].pop()


INNER = ("settings", "tuning")
EDITS: list[tuple[str, Callable[[Fields], None], str]] = [
    ("geometric", _set("settings", "tuning", "runs", value=Geometric(60).describe()), "settings cost"),
    ("geometric", _set("settings", "tuning", "base", "kinds", 0, "cost", value=Gdp(1.0).describe()), "settings cost"),
    ("geometric", _set("settings", "tuning", "part", value=to_values(DataPart((Coin(0.1),)))), "method 'subset'"),
    ("geometric", _set("guaranteed", value=False), "'guaranteed'"),
    ("geometric", _set("assumptions", value=[]), "'assumptions'"),
    ("geometric", _set("theorem", value="docs/theorems/compose.md"), "'theorem'"),
    ("geometric", _set("default", value={"lr": 7.0, "clip": 1}), "default"),
    ("geometric", _set("settings", "tuning", "base", "costs", value="line"), "or one line"),
    (
        "geometric",
        _set("settings", "tuning", "base", "line", value=RenyiLine(0.01, (2.0,)).describe()),
        "kinds of configurations or one line",
    ),
    ("logarithmic, validated", _set("settings", "tuning", "validation", "noise", value=0.5), "settings cost"),
    ("logarithmic, validated", _set("settings", "tuning", "validation", value=None), "settings cost"),
    ("costs averaged", _drop_kind, "do not cover"),
    ("costs averaged", _set("settings", "tuning", "base", "names", value=[]), "space does not"),
    ("costs largest", _set("settings", "tuning", "base", "costs", value="average"), "settings cost"),
    ("costs largest", _set("settings", "tuning", "base", "of", value=[0, 0, 0, 0, 0, 0]), "space does not"),
    ("adaptive grid", _set("settings", "tuning", "steering", "density", value=[0.5, 3.0]), "settings cost"),
    ("subset 1", _set("settings", "fraction", value=0.01), "parts of the records"),
    ("subset 1", _set("settings", "train_on", value="all"), "parts of the records"),
    ("subset 1", _set("settings", "final", "part", value=[]), "parts of the records"),
    ("subset 2", _set(*INNER, "runs", value=Geometric(80).describe()), "settings cost"),
    ("subset costs", _set("settings", "final", "base", "kinds", 1, "cost", value=Gdp(0.9).describe()), "settings cost"),
    ("noisy best", _set("settings", "epsilon", value=1.9), "settings cost"),
    ("threshold", _set("settings", "rounds", "epsilon", value=1.9), "settings cost"),
    ("threshold sparse", _set("settings", "rounds", "epsilon", value=1.9), "settings cost"),
    ("vote", _set("settings", "sigma", value=0.5), "settings cost"),
    ("vote", _set("settings", "votes", value=5), "settings cost"),
    ("naive", _set("method", value="non-private-optimum"), "'guaranteed'|'cost'"),
    ("optimum", _set("guaranteed", value=True), "'guaranteed'"),
    ("guess", _set("settings", "offered", "dimensions", value=[]), "damaged|parameter"),
    ("guess", _set("method", value="none such"), "Unknown method"),
]


@pytest.mark.parametrize(("name", "change", "words"), EDITS, ids=[f"{n} {i}" for i, (n, _, _) in enumerate(EDITS)])
def test_edits_are_refused(plans: dict[str, Plan], name: str, change: Callable[[Fields], None], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        _edited(plans[name], change)
