"""What every command says of itself: arguments explained, no word eaten, eighty columns; completion in the shell."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dptune.cli import compare, main, reproduce
from dptune.cli._commands import COMMANDS, _loaded
from dptune.cli._display import clock
from dptune.cli._output import print_rows
from dptune.cli.tune import METHODS
from dptune.methods import known_methods
from dptune.planner import Compared
from dptune.reproductions.table import Table, verdict
from dptune.sealed.reading import trial_line


def _all() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        found.append((name,))
        found.extend((name, inner) for inner in getattr(_loaded(name), "commands", {}))
    return found


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["dptune"])


@pytest.mark.parametrize("command", _all(), ids=" ".join)
def test_help_is_whole_and_narrow(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "<" not in shown  # <bool> behind a flag
    assert not re.search(r":\s+\.\s", shown)  # brackets that were taken for markup
    assert not re.search(r"\(\s*\)|\[\s*\]", shown)


def _parameters(command: tuple[str, ...]) -> list[Any]:
    found = _loaded(command[0])
    for name in command[1:]:
        found = found.commands[name]
    return list(found.params)


@pytest.mark.parametrize("command", [one for one in _all() if one], ids=" ".join)
def test_every_argument_and_option_is_explained(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main([*command, "--help"])
    shown = re.sub(r"[\s│]+", "", capsys.readouterr().out)
    for one in _parameters(command):
        assert one.help, f"{command}: {one.name}"
        assert re.sub(r"\s+", "", one.help)[:25] in shown, f"{command}: {one.name}"


def test_the_methods_that_help_names_are_those_that_there_are() -> None:
    assert tuple(METHODS.split(" | ")) == known_methods()


def test_a_clock_runs_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def shown() -> tuple[str, str]:
        with clock("planning [all]"):
            pass
        return capsys.readouterr()

    assert shown() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, this is a terminal
    out, err = shown()
    assert out == ""
    assert "planning [all]" in err
    assert "0:00:0" in err


_SHELL = """
source "$HOME/.bashrc"
try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _dptune_completion dptune "${COMP_WORDS[COMP_CWORD]}" ""
    echo "${COMPREPLY[@]}"
}
complete -p dptune
try dptune tu
try dptune ledger r
try dptune schema draft --from
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    """In a shell of its own, with a home of its own."""
    program = tmp_path / "bin" / "dptune"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom dptune.cli import main\nmain()\n")
    program.chmod(0o700)
    paths = os.pathsep.join(str(Path(one).absolute()) for one in sys.path if one)
    given = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": paths}

    def bash(text: str) -> str:
        done = subprocess.run(["bash", "-c", text], env=given, capture_output=True, text=True, check=True)
        return done.stdout

    assert "_DPTUNE_COMPLETE" in bash("dptune --show-completion bash; true")
    module = bash(f"{sys.executable} -m dptune --install-completion bash; true")  # of the command, also from here
    assert "installed" in module
    assert bash(_SHELL).splitlines() == [
        "complete -o default -F _dptune_completion dptune",
        "tune",
        "rebuild raise",
        "--from-public",
    ]


_TABLE = "│┃┏┡├└╭╰┌╵"
_REHEARSAL = ("--data", "digits", "--validation", "test", "--method", "random-guess", "--data-is", "public")


def test_tables_fit_eighty_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book, run = str(tmp_path / "a-ledger-with-a-rather-long-name.ledger"), str(tmp_path / "run")
    budget = ["--epsilon", "3", "--delta", "1e-4"]
    rehearsal = [*_REHEARSAL, "--seed", "1", "--workers", "1"]
    wide: list[tuple[str, str]] = []
    for command in (
        ["price", "--base", "gdp:0.27", "--runs", "geometric:10", "--delta", "1e-5"],
        ["plan", "--epsilon", "2", "--delta", "1e-5", "--rate", "0.01", "--steps", "100", "--runs", "geometric:5"],
        ["ledger", "add", book, "a data set whose name goes on and on, as those of hospitals do", *budget],
        ["ledger", "show", book],
        ["ledger", "verify", book],
        ["tune", *rehearsal, *budget, "--out", run],
        ["vault", "show", run, "--reason", "a test"],
        [
            "audit",
            "--game",
            "worst-case",
            "--games",
            "1000",
            "--base",
            "gdp:1",
            "--runs",
            "geometric:3",
            "--delta",
            ".1",
        ],
        ["reproduce", "--list"],
    ):
        assert main(command) == 0, command
        shown = capsys.readouterr().out
        wide.extend((command[0], line) for line in shown.splitlines() if len(line) > 80 and line[0] in _TABLE)
    assert not wide


