"""How Ctrl-C in a run is shown if nobody catches it: as a line, once; everything else as before."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dptune.errors import Interrupted
from dptune.sealed import interrupt
from dptune.sealed.interrupt import BEFORE_THE_CHARGE, interrupted, interruptible


@pytest.fixture
def shown() -> Iterator[list[object]]:
    """What another tool's hook was given; that hook is there before and after."""
    kept, seen = sys.excepthook, list[object]()

    def own(kind: object, error: object, trace: object) -> None:
        seen.append(error)

    sys.excepthook = own
    yield seen
    assert sys.excepthook is own
    sys.excepthook = kept


def test_the_line_is_shown_once_and_the_hook_is_put_back(
    shown: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted("an earlier one, which was caught")
    error = interrupted(BEFORE_THE_CHARGE)
    sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "dptune: Stopped before anything was charged.\n"
    assert shown == []


def test_another_error_is_left_to_the_hook_that_was_there(
    shown: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted("which was caught")
    other = ValueError("something else")
    sys.excepthook(ValueError, other, None)
    assert shown == [other]
    assert capsys.readouterr().err == ""


def test_a_notebook_shows_the_line_alone() -> None:
    assert interrupted(BEFORE_THE_CHARGE)._render_traceback_() == ["dptune: Stopped before anything was charged."]
    sys.excepthook = sys.__excepthook__


def _stopped(folder: Path, charge: str | None = None) -> str:
    """What is said after Ctrl-C."""
    with pytest.raises(Interrupted) as caught, interruptible(folder, charge):
        raise KeyboardInterrupt
    sys.excepthook = sys.__excepthook__
    return str(caught.value)


def test_another_ctrl_c_passes_while_the_line_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def look(*told: object) -> str:
        seen.append(signal.getsignal(signal.SIGINT))
        return "found"

    monkeypatch.setattr(interrupt, "what_stands", look)
    before = signal.getsignal(signal.SIGINT)
    assert _stopped(tmp_path) == "found"
    assert seen == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) is before
    said: list[str] = []  # another thread may set no handler, and needs none
    thread = threading.Thread(target=lambda: said.append(_stopped(tmp_path)))
    thread.start()
    thread.join()
    assert said == ["found"]
    assert seen == [signal.SIG_IGN, before]


def test_a_charge_that_was_made_earlier_stands(tmp_path: Path) -> None:
    assert _stopped(tmp_path) == BEFORE_THE_CHARGE
    said = "Stopped before the run claimed the charge 'march', which was made earlier and stays charged."
    assert _stopped(tmp_path, "march") == said
