"""The release folder: the only thing that leaves a run.

Built inside the vault and moved out in one step, so that it is there completely or not at all. File times are set
to a public time (``release_at`` if it was kept, or the time of the charge), because the true one tells how long the
run took, hence how many trainings there were. No file here may depend on anything but the winner, and on whether
``release_at`` was kept.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dptune._files import plain, private_folder, remove_tree, storage_errors, sync_folder, sync_tree
from dptune.errors import Corrupt, InvalidInput
from dptune.executors.models import KINDS, kind_of, open_model
from dptune.sealed._binding import file_digest, plan_file, seal_release
from dptune.sealed._signature import Signer
from dptune.sealed.rendering import statement_html, statement_markdown
from dptune.sealed.statement import Facts
from dptune.sealed.stating import release_details, state
from dptune.tables import Encoder

__all__ = [
    "Release",
    "build_release",
    "digest_release",
    "load_release",
    "public_time",
    "publish_release",
    "set_times",
]

MODEL_FILES = tuple(f"model.{kind}" for kind in KINDS)


@dataclass(frozen=True, repr=False)
class Release:
    """What a run released: the only thing that leaves it.

    Args:
        path: the folder, which may be copied, sent and published.
        params: the winner's parameters.
        epsilon: what everything cost, tuning included; None where nothing finite is known.
        delta: the delta at which epsilon is stated.
        epsilon_lower: a certificate that the same account cannot be below; None if none is known.
        method: the plan's method.
        dataset: the name of the data set.
        statement: the privacy statement, as Markdown.
        details: everything that ``release.json`` holds.
        continued: False if there was nothing left to do.

    Example:
        >>> found = Release(Path("release"), {"lr": 0.1}, 3.0, 1e-5, 2.9, "subset", "icu", "", {"model": "model.npz"})
        >>> found.params
        {'lr': 0.1}
        >>> found
        Release('release': model.npz by subset on icu, epsilon 3.0000 at delta 1e-05)
    """

    path: Path
    params: dict[str, Any]
    epsilon: float | None
    delta: float
    epsilon_lower: float | None
    method: str
    dataset: str
    statement: str
    details: dict[str, Any]
    continued: bool = True  # False if there was nothing left to do

    def __repr__(self) -> str:
        epsilon = "no finite epsilon" if self.epsilon is None else f"epsilon {self.epsilon:.4f}"
        mark = f", {self.details['watermark']}" if self.details.get("watermark") else ""
        model = self.details.get("model") or "NO MODEL"
        what = f"{model} by {self.method} on {self.dataset}, {epsilon} at delta {self.delta:g}{mark}"
        return f"Release({str(self.path)!r}: {what})"

    @property
    def outcome(self) -> str:
        """What became of the run: ``"model"``, or ``"no model"`` where the parameters were released without one."""
        return "no model" if self.details["model"] is None else "model"

    @property
    def model(self) -> Any:
        """The trained model, ready to predict; None if parameters were released without one.

        Its file must have the hash that ``release.json`` states, and nothing in it is run: a pickle, or a torch module
        that needs a factory, is opened by :meth:`open_model` alone.
        """
        return self.open_model()

    def open_model(self, *, pickle: bool = False, factory: Callable[[dict[str, Any]], Any] | None = None) -> Any:
        """The trained model, also where opening it needs your consent or your code.

        Args:
            pickle: whether a pickle may be opened. That runs code of whoever made the release.
            factory: makes the torch module, where the release names a factory; what a file names is not imported.

        Returns:
            The model, with ``predict``, ``predict_proba`` and ``score`` where it is one of classes; a regression has
            ``predict`` and ``score``, which is R^2. None if there is none.

        Raises:
            Corrupt: the file is not the one that was released, or not what its name says.
            InvalidInput: it is a pickle and ``pickle`` is False, or it needs a factory.
        """
        name = self.details["model"]
        if name is None:
            return None
        from dptune.sealed._predicting import usable  # noqa: PLC0415 - loads the training engines

        content = self._model_content(name)
        try:
            kind = name.rpartition(".")[2]
            return usable(open_model(content, kind=kind, pickle=pickle, factory=factory))
        except InvalidInput:
            raise
        except Exception as error:
            raise Corrupt(
                f"{self.path / name} is not a model that dptune stored ({type(error).__name__}). Take the release from "
                "where it was published."
            ) from None

    def _model_content(self, name: object) -> bytes:
        """The bytes of the model's file, checked before anybody opens them."""
        if name not in MODEL_FILES or not isinstance(name, str):
            raise Corrupt(
                f"{self.path / 'release.json'} names the model {name!r:.80}; a release holds one of "
                f"{', '.join(MODEL_FILES)}, beside its release.json. Do not use this release."
            )
        path = self.path / name
        if path.is_symlink():
            raise Corrupt(
                f"{path} is a link to another file; a release holds its model itself. Do not use this release."
            )
        with storage_errors(f"The model in {self.path}"):
            descriptor = os.open(
                path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
            )  # nor through a link that was just made
            with os.fdopen(descriptor, "rb") as stream:
                content = stream.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        if hashlib.sha256(content).hexdigest() != self.details.get("model_sha256"):
            raise Corrupt(f"The model in {self.path} is not the one that was released. Copy the release again.")
        return content

    @property
    def encoder(self) -> Encoder | None:
        """How raw rows of a table become the features that the model takes; None if the run was not on a table."""
        described = self.details.get("encoder")
        try:
            return None if described is None else Encoder.from_json(described)
        except InvalidInput:
            raise Corrupt(f"The encoder in {self.path} is damaged. Copy the release again.") from None

    def predict(self, rows: Any) -> list[Any]:
        """What the released model says of raw rows, as the names of classes, or as numbers where those are predicted.

        Args:
            rows: The path of a CSV or Parquet file, a DataFrame, an Arrow table, an array with the schema's columns
                in order, or a list of mappings from names of columns to values. The target may be missing.

        Returns:
            The name of a class or a number for each row. Predictions for private rows are not covered by the statement.

        Raises:
            InvalidInput: The release has no model, or was not made from a table.
        """
        encoder, model = self.encoder, self.model
        if encoder is None:
            raise InvalidInput("This release was not made from a table with a schema; use release.model.predict(x).")
        if model is None:
            raise InvalidInput(f"The release in {self.path} has no model, so nothing can be predicted with it.")
        return encoder.named(model.predict(encoder.encode(rows)))


