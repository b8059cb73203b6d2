"""``dptune audit``: the JSON contract and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dptune.audit import walk
from dptune.cli import main

_COMMON = ["--base", "gdp:0.26805", "--runs", "geometric:10"]


@pytest.mark.parametrize("game", ["etcv", "worst-case"])
def test_json(capsys: pytest.CaptureFixture[str], game: str) -> None:
    assert main(["audit", "--game", game, *_COMMON, "--delta", "1e-5", "--games", "1e6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = {"base_epsilon", "epsilon_low", "epsilon_certificate", "epsilon", "games", "confidence", "seconds"}
    assert wanted <= set(found)
    # Randomness is fresh. Almost seven standard deviations (.043 and .048 by the exact rates of the attacks): a false
    # alarm is rarer than one in 1e10.
    centre, spread = (0.925, 0.05) if game == "etcv" else (1.29, 0.055)
    assert found["epsilon_low"] == pytest.approx(centre, abs=6 * spread)
    assert found["base_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert found["epsilon_certificate"] <= found["epsilon"] == pytest.approx(1.5396, abs=2e-3)
    assert (found["games"], found["confidence"]) == (10**6, 0.95)


def test_target_in_place_of_games(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["audit", *_COMMON, "--delta", "1e-5", "--target", "1"]
    assert main([*common, "--game", "worst-case", "--json"]) == 0
    needed = json.loads(capsys.readouterr().out)["games"]
    assert 20_000 < needed < 50_000
    assert main([*common, "--game", "worst-case"]) == 0
    assert f"{needed:g} games" in capsys.readouterr().out
    assert main([*common, "--game", "worst-case", "--games", "10"]) == 2
    assert main(["audit", *_COMMON, "--delta", "1e-5", "--target", "1", "--game", "ntnv"]) == 2


def test_table_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "audit.png"
    # The attack shows 1.121, deviation .061, of 1.540: an accusation is rarer than one in 1e10.
    arguments = ["--delta", "1e-5", "--games", "1e5", "--figure", str(picture)]
    assert main(["audit", "--game", "worst-case", *_COMMON, *arguments]) == 0
    assert "No game contradicts the account" in capsys.readouterr().out
    assert picture.stat().st_size > 5000


JOB = """
[data]
name = "digits"
validation = "test"
[model]
steps = 4
[space]
learning_rate = [0.5, 2.0]
[method]
name = "noisy-best"
shards = 2
[budget]
epsilon = 8
delta = 1e-5
"""


def test_a_job_can_be_attacked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Another method, from the file that tunes with it; table, figure and trade-off curve of real trainings."""
    pytest.importorskip("matplotlib")
    job, picture = tmp_path / "job.toml", tmp_path / "job.png"
    job.write_text(JOB)
    common = ["audit", "--job", str(job), "--games", "20", "--workers", "1"]
    assert main([*common, "--game", "ntnv"]) == 2  # private unless marked, and games are not paid for
    assert "charge nothing" in capsys.readouterr().err
    job.write_text(JOB.replace("[data]", '[data]\nkind = "public"'))
    assert main([*common, "--game", "ntnv", "--state", str(tmp_path / "games"), "--figure", str(picture)]) == 0
    assert "No game contradicts the account" in capsys.readouterr().out
    assert picture.stat().st_size > 5000
    assert main([*common, "--game", "ntnv", "--state", str(tmp_path / "games"), "--json"]) == 0  # all played before
    found = json.loads(capsys.readouterr().out)
    assert (found["games"], found["judged"]) == (20, 10)
    assert 0.0 <= found["epsilon_low"] <= found["epsilon"] <= 8.0
    assert main([*common, "--game", "ntnv", "--delta", "1e-5"]) == 2
    assert main([*common, "--game", "etcv"]) == 2


def test_a_walk_over_implementations(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = walk.ways()
    monkeypatch.setattr(walk, "ways", lambda: {name: known[name] for name in ("records", "judging")})
    common = ["audit", "--game", "implementations", "--draws", "4", "--seed", "1"]
    assert main([*common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"] == {"records": 4, "judging": 4}
    assert set(found) >= {"game", "draws", "seed", "refused", "widest", "broken", "findings"}
    assert main(common) == 0
    assert f"moves {'MORE' if found['broken'] else 'more'} than it pays" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--game", "chess", *_COMMON, "--delta", "1e-5", "--games", "1e6"], "must be one of etcv"),
        (["--game", "etcv", *_COMMON, "--delta", "0", "--games", "1e6"], "no finite epsilon"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "20"], "must be at least"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "2.5"], "whole number"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "1e6", "--confidence", "1"], "'confidence'"),
        (["--game", "ntnv", *_COMMON, "--delta", "1e-5", "--games", "100"], "dpsgd:RATE,NOISE,STEPS"),
        (
            ["--game", "ntcv", "--base", "dpsgd:0.1,1,5", "--runs", "geometric:2", "--delta", "1e-5", "--games", "6"],
            "at",
        ),
        (["--game", "etcv", "--games", "1e6"], "--base, --runs and --delta"),
        (["--game", "etcv", *_COMMON, "--delta", "1e-5", "--games", "1e6", "--draws", "3"], "'draws' is for"),
        (["--game", "implementations"], "needs it"),
        (["--game", "implementations", "--draws", "3", "--games", "9"], "plays no games"),
        (["--game", "implementations", "--draws", "0"], "'draws'"),
        (["--game", "ntnv", "--job", "missing.toml", "--games", "100"], "cannot be read"),
        (["--game", "etcv", "--base", "gdp", "--runs", "geometric:10", "--delta", "1e-5", "--games", "9"], "base"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["audit", *arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert says in captured.err
