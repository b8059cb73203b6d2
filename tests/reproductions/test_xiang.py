"""``dptune reproduce xiang-audit`` in small: all games are played and nothing contradicts the account."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dptune.audit.auditor import curve_of
from dptune.cli.reproduce import FIGURES
from dptune.errors import InvalidInput
from dptune.reproductions.table import Table
from dptune.reproductions.xiang import area, xiang_audit


def test_all_games_stay_below_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def again() -> Table:
        return xiang_audit(lines.append, trained=50, empty=200_000, bases=(4.0,), seed=5, workers=1, folder=tmp_path)

    table = again()
    (row,) = table.as_dicts()
    assert float(row["one run"]) <= 4.0
    for game in ("ntnv", "ntcv", "etcv", "worst case"):
        assert 0.0 <= float(row[game]) < float(row["dptune"]) < float(row["PS22"])
    assert float(row["worst case"]) > float(row["etcv"]) > 1.0
    assert len(lines) == 4
    assert lines[-1].endswith("about 0 s left")
    assert "xiang-audit" in FIGURES
    assert [one.claim[:4] for one in table.verdicts] == ["NTNV", "NTCV", "ETCV"]
    assert table.verdicts[0].outcome == "reproduces"
    monkeypatch.setattr("dptune.reproductions.xiang._play", lambda *asked: pytest.fail(f"played again: {asked}"))
    assert again() == table
    assert len(lines) == 4


def test_area_under_the_curve_of_two_gaussians() -> None:
    """Its expectation is Phi(mu / sqrt(2)); its standard error covers it (five of them, fixed seed)."""
    source, games = np.random.default_rng(2), 4000
    curve = curve_of(-source.normal(0.0, 1.0, games), -source.normal(0.7, 1.0, games))
    found = area(curve, games)
    assert found.value == pytest.approx(norm.cdf(0.7 / math.sqrt(2.0)), abs=5 * found.error)
    assert 0.004 < found.error < 0.007
    with pytest.raises(InvalidInput, match="measured"):
        area(None, games)
