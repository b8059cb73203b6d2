"""Workers behind encrypted links, without Ray: what a listener sees, deaths, hostile answers, strangers."""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.executors.fragile import Fragile, KillsOnce
from tests.executors.wire import Wire
from tests.sealed.toy import ToyTrainer

pytest.importorskip("cryptography", reason="the extra 'ray' is not installed")

from dptune._progress import VARIABLE, listener
from dptune.errors import InvalidInput, Stopped
from dptune.executors import Result, Task, Work, _remote
from dptune.executors._handshake import Keys
from dptune.executors._link import Link, connect
from dptune.executors._messages import pack_ready, pack_result, pack_tasks, unpack_tasks
from dptune.executors._remote import RemoteSession, keep_working
from dptune.executors.processes import hello
from dptune.methods.trial import Trial

HOST = "127.0.0.1"
WORKER = Keys.new()
RECORDS = np.random.default_rng(3).normal(size=60)
KEEP = textwrap.dedent("""
    import sys
    from dptune.executors._handshake import Keys
    from dptune.executors._remote import keep_working
    own, driver = (bytes.fromhex(sys.stdin.readline()) for _ in range(2))
    keep_working("127.0.0.1", int(sys.argv[1]), Keys(own), driver)
""")


def test_no_worker_of_another_machine_is_told_where_to_keep_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started the machine's service may have been watching a rehearsal; this run may be sealed."""
    given: list[dict[str, str]] = []

    class Ended:
        returncode = 0

        def __init__(self, command: list[str], *, env: dict[str, str], **rest: Any) -> None:
            given.append(env)

        def communicate(self, sent: bytes) -> None:
            assert sent

    monkeypatch.setenv(VARIABLE, "steps")
    monkeypatch.setattr("dptune.executors._remote.subprocess.Popen", Ended)
    keep_working(HOST, 1, WORKER, WORKER.public)
    assert [VARIABLE in env for env in given] == [False]


class Place:
    """A session for one worker, and what keeps that worker alive, as an actor does."""

    def __init__(self, folder: Path, trainer: Any) -> None:
        self.greeting = hello(Work(trainer, RECORDS, b"secret of the run, 32 bytes long", folder / "vault"))
        known = {WORKER.public}.__contains__
        self.session = RemoteSession(HOST, 1, self.greeting, folder, known, self._stop)
        self.keeper: subprocess.Popen[bytes] | None = None
        self.stopped = 0

    def keep(self, port: int | None = None) -> None:
        command = [sys.executable, "-c", KEEP, str(port or self.session.port)]
        self.keeper = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert self.keeper.stdin is not None
        self.keeper.stdin.write(f"{WORKER.secret.hex()}\n{self.session.public.hex()}\n".encode())
        self.keeper.stdin.close()

    def next(self) -> Result:
        result = None
        while result is None:
            result = self.session.wait(1.0)
        return result

    def _stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.session.close()
        self.session.close()
        assert self.stopped == 1
        if self.keeper is not None:
            self.keeper.wait(600)  # it ends by itself when the driver is gone


def _task(index: int, x: float, start: bytes | None = None) -> Task:
    return Task(index, Trial(index, {"x": x}, seed_label=("t", index)).to_json(), start)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    made: list[Place] = []
    yield made
    for place in made:
        place.close()


def test_a_listener_on_the_path_sees_no_score_no_record_no_parameter(tmp_path: Path, places: list[Place]) -> None:
    place = Place(tmp_path, ToyTrainer(shout=True, fail_below=1.1))
    places.append(place)
    wire = Wire(place.session.port)
    place.keep(wire.port)
    place.session.start()
    xs = [1.012345, 1.234567, 1.345678, 1.456789]
    tasks = [_task(index, x) for index, x in enumerate(xs)]
    place.session.submit(*tasks)
    results = [place.next() for _ in tasks]
    place.session.close()
    wire.close()
    assert [one.index for one in results] == [0, 1, 2, 3]
    assert results[0].error is not None
    assert "diverged" in results[0].error
    assert all("score" in one.output and one.model is not None for one in results[1:])
    figures = [one.score for one in results[1:]] + xs + RECORDS.tolist()
    secrets = [form for value in figures for form in _forms(value)]
    secrets += [b"secret of the run", b"ToyTrainer", b"seed_label", b"diverged", b"score", b"Traceback"]
    clear = b"".join(place.greeting) + pack_tasks(tasks) + b"".join(pack_result(one) for one in results)
    assert sum(form in clear for form in secrets) >= 70  # the control: unencrypted, it would be seen
    seen = bytes(wire.sent + wire.got)
    assert len(seen) > len(clear)
    assert [form for form in secrets if form in seen] == []


