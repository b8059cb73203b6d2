"""The leaderboard: races that go on where they were stopped, and standings. Entrants here are quick stand-ins."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.cli import main
from dptune.cli._commands import COMMANDS
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.leaderboard import ENTRANTS, Protocol, Race, race, races, standings
from dptune.leaderboard.setting import BENCHMARKS, SEEN, Setting, setting
from dptune.leaderboard.standings import overall, picture
from dptune.methods import Budget, RandomGuess
from dptune.planner.kinds import KINDS
from dptune.spaces import Space

SMALL = Race(("digits", "adult"), (1.0, 3.0), ("default", "guess"), 2)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[races.Cell]:
    """Every cell that is run, instead of its run."""
    seen: list[races.Cell] = []

    def run(cell: races.Cell, given: Any, workers: int) -> dict[str, Any]:
        seen.append(cell)
        figures = {"accuracy": 0.8 + 0.01 * len(seen), "seconds": 2.0, "processor_seconds": 1.5}
        return {**figures, "settings_saw_data": cell.data == "adult"}

    monkeypatch.setattr(races, "_run", run)
    monkeypatch.setattr(races, "setting", lambda *given, public: None)
    return seen


def test_a_race_goes_on_where_it_was_stopped(runs: list[races.Cell], tmp_path: Path) -> None:
    ticks = iter(range(100))
    race(SMALL, tmp_path, seconds=5.5, clock=lambda: float(next(ticks)))
    stopped = len(runs)
    assert 0 < stopped < 16
    rows = race(SMALL, tmp_path)
    assert runs == list(SMALL.cells())  # each once, in order
    assert len(rows) == 16
    race(SMALL, tmp_path)
    assert len(runs) == 16


def test_a_line_that_was_cut_off_is_run_again(runs: list[races.Cell], tmp_path: Path) -> None:
    race(SMALL, tmp_path)
    path = tmp_path / "cells.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    rows = race(SMALL, tmp_path)
    assert len(rows) == 16
    assert len(runs) == 17
    assert runs[-1] == list(SMALL.cells())[-1]


def test_repetitions_come_first(runs: list[races.Cell], tmp_path: Path) -> None:
    race(SMALL, tmp_path)
    assert [cell.repetition for cell in runs] == [0] * 8 + [1] * 8


def test_a_folder_keeps_one_protocol(runs: list[races.Cell], tmp_path: Path) -> None:
    race(SMALL, tmp_path)
    other = dataclasses.replace(SMALL, protocol=Protocol("public"))
    with pytest.raises(InvalidInput, match="another protocol"):
        race(other, tmp_path)
    wider = dataclasses.replace(SMALL, methods=("default", "guess", "naive"))  # more entrants are welcome
    assert len(race(wider, tmp_path)) == 24


def test_standings_have_means_and_errors(runs: list[races.Cell], tmp_path: Path) -> None:
    found = standings(race(SMALL, tmp_path))
    assert [(one.data, one.epsilon) for one in found] == [
        *[("digits", 1.0)] * 2, *[("digits", 3.0)] * 2, *[("adult", 1.0)] * 2, *[("adult", 3.0)] * 2
    ]  # fmt: skip
    best = found[0]
    assert best.method == "guess"  # the later one of each pair
    assert best.accuracy == pytest.approx((0.82 + 0.90) / 2)
    assert best.error == pytest.approx(0.04)
    assert best.worst == pytest.approx(0.82)
    assert (best.repetitions, best.saw, found[-1].saw) == (2, False, True)
    drawn = picture(found).svg()
    assert drawn.count("total epsilon") >= 8  # headings, and the description
    assert "0.8600 (0.0400)" in drawn
    assert picture([]).height > 0


def test_means_are_of_entrants_that_ran_everywhere(runs: list[races.Cell], tmp_path: Path) -> None:
    found = standings(race(SMALL, tmp_path))
    means = overall(found)
    assert [one.method for one in means] == ["guess", "default"]
    own = [one for one in found if one.method == "guess"]
    assert means[0].accuracy == pytest.approx(sum(one.accuracy for one in own) / 4)
    assert means[0].error == pytest.approx(sum((one.error or 0.0) ** 2 for one in own) ** 0.5 / 4)
    (alone,) = overall([one for one in found if one.method == "guess" or one.data == "adult"])
    assert alone.method == "guess"
    assert overall([]) == []


def test_the_command_prints_and_writes(
    runs: list[races.Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["leaderboard", "--data", "digits,adult", "--epsilon", "1", "--methods", "default", "--out"]
    assert main([*arguments, str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "settings did not see digits" in told
    assert "settings saw adult" in told
    assert main([*arguments, str(tmp_path), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["finished"], whole["asked"], len(whole["standings"])) == (6, 6, 2)
    assert json.loads((tmp_path / "leaderboard.json").read_text()) == whole
    assert (tmp_path / "leaderboard.svg").read_text().startswith("<?xml")
    assert "leaderboard" in COMMANDS


@pytest.mark.parametrize(
    "flags", [["--data", "iris"], ["--epsilon", "one"], ["--methods", "magic"], ["--validation", "x"]]
)
def test_bad_input_is_one_line(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", *flags, "--out", str(tmp_path / "b")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def _toy(public: bool) -> Setting:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2600, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    data = Dataset(x, (x[:, 0] > 0).astype(np.int64), 2)
    held = data.take(np.arange(2400, 2500)) if public else None
    return Setting(
        "digits", KINDS["text"], data.take(np.arange(2400)), held, data.take(np.arange(2500, 2600)), Budget(2.0, 1e-5)
    )


@pytest.mark.parametrize("name", ENTRANTS)
def test_every_entrant_plans_within_the_total(name: str) -> None:
    one = ENTRANTS[name]
    plan, trainer = one.enter(_toy(public=not one.guaranteed))
    assert plan.guaranteed == one.guaranteed
    if one.guaranteed:
        assert plan.price() <= 2.0
    assert trainer.declared_records == 2400


def test_papernot_and_steinke_take_more_noise_than_ours() -> None:
    theirs, ours = (ENTRANTS[name].enter(_toy(False))[0] for name in ("papernot-steinke", "stopping"))
    assert theirs.noise is not None
    assert ours.noise is not None
    assert theirs.noise > 1.05 * ours.noise
    assert theirs.price() < 0.97 * ours.price()


def test_nothing_looks_at_the_unseen_half() -> None:
    """The halves are disjoint, and what entrants are given does not hold the unseen one."""
    public, private = setting("digits", 1.0, 1e-5, public=True), setting("digits", 1.0, 1e-5, public=False)
    assert public.public is not None
    assert private.public is None
    seen, unseen = ({row.tobytes() for row in part.x} for part in (public.public, public.unseen))
    assert not seen & unseen
    assert private.trainer.validation is None
    assert public.trainer.validation is public.public
    assert len(public.unseen) == len(private.unseen) == 180


def test_one_cell_is_a_sealed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = _toy(False)
    monkeypatch.setattr(races, "setting", lambda *given, public: toy)
    quick = RandomGuess(Space.of([{"learning_rate": 500.0, "steps": 20}]))
    entered = dataclasses.replace(
        ENTRANTS["default"], enter=lambda given: (quick.plan(given.budget, given.trainer), given.trainer)
    )
    monkeypatch.setitem(ENTRANTS, "default", entered)
    (row,) = race(Race(("digits",), (2.0,), ("default",), 1), tmp_path)
    assert row["accuracy"] > 0.8
    assert row["charged"] <= 2.0
    assert row["processor_seconds"] > 0.0
    assert (row["records"], row["settings_saw_data"], row["no_model"]) == (100, True, False)
    assert frozenset(BENCHMARKS) == SEEN  # the form of the rule was chosen after a look at all of them


def test_a_name_that_is_said_twice_is_run_once(runs: list[races.Cell], tmp_path: Path) -> None:
    twice = Race(("digits", "digits"), (1.0, 1.0), ("default", "default"), 1)
    assert len(race(twice, tmp_path)) == len(runs) == len(list(twice.cells())) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", ","], "'data' names nothing"),
        (["--methods", ""], "'methods' names nothing"),
        (["--epsilon", ","], "'epsilon' names nothing"),
        (["--minutes", "-1"], "'minutes'"),
        (["--minutes", "nan"], "'minutes'"),
        (["--out", "a-file/board"], "cannot be made"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("")
    assert main(["leaderboard", "--data", "digits", "--methods", "default", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-file"]


def test_the_flag_for_repetitions_counts_in_a_quick_race(
    runs: list[races.Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["leaderboard", "--quick", "--data", "digits", "--epsilon", "1", "--methods", "default", "--out", "board"]
    assert main([*words, "--repetitions", "3"]) == 0
    assert len(runs) == 3


def test_the_yardstick_runs(tmp_path: Path) -> None:
    """It is no private method, so it runs as a rehearsal; its row says that it is not private."""
    (row,) = race(Race(("digits",), (3.0,), ("unpaid",), 1, Protocol("public", 1e-4)), tmp_path, workers=1)
    assert row["charged"] is None
    assert not row["no_model"]
    assert row["accuracy"] > 0.8
    (standing,) = standings([row])
    assert not standing.guaranteed


def test_a_table_is_shown_without_running(
    runs: list[races.Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(races, "setting", None)  # no data is read either
    (tmp_path / "board").mkdir()
    figures = {"accuracy": 0.8, "seconds": 2.0, "processor_seconds": 1.5, "settings_saw_data": True}
    rows = [{**dataclasses.asdict(cell), **figures} for cell in list(SMALL.cells())[:3]]
    (tmp_path / "board" / "cells.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "board" / "protocol.json").write_text(json.dumps(dataclasses.asdict(Protocol())))
    words = ["leaderboard", "--data", "digits,adult", "--methods", "default,guess", "--repetitions", "2"]
    assert main([*words, "--out", str(tmp_path / "board"), "--show"]) == 0
    assert not runs
    assert "3 of 16 runs are finished" in capsys.readouterr().out
