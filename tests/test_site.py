"""The pages of the site: every block of Python runs as it is printed, every page is in the menu, and it builds.

Commands are checked here without running them; ``test_page_commands.py`` runs them.
"""

from __future__ import annotations

import argparse
import ast
import html
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from dptune.cli._commands import _loaded
from dptune.cli._job import read_job
from dptune.tables.schema_files import schema_from_toml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
TESTED_ELSEWHERE = {"contributing.md"}  # tests/methods/test_own_method.py runs the method of that page
LONG = {
    "audit.md",
    "engine.md",
    "features.md",
    "federated.md",
    "how_to/optuna.md",
    "opacus.md",
    "scikit_learn.md",
    "tables.md",
    "torch.md",
    "training.md",
}
NEED_DATA = {"training.md"}

_TABLE = """
import random
import numpy as np, pandas
import dptune as dpt
from pathlib import Path

rng = random.Random(0)
rows = [(rng.randint(18, 95), rng.choice(["north", "south"])) for _ in range(600)]
x, y = pandas.DataFrame(rows, columns=["age", "ward"]), ["yes" if age > 60 else "no" for age, _ in rows]
x.assign(ill=y).to_csv("icu.csv", index=False)
x_new = rows = x[:3]
x_new.to_csv("new.csv", index=False)
schema = '''version = 1
records = 600
[columns.age]
kind = "number"
range = [0, 120]
[columns.ward]
kind = "category"
values = ["north", "south"]
[columns.ill]
kind = "target"
classes = ["no", "yes"]
'''
for name in ("icu.toml", "schema.toml"):
    Path(name).write_text(schema)
rent = x["age"] * 10.0
rent_new = rent[:3]
x.assign(rent=rent).to_csv("flats.csv", index=False)
number = '[columns.rent]\\nkind = "target"\\nrange = [0, 1000]'
Path("flats.toml").write_text(schema.partition("[columns.ill]")[0] + number)
"""
# What the reader of a page has already: files, records, a trainer. Everything else is on the page.
SURROUNDINGS = {
    "audit.md": """
import numpy as np
import dptune as dpt
from dptune.training import DpSgdTrainer, Settings, load, softmax

data = load("digits").train
settings = Settings(sampling_rate=0.05, noise_multiplier=1, steps=3, clip_norm=1, learning_rate=1, batch_size=70)
trainer = DpSgdTrainer(softmax(64, 10), settings, validation=load("digits").test)
space = dpt.Space(learning_rate=dpt.Float(0.1, 10, log=True))
""",
    "how_to/optuna.md": """
import runpy
import dptune as dpt

given = runpy.run_path("EXAMPLES/optuna_objective.py")
objective, data, cost = given["objective"], given["DATA"].train, dpt.Gaussian(given["NOISE"])
""".replace("EXAMPLES", str(ROOT / "examples")),
    "opacus.md": """
import torch
from dptune.training import load

digits = load("digits")
X, y = torch.tensor(digits.train.x), torch.tensor(digits.train.y)

def accuracy(model):
    return float((model(torch.tensor(digits.test.x)).argmax(1).numpy() == digits.test.y).mean())
""",
    "scikit_learn.md": _TABLE
    + """
from dptune.data import Dataset
from sklearn.naive_bayes import GaussianNB

public_records = Dataset(np.zeros((4, 2), np.float32), np.arange(4) % 2, 2, name="public")
""",
    "torch.md": """
import numpy as np
import torch

rng = np.random.default_rng(0)
X, y = rng.random((300, 1, 28, 28), np.float32), np.arange(300) % 10
new_images = X[:2]


class Scans(torch.utils.data.Dataset):  # read record by record, as from files
    def __len__(self):
        return len(X)

    def __getitem__(self, place):
        return torch.from_numpy(X[place]), int(y[place])


scans = Scans()
""",
    "tables.md": _TABLE
    + """
X, patients = np.random.default_rng(0).random((600, 3)), np.arange(600) // 3
y = np.arange(600) % 2
dpt.tune("icu.csv", schema="icu.toml", dataset="icu-2025", epsilon=1, delta=1e-5, out="runs/icu", explain=None)
""",
}


