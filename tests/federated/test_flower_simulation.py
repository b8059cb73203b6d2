"""The same vote through Flower's own simulation, on Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="the extra 'flower' is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("extra", [[], ["--roster", "--drop", "2@3", "--drop", "1@4"]])
def test_a_vote_through_flowers_simulation(extra: list[str]) -> None:
    # In a process of its own: Ray leaves threads and sockets behind that a test session should not inherit.
    command = [
        sys.executable,
        "-c",
        "from dptune.cli import main; main()",
        "vote",
        "--flower",
        "--clients",
        "20",
        "--candidates",
        "10",
        "--votes",
        "1",
    ]
    command += ["--good", "1", "--sd", "0.05", "--epsilon", "8", "--json", *extra]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"FLWR_TELEMETRY_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert answer["chosen"] == 0
    assert answer["good"] is True
    assert answer["epsilon"] <= 8
    assert answer["statement"]["contributed"] == (18 if extra else 20)
    assert 0 < answer["bytes_up"] < 16_000
    assert 0 < answer["bytes_down"] < 16_000
