"""The commands of the pages are run, page by page, in a scratch folder that holds what the page's reader has.

``test_site.py`` checks every command without running it: names, options, files, targets. Here they run. Tables say what
differs: SMALLER (run at a smaller size), ELSEWHERE (another test runs it), and NOT_RUN and NOT_RUN_SHELL with a reason
for each line. A command that is new on a page runs here, or its reason stands here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_site import _TABLE, COMMANDS, DOCS, ROOT, SHELL

# What stands for something of the reader's.
_STATED = "runs/icu/release/release.json"
_MEANT = {
    "LEDGER": "hospital.ledger",
    "DIR": "runs/icu",
    "RUN": "runs/icu",
    "release.json": _STATED,
    "release/release.json": _STATED,
    "...": "a test",
}

# How a command begins on its page, and the options that make it smaller.
SMALLER = {
    "audit --game worst-case": "--games 1e5",
    "audit --game ntnv": "--games 20",
    "audit --game ntcv": "--games 20",
    "audit --game implementations": "--draws 1",
    "reproduce hype-scales": "--quick --out kept",
    "reproduce hype-fig4-linear": "--quick --out kept",
    "leaderboard --quick": "--data digits --epsilon 3 --methods default --repetitions 1 --workers 1",
}

# A command that another test runs, with more around it than a page's reader has; "" stands for all of a page.
_RESUMED = "tests/test_page_commands.py::test_a_run_that_was_cut_off_is_resumed_as_the_page_says"
ELSEWHERE = {
    ("index.md", ""): "tests/test_site.py::test_the_first_page_from_a_csv_to_a_release",
    ("how_to/resume.md", ""): _RESUMED,
    ("sealed_runs.md", "resume DIR"): _RESUMED,
    ("tune.md", "resume runs/icu"): _RESUMED,
    ("federated.md", "ledger verify votes.ledger --statement vote/vote.json"): "tests/federated/test_vote_files.py",
}

# How a command begins that no test runs, and why.
NOT_RUN = {
    "leaderboard --out board": "two hours; --quick runs here, smaller still",
    "leaderboard --data cifar-10": "an hour",
}

NEED_DATA = {"accuracy.md", "federated.md", "tables.md"}  # benchmark files (DPTUNE_DATA)


def _commands(page: str) -> list[str]:
    """Those of a page, in its order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return sorted((one for where, one in COMMANDS if where == page), key=text.index)


def _begins(command: str, table: dict[str, str]) -> str | None:
    """What a table says of a command, by how it begins."""
    return next((said for begin, said in table.items() if f"{command} ".startswith(f"{begin} ")), None)


def _to_run(page: str) -> list[str]:
    if (page, "") in ELSEWHERE:
        return []
    here = [one for one in _commands(page) if (page, one) not in ELSEWHERE]
    return [one for one in here if _begins(one, NOT_RUN) is None]


def _words(command: str) -> list[str]:
    """The arguments as they are run: the reader's own names, smaller sizes, and a cluster of this machine."""
    extra = shlex.split(_begins(command, SMALLER) or "")
    words = [_MEANT.get(one, one) for one in shlex.split(command.replace("--address HOST:PORT", ""))]
    for option in (one for one in extra if one.startswith("--") and one in words):
        place = words.index(option)
        del words[place : place + 2]
    return words + extra


class World:
    """A scratch folder with what the reader of a page has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(DOCS.parent / "benchmarks" / "board", folder / "benchmarks" / "board")  # the kept leaderboard
        self.environment = {**os.environ, "DPTUNE_LEDGER": str(folder / "hospital.ledger"), "DPTUNE_WORKERS": "1"}

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def dptune(self, *words: str) -> str:
        done = self.python("-m", "dptune", *words)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def table(self) -> None:
        """The reader's table, its schema, and new rows."""
        done = self.python("-c", _TABLE)
        assert done.returncode == 0, done.stderr

    def run(self) -> None:
        """A finished run on the table, and a rehearsal of it."""
        self.table()
        tuned = ["tune", "icu.csv", "--schema", "icu.toml", "--epsilon", "3", "--delta", "1e-6"]
        self.dptune(*tuned, "--dataset", "icu-2026", "--out", "runs/icu")
        self.dptune(*tuned, "--seed", "1", "--data-is", "synthetic", "--out", "runs/trial")

    def job(self) -> None:
        """The job of tune.md with its records, public records and rehearsal; released at once, in a few steps."""
        text = (DOCS / "tune.md").read_text(encoding="utf-8")
        (job,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        job = re.sub(r"^release_at = .*$", "", job, flags=re.MULTILINE).replace("steps = 1000", "steps = 20")
        make = """
import numpy as np
rng = np.random.default_rng(0)
for name, count in (("icu", 600), ("public", 100)):
    x = rng.random((count, 3))
    np.savez(f"{name}.npz", x=x, y=(x[:, 0] > 0.5).astype(int))
np.savetxt("new.csv", x[:3], delimiter=",")
"""
        done = self.python("-c", make)
        assert done.returncode == 0, done.stderr
        first = re.sub(r"^rehearsal = .*$", "", job, flags=re.MULTILINE)
        (self.folder / "first.toml").write_text(first, encoding="utf-8")
        (self.folder / "job.toml").write_text(job, encoding="utf-8")
        self.dptune("tune", "first.toml", "--seed", "1", "--data-is", "synthetic", "--out", "runs/rehearsal")

    def adult(self) -> None:
        """The table of tables.md, and Adult with its schema."""
        self.table()
        source = Path(os.environ["DPTUNE_DATA"]) / "adult"
        shutil.copy(source / "adult.data", self.folder / "adult.data")
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))

    def attacked(self) -> None:
        """A small job on records that audits may look at."""
        self.job()
        self.dptune("ledger", "add", "hospital.ledger", "icu-2026", "--epsilon", "8", "--delta", "1e-6")
        text = (self.folder / "job.toml").read_text(encoding="utf-8")
        (self.folder / "job.toml").write_text(
            text.replace("geometric:30", "geometric:2").replace('"private" ', '"synthetic" '), encoding="utf-8"
        )


