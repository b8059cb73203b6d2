"""A real deployment on loopback: SuperLink with TLS, authenticated SuperNodes, one of them killed during the sum."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

SCRIPT = Path(__file__).parents[2] / "examples" / "flower-vote" / "deploy.py"


@pytest.mark.slow
def test_five_supernodes_of_which_one_is_killed(tmp_path: Path) -> None:
    # All five clients prefer the same candidate; at epsilon 30 the noise of the sum (deviation below .5) cannot hide
    # four votes: a false alarm is rarer than one in a million runs.
    command = [sys.executable, str(SCRIPT), "--nodes", "5", "--kill", "1", "--epsilon", "30", "--timeout", "60"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "run")], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["killed"] == [0]
    assert outcome["params"] == {"lr": 3.0, "momentum": 0.9}
    assert outcome["statement"]["clients"] == 5
    assert outcome["statement"]["contributed"] in (4, 5)  # killed just before, or just after, its ballot left
    assert outcome["statement"]["epsilon"] <= 30
    assert "https://127.0.0.1" in (tmp_path / "run" / "superlink.log").read_text()
