"""``dptune reproduce xiang-audit`` in small: all games are played and nothing contradicts the account."""

from __future__ import annotations

from dptune.audit.reproduce import xiang_audit
from dptune.cli.reproduce import FIGURES


def test_all_games_stay_below_the_account() -> None:
    lines: list[str] = []
    table = xiang_audit(lines.append, trained=50, empty=200_000, bases=(4.0,), seed=5)
    (row,) = table.as_dicts()
    assert float(row["one run"]) <= 4.0
    for game in ("ntnv", "ntcv", "etcv", "worst case"):
        assert 0.0 <= float(row[game]) < float(row["dptune"]) < float(row["PS22"])
    assert float(row["worst case"]) > float(row["etcv"]) > 1.0
    assert len(lines) == 4
    assert "xiang-audit" in FIGURES
