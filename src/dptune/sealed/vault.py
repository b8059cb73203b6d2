"""The vault: what a run knows and nobody else may see (scores, the number of runs, seeds, tracebacks, timings).

A folder of mode 700 with one SQLite file, the run's secret and the models of trials that may still win. Everything
is durable when a call returns, so a run that was cut off continues from here (``docs/sealed_runs.md``). Every read
through the API is logged with its reason; the secret and the models are destroyed at release, since secret plus
model would remove the noise.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.sealed._files import (
    connect,
    private_folder,
    remove_tree,
    storage_errors,
    sync_folder,
    sync_tree,
    write_durable,
)
from dptune.sealed.randomness import SEED_BYTES, Randomness

__all__ = ["Reading", "Vault", "read_vault"]

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (number INTEGER PRIMARY KEY, trial TEXT NOT NULL, started REAL NOT NULL, deaths INTEGER NOT NULL);
CREATE TABLE outcomes (number INTEGER PRIMARY KEY, score REAL, error TEXT, output TEXT, finished REAL NOT NULL);
CREATE TABLE reads (time REAL NOT NULL, reader TEXT NOT NULL, what TEXT NOT NULL, reason TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Vault:
    """An existing vault. One process at a time may work in it (:meth:`locked`)."""

    path: Path

    @classmethod
    def create(cls, path: Path, facts: dict[str, Any], randomness: Randomness) -> Vault:
        """Make a vault that is complete and durable when it appears under its name."""
        if path.exists():
            raise InvalidInput(
                f"There is already a run in {path.parent}. Finish it with 'dptune resume', or choose another folder."
            )
        building = private_folder(path.with_name(f".vault-{secrets.token_hex(4)}"))
        try:
            with storage_errors("The vault"):
                write_durable(building / "secret", randomness.secret())
                for name in ("models", "output", "work"):
                    private_folder(building / name)
                with contextlib.closing(connect(building / "run.db")) as database:
                    database.executescript(_SCHEMA)
                    rows = [(name, json.dumps(value)) for name, value in facts.items()]
                    database.executemany("INSERT INTO facts VALUES (?, ?)", rows)
                sync_tree(building)
                building.rename(path)
                sync_folder(path.parent)
        except BaseException:
            remove_tree(building)
            raise
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Vault:
        """The vault of a run that exists; says what is wrong if it cannot be used."""
        if not (path / "run.db").is_file():
            raise Corrupt(f"{path.parent} holds no run that can be continued (no vault). Start a new run.")
        vault = cls(path)
        with storage_errors(f"The vault in {path.parent}"), contextlib.closing(connect(path / "run.db")) as database:
            check = database.execute("PRAGMA quick_check").fetchone()
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if check != ("ok",) or not {"facts", "trials", "outcomes", "reads"} <= tables:
            raise Corrupt(f"The vault in {path.parent} is damaged. Restore the run folder from a backup.")
        return vault

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive work; the lock goes with the process, however it ends."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DptuneError(
                    f"Another process is working on the run in {self.path.parent}; wait for it."
                ) from None
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        what = f"The vault in {self.path.parent}"
        with storage_errors(what), contextlib.closing(connect(self.path / "run.db")) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    # What the runner uses.

    def facts(self) -> dict[str, Any]:
        """What was fixed when the run began, and how far it is."""
        with self._database() as database:
            rows = database.execute("SELECT name, value FROM facts").fetchall()
        return {name: json.loads(value) for name, value in rows}

    def remember(self, **facts: Any) -> None:
        """Store facts, durably."""
        with self._database() as database:
            rows = [(name, json.dumps(value)) for name, value in facts.items()]
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

    def randomness(self) -> Randomness:
        """The run's randomness, until the release destroys it."""
        try:
            secret = (self.path / "secret").read_bytes()
        except FileNotFoundError:
            raise Corrupt(f"The secret of the run in {self.path.parent} is gone; it cannot be continued.") from None
        if len(secret) != SEED_BYTES:
            raise Corrupt(f"The secret of the run in {self.path.parent} is damaged; it cannot be continued.")
        return Randomness(secret)

    def begin(self, trials: Mapping[int, str]) -> None:
        """Note that trials start, handed over together, at one time. The same number must always be the same trial."""
        now = time.time()
        with self._database() as database:
            for number, trial in trials.items():
                row = database.execute("SELECT trial FROM trials WHERE number = ?", (number,)).fetchone()
                if row is None:
                    database.execute("INSERT INTO trials VALUES (?, ?, ?, 0)", (number, trial, now))
                elif row[0] != trial:
                    raise Corrupt(
                        f"The run in {self.path.parent} asks for other trials than before. Continue it with the "
                        "version of dptune that began it."
                    )

    def deadly(self) -> set[int]:
        """Trials that a process had when it died."""
        with self._database() as database:
            return {row[0] for row in database.execute("SELECT number FROM trials WHERE deaths > 0")}

    def death(self, number: int) -> int:
        """Note that a process died while it had this trial; returns how often one has."""
        with self._database() as database:
            database.execute("UPDATE trials SET deaths = deaths + 1 WHERE number = ?", (number,))
            row = database.execute("SELECT deaths FROM trials WHERE number = ?", (number,)).fetchone()
        return int(row[0])

    def finish(self, number: int, score: float, model: bytes | None, error: str | None, output: str) -> None:
        """Store an outcome, once: the model first, so that an outcome that counts has its model."""
        with storage_errors(f"The vault in {self.path.parent}"):
            if model is not None:
                write_durable(self._model(number), model)
        with self._database() as database:
            database.execute(
                "INSERT OR IGNORE INTO outcomes VALUES (?, ?, ?, ?, ?)", (number, score, error, output, time.time())
            )

    def outcomes(self) -> dict[int, float]:
        """Scores of the trials that are over."""
        with self._database() as database:
            return dict(database.execute("SELECT number, score FROM outcomes").fetchall())

    def seconds(self) -> tuple[float, int] | None:
        """The mean duration of a training, and how many were trained together at most; secrets, but for a rehearsal.

        Trainings that were handed over together share the time of a worker.
        """
        query = """
            SELECT avg((finished - started) / together), max(together) FROM trials JOIN outcomes USING (number)
            JOIN (SELECT started, count(*) AS together FROM trials GROUP BY started) USING (started)
        """
        with self._database() as database:
            mean, most = database.execute(query).fetchone()
        return None if mean is None else (mean, most)

    def _model(self, number: int) -> Path:
        return self.path / "models" / f"{number}.pickle"

    def model(self, number: int) -> bytes | None:
        """The pickled model of a trial, if it succeeded."""
        path = self._model(number)
        return path.read_bytes() if path.is_file() else None

    def destroy(self) -> None:
        """Destroy the secret, the models and temporary files; scores and logs stay for the curator."""
        with storage_errors(f"The vault in {self.path.parent}"):
            secret = self.path / "secret"
            if secret.is_file():
                with secret.open("r+b") as stream:
                    stream.write(secrets.token_bytes(SEED_BYTES))
                    stream.flush()
                    os.fsync(stream.fileno())
                secret.unlink()
            for name in ("models", "work"):
                remove_tree(self.path / name)
                private_folder(self.path / name)
            sync_folder(self.path)

    def log_read(self, what: str, reason: str) -> None:
        """Write down that somebody looked."""
        with self._database() as database:
            database.execute("INSERT INTO reads VALUES (?, ?, ?, ?)", (time.time(), getpass.getuser(), what, reason))


