"""Pages in a real Chromium: no request, no word on the console, every figure drawn, at every width, dark and on paper.

A short pass wherever a browser is installed; the whole of it, with an accessibility check, is slow. The check is axe's,
which npm brings; without npm it is skipped.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Browser, browser
from tests.report.samples import SaidLedger, plans, public, vote_statement
from tests.sealed.toy import ToyTrainer, toy_plan

import dptune as dpt
from dptune.cli import main
from dptune.executors import Processes
from dptune.report.ledger_page import ledger_html
from dptune.report.release_page import release_html
from dptune.sealed.content import Statement
from dptune.sealed.rendering import statement_html

WIDTHS = (360, 480, 768, 1024, 1600)
_DRAWN = """[...document.querySelectorAll("svg")].map(one => one.getBoundingClientRect()).every(
    box => box.width > 200 && box.height > 40)"""
_LINKS = """[...document.querySelectorAll("a[href^='#']")].filter(
    one => !document.getElementById(decodeURIComponent(one.hash.slice(1)))).map(one => one.hash)"""
_CLIPPED = """[...document.querySelectorAll("svg text")].filter(one => {
    const box = one.getBoundingClientRect(), around = one.closest("svg").getBoundingClientRect();
    return box.right > around.right + 1 || box.left < around.left - 1 || box.bottom > around.bottom + 1
        || box.top < around.top - 1; }).map(one => one.textContent)"""
_COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"


@pytest.fixture(scope="module")
def shown() -> Iterator[Browser]:
    with browser() as found:
        yield found


def _written(folder: Path, texts: dict[str, str]) -> dict[str, Path]:
    found = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind, as files."""
    release = public(plans()["subset"])
    texts = {"release by subset": release_html(release), "statement": statement_html(release.statement)}
    texts["ledger"] = ledger_html(SaidLedger(60))  # type: ignore[arg-type] # what a page asks of a ledger
    return _written(tmp_path_factory.mktemp("pages"), texts)


@pytest.fixture(scope="module")
def every(pages: dict[str, Path], rehearsal: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All pages: every method, long names, a rehearsal in both forms."""
    texts = {f"release by {name}": release_html(public(plan)) for name, plan in plans().items() if name != "subset"}
    texts["raised"] = release_html(public(plans()["guess"], rule="odometer", unit="x" * 80, dataset="d" * 120))
    texts["vote"] = statement_html(vote_statement("open"))
    texts["rehearsal's release"] = release_html(public(plans()["subset"], rule=None))
    return [*pages.values(), *_written(tmp_path_factory.mktemp("every"), texts).values(), rehearsal]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rehearsal") / "run"
    options: dict[str, Any] = {"seed": 1, "data_is": "synthetic", "executor": Processes(1)}
    dpt.run(toy_plan(count=8), ToyTrainer(fail_below=1.4), list(range(40)), out=out, **options)
    return dpt.report(out, rehearsal=True)


def _looks_right(shown: Browser, page: Path, width: int, dark: bool) -> None:
    shown.open(page, width, dark)
    assert shown.requests == [page.absolute().as_uri()]
    assert shown.console == []
    assert shown.value("document.documentElement.scrollWidth") <= width
    assert shown.value(_DRAWN)
    assert shown.value(_LINKS) == []
    assert shown.value(_CLIPPED) == []
    assert shown.value("document.querySelectorAll('script').length") == 0


@pytest.mark.parametrize("name", ["release by subset", "statement", "ledger"])
def test_a_page_in_a_browser(shown: Browser, pages: dict[str, Path], name: str) -> None:
    page, seen = pages[name], {}
    for width, dark in ((360, False), (1600, True)):
        _looks_right(shown, page, width, dark)
        seen[dark] = shown.value(_COLOURS)
    assert seen[False][0] != seen[True][0]
    assert shown.value("document.querySelectorAll('svg').length") == {"release by subset": 4, "ledger": 1}.get(name, 0)
    shown.media("print", dark=True)
    assert shown.value(_COLOURS) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]  # dark is for screens
    printed = shown.pdf()
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 1


def _statement(rule: str) -> Statement:
    return public(plans()["subset"], rule=rule).statement if rule in ("renyi", "odometer") else vote_statement(rule)


@pytest.mark.parametrize("rule", ["renyi", "odometer", "roster", "open"])
def test_page_one_is_one_sheet(shown: Browser, tmp_path: Path, rule: str) -> None:
    """A4 with margins of 12 mm, at 96 dots an inch."""
    page = tmp_path / "statement.html"
    page.write_text(statement_html(_statement(rule)), encoding="utf-8")
    shown.open(page, int((210 - 24) / 25.4 * 96))
    shown.media("print")
    assert shown.value("document.getElementById('annex').getBoundingClientRect().top") < (297 - 24) / 25.4 * 96


def test_the_keyboard_reaches_every_link(shown: Browser, pages: dict[str, Path]) -> None:
    shown.open(pages["release by subset"], 1024)
    count = shown.value("document.querySelectorAll('a[href]').length")
    reached = set()
    for _ in range(count + 20):
        for kind in ("rawKeyDown", "keyUp"):
            shown.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.add(shown.value("document.activeElement.getAttribute('href')"))
    wanted = shown.value("[...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href'))")
    assert set(wanted) <= reached


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_at_every_width(shown: Browser, every: list[Path], width: int, dark: bool) -> None:
    for page in every:
        _looks_right(shown, page, width, dark)


def _benchmark() -> Any:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "pages.py"
    spec = importlib.util.spec_from_file_location("pages_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_ten_thousand_charges_open(shown: Browser, tmp_path: Path) -> None:
    """A real ledger, verified as a whole. How long it takes is printed by benchmarks/pages.py."""
    path, page = tmp_path / "hospital.ledger", tmp_path / "page.html"
    _benchmark().built(path, 10_000, 10)
    assert main(["report", str(path), "--out", str(page)]) == 0
    assert page.stat().st_size < 3_000_000
    _looks_right(shown, page, 1024, False)
    shown.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert shown.value("document.documentElement.scrollHeight") > 200_000  # every row is laid out
    assert shown.value("document.querySelectorAll('tbody tr').length") == 10_000


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program that checks accessibility, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm to bring axe-core")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, capture_output=True, text=True, check=False)
    packed = next(folder.glob("axe-core-*.tgz"), None)
    if done.returncode != 0 or packed is None:
        pytest.skip("npm could not bring axe-core")
    with tarfile.open(packed) as archive:
        program = archive.extractfile("package/axe.min.js")
        assert program is not None
        return program.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_stands_in_anybody_s_way(shown: Browser, every: list[Path], axe: str, dark: bool) -> None:
    for page in every:
        for width in (360, 1024):
            shown.open(page, width, dark)
            shown.value(f"{axe};0")
            found = shown.value("axe.run().then(result => result.violations.map(one => [one.id, one.impact]))")
            assert found == [], page.name
