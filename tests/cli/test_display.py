"""What is seen while a run is under way: time and a heartbeat, counts in a rehearsal alone, one line after Ctrl-C."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from dptune.cli import _display
from dptune.cli.tune import stoppable
from dptune.errors import Stopped
from dptune.sealed.loop import Beat


def _shown(monkeypatch: pytest.MonkeyPatch, *beats: Beat) -> str:
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    with _display.heartbeat("tuning") as beat:
        assert beat is not None
        for one in beats:
            beat(one)
    return screen.getvalue()


def test_a_sealed_run_shows_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _shown(monkeypatch, Beat(5.2), Beat(65.0))
    assert "tuning" in text
    assert "trials" not in text


def test_a_rehearsal_may_show_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rehearsal: 3 of 7 trials" in _shown(monkeypatch, Beat(65.0, 3, 7))
    assert "3 of 7 trials so far, step 17 of 200" in _shown(monkeypatch, Beat(65.0, 3, 7, (17, 200)))


def test_nothing_is_shown_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with _display.heartbeat("tuning") as beat:
        assert beat is None
    assert capsys.readouterr() == ("", "")


def test_control_c_is_one_line() -> None:
    with pytest.raises(Stopped, match="dptune resume out"), stoppable(Path("out")):
        raise KeyboardInterrupt