def public_time(text: str) -> datetime.datetime:
    """A time with its zone, from ISO 8601."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidInput(f"'release_at' must be a time such as 2030-01-31T12:00:00+00:00; got {text!r}.") from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def set_times(moment: datetime.datetime, *paths: Path) -> None:
    """Give files and folders a public time."""
    seconds = moment.timestamp()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (seconds, seconds))


def build_release(folder: Path, facts: Facts, model: bytes | None, signer: Signer | None = None) -> Path:
    """Write a release into ``folder``, which is inside the vault, signed by the run: nobody sees it yet."""
    with storage_errors("The release"):
        remove_tree(folder)
        private_folder(folder)
        # The model is not opened here: it was made by a worker.
        name, content = (None, b"") if model is None else (f"model.{kind_of(model)}", model)
        facts = replace(facts, model=name)
        statement = state(facts)
        details = release_details(facts, statement)
        contents = {
            "statement.md": plain(statement_markdown(statement)).encode(),
            "statement.html": plain(statement_html(statement)).encode(),
            "plan.json": plan_file(facts.plan),
        }
        if name is not None:
            details["model_sha256"] = file_digest(content)
            contents[name] = content
        if signer is not None:
            details["seal"] = seal_release(details, contents, signer)
        contents["release.json"] = (plain(json.dumps(details, indent=2, sort_keys=True)) + "\n").encode()
        for file, text in contents.items():
            (folder / file).write_bytes(text)
        files = sorted(folder.iterdir())
        for path in files:
            path.chmod(0o644)
        folder.chmod(0o755)
        sync_tree(folder)
        set_times(public_time(facts.released), *files, folder)
    return folder


def publish_release(run: Path, built: Path) -> Release:
    """Move a built release out of the vault in one step: from here on it is seen."""
    with storage_errors("The release"):
        built.rename(run / "release")
        sync_folder(run)
    return load_release(run)


def digest_release(folder: Path) -> str:
    """A hash of all that a release holds: names and contents of its files."""
    state = hashlib.blake2b(digest_size=32)
    with storage_errors("The release"):
        for path in sorted(folder.rglob("*")):
            content = path.read_bytes() if path.is_file() else b"a folder"
            name = str(path.relative_to(folder)).encode("utf-8", "surrogateescape")
            state.update(b"%d:%d:" % (len(name), len(content)) + name + content)
    return state.hexdigest()


def load_release(run: str | Path, continued: bool = True) -> Release:
    """The release of a run that has one: from the run's folder, or from a copy of its ``release`` folder.

    Args:
        run: the folder.
        continued: noted in the result; False where there was nothing left to do.

    Returns:
        The release; its model is opened when it is asked for.

    Raises:
        Corrupt: there is no release in the folder, or it was damaged.

    Example:
        >>> load_release("nowhere")
        Traceback (most recent call last):
        ...
        dptune.errors.Corrupt: There is no release in nowhere: give the folder of a finished run, or 'release' in it.
    """
    run = Path(run)
    folder = run if (run / "release.json").is_file() else run / "release"
    if not folder.exists():
        raise Corrupt(f"There is no release in {run}: give the folder of a finished run, or 'release' in it.")
    try:
        details = json.loads((folder / "release.json").read_text(encoding="utf-8"))
        if details["model"] is not None and not isinstance(details["model"], str):
            raise TypeError
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
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise Corrupt(f"The release in {run} is damaged. Restore the folder from a backup.") from None
