"""The README as a newcomer reads it: every command and every block of Python runs as it is printed."""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    \$ dptune (.*?)(?:  +#.*)?$", README, re.MULTILINE)
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _table(folder: Path) -> None:
    """The reader's own file: made up, with what the README says of it."""
    rng = random.Random(0)
    rows = []
    for _ in range(2000):
        age = rng.uniform(18, 95)
        ill = "yes" if age + rng.gauss(0, 10) > 60 else "no"
        rows.append(f"{age:.0f},{rng.choice(['north', 'south'])},{ill}")
    (folder / "icu.csv").write_text("\n".join(["age,ward,ill", *rows]) + "\n", encoding="utf-8")
    (folder / "new.csv").write_text("age,ward\n70,north\n20,south\n", encoding="utf-8")


def _run(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_runs_in_its_order(tmp_path: Path) -> None:
    _table(tmp_path)
    (schema,) = [text for language, text in BLOCKS if language == "toml"]
    for command in COMMANDS:
        said = _run(["-m", "dptune", *shlex.split(command)], tmp_path)
        if command.startswith("schema draft"):
            assert "FILL IN" in (tmp_path / "icu.toml").read_text(encoding="utf-8")
            (tmp_path / "icu.toml").write_text(schema, encoding="utf-8")
        if command.startswith("price"):
            shown = README.split(f"$ dptune {command}")[1].split("\n\n")[0]
            assert [line.strip() for line in shown.splitlines() if line.strip()] == [
                line.strip() for line in said.splitlines() if line.strip()
            ]
    assert len((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()) == 3
    assert COMMANDS[0].startswith("schema draft icu.csv")  # a reader's first command is about a file of theirs


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "python"])
def test_every_block_of_python_runs(text: str, tmp_path: Path) -> None:
    _run(["-c", text], tmp_path)
