"""Worker processes: one thread each, output in the vault, dead workers replaced, nothing outlives its owner."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.executors.fragile import Fragile, KillsOnce, LeavesAChild
from tests.sealed.toy import DATA, StackingTrainer, ToyTrainer, toy_plan

from dptune.accounting import Cost, Gdp
from dptune.errors import InvalidInput, Stopped
from dptune.executors import Processes, Result, Session, Task, Work, processes
from dptune.executors.models import open_model
from dptune.methods.trial import Trial
from dptune.sealed import run


def _work(vault: Path, trainer: Any) -> Work:
    return Work(trainer, DATA, b"k" * 32, vault)


def _next(session: Session) -> Result:
    result = None
    while result is None:
        result = session.wait(1.0)
    return result


def _task(index: int, **params: Any) -> Task:
    return Task(index, Trial(index, params, seed_label=("t", index)).to_json())


class Looking:
    """Returns what a worker sees of its surroundings."""

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        print("hello from the worker")
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TMPDIR")
        return {name: os.environ[name] for name in names} | {"cwd": str(Path.cwd())}, 1.0


def test_a_worker_has_one_thread_and_lives_in_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    session = Processes(1).open(_work(tmp_path, Looking()))
    session.submit(_task(0))
    result = _next(session)
    session.close()
    assert result.model is not None
    seen = open_model(result.model)
    assert seen["OMP_NUM_THREADS"] == seen["OPENBLAS_NUM_THREADS"] == "1"
    assert Path(seen["TMPDIR"]).parent == Path(seen["cwd"]).parent == tmp_path
    assert "hello from the worker" in (tmp_path / "output" / "worker-0.log").read_text()


def test_a_function_of_a_script_can_be_sent(tmp_path: Path) -> None:
    class Local:
        def fit(self, params: Mapping[str, Any], data: Any, rng: np.random.Generator) -> tuple[Any, float]:
            return {}, float(np.sum(data)) + params["x"]

    session = Processes(1).open(_work(tmp_path, Local()))
    session.submit(_task(3, x=0.25))
    result = _next(session)
    session.close()
    assert (result.index, result.score, result.error) == (3, DATA.sum() + 0.25, None)


def test_a_dead_worker_is_reported_and_replaced(tmp_path: Path) -> None:
    session = Processes(1).open(_work(tmp_path, ToyTrainer(die_below=1.5)))
    session.submit(_task(0, x=1.2))
    assert _next(session).died
    session.submit(_task(1, x=1.8))
    assert _next(session).score > 0
    session.close()
    session.close()


def test_a_worker_that_dies_with_several_tasks_loses_those_that_it_had_not_answered(tmp_path: Path) -> None:
    """The stack raises, so they are trained one after the other: the first two are answered, the third kills."""
    session = Processes(1).open(_work(tmp_path, StackingTrainer(fail_below=1.0, die_below=1.2)))
    session.submit(*(_task(index, x=x) for index, x in ((7, 1.5), (3, 0.9), (5, 1.1), (6, 1.6))))
    results = [_next(session) for _ in range(4)]
    assert [(one.index, one.died) for one in results] == [(7, False), (3, False), (5, True), (6, True)]
    assert "diverged" in (results[1].error or "")
    session.submit(_task(1, x=1.8))
    assert _next(session).score > 0
    session.close()


def test_a_worker_killed_while_it_starts_again_is_a_death_of_its_trials(tmp_path: Path) -> None:
    """Starts 0 and 3 get ready, 1 and 2 are killed on the way: two deaths more, then the run goes on."""
    data = Fragile(str(tmp_path / "arrivals"), (1, 2))
    trainer = KillsOnce(str(tmp_path / "killed"))
    session = Processes(1).open(Work(trainer, data, b"k" * 32, tmp_path))
    seen = []
    for index in range(4):
        session.submit(_task(index, x=1.5))
        result = _next(session)
        seen.append((result.index, result.died, result.score))
    session.close()
    assert seen == [(0, True, -np.inf), (1, True, -np.inf), (2, True, -np.inf), (3, False, 1.5)]
    assert len((tmp_path / "arrivals").read_bytes()) == 4


def test_a_worker_that_hangs_while_it_starts_again_is_a_death_of_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start 1 is given no time, and needs for ever; the others have all they want."""
    data = Fragile(str(tmp_path / "arrivals"), (), tuple(range(1, 100)))
    session = Processes(1).open(Work(KillsOnce(str(tmp_path / "killed")), data, b"k" * 32, tmp_path))
    session.submit(_task(0, x=1.5))
    assert _next(session).died
    monkeypatch.setattr(processes, "_READY", 0.2)
    session.submit(_task(1, x=1.5))
    assert _next(session) == Result(1, -np.inf, error="the worker process died", died=True)
    monkeypatch.undo()
    session.greeting = processes.hello(_work(tmp_path, ToyTrainer()))  # type: ignore[attr-defined] # of this executor
    session.submit(_task(2, x=1.5))
    assert _next(session).score > 0
    session.close()


