"""The vault: what a run knows and nobody else may see (scores, the number of runs, seeds, tracebacks, timings).

Two folders of mode 700, one in the other. Others can look at the outer one's times, so nothing in it changes from the
charge to the release; whatever changes is in the inner one: a SQLite file, the run's secret, the models of trials that
may still win. Everything is durable when a call returns, so a run that was cut off continues from here, and everything
is checked under a key when it is read (``_seal.py``, ``docs/sealed_runs.md``). Every read through the API is logged
with its reason; the secret and the models are destroyed at release, since secret plus model would remove the noise.
The class is one file because every method keeps the same promise: durable, and checked, when it returns.
"""

from __future__ import annotations

import contextlib
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

from dptune._files import (
    connect,
    plain,
    private_folder,
    remove_tree,
    storage_errors,
    sync_folder,
    sync_tree,
    write_durable,
)
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.randomness import Randomness
from dptune.sealed._seal import SCHEMA, SECRET_BYTES, Damaged, Rows, pack_secret, unpack_secret

__all__ = ["Vault"]

_INSIDE = "inside"
_GONE = "secret.gone"
# A commit is in the file itself when it returns. With a write-ahead file, somebody who removed that would undo it.
_JOURNAL = "TRUNCATE"
_PAGE = 4096  # of a SQLite file; the first holds its header
_WRITABLE = b"\x01\x01"  # bytes 18 and 19 of a SQLite file with such a journal: the versions to write and to read it


