"""A tuning job as a TOML file says it: data, model, space, method, budget.

Keeps the sections as plain values and the folder of the file, which the vault stores so that ``dptune resume`` finds
the same job again, with its own loader and trainer, from wherever it is called. Reading a job must never touch records:
data is loaded by :func:`load_data` alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune._validate import integer
from dptune.accounting import ADDED_OR_REMOVED
from dptune.errors import InvalidInput
from dptune.executors import Executor, Processes
from dptune.methods import Budget
from dptune.training import Dataset, load

__all__ = [
    "SECTIONS",
    "Job",
    "load_data",
    "make_budget",
    "make_executor",
    "public_records",
    "read_job",
    "stated_records",
]

SECTIONS: dict[str, tuple[str, ...]] = {
    "data": (
        "name",
        "file",
        "loader",
        "kind",
        "validation",
        "records",
        "classes",
        "feature_range",
        "missing",
        "unknown_label",
    ),
    "model": (
        "kind",
        "hidden",
        "activation",
        "optimizer",
        "batch_size",
        "steps",
        "clip_norm",
        "learning_rate",
        "trainer",
    ),
    "space": (),  # any parameter
    "method": (),  # the method's own fields
    "budget": ("epsilon", "delta", "most_records"),
    "run": (
        "ledger",
        "dataset",
        "executor",
        "workers",
        "address",
        "trusted",
        "seed",
        "release_at",
        "rehearsal",
        "pickle",
    ),
}
_REPAIR = ("feature_range", "missing", "unknown_label")
_BENCHMARKS = ("digits", "mnist", "fashion-mnist", "adult", "imdb")


@dataclass(frozen=True)
class Job:
    """The sections, checked for names that do not exist, and the folder of the job's own modules."""

    sections: dict[str, dict[str, Any]]
    folder: str | None = None

    def __post_init__(self) -> None:
        for name, fields in self.sections.items():
            if name not in SECTIONS:
                raise InvalidInput(f"A job has no section [{name}]; it has {', '.join(SECTIONS)}.")
            if not isinstance(fields, dict):
                raise InvalidInput(f"[{name}] must be a section with fields; got {fields!r}.")
            known = SECTIONS[name]
            for field in fields if known else ():
                if field not in known:
                    raise InvalidInput(f"Section [{name}] has no field {field!r}; it has {', '.join(known)}.")

    def get(self, section: str, field: str, default: Any = None) -> Any:
        """A field, or the default."""
        return self.sections.get(section, {}).get(field, default)

    def need(self, section: str, field: str, why: str) -> Any:
        """A field that must be there."""
        value = self.get(section, field)
        if value is None:
            raise InvalidInput(f"The job has no {field!r} in section [{section}]: {why}")
        return value

    def with_fields(self, section: str, **fields: Any) -> Job:
        """The same job with fields set, where they are not None."""
        given = {key: value for key, value in fields.items() if value is not None}
        merged = {**self.sections.get(section, {}), **given}
        return replace(self, sections={**self.sections, section: merged}) if given else self

    def describe(self) -> dict[str, Any]:
        """What the vault keeps, for :meth:`from_stored`."""
        return {"sections": self.sections, "folder": self.folder}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Job:
        """The job that a vault keeps; one of an earlier version has sections alone."""
        if set(stored) == {"sections", "folder"}:
            return cls(stored["sections"], stored["folder"])
        return cls(stored)

    def attribute(self, text: str, what: str) -> Any:
        """What the job calls ``module:name``, from its own folder or from what is installed. Imports, so runs, code."""
        if self.folder is not None and self.folder not in sys.path:
            sys.path.insert(0, self.folder)  # workers get the same list
        module, _, name = str(text).partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (Exception, SystemExit) as error:
            said = isinstance(error, ImportError | AttributeError)  # any other text may quote records
            reason = str(error) if said else type(error).__name__
            raise InvalidInput(
                f"The {what} {text!r} cannot be imported ({reason}) from {self.folder or 'what is installed'}; write "
                "'module:name'."
            ) from None


def read_job(path: Path | None) -> Job:
    """A job from a TOML file; none is an empty one, to be filled by flags. File names are relative to the file."""
    if path is None:
        return Job({})
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"The job {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The job {path} is no TOML: {error}.") from None
    job = Job(sections, str(path.parent.absolute()))
    for section, field in (("data", "file"), ("data", "validation"), ("run", "ledger"), ("run", "rehearsal")):
        value = job.get(section, field)
        if isinstance(value, str) and value not in ("test", "private"):
            job = job.with_fields(section, **{field: str((path.parent / value).absolute())})
    return job


