"""The drawing of ``docs/architecture.md`` holds: import-linter keeps both contracts, and sees a planted violation."""

from __future__ import annotations

import ast
import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.import_contract import owner

ROOT = Path(__file__).parents[1]


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over ``folder/src`` with the project's own contracts."""
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    return subprocess.run(
        command + options, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources alone, where something may be planted."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "src" / "dptune", folder / "src" / "dptune", ignore=shutil.ignore_patterns("*.so", "__py*"))
    return folder


def test_the_house_is_as_drawn(copy: Path) -> None:
    done = _lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("room", "line", "said"),
    [
        ("accounting", "from dptune.sealed import run", "dptune.accounting is not allowed to import dptune.sealed"),
        ("training", "def f():\n    import dptune.ledgers", "dptune.training is not allowed to import dptune.ledgers"),
        ("cli", "from dptune.accounting import _pld", "which is private to"),
        ("audit", "from dptune.methods._machinery.shards import Parts", "which is private to"),
    ],
)
def test_a_planted_violation_is_found(copy: Path, room: str, line: str, said: str) -> None:
    planted = copy / "src" / "dptune" / room / "planted.py"
    planted.write_text(line + "\n", encoding="utf-8")
    try:
        done = _lint(copy)
    finally:
        planted.unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert said in " ".join(done.stdout.split()), done.stdout
    assert f"dptune.{room}.planted" in done.stdout


def test_the_page_and_the_contract_draw_the_same_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = page.split("## Who may import whom")[1].split("Why so")[0]
    lines = [line.strip() for line in drawn.splitlines() if line.startswith("    ")]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [set(line.split(" : ")) for line in lines] == [set(layer.split(" : ")) for layer in layers]


def test_the_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|h|md|toml))`", page)) - {"job.toml"}
    places = [ROOT, ROOT / "src", ROOT / "src" / "dptune", ROOT / "src" / "dptune" / "sealed"]
    assert len(named) > 40
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_a_room_that_is_not_drawn_is_found(copy: Path) -> None:
    planted = copy / "src" / "dptune" / "attic.py"
    planted.write_text("", encoding="utf-8")
    try:
        done = _lint(copy)
    finally:
        planted.unlink()
    assert done.returncode == 1
    assert "attic" in done.stdout


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("dptune._files", "dptune"),
        ("dptune.accounting._pld", "dptune.accounting"),
        ("dptune.methods._machinery.costs", "dptune.methods"),
        ("dptune.cli.__main__", None),
        ("dptune.cli.price", None),
    ],
)
def test_who_owns_a_module(module: str, package: str | None) -> None:
    assert owner(module) == package


# Small pieces.

_REASON = re.compile(r"stays? (?:together|in one file)|(?:file|class) is (?:long(?:er)?|one file)")


def _sources() -> dict[str, str]:
    files = sorted((ROOT / "src" / "dptune").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def _function_lengths() -> dict[str, int]:
    """Lines of every function, what its docstring takes apart: it explains, and is as long as that needs."""
    found = {}
    for file, text in _sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                said = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) is not None else 0
                found[f"{file}:{node.lineno} {node.name}"] = (node.end_lineno or 0) - node.lineno + 1 - said
    return found


def test_functions_are_short() -> None:
    lengths = _function_lengths()
    assert {name: lines for name, lines in lengths.items() if lines >= 60} == {}
    assert statistics.median(lengths.values()) <= 6


def test_a_long_file_says_why() -> None:
    long = {file: ast.get_docstring(ast.parse(text)) for file, text in _sources().items() if text.count("\n") > 300}
    assert [file for file, head in long.items() if not _REASON.search(" ".join((head or "").split()))] == []


# What the house has instead: protocols, fields, one codec, one registry.


@pytest.mark.parametrize(
    "gone",
    [
        r"trainer: Any\b",
        r"getattr\(trainer\b",
        r"\bsettings\[",
        r"\bextra: (?:dict|Mapping)",
        r"def with_runs\b",
        r"def utility_bound\b",
        r"def (?:_from_fields|part_from_json|curve_from_json|filter_from_json)\b",
    ],
)
def test_what_was_replaced_is_gone(gone: str) -> None:
    assert [file for file, text in _sources().items() if re.search(gone, text)] == []


def test_names_of_files_in_the_sources_are_those_of_files() -> None:
    """A docstring that sends its reader to a page or a file that does not exist has sent them nowhere."""
    named = re.compile(r"(?<![\w/.-])((?:docs|src|tests|benchmarks|examples)/[\w./-]+\.(?:md|py|c|h|toml))\b")
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.py")]
    texts = _sources() | {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in pages}
    found = {(file, name) for file, text in texts.items() for name in named.findall(text)}
    assert len(found) > 100
    assert sorted((file, name) for file, name in found if not (ROOT / name).exists()) == []


# The field's words.

_PRIVATE = {"Told", "Bases", "Shared", "Meaning", "Half", "operand", "operands", "hand", "hands", "print_"}


def _named(node: ast.AST) -> str | None:
    """The name that a piece of code gives to something, or uses."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    return node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else None


def test_names_are_the_fields_own() -> None:
    found = [
        f"{file}:{getattr(node, 'lineno', 0)} {name}"
        for file, text in _sources().items()
        for node in ast.walk(ast.parse(text))
        if (name := _named(node)) is not None and name.lstrip("_") in _PRIVATE
    ]
    assert found == []


def test_a_docstring_stands_alone() -> None:
    """ "The same for labels." sends its reader to whatever stood above."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    heads = {
        f"{file}:{node.lineno}": (ast.get_docstring(node) or "").splitlines()[:1]
        for file, text in _sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds)
    }
    assert len(heads) > 3000
    assert [
        where for where, head in heads.items() if head and re.match(r"The same(,| (for|but|where|as)\b)", head[0])
    ] == []


# One dialect of errors.

_ERRORS = {
    "InvalidInput",
    "BudgetExceeded",
    "Corrupt",
    "Stopped",
    "NotComparable",
    "ProtocolError",
    "Refused",
    "Aborted",
}
_AFTER_A_FILE_NAME = ("tables/schema_files.py",)  # "FILE: the schema has no version; ..."


def _text(node: ast.expr) -> str | None:
    """What is written of a message; a formatted value is a question mark."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "?" for one in node.values)
    return None


def test_errors_are_sentences_of_one_line() -> None:
    found = 0
    for file, text in _sources().items():
        if "audit/targets" in file:
            continue  # code under attack
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS):
                continue
            said = _text(node.args[0]) if node.args else None
            if not said:
                continue
            found += 1
            where = f"{file}:{node.lineno} {said}"
            assert not said[0].islower() or file.endswith(_AFTER_A_FILE_NAME), where
            assert said.rstrip().endswith((".", "?")), where
            assert "\n" not in said, where
            assert not re.search(r"(?<!here )\b(?:is|are) no (?!longer\b)", said), where  # "is not a list"
    assert found > 400
