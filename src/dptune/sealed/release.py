"""The release folder: the only thing that leaves a run.

Built inside the vault and moved out in one step, so that it is there completely or not at all. File times are set
to a public time (``release_at``, or the time of the charge), because the true one tells how long the run took,
hence how many trainings there were. No file here may depend on anything but the winner.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dptune.errors import Corrupt, InvalidInput
from dptune.executors.models import is_arrays, open_model
from dptune.sealed._files import private_folder, remove_tree, storage_errors, sync_folder, sync_tree
from dptune.sealed.statement import Facts, statement_markdown

__all__ = ["Release", "load_release", "public_time", "set_times", "write_release"]


@dataclass(frozen=True)
class Release:
    """What a run released."""

    path: Path
    params: dict[str, Any]
    epsilon: float | None
    delta: float
    epsilon_lower: float | None
    method: str
    dataset: str
    statement: str = field(repr=False)
    details: dict[str, Any] = field(repr=False)
    continued: bool = True  # False if there was nothing left to do

    @property
    def model(self) -> Any:
        """The trained model, or None if the public default was released without one."""
        name = self.details["model"]
        if name is None:
            return None
        content = (self.path / name).read_bytes()
        if name.endswith(".npz") and not is_arrays(content):
            raise Corrupt(f"{self.path / name} is no file of arrays. Take the release from where it was published.")
        return open_model(content)


def public_time(text: str) -> datetime.datetime:
    """A time with its zone, from ISO 8601."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidInput(f"'release_at' must be a time such as 2030-01-31T12:00:00+00:00; got {text!r}.") from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def _model_file(model: bytes) -> tuple[str, bytes]:
    """The name of a packed model's file. It is not opened here: a pickle may run code of the worker that made it."""
    return ("model.npz" if is_arrays(model) else "model.pickle"), model


def set_times(moment: datetime.datetime, *paths: Path) -> None:
    """Give files and folders a public time."""
    seconds = moment.timestamp()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (seconds, seconds))


def write_release(run: Path, facts: Facts, model: bytes | None) -> Release:
    """Write the release of the run in folder ``run``; the folder appears in one step."""
    building = run / "vault" / "release"
    with storage_errors("The release"):
        remove_tree(building)
        private_folder(building)
        name, content = (None, b"") if model is None else _model_file(model)
        facts = Facts(**{**facts.__dict__, "model": name})
        details = facts.describe()
        if name is not None:
            details["model_sha256"] = hashlib.sha256(content).hexdigest()
            (building / name).write_bytes(content)
        (building / "release.json").write_text(json.dumps(details, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (building / "statement.md").write_text(statement_markdown(facts), encoding="utf-8")
        (building / "plan.json").write_text(facts.plan.to_json() + "\n", encoding="utf-8")
        moment = public_time(facts.released)
        files = sorted(building.iterdir())
        for path in files:
            path.chmod(0o644)
        building.chmod(0o755)
        sync_tree(building)
        set_times(moment, *files, building)
        building.rename(run / "release")
        sync_folder(run)
    return load_release(run)


def load_release(run: Path, continued: bool = True) -> Release:
    """The release of a run that has one."""
    folder = run / "release"
    try:
        details = json.loads((folder / "release.json").read_text(encoding="utf-8"))
        return Release(
            folder,
            details["params"],
            details["epsilon"],
            details["delta"],
            details["epsilon_lower"],
            details["method"],
            details["dataset"],
            (folder / "statement.md").read_text(encoding="utf-8"),
            details,
            continued,
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise Corrupt(f"The release in {run} is damaged. Restore the folder from a backup.") from None