_WORLDS: dict[str, Any] = {
    "audit.md": World.attacked,
    "how_to/ray.md": World.attacked,
    "report.md": World.run,
    "sealed_runs.md": World.run,
    "statement.md": World.run,
    "tables.md": World.adult,
    "tune.md": World.job,
}


def _prepare(world: World, page: str, command: str) -> None:
    """What a reader does between two commands of a page."""
    if page == "tables.md" and command.startswith("tune icu.csv"):  # the draft is filled in, in an editor
        shutil.copy(world.folder / "schema.toml", world.folder / "icu.toml")
    if page == "tables.md" and command.startswith("predict runs/income"):
        lines = (world.folder / "adult.data").read_text(encoding="utf-8").splitlines()[:3]
        (world.folder / "new.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if page == "tables.md" and command.startswith("schema draft"):
        (world.folder / "icu.toml").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS if _to_run(page)}))
def test_the_commands_of_a_page_run_in_their_order(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page in NEED_DATA:
        request.getfixturevalue("data_root")
    world = World(tmp_path)
    _WORLDS.get(page, lambda _: None)(world)
    for command in _to_run(page):
        _prepare(world, page, command)
        world.dptune(*_words(command))


_GATED = {
    "own.py": """
import time
from pathlib import Path
import numpy as np
from dptune.accounting import Gdp

HERE = Path(__file__).parent

def load():
    return np.arange(40.0)

class Gated:
    def cost(self, params):
        return Gdp(0.1)

    def fit(self, params, data, rng):
        while data.max() > 1 and not (HERE / "gate").exists():  # blank records pass
            (HERE / "reached").touch()
            time.sleep(0.02)
        return {"x": np.ones(1)}, 1.0

trainer = Gated()
""",
    "job.toml": """
[data]
loader = "own:load"
[model]
trainer = "own:trainer"
[space]
x = {low = 0.5, high = 2.0}
[method]
name = "random-stopping"
runs = "binomial:2,1.0"
[budget]
epsilon = 3.0
delta = 1e-5
[run]
dataset = "icu-2026"
workers = 1
""",
}


@pytest.mark.slow
def test_a_run_that_was_cut_off_is_resumed_as_the_page_says(tmp_path: Path) -> None:
    """A training waits at a gate, so the run is killed in its middle without any luck."""
    world = World(tmp_path)
    for name, text in _GATED.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    begun = subprocess.Popen(
        [sys.executable, "-m", "dptune", "tune", "job.toml", "--out", "runs/icu"],
        cwd=tmp_path, env=world.environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not (tmp_path / "reached").exists():
            assert begun.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(begun.pid, signal.SIGKILL)
        begun.wait()
    (tmp_path / "gate").touch()
    (command,) = _commands("how_to/resume.md")
    assert command == "resume runs/icu"
    world.dptune(*shlex.split(command))
    assert (tmp_path / "runs/icu/release/statement.md").is_file()
    assert world.dptune("ledger", "show", "hospital.ledger").count("icu-2026") >= 1


# Benchmarks: the smallest size of each, so that the script runs from its first line to its last. What it prints then is
# no figure of a page.
BENCHMARKS: dict[str, str] = {
    "accounting.py": "--repeats 1",
    "accuracy.py": "--data adult --validation public --method default --repeats 1",
    "audit.py": "1e5",
    "choose_constants.py": "--quick",
    "choose_features.py": "--quick",
    "choose_photos.py": "--quick",
    "choose_tables.py": "--quick",
    "defaults.py": "",
    "engine.py": "--tasks group-norm --batch 4 --rounds 1",
    "executors.py": "--trials 2 --steps 20 --rounds 1",
    "features.py": "--images 4 --rounds 1",
    "federated.py": "--clients 20 --repeat 1",
    "forecast.py": "--simulate 3",
    "landscapes.py": "--data digits --keep keep.jsonl",
    "large_data.py": "--rows 20000 --features 5 --workers 1",
    "large_data.py --plain": "--rows 20000 --features 5 --workers 1",
    "large_data.py --source memmap": "--rows 20000 --features 5 --workers 1",
    "ledger.py": "--entries 50 --datasets 2 --costs 2 --rounds 1",
    "one_command.py": "--data adult",
    "pages.py": "--charges 50 --datasets 2 --rounds 1",
    "regressions.py": "--rounds 1 --shrink 50",
    "startup.py": "1",
    "steps.py": "--fit",
    "sweep.py": "--data adult --repeats 1",
    "tables.py adult": "--runs 1",
    "tables.py csv": "--rows 2000",
    "training.py": "--rounds 1 --tasks logistic",
    "training_accuracy.py choose": "",
    "training_accuracy.py compare": "--seeds 1 --data mnist --model softmax",
    "training_accuracy.py secure": "--seeds 1",
    "training_accuracy.py table": "--seeds 1 --data adult --only softmax",
    "training_accuracy.py tune": "--steps 5",
    "units.py": "--units 200",
    "whitening.py": "--sets digits --repeats 1",
}
_WITH_DATA = (
    "accuracy",
    "choose_constants",
    "choose_features",
    "choose_photos",
    "choose_tables",
    "executors",
    "one_command",
    "sweep",
    "tables.py adult",
    "training",
)  # names begin so

# Other lines of pages that no test runs, by how they begin, and why. Their files, options and targets are checked.
NOT_RUN_SHELL = {
    "pip install": "it installs; tests/test_install.py does so in an environment of its own",
    "python -m pip install": "the same",
    "make test": "it is this suite",
    "make test-all": "it is this suite",
    "make demo": "it installs; its last command is tests/cli/test_tune.py's",
    "make docs": "it installs; tests/test_site.py builds the site",
    "make lint": "it installs, then runs ruff and import-linter, as tests/test_house.py does",
    "python -c pass": "there is nothing in it",
    "python -m dptune": "every command here is run so",
    "pytest": "it is part of this suite",
    "python benchmarks/tightness.py": "an hour; it has no smaller grid",
    "python benchmarks/leaderboard.py": "the same as dptune leaderboard",
    "python benchmarks/encoded.py": "networks that tests do not install; tests/training/test_encoded_benchmark.py",
    "python benchmarks/choose_encoder.py": "the same networks; tests/training/test_choose_encoder.py",
}


def _benchmark(command: str) -> str | None:
    """The line of BENCHMARKS that runs the script of a page's command."""
    named = command.removeprefix("python benchmarks/")
    return max((one for one in BENCHMARKS if named == one or named.startswith(f"{one} ")), key=len, default=None)


@pytest.mark.parametrize(("place", "command"), SHELL, ids=str)
def test_every_other_command_is_run_or_its_reason_is_told(place: str, command: str) -> None:
    del place
    told = [begin for begin in NOT_RUN_SHELL if command.startswith(begin)]
    assert (_benchmark(command) is not None) != bool(told), command


def test_the_tables_name_what_is_there() -> None:
    """No line of a table outlives its command or its test."""
    shown = {command for _, command in COMMANDS}
    for begin in (*SMALLER, *NOT_RUN):
        assert any(f"{one} ".startswith(f"{begin} ") for one in shown), begin
    for (page, command), where in ELSEWHERE.items():
        assert not command or (page, command) in COMMANDS
        name, _, test = where.partition("::")
        assert f"def {test}" in (ROOT / name).read_text(encoding="utf-8")
    lines = [command for _, command in SHELL]
    assert [one for one in NOT_RUN_SHELL if not any(line.startswith(one) for line in lines)] == []
    used = {_benchmark(line) for line in lines}
    assert BENCHMARKS.keys() <= used


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", sorted(BENCHMARKS))
def test_a_benchmark_runs_from_its_first_line_to_its_last(
    benchmark: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if benchmark.startswith(_WITH_DATA):
        request.getfixturevalue("data_root")
    if benchmark == "landscapes.py":
        kept = (ROOT / "benchmarks" / "landscapes.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        kept.remove(next(one for one in kept if '"digits"' in one))  # one training is left to do
        (tmp_path / "keep.jsonl").write_text("".join(kept), encoding="utf-8")
    name, *words = shlex.split(f"{benchmark} {BENCHMARKS[benchmark]}")
    world = World(tmp_path)
    done = world.python(str(ROOT / "benchmarks" / name), *words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"\d", done.stdout), done.stdout