@dataclass(frozen=True)
class Vault:
    """An existing vault. One process at a time may work in it: the one that has locked the run's folder.

    Args:
        path: its folder, owner-only.

    Example:
        >>> vault = Vault.create(Path("vault"), {"state": "open"}, Randomness.rehearsal(1))
        >>> vault.begin({0: "{}"})
        >>> vault.finish(0, 0.9, None, None, "")
        >>> vault.outcomes()
        {0: 0.9}
    """

    path: Path

    @classmethod
    def create(cls, path: Path, facts: dict[str, Any], randomness: Randomness) -> Vault:
        """Make a vault that is complete and durable when it appears under its name.

        Args:
            path: its folder, which must not be there.
            facts: what is fixed when the run begins, as JSON values.
            randomness: the run's secret.

        Returns:
            The vault.

        Raises:
            InvalidInput: there is a run in this folder already.
        """
        if path.exists():
            raise InvalidInput(
                f"There is already a run in {path.parent}. Finish it with 'dptune resume', or choose another folder."
            )
        building = cls(path.with_name(f".vault-{secrets.token_hex(4)}"))
        try:
            with storage_errors("The vault"):
                inside = private_folder(private_folder(building.path) / _INSIDE)
                write_durable(building.path / ".gitignore", b"*\n")  # `git add .` beside a run takes no vault with it
                write_durable(inside / "secret", pack_secret(randomness.secret()))
                for name in ("models", "output", "work"):
                    private_folder(inside / name)
                connect(building.database, _JOURNAL).close()
            with building._database() as database:
                Rows(database, randomness).create()
            building.remember(**facts)
            with storage_errors("The vault"):
                sync_tree(building.path)
                building.path.rename(path)
                sync_folder(path.parent)
        except BaseException:
            remove_tree(building.path)
            raise
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Vault:
        """The vault of a run that exists; says what is wrong if it cannot be used.

        Everything in it is checked, as long as its secret is there: after the release, nothing can be.
        """
        vault = cls(path)
        if (path / "run.db").is_file():
            raise Corrupt(f"The run in {path.parent} was begun by an older dptune. Finish it with that version.")
        if not vault.database.is_file():
            raise Corrupt(f"{path.parent} holds no run that can be continued (no vault). Start a new run.")
        if vault.has_secret():
            vault.check()
        else:
            vault._check_tables()
        return vault

    @property
    def inside(self) -> Path:
        """The folder in which things change, out of the sight of others."""
        return self.path / _INSIDE

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.inside / "run.db"

    @property
    def _what(self) -> str:
        return f"The vault in {self.path.parent}"

    def _damaged(self) -> Corrupt:
        """One line that says what to do, and not what was found: that may tell how many trials there were."""
        return Corrupt(
            f"{self._what} is damaged; nothing was released from it. Restore the run's folder from a backup and "
            "resume; if there is none, this run is lost and stays charged: start another one in a new folder."
        )

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        if not self.database.is_file():
            raise self._damaged()
        try:
            with storage_errors(self._what), contextlib.closing(connect(self.database, _JOURNAL)) as database:
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except DptuneError:
            if self._foreign_format():
                raise self._damaged() from None
            raise

    def _foreign_format(self) -> bool:
        """Whether the file says that it must not be written. SQLite then speaks of permissions, which are fine.

        Asked after an error alone: closing the file a second time would end SQLite's locks on it.
        """
        try:
            with self.database.open("rb") as stream:
                first = stream.read(_PAGE)
            return len(first) == _PAGE and first[18:20] != _WRITABLE  # a shorter one was never written: a full disk
        except OSError:
            return False

    @contextlib.contextmanager
    def _rows(self) -> Iterator[Rows]:
        """Checked rows in one transaction."""
        randomness = self.randomness()
        try:
            with self._database() as database:
                yield Rows(database, randomness)
        except (Damaged, Corrupt):
            raise self._damaged() from None

    def _check_tables(self) -> None:
        """All that can be checked without the secret."""
        with self._database() as database:
            check = database.execute("PRAGMA quick_check").fetchone()
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if check != ("ok",) or not set(SCHEMA) <= tables:
            raise self._damaged()

    # What the runner uses.

    def has_secret(self) -> bool:
        """Whether the run can still be continued, hence checked."""
        return (self.inside / "secret").exists()

    def check(self) -> None:
        """Check everything that a release depends on but the models, which are checked when they are read."""
        with self._rows() as rows:
            try:
                rows.check()
            except (TypeError, ValueError, OverflowError):  # values that no vault ever holds
                raise self._damaged() from None

    def facts(self) -> dict[str, Any]:
        """What was fixed when the run began, and how far it is; unchecked once the secret is destroyed."""
        if not self.has_secret():
            with self._database() as database:
                found = database.execute("SELECT name, value FROM facts").fetchall()
        else:
            with self._rows() as rows:
                found = rows.all("facts")
        try:
            return {str(name): json.loads(str(value)) for name, value in found}
        except ValueError:
            raise self._damaged() from None

    def remember(self, **facts: Any) -> None:
        """Store facts, durably."""
        with self._rows() as rows:
            for name, value in facts.items():
                rows.put("facts", name, json.dumps(value))

    def randomness(self) -> Randomness:
        """The run's randomness, until the release destroys it."""
        try:
            with storage_errors(self._what):
                content = (self.inside / "secret").read_bytes() if self.has_secret() else None
            if content is not None:
                return Randomness(unpack_secret(content))
        except Damaged:
            raise self._damaged() from None
        raise Corrupt(
            f"The secret of the run in {self.path.parent} is gone, so it cannot be continued. "
            "Start a new run, which is charged anew."
        )

    def begin(self, trials: Mapping[int, str]) -> None:
        """Note that trials start, handed over together, at one time. The same number must always be the same trial."""
        now = time.time()
        with self._rows() as rows:
            before = {number: rows.get("trials", number) for number in trials}
            other = [number for number, row in before.items() if row is not None and row[1] != trials[number]]
            for number, row in before.items():
                if row is None:
                    rows.put("trials", number, trials[number], now, 0)
        if other:
            raise Corrupt(
                f"The run in {self.path.parent} asks for other trials than before. Continue it with the "
                "version of dptune that began it."
            )

    def deadly(self) -> set[int]:
        """Trials that a process had when it died."""
        with self._rows() as rows:
            return {int(row[0]) for row in rows.all("trials") if row[3]}  # type: ignore[arg-type] # checked

    def death(self, number: int) -> int:
        """Note that a process died while it had this trial; returns how often one has."""
        with self._rows() as rows:
            row = rows.get("trials", number)
            if row is None:
                raise Damaged("trials")
            deaths = int(row[3]) + 1  # type: ignore[arg-type] # checked
            rows.put("trials", *row[:3], deaths)
        return deaths

    def finish(self, number: int, score: float, model: bytes | None, error: str | None, output: str) -> None:
        """Store an outcome, once: the model first, so that an outcome that counts has its model.

        Args:
            number: of the trial.
            score: its score; minus infinity for a failure.
            model: the packed model, if there is one.
            error: the traceback of a failure.
            output: what the training printed.
        """
        said = None if error is None else plain(error)
        with self._rows() as rows:
            if rows.get("outcomes", number) is not None:
                return
            check = None
            if model is not None:
                check = rows.mac("model", number, model).hex()
                write_durable(self._model(number), model)
            rows.put("outcomes", number, float(score), said, plain(output), check, time.time())

    def outcomes(self) -> dict[int, float]:
        """Scores of the trials that are over."""
        with self._rows() as rows:
            return {int(row[0]): float(row[1]) for row in rows.all("outcomes")}  # type: ignore[arg-type] # checked

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
        return self.inside / "models" / f"{number}.model"

    def model(self, number: int) -> bytes | None:
        """The packed model of a trial, if it succeeded: the one that was stored with its outcome, or none at all."""
        with self._rows() as rows:
            row = rows.get("outcomes", number)
            if row is None:
                raise Damaged("outcomes")
            if row[4] is None:
                return None
            try:
                content = self._model(number).read_bytes()
            except FileNotFoundError:
                raise Damaged("models") from None
            if rows.mac("model", number, content).hex() != row[4]:
                raise Damaged("models")
        return content

    def destroy(self) -> None:
        """Destroy the secret, the models and temporary files; scores and logs stay for the curator."""
        with storage_errors(self._what):
            secret, gone = self.inside / "secret", self.inside / _GONE
            if secret.exists():  # under another name first: half a secret is no damage, but the end
                secret.rename(gone)
                sync_folder(self.inside)
            if gone.exists():
                with gone.open("r+b") as stream:
                    stream.write(secrets.token_bytes(SECRET_BYTES))
                    stream.flush()
                    os.fsync(stream.fileno())
                gone.unlink()
            for name in ("work", "models"):  # models last: without them it counts as done
                remove_tree(self.inside / name)
                private_folder(self.inside / name)
            sync_folder(self.inside)

    def destroyed(self) -> bool:
        """Whether :meth:`destroy` was completed."""
        models = self.inside / "models"
        left = self.has_secret() or (self.inside / _GONE).exists() or (models.is_dir() and any(models.iterdir()))
        return not left

    def log_read(self, what: str, reason: str) -> None:
        """Write down that somebody looked.

        Args:
            what: what was looked at.
            reason: why.
        """
        try:
            reader = getpass.getuser()
        except (KeyError, OSError):  # a user without a name
            reader = str(os.getuid())
        with self._database() as database:
            row = (time.time(), plain(reader), plain(what), plain(reason))
            database.execute("INSERT INTO reads VALUES (?, ?, ?, ?)", row)
