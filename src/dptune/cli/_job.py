"""A tuning job as a TOML file says it: data, model, space, method, budget.

Keeps the sections as plain values and the folder of the file, which the vault stores so that ``dptune resume`` finds
the same job again, with its own loader and trainer, from wherever it is called. Reading a job must never touch records:
data is loaded by :func:`load_data` alone. The file is long because what a job may say and what is read by it stand
together.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dptune._repairs import hand_over
from dptune._validate import integer, nearest
from dptune.accounting import ADDED_OR_REMOVED
from dptune.cli._job_types import check_type
from dptune.cli._kinds import features_of, with_features
from dptune.errors import InvalidInput
from dptune.executors import Executor, Processes
from dptune.methods import Budget
from dptune.planner.incoming import schema_of_public
from dptune.tables import Encoder, Schema, array_regression, array_units, read_npz, read_schema, read_table
from dptune.tables.arrays import check_npz_units, npz_units
from dptune.tables.sources import table_kind
from dptune.training import Dataset, load
from dptune.units import UNIT, UnitDataset

__all__ = [
    "SECTIONS",
    "Job",
    "Loaded",
    "load_data",
    "make_budget",
    "make_executor",
    "public_records",
    "read_job",
    "stated_records",
    "with_schema",
]

SECTIONS: dict[str, tuple[str, ...]] = {
    "data": (
        "name",
        "file",
        "schema",
        "loader",
        "kind",
        "validation",
        "records",
        "classes",
        "target_range",
        "task",
        "score",
        "shares",
        "feature_range",
        "missing",
        "unknown_label",
        "missing_target",
        "features",
        "unit",
        "unit_rows",
    ),
    "model": (
        "kind",
        "hidden",
        "activation",
        "optimizer",
        "batch_size",
        "steps",
        "clip_norm",
        "clipping",
        "whitening",
        "learning_rate",
        "schedule",
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
_REPAIR_NUMBERS = ("feature_range", "missing", "missing_target")
_BENCHMARKS = ("digits", "mnist", "fashion-mnist", "cifar-10", "adult", "imdb")


@dataclass(frozen=True)
class Job:
    """The sections, checked for names that do not exist, and the folder of the job's own modules."""

    sections: dict[str, dict[str, Any]]
    folder: str | None = None

    def __post_init__(self) -> None:
        for name, fields in self.sections.items():
            if name not in SECTIONS:
                raise InvalidInput(
                    f"A job has no section [{name}]{nearest(name, SECTIONS)}; it has {', '.join(SECTIONS)}."
                )
            if not isinstance(fields, dict):
                raise InvalidInput(f"[{name}] must be a section with fields; got {fields!r}.")
            known = SECTIONS[name]
            for field in fields if known else ():
                if field not in known:
                    has = ", ".join(known)
                    raise InvalidInput(f"Section [{name}] has no field {field!r}{nearest(field, known)}; it has {has}.")
                check_type(name, field, fields[field])

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
            reason = str(error) if said else f"{type(error).__name__}; python -c 'import {module}' shows why"
            raise InvalidInput(
                f"The {what} {text!r} cannot be imported ({reason}) from {self.folder or 'what is installed'}; write "
                "'module:name'."
            ) from None


class Loaded(NamedTuple):
    """The private records, the public ones for validation (None: private validation), notes for the vault, and how rows
    of a table were encoded."""

    data: Any
    public: Dataset | None = None
    notes: dict[str, Any] | None = None
    encoder: Encoder | None = None


def read_job(path: Path | None) -> Job:
    """A job from a TOML file; none is an empty one, to be filled by flags. File names are relative to the file."""
    if path is None:
        return Job({})
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"The job {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The job {path} is not TOML: {error}.") from None
    job = Job(sections, str(path.parent.absolute()))
    for section, field in (
        ("data", "file"),
        ("data", "schema"),
        ("data", "validation"),
        ("run", "ledger"),
        ("run", "rehearsal"),
    ):
        value = job.get(section, field)
        if isinstance(value, str) and value not in ("test", "private"):
            job = job.with_fields(section, **{field: str((path.parent / value).absolute())})
    return job


