"""Xiang et al.'s table with made-up accuracies: what each bound leaves, expectations, and the judgement."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import Geometric
from dptune.reproductions import xiang_training

TINY = xiang_training.Scale(("mnist",), ("geometric",), (0.5, 2.0, 8.0), (0.1, 1.0), 0.1, 2)


def test_the_best_of_a_random_number_of_draws() -> None:
    one = xiang_training.expected(np.array([0.2, 0.8]), Geometric(1))
    assert one == pytest.approx(0.5)
    many = xiang_training.expected(np.array([0.2, 0.8]), Geometric(1000))
    assert many == pytest.approx(0.8, abs=2e-3)


def test_gains_follow_what_the_bounds_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy grows with the logarithm of one run's epsilon, so a gain is the logarithm of what the bound adds."""
    asked: list[tuple[object, ...]] = []

    def pretend(data: str, epsilon: float, rate: float, epochs: float, seed: int) -> float:
        asked.append((data, epsilon, rate, epochs, seed))
        return 0.8 + 0.05 * math.log(epsilon)

    monkeypatch.setattr(xiang_training, "trained", pretend)
    monkeypatch.setattr(xiang_training, "calibrated_mean", lambda base, make: 22.0)
    monkeypatch.setattr(
        xiang_training, "left", lambda law, total, who: 0.5 * total * {"p": 0.8, "t": 1, "o": 1.1}[who[0]]
    )
    table = xiang_training.table_accuracy(scale=TINY, folder=tmp_path)
    assert len(asked) == len(set(asked)) == 12
    for row in table.as_dicts():
        assert float(row["gain"]) == pytest.approx(0.05 * math.log(1.25), abs=1e-9)
        assert float(row["ours"]) > float(row["theirs"]) > float(row["previous"])
    assert table.verdicts[0].outcome == "reproduces"
    xiang_training.table_accuracy(scale=TINY, folder=tmp_path)
    assert len(asked) == 12