def _blocks(page: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def _shown() -> list[object]:
    pages = [page for page in PAGES if _blocks(page) and page not in TESTED_ELSEWHERE]
    return [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in pages]


@pytest.mark.parametrize("page", _shown())
def test_the_blocks_of_a_page_run_in_their_order(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page in NEED_DATA:
        request.getfixturevalue("data_root")
    program = SURROUNDINGS.get(page, "") + _blocks(page)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_COMMAND = re.compile(r"^ {4,}(?:\$ )?dptune (.+?)(?: {2,}.*)?$", re.MULTILINE)
COMMANDS = sorted(
    {(page, one) for page in PAGES for one in _COMMAND.findall((DOCS / page).read_text(encoding="utf-8"))}
)


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=str)
def test_every_command_of_a_page_is_one(page: str, command: str) -> None:
    """Its name, arguments and options are known; ``test_page_commands.py`` runs it."""
    del page
    name, *arguments = shlex.split(command)
    found: Any = _loaded(name)
    try:
        if isinstance(found, click.Group):
            found, arguments = found.commands[arguments[0]], arguments[1:]
        found.make_context(name, arguments)
    except click.exceptions.Exit as asked:  # for help
        assert asked.exit_code == 0  # noqa: PT017 - it is no failure


@pytest.mark.slow
def test_the_first_page_from_a_csv_to_a_release(tmp_path: Path) -> None:
    """The commands in their order, as a newcomer types them; the last one is refused, as the page says."""
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    subprocess.run([sys.executable, "-c", _TABLE], cwd=tmp_path, check=True)
    (tmp_path / "icu.toml").unlink()
    options: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "DPTUNE_LEDGER": str(tmp_path / "budget.ledger")}}
    codes = []
    for command in sorted((one for page, one in COMMANDS if page == "index.md"), key=text.index):
        done = subprocess.run(
            [sys.executable, "-m", "dptune", *shlex.split(command)], capture_output=True, check=False, **options
        )
        codes.append(done.returncode)
        if command.startswith("schema draft"):
            (schema,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            (tmp_path / "icu.toml").write_text(schema, encoding="utf-8")
    assert codes == [0, 0, 0, 0, 2]
    for name in ("statement.html", "statement.md", "release.json", "plan.json", "model.npz"):
        assert (tmp_path / "runs" / "icu" / "release" / name).is_file()
    assert (tmp_path / "predictions.csv").is_file()
    assert (tmp_path / "runs" / "icu" / "report.html").is_file()


_TEXTS = {
    place: (ROOT / place).read_text(encoding="utf-8")
    for place in ("README.md", "CONTRIBUTING.md", *(f"docs/{page}" for page in PAGES))
}
_SHELL = re.compile(r"(?:^ {4,}(?:\$ )?|`)((?:python|make|pip|pytest) [^`\n]*?)(?: {2,}.*)?(?:`|$)", re.MULTILINE)
SHELL = sorted({(place, one) for place, text in _TEXTS.items() for one in _SHELL.findall(text)})


def _parser(script: Path) -> argparse.ArgumentParser | None:
    """The options of a script, read off its source: to import it would load everything that it measures."""
    calls = [one for one in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(one, ast.Call)]
    added = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "add_argument"]
    if not added:
        return None
    parser = argparse.ArgumentParser(exit_on_error=False)
    for call in added:
        told: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg in ("choices", "nargs", "action") and isinstance(
                keyword.value, ast.Constant | ast.List | ast.Tuple
            ):
                told[keyword.arg] = ast.literal_eval(keyword.value)
        parser.add_argument(*(ast.literal_eval(one) for one in call.args), **told)
    return parser


def _check_python(words: list[str]) -> None:
    if words[0] in ("-c", "-m"):
        assert words[1] in ("pass", "pip", "dptune"), words
        return
    script = ROOT / words[0]
    assert script.is_file(), words[0]
    parser = _parser(script)
    if parser is not None:
        parser.parse_args(words[1:])
    elif words[1:]:
        assert "sys.argv" in script.read_text(encoding="utf-8"), words


@pytest.mark.parametrize(("place", "command"), SHELL, ids=str)
def test_other_commands_of_a_page_name_what_is_there(place: str, command: str) -> None:
    """Scripts with the options that they know, targets of make, tests, and extras of the package."""
    del place
    name, *words = shlex.split(command)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if name == "python" and words[:2] != ["-m", "pip"]:
        _check_python(words)
    elif name == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words) <= set(targets)
    elif name == "pytest":
        assert all((ROOT / one.split("::")[0]).exists() for one in words if one.startswith("tests"))
    else:
        for extra in re.findall(r"\[([\w,]+)\]", command):
            assert set(extra.split(",")) <= project["optional-dependencies"].keys()


def test_files_that_pages_name_are_there() -> None:
    named = re.compile(r"`((?:tests|benchmarks|examples|src/dptune)/[\w/.-]+\.(?:py|toml|json|jsonl|md))(?:::\w+)?`")
    found = {(place, one) for place, text in _TEXTS.items() for one in named.findall(text)}
    assert len(found) > 30
    assert [one for one in sorted(found) if not (ROOT / one[1]).is_file()] == []


