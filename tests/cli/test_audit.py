"""``dptune audit``: the JSON contract and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dptune.cli import main

_COMMON = ["--base", "gdp:0.26805", "--runs", "geometric:10"]


@pytest.mark.parametrize("game", ["etcv", "worst-case"])
def test_json(capsys: pytest.CaptureFixture[str], game: str) -> None:
    assert main(["audit", "--game", game, *_COMMON, "--delta", "1e-5", "--games", "1e6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = {"base_epsilon", "epsilon_low", "epsilon_certificate", "epsilon", "games", "confidence", "seconds"}
    assert wanted <= set(found)
    # Randomness is fresh. Six standard deviations: a false alarm is rarer than one in a million.
    centre, spread = (0.925, 0.05) if game == "etcv" else (1.29, 0.055)
    assert found["epsilon_low"] == pytest.approx(centre, abs=6 * spread)
    assert found["base_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert found["epsilon_certificate"] <= found["epsilon"] == pytest.approx(1.5396, abs=2e-3)
    assert (found["games"], found["confidence"]) == (10**6, 0.95)


def test_table_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "audit.png"
    arguments = ["--delta", "1e-5", "--games", "1e5", "--figure", str(picture)]
    assert main(["audit", "--game", "worst-case", *_COMMON, *arguments]) == 0
    assert "No game contradicts the account" in capsys.readouterr().out
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--game", "chess", *_COMMON, "--delta", "1e-5", "--games", "1e6"], "must be one of etcv"),
        (["--game", "etcv", *_COMMON, "--delta", "0", "--games", "1e6"], "no finite epsilon"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "20"], "must be at least"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "2.5"], "whole number"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "1e6", "--confidence", "1"], "'confidence'"),
        (["--game", "ntnv", *_COMMON, "--delta", "1e-5", "--games", "100"], "dpsgd:RATE,NOISE,STEPS"),
        (["--game", "etcv", "--base", "gdp", "--runs", "geometric:10", "--delta", "1e-5", "--games", "9"], "base"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["audit", *arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert says in captured.err