def _records(path: str, job: Job, *, public: bool) -> Loaded:
    """Records from a table with a schema, or from an .npz file with arrays x and y; repairs are for the vault."""
    described = job.get("data", "schema")
    if described is not None:
        table = read_table(path, Schema.from_json(described), public=public)
        return Loaded(table.data, None, {"repairs": dict(table.repairs)}, table.encoder)
    x, y = read_npz(path)
    classes, ends = job.get("data", "classes"), job.get("data", "target_range")
    if ends is not None:
        given = {key: value for key in _REPAIR_NUMBERS if (value := job.get("data", key)) is not None}
        return _by_units(
            path, job, array_regression(hand_over(x), y, ends, name=Path(path).stem, public=public, **given)
        )
    if classes is None:
        raise InvalidInput(
            "Section [data] needs 'classes': their number must be public, not read off the records; or "
            "'target_range' = [lowest, highest], to predict a number."
        )
    rules = {key: value for key in _REPAIR if (value := job.get("data", key)) is not None}
    count = integer("classes", classes, 2)
    return _by_units(path, job, Dataset(hand_over(x), y, count, Path(path).stem, public, **rules))


def _by_units(path: str, job: Job, made: Dataset) -> Loaded:
    """The rows of an npz file, put together by the units that it names."""
    most = job.get("data", "unit_rows")
    name = job.get("data", "unit", UNIT)
    said = most is not None or name != UNIT
    units = npz_units(path) if made.public and said else check_npz_units(path, most, name)  # validation: or none
    return Loaded(made if units is None else array_units(made, units, most, unit=name))


def with_schema(job: Job, target: str | None = None) -> Job:
    """The job with its schema in it, instead of the file's name: a resumed run must not follow a file that changed.

    A table without one is refused, unless its records are public: then the schema is read off them.
    """
    file, schema = job.get("data", "file"), job.get("data", "schema")
    if file is None:
        if schema is not None:
            raise InvalidInput("A schema is for the records of a file; name the file, for example 'dptune tune FILE'.")
        return job
    if isinstance(schema, str):
        found = read_schema(schema)
    elif schema is None and table_kind(Path(file)) != "npz":
        found = schema_of_public(file, target, public=job.get("data", "kind") == "public", task=job.get("data", "task"))
    else:
        return job
    for field in ("classes", "records", "unit", "unit_rows", "target_range", *_REPAIR, "missing_target"):
        if job.get("data", field) is not None:
            raise InvalidInput(f"{field!r} is the schema's to say for a table; leave it out.")
    return job.with_fields("data", schema=found.describe())


def load_data(job: Job, kept: Path | None = None) -> Loaded:
    """The records of a job, whose schema is in it (:func:`with_schema`), with the features that it names; the vault of
    a run that was cut off (in the folder ``kept``) may hold those that an encoder made."""
    if ":" in str(job.get("data", "features", "none")):
        job.attribute(job.get("data", "features"), "encoder")  # from the job's own folder
    features_of(job.sections)  # refused before anything is read
    return with_features(job.sections, _load(job), kept)


def _load(job: Job) -> Loaded:
    name, file, loader = (job.get("data", field) for field in ("name", "file", "loader"))
    if sum(value is not None for value in (name, file, loader)) != 1:
        raise InvalidInput(
            "Section [data] needs exactly one of 'name' (a benchmark), 'file' (a table or .npz) and 'loader'."
        )
    validation, public = job.get("data", "validation"), job.get("data", "kind", "private") == "public"
    if loader is not None:
        try:
            return Loaded(job.attribute(loader, "loader")())
        except (Exception, SystemExit) as error:  # what it says may quote records
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"The loader {loader!r} failed ({type(error).__name__}).") from None
    if file is not None:
        held = None if validation in (None, "private") else _records(validation, job, public=True).data
        held = held.rows if isinstance(held, UnitDataset) else held  # public: each row is judged for itself
        return _records(file, job, public=public)._replace(public=held)
    split = load(str(name))
    if validation in (None, "private"):
        return Loaded(split.train)
    if validation != "test":
        raise InvalidInput(f"'validation' must be 'test', 'private' or an .npz file; got {validation!r}.")
    return Loaded(split.train, split.test)


def stated_records(job: Job, data: Any) -> int | None:
    """The public number of records: stated, or that of a published benchmark; None where neither is."""
    described = job.get("data", "schema")
    stated = job.get("data", "records") if described is None else described["records"]
    if stated is not None:
        return integer("records", stated, 1, 10**12)
    return len(data) if job.get("data", "name") in _BENCHMARKS else None


def public_records(job: Job, data: Any) -> int:
    """The public number of records; refuses a job that does not state it."""
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