@pytest.mark.parametrize("forks", [False, True])
def test_a_worker_that_never_reads_what_it_is_sent_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    """More is sent than fits into a socket; with a child, the socket outlives the worker."""
    gone = tmp_path / "gone"
    code = f"import os, time; {forks} and os.fork()\nwhile not os.path.exists({str(gone)!r}): time.sleep(0.05)"
    monkeypatch.setattr(processes, "_command", lambda descriptor: [sys.executable, "-c", code])
    monkeypatch.setattr(processes, "_READY", 2.0 if forks else 0.2)
    work = Work(ToyTrainer(), np.zeros(10**6), b"k" * 32, tmp_path)
    with pytest.raises(InvalidInput, match=r"did not arrive in a worker \(it was not ready after .* seconds\)"):
        Processes(1).open(work)
    gone.touch()


def test_a_dead_worker_whose_child_lives_on_is_noticed(tmp_path: Path) -> None:
    child = tmp_path / "child"
    session = Processes(1).open(_work(tmp_path, LeavesAChild(str(child))))
    session.submit(_task(0, x=0.5))
    assert _next(session).died
    session.submit(_task(1, x=1.5))
    assert _next(session).score == 1.5
    child.unlink()
    session.close()


def test_workers_that_never_start_again_stop_the_run_with_advice(tmp_path: Path) -> None:
    data = Fragile(str(tmp_path / "arrivals"), tuple(range(1, 100)))
    trainer = KillsOnce(str(tmp_path / "killed"))
    (tmp_path / "run" / "vault").mkdir(parents=True)
    session = Processes(1).open(Work(trainer, data, b"k" * 32, tmp_path / "run" / "vault"))
    for index in range(5):
        session.submit(_task(index, x=1.5))
        assert _next(session).died
    with pytest.raises(Stopped, match=f"5 times in a row.*stays charged.*'dptune resume {tmp_path / 'run'}'"):
        session.submit(_task(5, x=1.5))
    session.close()


def test_a_worker_that_was_killed_while_idle_is_nobodys_death(tmp_path: Path) -> None:
    session = Processes(1).open(_work(tmp_path, ToyTrainer()))
    worker = session.workers[0]  # type: ignore[attr-defined] # of this executor
    worker.process.kill()
    worker.process.wait()
    session.submit(_task(0, x=1.5))
    assert _next(session).score > 0
    session.close()


class Trap:
    """A model whose pickle runs code when it is opened."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


@dataclass(frozen=True)
class Hostile:
    """A trainer whose model, and whose words to the driver, run code in whoever unpickles them."""

    path: str
    writes: bool = False

    def cost(self, params: Mapping[str, Any]) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        if self.writes:
            channel = Connection(int(sys.argv[sys.argv.index("--descriptor") + 1]))
            channel.send_bytes(pickle.dumps(Trap(self.path)))
        return Trap(self.path), 1.0


def test_the_driver_opens_nothing_that_a_worker_made(tmp_path: Path) -> None:
    """A model that is a trap is trained, stored and released; it springs for whoever opens the release."""
    sprung = tmp_path / "sprung"
    plan = toy_plan(count=2)
    told: dict[str, Any] = {"out": tmp_path / "run", "executor": Processes(1), "pickle": True, "data_is": "synthetic"}
    release = run(plan, Hostile(str(sprung)), DATA, **told)
    assert release.details["model"] == "model.pickle"
    assert "PICKLE, which the run was asked for by name" in release.statement
    with pytest.raises(InvalidInput, match="runs code when it is opened"):
        _ = release.model
    assert not sprung.exists()
    assert release.open_model(pickle=True) is None  # what touch() returns
    assert sprung.exists()


def test_a_pickle_in_place_of_an_answer_is_a_death(tmp_path: Path) -> None:
    session = Processes(1).open(_work(tmp_path, Hostile(str(tmp_path / "sprung"), writes=True)))
    session.submit(_task(0, x=1.5))
    assert _next(session).died
    session.close()
    assert not (tmp_path / "sprung").exists()


def test_at_most_as_many_tasks_as_workers(tmp_path: Path) -> None:
    session = Processes(1).open(_work(tmp_path, ToyTrainer(seconds=3600)))
    session.submit(_task(0, x=1.2))
    with pytest.raises(InvalidInput, match="busy"):
        session.submit(_task(1, x=1.2))
    assert session.wait(0.01) is None
    session.close()


OWNER = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from dptune.executors import Processes, Task, Work
    from dptune.methods import Trial
    from tests.sealed.toy import DATA, ToyTrainer
    session = Processes(2).open(Work(ToyTrainer(seconds=3600), DATA, b"k" * 32, Path(sys.argv[1])))
    for index in range(2):
        session.submit(Task(index, Trial(index, {"x": 1.5}).to_json()))
    print(*(worker.process.pid for worker in session.workers), flush=True)
    time.sleep(3600)
""")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_die_with_their_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2
    assert all(_alive(pid) for pid in pids)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until = time.monotonic() + 300
    while any(_alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def test_bad_numbers_of_workers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="workers"):
        Processes(0)