_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_jobs_and_schemas_on_pages_are_read(tmp_path: Path) -> None:
    """Whole files as they are; a few lines of a schema together with the columns that they are about."""
    (job,) = _TOML.findall((DOCS / "tune.md").read_text(encoding="utf-8"))
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    assert read_job(tmp_path / "job.toml").get("method", "name") == "subset"
    pages = {page: _TOML.findall((DOCS / page).read_text(encoding="utf-8")) for page in PAGES}
    schemas = [one for page, blocks in pages.items() if page != "tune.md" for one in blocks]
    assert len(schemas) >= 4
    for text in schemas:
        whole = text if text.startswith("version") else f"version = 1\nrecords = 600\n{text}"
        whole += "" if '"target"' in text else '[columns.ill]\nkind = "target"\nclasses = ["no", "yes"]\n'
        whole += "" if "columns.age" in text else '[columns.age]\nkind = "number"\nrange = [0, 120]\n'
        assert len(schema_from_toml(whole).columns) >= 2


def test_fences_hold_what_tests_run_or_read() -> None:
    for place, text in _TEXTS.items():
        fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
        assert set(fences[::2]) <= {"python", "toml"}, place


def test_python_stands_in_blocks_that_run() -> None:
    """Indented blocks are for commands and drawings."""
    python = re.compile(
        r"^ {4}(?:from [\w.]+ import |import \w|def \w+\(|class \w+[(:]|@\w|\w+ = \w+\(|\w+\(.*\)$)", re.MULTILINE
    )
    fences = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    for page in PAGES:
        if not page.startswith("theorems/"):
            assert python.findall(fences.sub("", (DOCS / page).read_text(encoding="utf-8"))) == [], page


def test_figures_that_pages_state_are_printed_by_their_blocks(tmp_path: Path) -> None:
    for page, figures in {
        "concepts/run_law.md": ("2.232", "3.100", "4.154", "1.299"),
        "concepts/subset.md": ("0.919", "1.608", "0.858"),
        "concepts/budget.md": ("3.52",),
    }.items():
        done = subprocess.run(
            [sys.executable, "-c", _blocks(page)], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        printed = [float(number) for number in re.findall(r"\d+\.\d+", done.stdout)]
        text = (DOCS / page).read_text(encoding="utf-8")
        for figure in figures:
            assert figure in text
            digits = len(figure.partition(".")[2])
            assert any(f"{number:.{digits}f}" == figure for number in printed), (page, figure, done.stdout)


def test_every_figure_of_performance_has_a_state() -> None:
    """A section with a command says when its figures were printed: at a commit, or again for this page."""
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    sections = [one for one in re.split(r"^#{2,3} ", text, flags=re.MULTILINE) if "\n    python " in one]
    assert len(sections) > 8
    for section in sections:
        assert re.search(r"easured (?:again|at [0-9a-f]{7})", section), section.splitlines()[0]


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = re.findall(r"([\w/.-]+\.md)$", menu, re.MULTILINE)
    assert sorted(named) == PAGES


def test_pictures_are_drawn_anew_as_they_are(tmp_path: Path) -> None:
    """The numbers in the pictures of the concept pages are what the code computes now."""
    made = tmp_path / "docs"
    made.mkdir()
    (made / "drawings.py").write_bytes((DOCS / "drawings.py").read_bytes())
    subprocess.run([sys.executable, "drawings.py"], cwd=made, capture_output=True, check=True)
    for picture in sorted((made / "figures").iterdir()):
        assert picture.read_text(encoding="utf-8") == (DOCS / "figures" / picture.name).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install '.[docs]'")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "index.js").exists()
    assert re.search(r'dptune-search" href="../search.html"', (tmp_path / "concepts" / "seal.html").read_text("utf-8"))
    for page, command in COMMANDS:  # a list may swallow a block: it would read as a sentence
        place = tmp_path / page.replace("README.md", "index.md").replace(".md", ".html")
        blocks = " ".join(re.findall(r"<pre.*?</pre>", place.read_text(encoding="utf-8"), re.DOTALL))
        assert f"dptune {command}" in html.unescape(re.sub(r"<[^>]*>", "", blocks)), (page, command)
    pages = list(tmp_path.rglob("*.html"))
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?https?://|<link[^>]+stylesheet[^>]+https?://""")
    assert not [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))]
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is not None:
        asked = f"file://{tmp_path}/search.html?q=odometer"  # from a folder, without a server
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
        done = subprocess.run([browser, *options, asked], capture_output=True, text=True, check=True)
        assert re.search(r'<li><a href="[^"]*budget', done.stdout)
