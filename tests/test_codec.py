"""One strict codec: every stored value comes back equal; what is unknown, missing or mistyped is refused."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import dptune
from dptune import _codec
from dptune._codec import from_json, register_tagged, to_values
from dptune.accounting import (
    RECORD_REPLACED,
    Binomial,
    Cost,
    DiscreteGaussian,
    DpSgd,
    Filter,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    PureDp,
    RenyiLine,
    Runs,
    compose,
    cost_from_json,
    disjoint,
    grouped,
    known_threshold,
    mixture,
    parallel,
    replaced,
    select,
    select_adaptive,
    subsample,
    within_client,
)
from dptune.accounting._law import LAWS
from dptune.accounting.conversions import WithinClient
from dptune.accounting.cost import _KINDS
from dptune.accounting.curves import RenyiCurve
from dptune.accounting.event_mechanisms import DiscreteLaplace, GaussianMixture, Repeated, TruncatedDpSgd
from dptune.accounting.filter import Curve
from dptune.accounting.voting import RingVote
from dptune.errors import InvalidInput
from dptune.methods.parts import Client, Coin, DataPart, Shard
from dptune.spaces import Candidates, Choice, Float, Int, Space
from dptune.spaces.product import Domain

VOTE = RingVote(5, 1, 1, 4.0, 1)
COSTS: list[Cost] = [
    Gdp(0.5, neighbours=RECORD_REPLACED),
    Gaussian(2.0),
    Laplace(1.5),
    PureDp(0.5),
    DiscreteGaussian(3.0, 2),
    DpSgd(0.01, 1.1, 200),
    RenyiLine(0.1, (2.0, 4.0)),
    VOTE,
    compose(Gaussian(2.0), PureDp(0.1)),
    parallel(Gaussian(2.0), PureDp(0.1)),
    mixture([(0.25, Gaussian(2.0)), (0.75, PureDp(0.1))]),
    select(Gaussian(2.0), Geometric(5)),
    known_threshold(Gaussian(2.0), Poisson(5)),
    select_adaptive(PureDp(0.1), Poisson(4), (0.75, 2.0)),
    subsample(PureDp(0.1), 0.5),
    disjoint(Gaussian(2.0), PureDp(0.1), 0.5),
    replaced(DpSgd(0.01, 1.1, 200)),
    grouped(PureDp(0.1), 3),
    WithinClient(VOTE),
    within_client(select(VOTE, Geometric(2))),
    DiscreteLaplace(0.5, 2),
    GaussianMixture(1.0, (0.0, 1.0), (0.9, 0.1)),
    TruncatedDpSgd(1000, 0.1, 120, 1.0),
    Repeated(Laplace(10.0), 3),
    RenyiCurve((2.0, 8.0), (0.25, 1.0)),
]
RUNS: list[Runs] = [NegativeBinomial(0.5, 10), Geometric(10), Logarithmic(10), Poisson(3), Binomial(20, 0.5)]
SPACES: list[Any] = [
    Space(lr=Float(1e-4, 1, log=True), depth=Int(1, 4), clip=Choice(0.1, "none", None, True, weights=(1, 2, 3, 4))),
    Candidates([{"a": 1}, {"a": 2, "b": "x"}], [3, 1]),
]
PART = DataPart((Coin(0.5), Shard(3, 1), Client(4, 2, 0.5)))
CASES: list[tuple[Any, Any]] = [
    *[(value, Cost) for value in COSTS],
    *[(value, Runs) for value in RUNS],
    *[(value, Domain) for value in SPACES],
    (PART, DataPart),
    (Filter.of(3.0, 1e-5), Filter),
    (Curve((0.1, 0.2), 1e-9), Curve),
]


def _objects(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there are objects inside of plain values, the free texts of candidates apart."""
    found: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        found.append(path)
        found += [place for key, item in value.items() if key != "items" for place in _objects(item, (*path, key))]
    elif isinstance(value, list):
        found += [place for i, item in enumerate(value) for place in _objects(item, (*path, i))]
    return found


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _refused(data: Any, kind: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        from_json(data, kind, "such a value")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("value", "kind"), CASES, ids=str)
def test_a_stored_value_comes_back_equal(value: Any, kind: Any) -> None:
    stored = json.loads(json.dumps(to_values(value), sort_keys=True))
    again = from_json(stored, kind, "such a value")
    assert again == value
    assert type(again) is type(value)
    assert to_values(again) == stored


