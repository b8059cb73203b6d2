"""Defaults of tables are what the kept trainings of ``benchmarks/choose_tables.py`` would choose, each left out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dptune.planner import default_regression, default_trainer
from dptune.training.whitening import Whitening


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    yield importlib.import_module("choose_tables")
    sys.modules.pop("choose_tables", None)


def test_every_cell_is_there_once(script: Any) -> None:
    names, numbers = [*script.TABLES, "adult", *script.FEW], list(script.NUMBERS)
    asked = {*script.cells(script.TOPICS, names), *script.wide_cells(script.DECLARED), *script.number_cells(numbers)}
    kept = [row.cell for row in script.read()]
    assert len(kept) == len(set(kept))
    assert set(kept) == asked


def test_other_tables_choose_the_default_of_each(script: Any) -> None:
    rows = [row for row in script.read() if row.cell.wide == 1.0 and row.cell.data not in script.NUMBERS]
    chosen = script.chosen_without(rows)
    assert len(chosen) == 21
    assert set(chosen.values()) == {script.DEFAULT}
    made = default_trainer(20, 2, 5000, epsilon=1.0)
    cell = script.Cell("adult", 1.0)
    assert script.label(cell) == script.DEFAULT
    assert made.settings.learning_rate * made.settings.steps / 300 == pytest.approx(cell.rate)
    assert (made.whitening, made.settings.clip_norm) == (Whitening(cell.share, centred=True), cell.clip)


def test_other_tables_choose_the_default_of_each_where_numbers_are_predicted(script: Any) -> None:
    rows = [row for row in script.read() if row.cell.data in script.NUMBERS]
    chosen = script.chosen_without(rows, script.NUMBERS_DEFAULT)
    assert len(chosen) == 10
    assert set(chosen.values()) == {script.NUMBERS_DEFAULT}
    made = default_regression(20, (0.0, 1.0), 5000, epsilon=1.0)
    assert made.settings.learning_rate == 0.02
    assert made.whitening == Whitening(0.1, centred=True)


def test_wide_ranges_are_what_levelling_is_for(script: Any) -> None:
    """With ranges three and ten times as wide, records as they are lose far more on average than levelled ones."""
    figures: dict[tuple[bool, float], list[float]] = {}
    for row in script.read():
        if row.cell.data in script.DECLARED and row.cell.wide > 1.0:
            figures.setdefault((row.cell.levelled, row.cell.rate), []).append(row.accuracy)
    means = {key: sum(own) / len(own) for key, own in figures.items()}
    assert means[True, 0.1] > 0.05 + max(mean for (levelled, _), mean in means.items() if not levelled)
