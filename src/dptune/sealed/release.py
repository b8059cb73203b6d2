"""The release folder: the only thing that leaves a run.

Built inside the vault and moved out in one step, so that it is there completely or not at all. File times are set
to a public time (``release_at``, or the time of the charge), because the true one tells how long the run took,
hence how many trainings there were. No file here may depend on anything but the winner.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dptune.errors import Corrupt, InvalidInput
from dptune.sealed._files import private_folder, remove_tree, storage_errors, sync_folder, sync_tree
from dptune.sealed._seal import file_digest, plan_file, seal_release
from dptune.sealed._signature import Signer
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
        if name.endswith(".npz"):
            with np.load(io.BytesIO(content)) as arrays:
                return dict(arrays)
        return pickle.loads(content)


def public_time(text: str) -> datetime.datetime:
    """A time with its zone, from ISO 8601."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidInput(f"'release_at' must be a time such as 2030-01-31T12:00:00+00:00; got {text!r}.") from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def _model_file(model: bytes) -> tuple[str, bytes]:
    """Arrays by name become an .npz without times in it; any other model stays a pickle."""
    loaded = None
    with contextlib.suppress(Exception):  # a class that only workers can import stays what it is
        loaded = pickle.loads(model)
    if isinstance(loaded, dict) and loaded and all(isinstance(v, np.ndarray) for v in loaded.values()):
        plain = {str(name): value for name, value in loaded.items() if value.dtype != object}
        if len(plain) == len(loaded):
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **plain)
            return "model.npz", buffer.getvalue()
    return "model.pickle", model


def set_times(moment: datetime.datetime, *paths: Path) -> None:
    """Give files and folders a public time."""
    seconds = moment.timestamp()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (seconds, seconds))


def write_release(run: Path, facts: Facts, model: bytes | None, signer: Signer | None = None) -> Release:
    """Write the release of the run in folder ``run``, signed by the run; the folder appears in one step."""
    building = run / "vault" / "release"
    with storage_errors("The release"):
        remove_tree(building)
        private_folder(building)
        name, content = (None, b"") if model is None else _model_file(model)
        facts = Facts(**{**facts.__dict__, "model": name})
        details = facts.describe()
        contents = {"statement.md": statement_markdown(facts).encode(), "plan.json": plan_file(facts.plan)}
        if name is not None:
            details["model_sha256"] = file_digest(content)
            contents[name] = content
        if signer is not None:
            details["seal"] = seal_release(details, contents, signer)
        contents["release.json"] = (json.dumps(details, indent=2, sort_keys=True) + "\n").encode()
        for file, text in contents.items():
            (building / file).write_bytes(text)
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
