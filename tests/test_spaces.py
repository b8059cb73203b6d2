"""Spaces: quantiles, priors, grids, JSON, and refusals."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, truncnorm

from dptune.errors import InvalidInput
from dptune.spaces import Candidates, Choice, Float, Int, Space, space_from_json

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
        (lambda: space_from_json({"space": "product"}), "not the description of a space"),
    ],
)
def test_refusals_say_what_is_wrong(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_an_expected_value_is_the_default_and_the_likeliest() -> None:
    """Quantiles of the cut-off normal law, by scipy's own; the default is what is expected, not the median."""
    one = Float(0.25, 64, log=True, around=1.0, spread=2.0)
    law = truncnorm(-2, 6, loc=0, scale=1)  # octaves
    for u in (1e-9, 0.01, 0.2, 0.5, 0.9, 0.999):
        assert math.log2(one.at(u)) == pytest.approx(law.ppf(u), abs=1e-6)
    assert one.at(0.0) == 0.25
    assert one.at(1.0) == 64
    assert Space(lr=one).default == {"lr": 1.0}
    straight = Float(-1, 5, around=0.0, spread=0.5)
    assert straight.at(0.3) == pytest.approx(truncnorm(-2, 10, loc=0, scale=0.5).ppf(0.3))


def test_a_range_that_is_moved_keeps_its_prior() -> None:
    one = Float(0.25, 64, log=True, around=1.0, spread=2.0)
    for u in (0.01, 0.5, 0.99):
        assert one.times(8.0).at(u) == pytest.approx(8 * one.at(u))
    assert Float(1, 2).times(3.0) == Float(3, 6)
    straight = Float(0, 4, around=1.0, spread=0.5)
    assert straight.times(2.0).at(0.7) == pytest.approx(2 * straight.at(0.7))


def test_an_expected_value_survives_storage_and_others_are_stored_as_before() -> None:
    space = Space(lr=Float(0.1, 10, log=True, around=2.0, spread=1.5))
    assert space_from_json(json.loads(json.dumps(space.describe()))) == space
    assert "around" not in json.dumps(Space(lr=Float(0.1, 10, log=True)).describe())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"around": 1.0}, "'around' and 'spread' belong together"),
        ({"spread": 2.0}, "'around' and 'spread' belong together"),
        ({"around": 20.0, "spread": 2.0}, "'around' must be"),
        ({"around": 1.0, "spread": 1.0}, "'spread' must be"),
        ({"around": math.nan, "spread": 2.0}, "'around' must be"),
    ],
)
def test_what_cannot_be_expected_is_refused(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Float(0.1, 10, log=True, **arguments)
