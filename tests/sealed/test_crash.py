"""``kill -9`` at random moments: no lost or double charge, K never drawn again, the winner of the undisturbed run.

A run in a process of its own is killed again and again, with its workers or without, and resumed until it is finished.
The undisturbed run is one with the same secret, which the test puts in the place of the operating system's.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sealed.toy import DATA, ToyTrainer, toy_plan

from dptune.executors import Processes
from dptune.ledgers import Ledger
from dptune.randomness import Randomness
from dptune.sealed import load_release, read_vault, run

TRIALS = 20
ALONE, STACKED = "ToyTrainer", "StackingTrainer"

# The same run in every process: a sealed one (charged, not a rehearsal) whose secret the test knows.
SCRIPT = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tests.sealed import toy
    from tests.sealed.toy import DATA, Inline, toy_plan
    from dptune.executors import Processes
    from dptune.randomness import Randomness
    from dptune.sealed import resume, run
    out, ledger, seconds, trials = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    workers, kind = int(sys.argv[5]), getattr(toy, sys.argv[6])
    Randomness.fresh = classmethod(lambda cls: cls(b"crash" + bytes(27)))
    trainer, executor = kind(seconds=seconds), Processes(workers) if workers else Inline()
    if (out / "vault").exists():
        resume(out, trainer, DATA, executor=executor)
    else:
        run(toy_plan(count=trials, final=True), trainer, DATA, ledger=ledger, dataset="icu", out=out,
            executor=executor)
""")


def _start(
    out: Path, ledger: Path, seconds: float, trials: int, workers: int = 1, kind: str = ALONE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SCRIPT, str(out), str(ledger), str(seconds), str(trials), str(workers), kind]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def _progress(out: Path) -> dict[int, tuple[str, float | None]]:
    """What the vault holds now: trials as they were asked for, and their scores."""
    database = out / "vault" / "inside" / "run.db"
    if not database.is_file():
        return {}
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
        rows = connection.execute("SELECT t.number, trial, score FROM trials t LEFT JOIN outcomes o USING (number)")
        return {row[0]: (row[1], row[2]) for row in rows}


def _finished(out: Path) -> int:
    return sum(score is not None for _, score in _progress(out).values())