@pytest.mark.parametrize(("value", "kind"), CASES, ids=str)
def test_what_is_unknown_or_missing_is_refused_at_every_depth(value: Any, kind: Any) -> None:
    stored = to_values(value)
    for place in _objects(stored):
        for key in [*_at(stored, place), "nothing"]:
            edited = json.loads(json.dumps(stored))
            inside = _at(edited, place)
            if key == "nothing":
                inside[key] = 1.0
            elif key == "neighbours":  # older files do not have it
                continue
            else:
                del inside[key]
            _refused(edited, kind)


@pytest.mark.parametrize(("value", "kind"), CASES, ids=str)
def test_what_is_of_another_type_is_refused_at_every_depth(value: Any, kind: Any) -> None:
    stored = to_values(value)
    for place in _objects(stored):
        for key, item in _at(stored, place).items():
            others: list[Any] = [{"x": 1}, "text", True, [[]]]
            for other in others:
                if type(other) is type(item):
                    continue
                edited = json.loads(json.dumps(stored))
                _at(edited, place)[key] = other
                _refused(edited, kind)


def test_every_kind_of_cost_and_law_is_among_the_cases() -> None:
    ours = {kind for kind, made in _KINDS.items() if made.__module__.startswith("dptune.")}
    assert {json.loads(cost.to_json())["cost"] for cost in COSTS} == ours
    assert {law.describe()["law"] for law in RUNS} == set(LAWS)


def test_a_name_that_stands_twice_is_refused() -> None:
    stored = Space(lr=Float(0.1, 1.0)).describe()
    assert "twice" in _refused({**stored, "dimensions": stored["dimensions"] * 2}, Space)


def test_a_text_is_no_list() -> None:
    assert "list" in _refused({"values": "12", "infinite": 0.0}, Curve)


def test_nesting_without_end_is_refused() -> None:
    stored: dict[str, Any] = Gdp(1.0).describe()
    for _ in range(5000):
        stored = {"cost": "compose", "parts": [stored]}
    _refused(stored, Cost)


def test_a_cost_of_a_class_without_a_tag_is_not_written() -> None:
    """It would come back as its base, with another price."""

    class Cheaper(Gdp):
        pass

    with pytest.raises(TypeError, match="no 'cost' of its own"):
        to_values(Cheaper(1.0))


def test_a_cost_must_be_of_the_kind_that_the_field_asks_for() -> None:
    assert "RenyiLine" in _refused(Gdp(1.0).describe(), RenyiLine)
    assert cost_from_json(Gdp(1.0).to_json()) == Gdp(1.0)


def test_what_is_stated_must_be_what_the_fields_say() -> None:
    @dataclass(frozen=True)
    class Square:
        side: float
        shape: ClassVar[str] = "square"

        @property
        def area(self) -> float:
            return self.side**2

    register_tagged(Square, "shape", {"square": Square}, stated={"area": 0.0})
    assert to_values(Square(2.0)) == {"shape": "square", "area": 4.0, "side": 2.0}
    assert from_json({"shape": "square", "area": 4.0, "side": 2.0}, Square, "a square") == Square(2.0)
    assert "it says 5.0" in _refused({"shape": "square", "area": 5.0, "side": 2.0}, Square)
    assert "it says 0.0" in _refused({"shape": "square", "side": 2.0}, Square)


def test_no_class_has_a_parser_of_its_own() -> None:
    """Reading goes by constructors: a pair of functions for each class is what the codec replaced."""
    source = Path(inspect.getsourcefile(dptune) or "").parent
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "_from_fields" not in text, path
        assert path.name == "_codec.py" or "_FAMILIES" not in text, path
    assert not hasattr(_codec, "register_family")
