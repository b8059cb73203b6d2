"""Nothing heavy is loaded before it is needed: by what is in ``sys.modules``, never by time."""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dptune
from dptune import _lazy
from dptune._version import __version__
from dptune.cli import main
from dptune.cli._commands import COMMANDS

_ROOT = Path(__file__).parents[1]
_HEAVY = ("numpy", "scipy", "dp_accounting", "opendp", "sklearn", "cattrs", "torch", "ray", "flwr", "pandas")
_LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
_PRICE = "['price', '--base', 'gdp:1', '--runs', 'geometric:10', '--delta', '1e-5', '--json']"


def _loaded(code: str) -> set[str]:
    """The packages in memory after this code, in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{_LOADED}"], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_dptune_loads_nothing_heavy() -> None:
    assert _loaded("import dptune; dir(dptune); dptune.__version__").isdisjoint((*_HEAVY, "typer", "rich"))


@pytest.mark.parametrize("arguments", ["['--version']", "['--help']", "[]", "['tune', '--help']"])
def test_the_command_line_answers_without_anything_heavy(arguments: str) -> None:
    assert _loaded(f"from dptune.cli import main; assert main({arguments}) == 0").isdisjoint(_HEAVY)


def test_a_price_waits_for_the_accounting_alone() -> None:
    loaded = _loaded(f"from dptune.cli import main; main({_PRICE})")
    assert loaded.isdisjoint({"dp_accounting", "opendp", "sklearn", "cattrs", "torch", "rich"})


def test_a_price_loads_neither_methods_nor_training() -> None:
    code = f"from dptune.cli import main; main({_PRICE}); import sys"
    rooms = "print(*(name for name in sys.modules if name.startswith('dptune.')))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{rooms}"], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.splitlines()[-1].split()}
    assert loaded.isdisjoint({"methods", "training", "sealed", "executors", "planner", "audit"})


# The names of the package.


def _typed_names() -> dict[str, str]:
    """What a type checker sees: the imports of the TYPE_CHECKING block."""
    tree = ast.parse(Path(inspect.getsourcefile(dptune) or "").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in found for alias in node.names}


def test_the_names_that_load_are_the_names_that_are_typed() -> None:
    lazy = {name: home for home, names in dptune._NAMES.items() for name in names}
    assert lazy == _typed_names()
    assert sorted(dptune.__all__) == sorted([*lazy, "__version__"])


def test_every_public_name_is_there() -> None:
    assert set(dptune.__all__) <= set(dir(dptune))
    for name in dptune.__all__:
        assert getattr(dptune, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dptune.nothing  # type: ignore[attr-defined] # noqa: B018 - that is the test
    with pytest.raises(ImportError, match="nothing"):
        from dptune import nothing  # type: ignore[attr-defined] # noqa: F401, PLC0415 - that is the test


def test_rooms_load_on_use() -> None:
    code = "import dptune; assert dptune.sealed.resume is dptune.resume; assert dptune.spaces.Float is dptune.Float"
    assert "numpy" in _loaded(code)


def test_a_public_name_wins_over_a_module_of_the_same_name(tmp_path: Path) -> None:
    package = tmp_path / "clash"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from dptune._lazy import load_on_use\nload_on_use(__name__, {'clash.report': ('report',)})\n"
    )
    (package / "report.py").write_text("def report() -> int:\n    return 7\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport clash.report\nassert clash.report() == 7\n"
        "from clash import report\nassert report() == 7"
    )
    assert "clash" in _loaded(code)


def test_a_module_that_needs_what_is_missing_says_so(tmp_path: Path) -> None:
    package = tmp_path / "broken"
    package.mkdir()
    (package / "__init__.py").write_text("from dptune._lazy import load_on_use\nload_on_use(__name__, {})\n")
    (package / "part.py").write_text("import no_such_package\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport broken\n"
        "try:\n    broken.part\nexcept ModuleNotFoundError as error:\n    assert error.name == 'no_such_package'\n"
        "else:\n    raise AssertionError"
    )
    assert "broken" in _loaded(code)


def test_a_function_that_holds_the_package_can_be_sent_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(dptune)) is dptune


def test_one_version() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__ == dptune.__version__
    assert _lazy.__all__ == ["load_on_use", "on_call"]


# The commands.


def test_every_file_of_the_command_line_is_a_command() -> None:
    files = {path.stem for path in (_ROOT / "src/dptune/cli").glob("[!_]*.py")}
    assert files == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_with_its_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"dptune {name}" in said or f"{name} [OPTIONS]" in said
    assert " ".join(COMMANDS[name].split()) in said


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f" {name} " in said for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dptune {__version__}\n"


def test_a_command_that_cannot_be_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "dptune.cli.compare", raising=False)
    monkeypatch.setitem(sys.modules, "dptune.planner", None)  # as if it could not be imported
    assert main(["compare", "--epsilon", "1", "--delta", "1e-5"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "'dptune compare' cannot be loaded" in said
    assert main(["no-such-command"]) == 2
    assert "No such command" in capsys.readouterr().err


# What is left out of a price.

_DPSGD = "['price', '--base', 'dpsgd:0.01,1.1,200', '--runs', 'geometric:5', '--delta', '1e-5', '--json']"


def _said(code: str) -> list[str]:
    """What this code prints, in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_price_of_dpsgd_loads_neither_signals_nor_statistics() -> None:
    code = f"import sys; from dptune.cli import main; main({_DPSGD}); print(*sys.modules)"
    loaded = _said(code)[-1].split()
    assert {"scipy.signal", "scipy.stats", "cattrs"}.isdisjoint(loaded)
    assert not [name for name in loaded if name.startswith("dp_accounting")]  # for others the whole of it, or none


_CURVE = (
    "from dptune.accounting import DpSgd, Laplace; from dptune.accounting.renyi import base_curve;"
    "orders = (1.5, 2.0, 3.0, 17.0, 64.0);"
    "print([value.hex() for cost in (DpSgd(0.01, 1.1, 200), Laplace(2.0)) for value in base_curve(cost, orders)])"
)


@pytest.mark.parametrize(
    "before",
    [
        "import dp_accounting",
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ],
)
def test_the_renyi_accountant_is_the_same_alone_and_in_its_package(before: str) -> None:
    whole = "\nimport sys; assert 'dp_accounting.pld' in sys.modules"
    after = (
        "\nimport sys; assert 'dp_accounting' not in sys.modules; import dp_accounting; dp_accounting.pld.PLDAccountant"
    )
    assert _said(f"{before}\n{_CURVE}{whole}") == _said(_CURVE + after)


def test_a_price_uses_one_numerical_thread_and_leaves_the_environment_alone() -> None:
    count = (
        "import os; before = dict(os.environ);"
        f"from dptune.cli import main; main({_PRICE}); assert dict(os.environ) == before;"
        "from threadpoolctl import threadpool_info; print(*{one['num_threads'] for one in threadpool_info()})"
    )
    kept = {
        name: value for name, value in os.environ.items() if not name.endswith(("_NUM_THREADS", "_MAXIMUM_THREADS"))
    }
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True, env=kept)
    assert done.stdout.splitlines()[-1] == "1"