def _arrays(path: str, job: Job, *, public: bool) -> Dataset:
    """Records from an .npz file with arrays x and y."""
    x, y = _read(path)
    classes = job.get("data", "classes")
    if classes is None:
        raise InvalidInput("Section [data] needs 'classes': their number must be public, not read off the records.")
    rules = {key: value for key in _REPAIR if (value := job.get("data", key)) is not None}
    return Dataset(x, y, integer("classes", classes, 2), Path(path).stem, public, **rules)


def _read(path: str) -> tuple[Any, Any]:
    """The two arrays. That a file cannot be read is public; what it holds is not, so nothing of it is quoted."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _memory():
                raise MemoryError
            if missing := {"x.npy", "y.npy"} - set(archive.namelist()):
                raise InvalidInput(f"{path} has no array {min(missing)[0]!r}; it must hold the arrays 'x' and 'y'.")
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except InvalidInput:
        raise
    except MemoryError:
        raise InvalidInput(f"The records {path} do not fit into this machine's memory.") from None
    except OSError as error:
        raise InvalidInput(f"The records {path} cannot be read ({error.strerror or type(error).__name__}).") from None
    except Exception as error:  # cut off, damaged, or something else: a dozen kinds of errors
        raise InvalidInput(
            f"{path} must be a whole .npz file with arrays of numbers 'x' and 'y' ({type(error).__name__}). Write it "
            "with numpy.savez(path, x=..., y=...)."
        ) from None


def _memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load_data(job: Job) -> tuple[Any, Dataset | None]:
    """The private records, and the public ones for validation (None: private validation)."""
    name, file, loader = (job.get("data", field) for field in ("name", "file", "loader"))
    if sum(value is not None for value in (name, file, loader)) != 1:
        raise InvalidInput("Section [data] needs exactly one of 'name' (a benchmark), 'file' (.npz) and 'loader'.")
    validation, public = job.get("data", "validation"), job.get("data", "kind", "private") == "public"
    if loader is not None:
        try:
            return job.attribute(loader, "loader")(), None
        except (Exception, SystemExit) as error:  # what it says may quote records
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"The loader {loader!r} failed ({type(error).__name__}).") from None
    if file is not None:
        held = None if validation in (None, "private") else _arrays(validation, job, public=True)
        return _arrays(file, job, public=public), held
    split = load(str(name))
    if validation in (None, "private"):
        return split.train, None
    if validation != "test":
        raise InvalidInput(f"'validation' must be 'test', 'private' or an .npz file; got {validation!r}.")
    return split.train, split.test


def stated_records(job: Job, data: Any) -> int | None:
    """The public number of records: stated, or that of a published benchmark; None where neither is."""
    stated = job.get("data", "records")
    if stated is not None:
        return integer("records", stated, 1)
    return len(data) if job.get("data", "name") in _BENCHMARKS else None


def public_records(job: Job, data: Any) -> int:
    """The same, where it is needed."""
    records = stated_records(job, data)
    if records is not None:
        return records
    raise InvalidInput("Section [data] needs 'records': a public figure, about their number; it must not be counted.")


def make_budget(job: Job) -> Budget:
    """The budget; both figures must be stated, and how many records a unit has where it may be more than one."""
    epsilon = job.need("budget", "epsilon", "state the total budget, for example --epsilon 3.")
    delta = job.need("budget", "delta", "state it, for example --delta 1e-5, far below one over the number of records.")
    return Budget(epsilon, delta, ADDED_OR_REMOVED.group(job.get("budget", "most_records", 1)))


def make_executor(job: Job) -> Executor:
    """Where trials run."""
    name, workers = job.get("run", "executor", "processes"), job.get("run", "workers")
    if name == "processes":
        return Processes(workers)
    if name == "ray":
        from dptune.executors.ray import Ray  # noqa: PLC0415 - optional dependency

        return Ray(workers, address=job.get("run", "address"), trusted=bool(job.get("run", "trusted", False)))
    raise InvalidInput(f"'executor' must be 'processes' or 'ray'; got {name!r}.")
