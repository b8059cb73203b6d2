"""The examples of estimators with a declared cost and of torch models run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(("program", "budget", "least"), [("any_estimator.py", 2.0, 0.5), ("torch_model.py", 3.0, 0.3)])
def test_an_example_runs(program: str, budget: float, least: float, tmp_path: Path) -> None:
    pytest.importorskip("sklearn" if "estimator" in program else "torch")
    assert len((EXAMPLES / program).read_text(encoding="utf-8").splitlines()) < 40
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / program), str(tmp_path / "run")], capture_output=True, text=True, check=False,
        env={**os.environ, "DPTUNE_LEDGER": str(tmp_path / "own.ledger")}, cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    said = re.search(r"epsilon ([\d.]+) for everything; accuracy ([\d.]+) with", told.stdout)
    assert said is not None, told.stdout
    assert 0.0 < float(said[1]) <= budget
    assert float(said[2]) > least
