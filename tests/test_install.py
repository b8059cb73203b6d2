"""The core installs and works in a clean environment that has neither torch, nor ray, nor flwr.

The real installation takes a network and half a minute (``make test-all``). The default suite holds what the code
imports against what ``pyproject.toml`` declares, and runs the core where nothing else can be imported.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

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


@pytest.mark.slow
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


def _declared() -> tuple[set[str], set[str]]:
    """The packages that the core needs, and all of them, in normal form."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for name, those in project["optional-dependencies"].items() if name != "dev" for one in those]
    return _names(project["dependencies"]), _names(project["dependencies"] + extras)


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower().replace("_", "-") for one in requirements}


def _imported() -> set[str]:
    """The modules of others that the sources import anywhere."""
    found = set()
    for path in (_ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            found |= {name.split(".")[0] for name in names}
    return found - set(sys.stdlib_module_names) - {"dptune"}


def test_what_is_imported_is_declared() -> None:
    _, declared = _declared()
    owners = packages_distributions()
    for module in _imported():
        names = {name.lower().replace("_", "-") for name in owners.get(module, [module])}
        assert names & (declared | {"cloudpickle", "joblib"}), (
            f"{module} is imported and not declared"
        )  # scikit-learn's


_ALONE = """
import sys
from importlib.metadata import packages_distributions
class Others:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
blocked = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Others())
from dptune.cli import main
main()
"""


def test_the_core_works_without_any_extra() -> None:
    core, declared = _declared()
    owners = packages_distributions()
    blocked = {module for module, names in owners.items() if {name.lower() for name in names} & (declared - core)}
    assert {"torch", "ray", "flwr"} <= blocked
    options = ["--epsilon", "3", "--delta", "1e-5", "--rate", ".1", "--steps", "10", "--runs", "geometric:3", "--json"]
    command = [sys.executable, "-c", _ALONE, ",".join(sorted(blocked)), "plan", *options]
    planned = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 2.9 < planned["epsilon"] <= 3.0


def test_importing_the_core_loads_no_extra() -> None:
    """Nor what is slow to import: every worker of every run would wait for it."""
    names = ("torch", "ray", "flwr", "dp_accounting", "scipy.signal", "scipy.stats", "sklearn")
    code = f"import sys, dptune.cli, dptune.executors._worker; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