def _disturbed(
    folder: Path, kills: int, seconds: float, trials: int, chance: random.Random, kind: str
) -> tuple[Path, Ledger, int]:
    """Run and kill up to ``kills`` times at random moments, then let it finish. How many kills there were depends on
    the machine: a run that is over cannot be killed. Returns the folder, the ledger and their number."""
    folder.mkdir()
    ledger = Ledger.create(folder / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    out = folder / "run"
    before: dict[int, tuple[str, float | None]] = {}
    done, longest = 0, 1.5
    while done < kills:
        process = _start(out, ledger.path, seconds, trials, 2, kind)
        moment = time.monotonic() + chance.uniform(0.0, longest)
        # Spread the kills over the whole run, however fast the machine is: not too much progress before each.
        while process.poll() is None and time.monotonic() < moment:
            if _finished(out) > 1 + trials * done / kills:
                moment = min(moment, time.monotonic() + chance.uniform(0.0, 2.0 * seconds))
            time.sleep(0.02)
        alive = process.poll() is None
        if alive:
            (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        if not alive:
            assert process.returncode == 0, errors.decode()
            return out, ledger, done
        done += 1
        assert ledger.status("icu").charges <= 1
        now = _progress(out)
        for number, (trial, score) in before.items():
            assert now[number][0] == trial  # never drawn again
            if score is not None:
                assert now[number][1] == score  # never counted twice
        longest = max(0.5, longest * (0.8 if _finished(out) > trials * done / kills else 1.1))
        before = now
    process = _start(out, ledger.path, seconds, trials, kind=kind)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return out, ledger, done


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of a run with this many trials that nobody disturbed."""
    folder = tmp_path_factory.mktemp("calm")

    def calm(trials: int) -> Path:
        out = folder / str(trials)
        if not out.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Randomness, "fresh", classmethod(lambda cls: cls(b"crash" + bytes(27))))
                run(
                    toy_plan(count=trials, final=True),
                    ToyTrainer(),
                    DATA,
                    out=out,
                    executor=Processes(1),
                    data_is="synthetic",
                )
        return out

    return calm


@pytest.mark.parametrize(
    ("kills", "trials", "seconds", "kind"),
    [
        (6, 8, 0.05, ALONE),
        pytest.param(200, TRIALS, 0.5, ALONE, marks=pytest.mark.slow),
        pytest.param(50, 2 * TRIALS, 0.1, STACKED, marks=pytest.mark.slow),
    ],
)
def test_kills_at_random_moments(
    tmp_path: Path, undisturbed: Callable[[int], Path], kills: int, trials: int, seconds: float, kind: str
) -> None:
    """As many kills as it says, in one run or, if that was over too soon, in several: each ends as the calm one."""
    chance, calm, left, runs = random.Random(kills), undisturbed(trials), kills, 0
    while left > 0:
        out, ledger, done = _disturbed(tmp_path / str(runs), left, seconds, trials, chance, kind)
        _same_end(out, calm, ledger, trials)
        left, runs = left - done, runs + 1


def _same_end(out: Path, calm: Path, ledger: Ledger, trials: int) -> None:
    one, other = load_release(out), load_release(calm)
    assert one.params == other.params
    assert one.model["total"] == other.model["total"]
    assert read_vault(out, "test").scores == read_vault(calm, "test").scores
    assert len(read_vault(out, "test").scores) == trials + 1
    assert [e.body["kind"] for e in ledger.entries()] == ["ledger", "dataset", "charge"]
    ledger.verify()
    assert not (out / "vault" / "inside" / "secret").exists()


POINTS = [
    ("Vault.create", "before"),
    ("Vault.create", "after"),
    ("Ledger.charge", "after"),
    ("Vault.begin", "after"),
    ("Vault.finish", "after"),
    ("release.build_release", "before"),
    ("release.publish_release", "before"),
    ("release.publish_release", "after"),
    ("Vault.destroy", "before"),
    ("Vault.destroy", "after"),
]


@pytest.mark.parametrize(
    ("name", "when", "kind"),
    [*((*point, ALONE) for point in POINTS), ("Vault.finish", "after", STACKED)],
)
def test_a_kill_at_every_step_of_the_order(
    tmp_path: Path, undisturbed: Callable[[int], Path], name: str, when: str, kind: str
) -> None:
    """A process that dies exactly there is continued to the same end, with one charge. It has workers where trainings
    are under way; those kills of it are theirs too."""
    workers = int(name in ("Vault.begin", "Vault.finish"))
    ledger = Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    owner, attribute = name.split(".")
    place = {"Vault": "dptune.sealed.vault", "Ledger": "dptune.ledgers.ledger", "release": "dptune.sealed._under_way"}[
        owner
    ]
    target = f"module.{owner}" if owner != "release" else "module"
    fault = textwrap.dedent(f"""
        import importlib, os, signal
        module = importlib.import_module("{place}")
        original = getattr({target}, "{attribute}")
        def deadly(*args, **options):
            if "{when}" == "after":
                original(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)
        setattr({target}, "{attribute}", deadly)
    """)
    out = tmp_path / "run"
    command = [sys.executable, "-c", fault + SCRIPT, str(out), str(ledger.path), "0", "3", str(workers), kind]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert ledger.status("icu").charges == (0 if name == "Vault.create" else 1)
    process = _start(out, ledger.path, 0.0, 3, workers, kind)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert ledger.status("icu").charges == 1
    calm = undisturbed(3)
    assert load_release(out).params == load_release(calm).params
    assert load_release(out).model["total"] == load_release(calm).model["total"]
    assert not (out / "vault" / "inside" / "secret").exists()
