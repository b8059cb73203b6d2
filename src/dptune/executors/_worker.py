"""The worker process: receives a trainer and data once, then trains what it is handed, one trial or a stack of them.

Started as ``python -m dptune.executors._worker`` with either an inherited socket or the address of one. It dies
with its parent, keeps no file outside the vault (its temporary folder is the vault's, or one that its parent
removes), and what trainers print goes to the vault, never to a terminal. What it answers is data (``_messages``): the
driver opens no pickle that was made here.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol, TypeVar

from dptune._progress import VARIABLE, written_to
from dptune._threads import threads_alone
from dptune.errors import DptuneError
from dptune.executors._messages import pack_ready, pack_result, unpack_tasks
from dptune.executors._sharing import views
from dptune.executors.base import Result, Task
from dptune.executors.models import open_model, pack_model
from dptune.trainer import DeclaresFactory, SupportsFit, SupportsStacking, SupportsThreads, trains_itself

__all__ = ["main", "serve", "try_blank"]

DataT = TypeVar("DataT")

_SET_PARENT_DEATH_SIGNAL = 1
_OVER = 3  # exit code: nobody there any more
_TRIES = 100  # to be let in by a driver that is there


class Channel(Protocol):
    """Whole messages in both directions; EOFError or OSError when the other side is gone."""

    def send_bytes(self, message: bytes, /) -> None:
        """Send one."""

    def recv_bytes(self) -> bytes:
        """Wait for one."""


def _die_with(parent: int) -> None:
    """End this process when its parent ends: nobody may train for a run that was cut off."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _train(
    trainer: SupportsFit[DataT, object], data: DataT, secret: bytes, tasks: Sequence[Task], pickles: bool = False
) -> Iterator[Result]:
    """The results of all tasks, each its own: what a stack did not give is trained alone, from its own generator."""
    if any(task.blank for task in tasks):
        yield from (try_blank(trainer, data, task, pickles) for task in tasks)
        return
    fitted = _stack(trainer, data, secret, tasks) if len(tasks) > 1 else {}
    for task in tasks:
        yield _attempt(trainer, data, secret, task, fitted.pop(task.index, None), pickles)


def _stack(
    trainer: SupportsFit[DataT, object], data: DataT, secret: bytes, tasks: Sequence[Task]
) -> dict[int, tuple[object, float]]:
    """What the trainer made of the trials that it can train together; details of a failure go to the vault."""
    from dptune.methods.execute import fit_stack, stacks  # noqa: PLC0415
    from dptune.methods.trial import trial_from_json  # noqa: PLC0415 - after the environment is set
    from dptune.randomness import Randomness  # noqa: PLC0415

    fitted: dict[int, tuple[object, float]] = {}
    try:
        if not isinstance(trainer, SupportsStacking):
            return {}
        for stack in stacks(trainer, [trial_from_json(task.trial) for task in tasks]):
            try:
                fitted |= fit_stack(trainer, stack, data, Randomness(secret))
            except BaseException:  # nobody's failure: each is trained alone
                traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    return fitted


def _attempt(
    trainer: SupportsFit[DataT, object],
    data: DataT,
    secret: bytes,
    task: Task,
    fitted: tuple[object, float] | None,
    pickles: bool,
) -> Result:
    """One trial. Whatever it raises is a failure: minus infinity, details for the vault."""
    from dptune.methods.execute import fit_trial, score_trial  # noqa: PLC0415
    from dptune.methods.trial import Outcome, trial_from_json  # noqa: PLC0415 - after the environment is set
    from dptune.randomness import Randomness  # noqa: PLC0415

    try:
        trial, randomness = trial_from_json(task.trial), Randomness(secret)
        factory = trainer.module_factory if isinstance(trainer, DeclaresFactory) else None
        if trial.final:  # it is alone, and its values do not depend on this
            trainer = _with_threads(trainer, threads_alone())
        if fitted is None:
            start = None if task.start is None else open_model(task.start, pickle=pickles, factory=factory)
            model, score = fit_trial(trainer, trial, data, randomness, start=start)
        else:
            model, score = score_trial(trial, fitted, data, randomness)
        outcome = Outcome(task.index, score)
        packed = pack_model(model, pickle=pickles, factory=factory, params=trial.params)
        return Result(task.index, outcome.score, packed)
    except BaseException:  # SystemExit and KeyboardInterrupt of a trainer are failures too
        return Result(task.index, float("-inf"), error=traceback.format_exc())


def _with_threads(trainer: SupportsFit[DataT, object], threads: int) -> SupportsFit[DataT, object]:
    """The same trainer with several threads; as it is, if it has none, or gives another trainer or an error instead."""
    if not isinstance(trainer, SupportsThreads) or not trains_itself(trainer, "with_threads"):
        return trainer
    try:
        made = trainer.with_threads(threads)
    except Exception:
        traceback.print_exc()
        return trainer
    return made if type(made) is type(trainer) else trainer


