"""A walk of ``dptune tune`` goes downhill, without detours: what ``benchmarks/walk.py`` records of a small job."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_MOST_BACK_AND_FORTH = 2


def _benchmark() -> Any:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "walk.py"
    spec = importlib.util.spec_from_file_location("walk_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


WALK = _benchmark()


@pytest.fixture(scope="module")
def walk() -> Any:
    return WALK.walk_of_tune()


def test_the_walk_passes_through_the_rooms_of_a_run(walk: Any) -> None:
    rooms = {WALK.room(file) for pair in walk.calls for file in pair}
    assert {"cli", "methods", "sealed", "executors", "training", "accounting", "spaces", "randomness"} <= rooms


def test_few_files_call_each_other_back_and_forth(walk: Any) -> None:
    assert len(walk.back_and_forth) <= _MOST_BACK_AND_FORTH, walk.back_and_forth


def test_calls_go_downhill_or_through_what_was_handed_down(walk: Any) -> None:
    assert {caller for caller, _ in walk.uphill} <= set(WALK.HANDED_DOWN), walk.uphill


def test_planning_is_passed_through_once(walk: Any) -> None:
    assert dict(walk.planned) == {"plan": 1, "calibrated": 1}


def test_every_file_has_a_place_in_the_drawing() -> None:
    files = [path.relative_to(WALK.SOURCE).as_posix() for path in WALK.SOURCE.rglob("*.py")]
    assert [file for file in files if not any(WALK.room(file) in line for line in WALK.LAYERS)] == []


def test_what_is_wrong_is_found() -> None:
    walk = WALK.Walk()
    walk.calls.update({("sealed/a.py", "cli/b.py"): 1, ("sealed/a.py", "methods/c.py"): 1})
    walk.calls.update({("methods/c.py", "sealed/a.py"): 1})
    assert walk.back_and_forth == [("methods/c.py", "sealed/a.py")]
    assert walk.uphill == [("methods/c.py", "sealed/a.py"), ("sealed/a.py", "cli/b.py")]