@dataclass(frozen=True)
class Reading:
    """What a curator read. Not releasable: each of these would break the run's guarantee."""

    scores: dict[int, float]
    params: dict[int, dict[str, Any]]
    errors: dict[int, str]
    deaths: dict[int, int]
    started: dict[int, float]
    finished: dict[int, float]
    reads: list[tuple[float, str, str, str]]


def read_vault(run: str | Path, reason: str) -> Reading:
    """Open a run's vault as its curator. The read is logged, with its reason, before anything is returned."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("Reading a vault needs a reason: it is logged, and what you read must not be released.")
    vault = Vault.open(Path(run) / "vault")
    vault.log_read("scores, parameters, errors and timings", reason)
    with vault._database() as database:
        trials = database.execute("SELECT number, trial, started, deaths FROM trials").fetchall()
        outcomes = database.execute("SELECT number, score, error, finished FROM outcomes").fetchall()
        reads = database.execute("SELECT time, reader, what, reason FROM reads ORDER BY time").fetchall()
    return Reading(
        scores={row[0]: row[1] for row in outcomes},
        params={row[0]: json.loads(row[1])["params"] for row in trials},
        errors={row[0]: row[2] for row in outcomes if row[2]},
        deaths={row[0]: row[3] for row in trials if row[3]},
        started={row[0]: row[2] for row in trials},
        finished={row[0]: row[3] for row in outcomes},
        reads=reads,
    )
