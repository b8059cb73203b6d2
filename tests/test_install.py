"""The core installs and works in a clean environment that has neither torch, nor ray, nor flwr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CHECK = """
import importlib.util, json, sys
import dptune
absent = [name for name in ("torch", "ray", "flwr", "opacus", "matplotlib") if importlib.util.find_spec(name) is None]
cost = dptune.select(dptune.Gdp(1.0), dptune.Geometric(10))
print(json.dumps({"absent": absent, "epsilon": cost.epsilon(1e-5)}))
"""


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=_clean_environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_core_works_in_a_clean_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    python = str(binaries / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(_ROOT), folder=tmp_path)
    found = json.loads(_run(python, "-c", _CHECK, folder=tmp_path))
    assert {"torch", "ray", "flwr"} <= set(found["absent"])
    assert 4.37 < found["epsilon"] < 8.0
    options = ["--epsilon", "3", "--delta", "1e-5", "--rate", ".1", "--steps", "10", "--runs", "geometric:3"]
    planned = json.loads(_run(str(binaries / "dptune"), "plan", *options, "--json", folder=tmp_path))
    assert 2.9 < planned["epsilon"] <= 3.0


def test_importing_the_core_loads_no_extra() -> None:
    """Nor what is slow to import: every worker of every run would wait for it."""
    names = ("torch", "ray", "flwr", "dp_accounting", "scipy.signal", "scipy.stats", "sklearn")
    code = f"import sys, dptune.cli, dptune.executors._worker; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