def try_blank(trainer: SupportsFit[DataT, object], data: DataT, task: Task, pickles: bool) -> Result:
    """One trial on blank records, packed as a model is; what is wrong in one line. No private record is trained on."""
    from dptune.data import size  # noqa: PLC0415 - after the environment is set
    from dptune.methods.blank import NoBlank, blank_records  # noqa: PLC0415
    from dptune.methods.execute import try_trial  # noqa: PLC0415
    from dptune.methods.trial import trial_from_json  # noqa: PLC0415

    try:
        blank, trial = blank_records(data), trial_from_json(task.trial)
    except NoBlank:
        return Result(task.index, 0.0)
    try:
        model = try_trial(trainer, trial, blank)
        factory = trainer.module_factory if isinstance(trainer, DeclaresFactory) else None
        pack_model(model, pickle=pickles, factory=factory, params=trial.params)
        return Result(task.index, 0.0)
    except BaseException as error:  # as in a trial
        traceback.print_exc()
        said = " ".join(str(error).split())
        said = said if isinstance(error, DptuneError) else f"{type(error).__name__}: {said}"
        with contextlib.suppress(Exception):
            said += " (There were no records: a part may have none, so a trainer must train on none.)" * (
                not size(blank)
            )
        return Result(task.index, float("-inf"), error=said)


class _Captured:
    """Standard output and error of this process, kept in memory until they are sent to the vault."""

    def __init__(self) -> None:
        self._file = os.memfd_create("output") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)

    def take(self) -> str:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
        size = os.lseek(self._file, 0, os.SEEK_END)
        os.lseek(self._file, 0, os.SEEK_SET)
        text = os.read(self._file, size).decode(errors="replace")
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        return text


def serve(channel: Channel, captured: _Captured | None) -> None:
    """Take the work, say whether it arrived, then answer tasks until the other side closes."""
    paths, shared = pickle.loads(channel.recv_bytes())
    sys.path[:] = [*paths, *(p for p in sys.path if p not in paths)]
    try:
        trainer, data, secret, pickles = pickle.loads(channel.recv_bytes(), buffers=views(shared))
    except Exception as error:
        traceback.print_exc()
        channel.send_bytes(pack_ready(_reason(error)))
        return
    channel.send_bytes(pack_ready(None))
    while True:
        try:
            tasks = unpack_tasks(channel.recv_bytes())
        except (EOFError, OSError):
            return
        with _watched(tasks):
            for result in _train(trainer, data, secret, tasks, pickles):
                channel.send_bytes(pack_result(_with_output(result, captured)))


def _watched(tasks: Sequence[Task]) -> contextlib.AbstractContextManager[None]:
    """In a rehearsal, how far the training is; nothing in a sealed run, and on blank records."""
    folder = os.environ.get(VARIABLE)
    if folder is None or any(task.blank for task in tasks):
        return contextlib.nullcontext()
    return written_to(Path(folder) / str(tasks[0].index))


def _reason(error: Exception) -> str:
    """Why trainer or data did not arrive. What cannot be imported is named; any other text may quote records."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, ImportError | AttributeError) else name


def _with_output(result: Result, captured: _Captured | None) -> Result:
    """The result, with what was printed since the last one: the output of a stack comes with its first member."""
    if captured is not None:
        return Result(result.index, result.score, result.model, result.error, output=captured.take())
    sys.stdout.flush()
    sys.stderr.flush()
    return result


def main() -> None:
    """Parse how to reach the other side, then serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--descriptor", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--folder")
    options = parser.parse_args()
    _die_with(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to stop
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold scores
    if options.descriptor is not None:
        serve(Connection(options.descriptor), None)
        return
    os.environ.pop(VARIABLE, None)  # of whoever started the cluster: the driver reads no steps from elsewhere
    own, driver = (bytes.fromhex(sys.stdin.readline().strip()) for _ in range(2))
    os.environ["TMPDIR"] = tempfile.tempdir = options.folder
    os.chdir(options.folder)
    try:
        serve(_connect(options.host, options.port, own, driver), _Captured())
    except (OSError, EOFError):
        sys.exit(_OVER)


def _connect(host: str, port: int, own: bytes, driver: bytes) -> Channel:
    """The link to the driver. A listener at which many strangers wait may send a worker away: it comes again."""
    from dptune.executors._handshake import Keys  # noqa: PLC0415
    from dptune.executors._link import connect  # noqa: PLC0415 - 'cryptography' comes with the extra 'ray'

    for _ in range(_TRIES - 1):
        with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError, TimeoutError):
            return connect(host, port, Keys(own), driver)
        time.sleep(0.1)
    return connect(host, port, Keys(own), driver)


if __name__ == "__main__":
    main()
