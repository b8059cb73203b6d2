"""What ``benchmarks/choose_encoder.py`` compares: noise per record, kept runs, paired errors, names."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

KEY = "somewhere:encoder@" + "0" * 64


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    yield importlib.import_module("choose_encoder")
    for name in ("choose_encoder", "encoded", "accuracy"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_few_records_have_the_noise_per_record_of_fifty_thousand(script: Any, epsilon: float) -> None:
    few, all_of_them = (script.rule(KEY, 560, epsilon, records) for records in (500, 50_000))
    assert all_of_them.cost({}).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-3)
    assert all_of_them.cost({}).epsilon(1e-5) <= epsilon
    one, other = few.settings, all_of_them.settings
    assert one.batch_size == pytest.approx(one.sampling_rate * 500)
    on_a_mean = [each.noise_multiplier * each.clip_norm / each.batch_size for each in (one, other)]
    assert on_a_mean[0] == pytest.approx(on_a_mean[1])
    on_moments = [each.whitening.noise_multiplier(each.settings) for each in (few, all_of_them)]
    assert on_moments[0] / 500 == pytest.approx(on_moments[1] / 50_000)
    same = ("sampling_rate", "steps", "clip_norm", "learning_rate", "optimizer")
    assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]


def _given(keep: Path, repeats: int) -> argparse.Namespace:
    return argparse.Namespace(keep=keep, repeats=repeats, records=30, judged=11)


def test_runs_that_are_kept_are_not_made_again(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def trainings(name: str, wanted: list[tuple[float, int]], given: Any) -> Iterator[dict[str, Any]]:
        for epsilon, seed in wanted:
            made.append((epsilon, seed))
            right = np.arange(11) <= seed
            yield {**script.label(name, epsilon, seed, given), "right": np.packbits(right).tobytes().hex()}
            if len(made) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(script, "trainings", trainings)
    keep = tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        script.rows_of(script.TODAY, [1.0, 3.0], _given(keep, 2))
    rows = script.rows_of(script.TODAY, [1.0, 3.0], _given(keep, 2))
    assert made == [(1.0, 0), (1.0, 1), (3.0, 0), (3.0, 1)]
    assert len(rows) == len(keep.read_text().splitlines()) == 4
    assert script.table_of(rows, 3.0).sum(axis=1).tolist() == [1.0, 2.0]
    assert script.table_of(rows, 3.0).shape == (2, 11)
    script.rows_of("lite0-128-bilinear-last", [1.0], _given(keep, 1))  # another candidate's runs are others
    assert len(made) == 5
    assert json.loads(keep.read_text().splitlines()[-1])["candidate"] == "lite0-128-bilinear-last"


def test_a_difference_has_the_error_of_judges_and_of_runs(script: Any) -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.random((5, 400)) < 0.8).astype(float), (rng.random((5, 400)) < 0.7).astype(float)
    gap, error = script.difference(one, other)
    assert gap == pytest.approx(script.mean(one)[0] - script.mean(other)[0])
    gaps = one - other
    judges, runs = np.var(gaps.mean(axis=0), ddof=1) / 400, np.var(gaps.mean(axis=1), ddof=1) / 5
    assert error == pytest.approx(math.sqrt(judges + runs))
    assert script.difference(one, one) == (0.0, 0.0)
    assert math.isnan(script.mean(one[:1])[1])


def test_names_of_candidates(script: Any) -> None:
    for name in script.CANDIDATES:
        script.Candidate.named(name)
    found = script.Candidate.named("lite0-128-bicubic-before-mirror")
    assert found.describe() == "lite0, 128 pixels, bicubic, before the last widening, mean with the mirror image"
    sides = ("lite2-x-bilinear-last", "lite2-16-bilinear-last")
    others = ("", "lite2", "lite9-160-bilinear-last", "lite2-160-bilinear-first", "lite2-160-nearest-last")
    for wrong in (*sides, *others, "lite2-160-bilinear-last-mirror-mirror"):
        with pytest.raises(SystemExit) as raised:
            script.Candidate.named(wrong)
        assert repr(wrong) in str(raised.value)
