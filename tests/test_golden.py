"""Prices, noises and plans stay what they were: ``benchmarks/golden.py`` made the stored set and says how to renew it.

Compared to nine digits, since libraries round differently from machine to machine; the benchmark compares exactly.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest


def _benchmark() -> Any:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "golden.py"
    spec = importlib.util.spec_from_file_location("golden_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GOLDEN = _benchmark()
STORED = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))


def test_the_stored_set_is_large_enough() -> None:
    assert sum(name.startswith("price") for name in STORED) >= 60
    assert sum(name.startswith("plan:") for name in STORED) >= 16


def test_differences_are_found() -> None:
    before = {"a": [1.0, {"b": 2.0}], "c": "x"}
    assert list(GOLDEN.differences(before, {"a": [1.0, {"b": 2.0, "new": 1}], "c": "x"}, 1e-9, "it")) == []
    assert list(GOLDEN.differences(before, {"a": [1.0, {"b": 2.0000001}], "c": "x"}, 1e-9, "it"))
    assert list(GOLDEN.differences(before, {"a": [1.0, {}], "c": "y"}, 1e-9, "it"))


@pytest.mark.slow
def test_nothing_moved() -> None:
    found = dict(GOLDEN.golden(releases=False))
    stored = {name: value for name, value in STORED.items() if not name.startswith("release")}
    assert found.keys() == stored.keys()
    wrong = [line for name, value in stored.items() for line in GOLDEN.differences(value, found[name], 1e-9, name)]
    assert wrong == []


def test_every_method_has_a_stored_plan() -> None:
    assert {f"plan: {name}" for name in GOLDEN.methods()} <= STORED.keys()
    assert all(STORED[f"plan: {name}"]["epsilon"] == GOLDEN.BUDGET.epsilon for name in GOLDEN.methods())
