"""Ray: same winner as processes, nothing that counts trials, a worker killed in the middle."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sealed.toy import DATA, StackingTrainer, ToyTrainer, held, toy_plan

from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.sealed import load_release, read_vault, run

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")

from dptune.executors._handshake import Keys  # noqa: E402 - after the skip
from dptune.executors.ray import Ray, _Cluster  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Ray's own: a tip about accelerators, and files that its start-up leaves to the garbage collector.
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What Ray left is collected while its warnings are ignored, not when pytest ends.

    Its workers are as important as everybody else: by default they have a niceness of 15, and hardly start on a busy
    machine.
    """
    monkeypatch.setenv("RAY_worker_niceness", "0")
    yield
    gc.collect()


def test_a_distant_cluster_must_be_trusted() -> None:
    with pytest.raises(InvalidInput, match="trusted"):
        Ray(2, address="ray.example:6379")


def test_same_seed_same_winner_on_either_executor(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 11, "data_is": "synthetic"}
    plan = toy_plan(count=7, final=True)
    there = run(plan, ToyTrainer(), DATA, out=tmp_path / "ray", executor=Ray(2), **options)
    here = run(plan, ToyTrainer(), DATA, out=tmp_path / "here", executor=Processes(2), **options)
    assert there.params == here.params
    assert there.model["total"] == here.model["total"]
    assert read_vault(tmp_path / "ray", "test").scores == read_vault(tmp_path / "here", "test").scores
    assert there.details["replay"] == "exact"


class _Method:
    """Stands for an actor's method: keeps what is handed to Ray."""

    def __init__(self, seen: list[Any]) -> None:
        self.remote = lambda *arguments: seen.append(arguments)


def test_only_public_things_are_handed_to_ray() -> None:
    """What Ray carries may be read by whoever listens: an address, a port, a public key, a name drawn for it."""
    seen: list[Any] = []
    actor = SimpleNamespace(remote=lambda: SimpleNamespace(work=_Method(seen)))
    cluster = _Cluster(SimpleNamespace(remote=lambda **options: lambda kind: actor), owned=False, count=2)
    driver = Keys.new()
    cluster.place("10.0.0.1", 4000, driver.public)
    assert seen == [("10.0.0.1", 4000, driver.public, f"{cluster.label}-{place}") for place in range(2)]


def _workers() -> list[int]:
    """Processes that train for actors of this process's cluster: other tests may run beside."""
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    found = [int(line.split()[0]) for line in listing.splitlines() if "dptune.executors._worker --host" in line]
    return [pid for pid in found if os.getpid() in _ancestors(pid)]


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        try:
            pid = _parent(pid)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            return


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _finished(run_folder: Path) -> int:
    """How many trials are over, as the vault knows."""
    database = run_folder / "vault" / "inside" / "run.db"
    if not database.exists():
        return 0
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
        return int(connection.execute("SELECT count(*) FROM outcomes").fetchone()[0])


def test_stacks_are_the_same_on_either_executor(tmp_path: Path) -> None:
    """Also one that loses its worker, and one that raises."""
    options: dict[str, Any] = {"seed": 11, "data_is": "synthetic"}
    plan, sizes = toy_plan(count=8), tmp_path / "sizes"
    trainer = StackingTrainer(stacked=str(sizes), die_once=str(tmp_path / "died"), fail_below=1.3)
    run(plan, trainer, DATA, out=tmp_path / "ray", executor=Ray(2), **options)
    run(plan, ToyTrainer(fail_below=1.3), DATA, out=tmp_path / "here", executor=Processes(2), **options)
    there, here = (read_vault(tmp_path / name, "test") for name in ("ray", "here"))
    assert there.scores == here.scores
    assert set(there.errors) == set(here.errors)
    assert set(there.deaths) in ({0, 1, 2, 3}, {4, 5, 6, 7})
    assert sizes.read_text().split()[:2] == ["4", "4"]


