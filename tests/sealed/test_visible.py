"""What another user of the machine can see of a run: nothing that depends on the number of trials or on scores.

Two observers: one that really is the user nobody (needs root), and one that follows the mode bits. Both know the
names of everything in a run's folder and ask for its status after every step of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, toy_plan

from dptune.executors import Executor, Processes
from dptune.sealed import Vault, run

NAMES = [
    ".",
    "run",
    *(f"run/vault{name}" for name in ("", "/inside", "/inside/run.db", "/inside/secret", "/inside/models/0.model")),
    *(
        f"run/release{name}"
        for name in ("", "/release.json", "/statement.md", "/statement.html", "/plan.json", "/model.npz")
    ),
    *(f"run/run.ledger{end}" for end in ("", "-wal", "-shm", ".key")),
]
FIELDS = [
    f"st_{name}" for name in ("mode", "ino", "nlink", "uid", "size", "blocks", "mtime_ns", "ctime_ns", "atime_ns")
]

Snapshot = dict[str, list[Any]]
Observer = Callable[[], Snapshot]

NOBODY = textwrap.dedent("""
    import json, os, sys
    folder, parent, names, fields = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    def processes():
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                status = open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()
                if status[1] == parent and name != str(os.getpid()):
                    yield [name, open(f"/proc/{name}/cmdline").read()]
            except OSError:
                pass
    others = list(processes())  # left by tests before this one
    print("ready", flush=True)
    for _ in sys.stdin:
        seen = {}
        for name in names:
            try:
                found = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            seen[name] = [getattr(found, field) for field in fields]
        seen["processes"] = sorted(one for one in processes() if one not in others)
        print(json.dumps(seen), flush=True)
""")


@contextlib.contextmanager
def _nobody(folder: Path) -> Iterator[Observer]:
    if os.geteuid() != 0:
        pytest.skip("only root can become the user nobody; the other observer follows the mode bits")
    command = [sys.executable, "-c", NOBODY, str(folder), str(os.getpid()), json.dumps(NAMES), json.dumps(FIELDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None
        assert told.readline() == "ready\n"

        def look() -> Snapshot:
            asked.write("\n")
            asked.flush()
            seen: Snapshot = json.loads(told.readline())
            return seen

        yield look
        asked.close()


@contextlib.contextmanager
def _by_modes(folder: Path) -> Iterator[Observer]:
    def reachable(name: str) -> bool:
        parts = Path(name).parts[:-1]
        folders = [folder.joinpath(*parts[:n]) for n in range(len(parts) + 1)]
        return all(one.is_dir() and one.stat().st_mode & stat.S_IXOTH for one in folders)

    def look() -> Snapshot:
        seen: Snapshot = {}
        for name in filter(reachable, NAMES):
            with contextlib.suppress(OSError):
                found = os.lstat(folder / name)
                seen[name] = [getattr(found, field) for field in FIELDS]
        return seen

    yield look


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach: pytest's own are for their owner."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _watch(folder: Path, trials: int, existing: bool, observer: Any, executor: Executor) -> list[Snapshot]:
    """What was seen after every step from the first trial to the release; the last is of the finished run."""
    folder.parent.mkdir(mode=0o755)
    folder.parent.chmod(0o755)
    if existing:
        folder.mkdir()
        folder.chmod(0o755)
    seen: list[Snapshot] = []
    with pytest.MonkeyPatch.context() as patch, observer(folder.parent) as look:
        for name in ("begin", "finish", "check"):
            patch.setattr(Vault, name, _then(getattr(Vault, name), lambda: seen.append(look())))
        run(toy_plan(count=trials), ToyTrainer(), DATA, out=folder, executor=executor, data_is="synthetic")
        seen.append(look())
    return seen


def _then(step: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    def watched(*arguments: Any) -> Any:
        result = step(*arguments)
        look()
        return result

    return watched


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("observer", [_nobody, _by_modes])
def test_nothing_that_others_see_changes_from_the_charge_to_the_release(
    place: Path, existing: bool, observer: Any
) -> None:
    executor = Processes(1) if observer is _nobody else Inline()
    ends = []
    for trials in (1, 3, 7):
        *before, after = _watch(place / f"{trials}" / "run", trials, existing, observer, executor)
        assert len(before) == 2 * trials + 1  # so there was something to see
        assert all(seen == before[0] for seen in before)
        assert set(before[0]) - {"processes"} == (
            {".", "run", "run/vault", "run/run.ledger", "run/run.ledger.key"} if existing else {".", "run"}
        )
        if observer is _nobody:
            workers = [line for _, line in before[0]["processes"] if "dptune.executors" in line]
            assert len(workers) == 1
        ends.append({name: values[0] for name, values in after.items() if name != "processes"})  # modes
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("executor", [Inline(), Processes(1)], ids=["inline", "processes"])
def test_what_is_made_belongs_to_its_owner_whatever_the_umask(tmp_path: Path, executor: Executor) -> None:
    before = os.umask(0)
    try:
        run(
            toy_plan(count=2), ToyTrainer(), DATA, out=tmp_path / "runs" / "one", executor=executor, data_is="synthetic"
        )
    finally:
        os.umask(before)
    out = tmp_path / "runs" / "one"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [out.parent, out, *out.rglob("*")]}
    release = {path for path in modes if out / "release" in (path, *path.parents)}
    for path, mode in modes.items():
        assert mode == ((0o755 if path.is_dir() else 0o644) if path in release else 0o700 if path.is_dir() else 0o600)
    assert {"run.db", "run.ledger", "run.ledger.key", "search.log"} <= {path.name for path in modes}


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    out.chmod(0o750)
    run(toy_plan(count=1), ToyTrainer(), DATA, out=out, executor=Inline(), data_is="synthetic")
    assert stat.S_IMODE(out.stat().st_mode) == 0o750
    assert stat.S_IMODE((out / "vault").stat().st_mode) == 0o700
