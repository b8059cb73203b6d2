"""Constants of the defaults are what the kept trainings of ``benchmarks/choose_constants.py`` would choose."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.planner.kinds import KINDS
from dptune.training import Quantile
from dptune.training.benchmark_data import imdb
from dptune.training.free_trainer import FreeTrainer
from dptune.training.whitening import Whitening


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    yield importlib.import_module("choose_constants")
    sys.modules.pop("choose_constants", None)


def test_every_cell_is_there_once(script: Any) -> None:
    kept = [row.cell for row in script.read()]
    asked = {cell for cells in script.CELLS.values() for cell in cells()}
    assert len(kept) == len(set(kept))
    assert {cell.topic for cell in kept} == {cell.topic for cell in asked} == set(script.TOPICS)
    assert set(kept) <= asked


def test_what_is_kept_is_read_again(script: Any, tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_text(script.KEEP.read_text())
    rows = script.read()
    assert script.make([row.cell for row in rows], tmp_path / "kept.jsonl") == rows  # nothing is trained
    usual = rows[0].cell
    assert script._changed(replace(usual, repeat=7))["repeat"] == 7
    assert type(usual)(**script._changed(usual)) == usual


def test_other_data_sets_choose_the_share_of_whitening(script: Any) -> None:
    chosen = script.chosen_without("share", script.read())
    assert chosen == dict.fromkeys(("fashion-mnist", "mnist"), f"share {Whitening().share:g}")


def test_other_data_sets_choose_the_clip_norm_and_the_way(script: Any) -> None:
    clip = KINDS["image"].trainer(976, 10, 60_000, epsilon=1).settings.clip_norm
    chosen = script.chosen_without("clip", script.read())
    assert set(chosen) == {"fashion-mnist", "imdb", "mnist"}
    for label in chosen.values():
        assert label.startswith(f"clip {clip:g}, way x 1")


def test_most_buckets_that_gain(script: Any) -> None:
    columns = script.means([row for row in script.read() if row.cell.topic == "words"])
    by_words = {
        words: np.mean([np.mean(column[words]) for (name, _), column in columns.items() if name == "imdb:20000"])
        for words in script.WORDS
    }
    buckets = inspect.signature(imdb).parameters["buckets"].default
    assert max(by_words, key=lambda words: by_words[words]) == str(buckets) == script.CHOSEN_WORDS


def test_the_quantile_is_the_best_of_those_that_were_tried(script: Any) -> None:
    rows = [row for row in script.read() if row.cell.topic == "quantile" and row.cell.quantile]
    chosen = script.chosen_without("quantile", rows)
    assert chosen == dict.fromkeys(("adult", "fashion-mnist", "imdb", "mnist"), f"quantile {Quantile().quantile:g}")


def test_the_reach_of_the_free_optimiser_is_what_most_others_choose(script: Any) -> None:
    rows = [row for row in script.read() if row.cell.topic == "free" and row.cell.reach]
    chosen = script.chosen_without("free", rows)
    assert set(chosen) == {"adult", "fashion-mnist", "imdb", "mnist"}
    reach = inspect.signature(FreeTrainer).parameters["reach"].default
    assert sum(label == f"reach {reach:g}" for label in chosen.values()) >= 3


def test_automatic_clipping_is_not_better_than_the_rule_on_average(script: Any) -> None:
    columns = script.means([row for row in script.read() if row.cell.topic == "automatic"])
    assert len(columns) == 12
    gains = [script._gain(column, "automatic clipping", "the rule of the kind") for column in columns.values()]
    assert np.mean(gains) <= 0.0