@pytest.mark.parametrize("victim", ["worker", "actor"])
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path: Path, victim: str) -> None:
    options: dict[str, Any] = {"seed": 12, "data_is": "synthetic"}
    plan = toy_plan(count=12)
    calm = run(plan, ToyTrainer(), DATA, out=tmp_path / "calm", executor=Processes(2), **options)
    killed: list[int] = []
    gate, free = tmp_path / "gate", 3  # the run cannot be over before the kill

    def kill() -> None:
        try:
            while not held(gate, free) or _finished(tmp_path / "shaken") < free:
                time.sleep(0.1)
            pid = _workers()[0]
            killed.append(pid if victim == "worker" else _parent(pid))
            os.kill(killed[0], signal.SIGKILL)
        finally:  # whatever went wrong, the run must end to say so
            gate.touch()

    killer = threading.Thread(target=kill, daemon=True)  # if the run fails there is nobody to kill
    killer.start()
    trainer = ToyTrainer(gate=str(gate), before_gate=free)
    shaken = run(plan, trainer, DATA, out=tmp_path / "shaken", executor=Ray(2), **options)
    killer.join()
    assert killed
    assert shaken.params == calm.params
    assert read_vault(tmp_path / "shaken", "test").scores == read_vault(tmp_path / "calm", "test").scores
    assert sum(read_vault(tmp_path / "shaken", "test").deaths.values()) <= 1


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, as Ray's sockets need it."""
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _ran_alone(name: str) -> bool:
    """Run a test in a process of its own, and say so; False inside that process.

    A cluster that the executor starts reports no task events, and Ray reads that setting once in a process: after
    such a test the tables of any cluster would be empty, and a test of them could not fail.
    """
    if os.environ.get("DPTUNE_TEST_ALONE") == name:
        return False
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"{__file__}::{name}"]
    done = subprocess.run(
        command, env=kept | {"DPTUNE_TEST_ALONE": name}, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 passed" in done.stdout
    return True


def _announced() -> list[bytes]:
    """Names under which actors left something in Ray's key-value store."""
    store = importlib.import_module("ray.experimental.internal_kv")
    return list(store._internal_kv_list(b"dptune-"))


def _tables() -> dict[str, Any]:
    """What Ray's control store keeps: tasks by name, actors, jobs. ``ray.util.state`` lists these very tables."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed, so Ray's tables cannot be asked for")
    messages = importlib.import_module("ray.core.generated.gcs_service_pb2")
    services = importlib.import_module("ray.core.generated.gcs_service_pb2_grpc")
    everything = messages.GetTaskEventsRequest(limit=100_000)
    with grpc.insecure_channel(ray.get_runtime_context().gcs_address) as channel:
        store = services.TaskInfoGcsServiceStub(channel)
        # Task events are reported about once a second, later on a busy machine: wait until none has come for a while.
        tasks, quiet, deadline = store.GetTaskEvents(everything), 0, time.monotonic() + 60.0
        while (quiet < 6 or not tasks.events_by_task) and time.monotonic() < deadline:
            time.sleep(0.5)
            before, tasks = len(tasks.events_by_task), store.GetTaskEvents(everything)
            quiet = quiet + 1 if len(tasks.events_by_task) == before else 0
        actors = services.ActorInfoGcsServiceStub(channel).GetAllActorInfo(messages.GetAllActorInfoRequest())
        jobs = services.JobInfoGcsServiceStub(channel).GetAllJobInfo(messages.GetAllJobInfoRequest())
    found = Counter(event.task_info.name for event in tasks.events_by_task)
    return {"tasks": dict(found), "actors": len(actors.actor_table_data), "jobs": len(jobs.job_info_list)}


def _listed() -> dict[str, Any]:
    """The same through the public state API, whose server comes with the dashboard."""
    state = importlib.import_module("ray.util.state")
    time.sleep(3.0)
    tasks = Counter(one.name for one in state.list_tasks(limit=10_000))
    return {"tasks": dict(tasks), "actors": len(state.list_actors(limit=10_000))}


def test_the_state_api_lists_the_same_whatever_the_number_of_trials(tmp_path: Path, short: Path) -> None:
    if importlib.util.find_spec("aiohttp") is None:
        pytest.skip("the server of Ray's state API needs ray[default]; the tables it lists are asked below")
    seen = []
    for count in (1, 5, 14):
        ray.init(num_cpus=2, include_dashboard=True, log_to_driver=False, _temp_dir=str(short / str(count)))
        try:
            run(
                toy_plan(count=count),
                ToyTrainer(),
                DATA,
                out=tmp_path / str(count),
                executor=Ray(2),
                data_is="synthetic",
            )
            seen.append(_listed())
        finally:
            ray.shutdown()
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["actors"] == 2


def test_ray_sees_the_same_whatever_the_number_of_trials(tmp_path: Path, short: Path) -> None:
    """Task table, actor table, log files: the same for every K; and no score as text, float32 or float64 bytes."""
    if _ran_alone("test_ray_sees_the_same_whatever_the_number_of_trials"):
        return
    seen: list[list[str]] = []
    tables: list[dict[str, Any]] = []
    for count in (1, 5, 14, 5):
        place = f"{len(seen)}"
        temporary = short / place
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=str(temporary))
        try:
            out = tmp_path / place
            run(toy_plan(count=count), ToyTrainer(shout=True), DATA, out=out, executor=Ray(2), data_is="synthetic")
            assert _announced() == []  # public keys, taken back at the end
            tables.append(_tables())
        finally:
            ray.shutdown()
        scores = read_vault(out, "test").scores.values()
        assert len(scores) == count
        files = [path for path in temporary.rglob("*") if path.is_file()]
        content = b"\n".join(path.read_bytes() for path in files)
        for score in scores:
            forms = [repr(score).encode(), struct.pack("<d", score), struct.pack("<f", score)]
            assert not any(form in content for form in forms)
        assert DATA[1:].tobytes() not in content
        assert b"ToyTrainer" not in content
        assert load_release(out).method == "toy"
        logs = sorted(path.name.split("-")[0] for path in files if path.suffix in (".out", ".err"))
        seen.append(logs)
    assert all(logs == seen[0] for logs in seen)
    assert all(table == tables[0] for table in tables), tables
    assert tables[0]["actors"] == 2
    assert 1 <= sum(tables[0]["tasks"].values()) <= 5  # two actors made, two calls, one driver


def test_the_tables_would_show_trials_that_were_tasks(short: Path) -> None:
    """The control: tasks that count trials are seen, so the test above can fail."""
    if _ran_alone("test_the_tables_would_show_trials_that_were_tasks"):
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=str(short / "c"))
    try:

        def trial() -> None:
            """What the executor must not do: a trial that is a task."""

        task = ray.remote(trial)
        ray.get([task.remote() for _ in range(7)])
        counts: list[int] = []
        deadline = time.monotonic() + 60.0
        while not counts and time.monotonic() < deadline:
            counts = [n for name, n in _tables()["tasks"].items() if name.endswith("trial")]
        assert counts == [7]
    finally:
        ray.shutdown()
