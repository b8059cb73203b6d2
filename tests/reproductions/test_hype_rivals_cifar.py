"""The vote and its rivals on CIFAR-10, on tables that are made up: which settings are read, and what is judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptune._typing import Array
from dptune.reproductions import hype_accuracy, hype_rivals_cifar
from dptune.reproductions.hype_accuracy import Scale, Setting


def test_the_papers_settings_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Setting] = []

    def made(setting: Setting, scale: Scale, folder: Path | None) -> tuple[Array, Array]:
        asked.append(setting)
        assert (scale.repetitions, folder) == (30, tmp_path)
        local = np.random.default_rng(0).uniform(0.0, 0.02, (setting.clients, 100))
        local[:, 3] = 0.03  # a weak signal: accuracies are small, places are certain
        return local, np.where(np.arange(100) == 3, 0.5, 0.1)

    monkeypatch.setattr(hype_accuracy, "trained", made)
    table = hype_rivals_cifar.rivals_cifar(scale=Scale(repetitions=30), folder=tmp_path)
    assert asked == [
        Setting("cifar-10", "dirichlet 5", 100),
        Setting("cifar-10", "dirichlet 0.5", 100),
        Setting("cifar-10", "iid", 100),
        Setting("cifar-10", "iid", 250),
    ]
    assert len(table.rows) == 4 * 6
    outcome = {one.claim: one.outcome for one in table.verdicts}
    assert len(outcome) == len(table.verdicts) == 7
    raw = "in both non-i.i.d. settings raw losses clearly degrade for epsilon at most 3 (appendix F)"
    assert outcome[raw] == "reproduces"  # small accuracies drown in noise that is made for ones
    assert outcome["DP-Hype clearly outperforms Subsets (appendix H)"] == "does not reproduce"  # not without noise
    assert outcome["on CIFAR-10 Feathers' accuracy decreases already at epsilon 3 (appendix G: .389)"] == "reproduces"