def _forms(value: float) -> list[bytes]:
    return [repr(value).encode(), struct.pack("<d", value), struct.pack(">d", value)]


def test_a_worker_killed_again_and_again_while_it_starts_comes_back(tmp_path: Path, places: list[Place]) -> None:
    """The first trial kills its worker; the next two are killed before they are ready."""
    place = Place(tmp_path, ToyTrainer())
    data = Fragile(str(tmp_path / "arrivals"), (1, 2))
    trainer = KillsOnce(str(tmp_path / "killed"))
    place.session._greeting[:] = hello(Work(trainer, data, b"k" * 32, tmp_path / "vault"))
    places.append(place)
    place.keep()
    place.session.start()
    place.session.submit(_task(0, 1.5))
    assert place.next().died
    place.session.submit(_task(0, 1.5))
    result = place.next()
    assert (result.died, result.score) == (False, 1.5)
    assert len((tmp_path / "arrivals").read_bytes()) == 4


def test_what_others_see_of_a_workers_folder_does_not_change(
    tmp_path: Path, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that write files, one that kills its worker: one folder, whose status stays; nothing is left behind."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    place = Place(tmp_path, Writing())
    places.append(place)
    place.keep()
    place.session.start()
    seen = [_visible(temporary)]
    for index, x in enumerate((1.5, 1.6, 0.5, 1.7)):
        place.session.submit(_task(index, x))
        assert place.next().died == (x < 1.0)
        seen.append(_visible(temporary))
    assert len(seen[0]) == 2
    assert stat.S_IMODE(seen[0][1][0]) == 0o700
    assert all(one == seen[0] for one in seen)
    place.session.close()
    assert place.keeper is not None
    place.keeper.wait(600)
    assert list(temporary.iterdir()) == []


def test_a_worker_tells_no_step_whoever_started_it(
    tmp_path: Path, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster may have been started inside a rehearsal: what its worker was told is not handed on."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    place = Place(tmp_path, Listening())
    places.append(place)
    place.keep()
    place.session.start()
    place.session.submit(_task(0, 1.5))
    assert place.next().score == 0.0


class Listening:
    """A trainer that tells how it is listened to: 0 if not at all."""

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return None, float((listener() is not None) + 2 * (VARIABLE in os.environ))


class Writing:
    """A trainer that leaves files where it is and where temporary files go; below 1 it kills its process."""

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        Path(f"{params['x']}").touch()
        with tempfile.NamedTemporaryFile(delete=False):
            pass
        if params["x"] < 1.0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}, float(params["x"])


def _visible(folder: Path) -> list[tuple[int, ...]]:
    """The status of a folder and of what is in it; that is all that others may ask for."""
    found = [one.lstat() for one in (folder, *folder.iterdir())]
    return [(s.st_mode, s.st_ino, s.st_nlink, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found]


def test_silent_connections_do_not_keep_a_worker_out(tmp_path: Path, places: list[Place]) -> None:
    """Before the worker comes, and before it comes back."""
    place = Place(tmp_path, KillsOnce(str(tmp_path / "killed")))
    places.append(place)
    silent = [socket.create_connection((HOST, place.session.port)) for _ in range(3)]
    place.keep()
    place.session.start()
    silent += [socket.create_connection((HOST, place.session.port)) for _ in range(3)]
    place.session.submit(_task(0, 1.5))
    assert place.next().died
    place.session.submit(_task(0, 1.5))
    assert place.next().score == 1.5
    for one in silent:
        one.close()


def test_a_trainer_that_does_not_arrive_is_one_line(tmp_path: Path, places: list[Place]) -> None:
    place = Place(tmp_path, ToyTrainer())
    place.session._greeting[1] = b"cno_such_module\nthing\n."
    places.append(place)
    place.keep()
    with pytest.raises(InvalidInput, match=r"did not arrive in a worker \(ModuleNotFoundError: No module named"):
        place.session.start()


def _enter(place: Place) -> Link:
    """A worker of our own, ready to say what it likes."""
    link = connect(HOST, place.session.port, WORKER, place.session.public)
    for message in place.greeting:
        assert link.recv_bytes() == message
    link.send_bytes(pack_ready(None))
    return link


class Trap:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


@pytest.mark.parametrize("kind", ["pickle", "text", "another trial", "twice", "bad score", "a pickled result"])
def test_a_hostile_worker_runs_nothing_and_loses_its_own_trials_alone(
    tmp_path: Path, places: list[Place], kind: str
) -> None:
    place = Place(tmp_path, ToyTrainer())
    places.append(place)
    link = _enter(place)
    place.session.start()
    place.session.submit(_task(0, 1.5), _task(1, 1.5))
    assert [task.index for task in unpack_tasks(link.recv_bytes())] == [0, 1]
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    good = pack_result(Result(0, 0.5, trap))
    said = {
        "pickle": trap,
        "text": b"score 0.5",
        "another trial": pack_result(Result(7, 0.5)),
        "twice": good + good,
        "bad score": good.replace(b"0.5", b"NaN"),
        "a pickled result": pickle.dumps(Result(0, math.inf, trap)),
    }[kind]
    link.send_bytes(said)
    results = [place.next(), place.next()]
    assert [(one.index, one.died) for one in results] == [(0, True), (1, True)]
    assert not (tmp_path / "sprung").exists()
    other = _enter(place)  # somebody better comes; a model is carried, and not opened
    place.session.submit(_task(0, 1.5))
    other.recv_bytes()
    other.send_bytes(good)
    assert place.next() == Result(0, 0.5, trap)
    assert not (tmp_path / "sprung").exists()
    link.close()
    other.close()


def test_a_worker_that_stalls_in_the_middle_of_a_message_holds_up_nobody(tmp_path: Path, places: list[Place]) -> None:
    place = Place(tmp_path, ToyTrainer())
    places.append(place)
    stalling = _enter(place)
    place.session.start()
    place.session.submit(_task(0, 1.5))
    stalling.recv_bytes()
    stalling._socket.sendall(b"\x10")  # half of a length
    assert place.session.wait(0.05) is None
    other = _enter(place)
    place.session.submit(_task(1, 1.5))
    other.recv_bytes()
    other.send_bytes(pack_result(Result(1, 0.25)))
    assert place.next().score == 0.25
    stalling.close()
    assert place.next() == Result(0, -math.inf, error="the worker process died", died=True)
    other.close()


def test_a_worker_that_died_idle_is_nobodys_death(tmp_path: Path, places: list[Place]) -> None:
    place = Place(tmp_path, ToyTrainer())
    places.append(place)
    first = _enter(place)
    place.session.start()
    first.close()
    second = _enter(place)
    arrived = threading.Event()

    def serve() -> None:
        assert unpack_tasks(second.recv_bytes())[0].index == 4
        second.send_bytes(pack_result(Result(4, 0.75)))
        arrived.set()

    thread = threading.Thread(target=serve)
    thread.start()
    place.session.submit(_task(4, 1.5))
    assert place.next().score == 0.75
    thread.join()
    assert arrived.is_set()
    second.close()


def test_a_worker_that_died_idle_leaves_its_turn_to_a_busy_one(
    tmp_path: Path, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There were two when the tasks were dealt: the other one takes the next when it has answered, however late."""
    place = Place(tmp_path, ToyTrainer())
    places.append(place)
    links = [_enter(place)]
    place.session.start()
    place.session.submit(_task(0, 1.5))
    links.append(_enter(place))
    _until(lambda: place.session.slots == 2)
    links[1].close()
    _until(lambda: not place.session._lines[1].link.idle())
    monkeypatch.setattr(_remote, "_START", 0.0)  # how long a session without any worker is waited for
    answered: list[int] = []

    def serve() -> None:
        for _ in range(2):
            (task,) = unpack_tasks(links[0].recv_bytes())
            answered.append(task.index)
            links[0].send_bytes(pack_result(Result(task.index, 0.5 + task.index)))

    thread = threading.Thread(target=serve)
    thread.start()
    place.session.submit(_task(1, 1.5))
    assert [place.next().score for _ in range(2)] == [0.5, 1.5]
    thread.join()
    assert answered == [0, 1]
    links[0].close()


def _until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    limit = time.monotonic() + 600
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_when_nobody_is_left_it_says_how_to_go_on(
    tmp_path: Path, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, ToyTrainer())
    places.append(place)
    link = _enter(place)
    place.session.start()
    link.close()
    monkeypatch.setattr(_remote, "_START", 0.2)
    with pytest.raises(
        Stopped, match=f"stays charged: check the cluster, then finish it with 'dptune resume {tmp_path}'"
    ):
        place.session.submit(_task(0, 1.5))
