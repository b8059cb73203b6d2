"""Xiang et al.'s table with made-up accuracies: what each bound leaves, expectations, and the judgement."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import Geometric
from dptune.reproductions import xiang_training
from dptune.reproductions.needed import FILES

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


def test_svhn_is_trained_if_its_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    assert "svhn" not in xiang_training.full().data
    (tmp_path / "svhn").mkdir()
    for name in FILES["svhn"]:
        (tmp_path / "svhn" / name).touch()
    assert xiang_training.full().data == ("mnist", "fashion-mnist", "cifar-10", "svhn")
    assert xiang_training.FULL.epochs_of("svhn") == 1.0


def test_svhn_is_judged_alone() -> None:
    row = ("geometric", "mnist", 1.83, 0.9, 1.0, 1.1, 0.5, 0.6, 0.7, 0.1, 0.01, "-")
    other = ("geometric", "svhn", 1.83, 0.9, 1.0, 1.1, 0.5, 0.4, 0.7, -0.1, 0.01, "-")
    assert [one.outcome for one in xiang_training._verdicts([row])] == ["reproduces", "cannot be told"]
    assert "svhn/ of DPTUNE_DATA" in xiang_training._verdicts([row])[1].why
    assert [one.outcome for one in xiang_training._verdicts([row, other])] == ["reproduces", "does not reproduce"]
