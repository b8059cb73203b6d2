"""``dptune vote``: what it prints, and one clear line for bad input."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dptune.cli import main

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["vote", *arguments])
    out, error = capsys.readouterr()
    return code, out, error


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, "--clients", "40", "--candidates", "20", "--epsilon", "3", "--drop", "4@2", "--drop", "4@4", "--json"
    )
    assert code == 0
    answer = json.loads(out)
    assert {"chosen", "good", "epsilon", "cpu_seconds", "bytes_up", "bytes_down"} <= answer.keys()
    assert answer["good"] == (answer["chosen"] < 5)
    assert 0 < answer["epsilon"] <= 3
    assert answer["statement"]["contributed"] == 36


def test_text_names_the_mode(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--clients", "12", "--candidates", "8", "--votes", "2", "--roster")
    assert code == 0
    assert "pinned roster" in out
    assert "bytes up" in out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--votes", "21"], "more candidates than"),
        (["--votes", "20"], "pure noise"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "nan"], "epsilon"),
        (["--clients", "2"], "clients"),
        (["--clients", "0"], "clients"),
        (["--candidates", "1", "--good", "1"], "candidates"),
        (["--candidates", "0"], "good"),
        (["--good", "21"], "good"),
        (["--sd", "-1"], "deviation"),
        (["--drop", "3"], "N@STAGE"),
        (["--drop", "9@1"], "the plan needs 16"),
        (["--drop", "99@1"], "there are 20"),
        (["--colluding", "0"], "colluding"),
        (["--dropout", "1"], "dropout"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run(capsys, "--clients", "20", "--candidates", "20", *arguments)
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert match in error


def test_without_the_extra_the_core_imports_and_the_command_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "for name in ('cryptography', 'flwr', 'ray'): sys.modules[name] = None\n"
        "import dptune, dptune.federated\n"
        "from dptune.cli import main\n"
        "sys.exit(main(['vote']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'dptune[flower]'" in done.stderr
    assert done.stderr.count("\n") == 1
