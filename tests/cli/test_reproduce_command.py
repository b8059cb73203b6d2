"""``dptune reproduce``: names, and one clear line for a name that is not known."""

from __future__ import annotations

import pytest

from dptune.cli import main
from dptune.cli.reproduce import FIGURES


def test_an_unknown_figure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "hype-fig99"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(name in error for name in FIGURES)


@pytest.mark.slow
def test_figure_2_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "hype-fig2"]) == 0
    assert "5000 repetitions" in capsys.readouterr().out