def test_a_list_of_trials_fits_too() -> None:
    params = {"batch_size": 230.4, "learning_rate": 0.0813867123, "noise_multiplier": 4.55427, "optimizer": "adam-bc"}
    line = trial_line(-1, "0.8800", 123.4, params)
    assert _narrow(line)
    assert len(line.splitlines()) > 1
    assert json.loads(line[line.index("{") :]) == {**params, "learning_rate": 0.0813867}


def _narrow(shown: str) -> bool:
    return max(map(len, shown.splitlines())) <= 80


def test_a_comparison_fits_and_breaks_no_short_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("naive composition", "threshold, rounds", "adaptive")
    rows = [Compared(name, 0.6605, 2.9997, 2001.0, 1.26e6, 0.28, 0.526, "any rule") for name in names]
    rows.append(Compared("vote", None, math.inf, 0.0, None, 0.0, None, "it cannot be brought within the budget"))
    monkeypatch.setattr(compare, "compare_methods", lambda *given, **told: rows)
    assert main(["compare", "--epsilon", "3", "--delta", "1e-5"]) == 0
    shown = capsys.readouterr().out
    assert _narrow(shown)
    assert "composition" in shown


def test_a_vote_fits(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography")
    told = ["--clients", "20", "--candidates", "10", "--votes", "2", "--epsilon", "3", "--seed", "1"]
    assert main(["vote", *told]) == 0
    assert _narrow(capsys.readouterr().out)


def test_a_reproduced_figure_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("method", *(f"accuracy of the {n}th rival" for n in range(9)))
    verdicts = (verdict("a claim of the paper that takes many words to say " * 3, True, "it is so, and so on " * 9),)
    table = Table("A title " * 20, columns, [("papernot and steinke", *[0.5] * 9)], ("A note. " * 30,), verdicts)
    made = replace(reproduce.FIGURES["hype-fig2"], run=lambda quick, tell: table)
    monkeypatch.setitem(reproduce.FIGURES, "hype-fig2", made)
    assert main(["reproduce", "hype-fig2"]) == 0
    assert _narrow(capsys.readouterr().out)


def test_a_table_that_is_too_wide_goes_on_below(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["law", "data", *(f"column{n:02}" for n in range(14))]
    rows = [[law, "fashion-mnist", *(f"{place}.{n:03}" for n in range(14))] for place, law in enumerate(("one", "two"))]
    print_rows("wide", columns, rows)
    shown = capsys.readouterr().out
    assert _narrow(shown)
    for word in (*columns[2:], *rows[0][2:], *rows[1][2:]):
        assert shown.count(word) == 1, word
    assert shown.count("law") == shown.count("one") == shown.count("two") > 1  # every part says which row is which


def test_brackets_in_names_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("on icu [north]", ["name", "n"], [["ward [bold] :smile:", "1"]])
    shown = capsys.readouterr().out
    assert "on icu [north]" in shown
    assert "ward [bold] :smile:" in shown


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["tun"], "No such command 'tun'. Did you mean 'tune'? See 'dptune --help'."),
        (["nothing-near"], "No such command 'nothing-near'. See 'dptune --help'."),
        (["ledger", "shw"], "See 'dptune ledger --help'."),
        (["tune", "--epsiln", "1"], "See 'dptune tune --help'."),
    ],
)
def test_a_slip_of_the_keys_is_told_where_help_is(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(said)
    assert line.count("Did you mean") <= 1


@pytest.mark.parametrize("width", [80, 81, 85, 100])
def test_tables_keep_their_right_border(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["method", "noise", "epsilon", "trainings", "gradients", "top 5 %", "note"]
    row = [
        "naive composition",
        "11.8246",
        "1.0000",
        "100",
        "6e+07",
        "1.000",
        "Even noise 100000 costs more than that. " * 3,
    ]
    print_rows("", names, [row, ["one", "1", "1", "1", "1", "1", ""]])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert {len(line) for line in lines} == {width}
    assert {line[-1] for line in lines} <= set("\u2513\u2503\u2529\u2502\u2518")
