"""How Ctrl-C in a run is shown if nobody catches it: as a line, once; everything else as before."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from dptune.sealed.interrupt import BEFORE_THE_CHARGE, interrupted


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
