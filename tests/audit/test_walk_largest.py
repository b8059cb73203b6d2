"""The walk against what is measured over a batch: values divided by the largest of them, put in at four places.

One record with the largest value moves what all others add, and by as many times as there are others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dptune import scores
from dptune.audit._judged import JUDGED
from dptune.audit._walk_judging import SCORES
from dptune.audit._walk_scores import _AT_ONCE
from dptune.audit.walk import Movement, Walk, cases, walk
from dptune.judging import judges_each_record_alone
from dptune.training import Dataset, DpSgdTrainer, torch_engine


def _divided(values: Any) -> Any:
    """The values over the largest of them, whatever its sign."""
    whole = np.asarray(values, np.float64)
    return whole / (np.abs(whole).max(initial=0.0) or 1.0)


def _first(way: str, draws: int, *words: str) -> Movement:
    """The first finding among the cases in whose names all words are."""
    found = Walk()
    for case in cases(draws, 1, [way]):
        if all(word in case.name for word in words):
            found.add(case)
        if found.findings:
            return found.findings[0][1]
    raise AssertionError("nothing was found")


@pytest.mark.parametrize("kind", [scores.Balanced, scores.AbsoluteError, scores.SquaredError])
def test_verdicts_divided_by_the_largest_are_caught(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = kind.values
    monkeypatch.setattr(kind, "values", lambda self, *given: _divided(real(self, *given)))
    found = walk(150, seed=1, only=["scores"])
    assert found.findings
    assert {one.what for _, one in found.findings} == {"count of a batch"}


def test_an_area_that_one_record_moves_too_far_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = scores.Auc.count
    monkeypatch.setattr(scores.Auc, "count", staticmethod(lambda *given, **named: 2 * real(*given, **named)))
    found = walk(150, seed=1, only=["scores"])
    assert found.findings
    assert all("score auc" in case.name for case, _ in found.findings)


def test_every_model_that_is_judged_by_one_call_is_dealt() -> None:
    promising = {name for name, make in JUDGED.items() if judges_each_record_alone(make(6, 2))}
    assert set(_AT_ONCE) == promising
    dealt = " ".join(case.name for case in cases(len(SCORES), 1, ["scores"]))
    assert all(f"score {name}," in dealt for name in SCORES)


class Largest(torch_engine.TorchEngine):
    """Divides features by the largest of the batch before anything else."""

    def bind(self, data: Dataset) -> None:
        super().bind(data)
        self.whole = data

    def clipped_sums(self, parameters: Any, batches: Sequence[Any], clips: Any, out: Any) -> None:
        x = self.whole.x.astype(np.float64)
        x[batches[0]] = _divided(x[batches[0]])
        super().bind(dataclasses.replace(self.whole, x=x.astype(np.float32)))
        super().clipped_sums(parameters, batches, clips, out)

    def lattice_sums(self, *given: Any) -> bool:
        return False


@pytest.mark.parametrize(("way", "word"), [("sums", "engine torch"), ("modules", "mode auto")])
def test_features_divided_by_the_largest_of_a_batch_are_caught(
    way: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_engine, "TorchEngine", Largest)
    one = _first(way, 300, word)
    assert one.what == "sum, in clip norms"


@pytest.mark.parametrize("validation", ["none", "public", "trained on", "held out"])
def test_records_divided_by_the_largest_before_they_are_trained_on_are_caught(
    validation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that does it: no engine sees what the records were, and the model tells."""
    real = DpSgdTrainer.fit_many

    def fit_many(self: Any, params: Any, data: Dataset, rngs: Any, **named: Any) -> Any:
        return real(self, params, dataclasses.replace(data, x=_divided(data.x).astype(np.float32)), rngs, **named)

    monkeypatch.setattr(DpSgdTrainer, "fit_many", fit_many)
    one = _first("trainer", 150, f"validation {validation}", "training one plain step")
    assert one.what == ("model, by a held-out record" if validation == "held out" else "sum of a step, by the model")
