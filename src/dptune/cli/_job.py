"""A tuning job as a TOML file says it: data, model, space, method, budget.

Turns the sections into the objects of the library and back into plain values, which the vault keeps so that
``dptune resume`` finds the same job again. Reading a job must never touch records: data is loaded by
:func:`load_data` alone.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune._validate import integer, real
from dptune.accounting.runs import parse_runs
from dptune.errors import InvalidInput
from dptune.executors import Executor, Processes
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
)
from dptune.spaces import Choice, Domain, Float, Int, Space
from dptune.training import Adam, Dataset, DpSgdTrainer, Mlp, Momentum, Settings, Sgd, load

__all__ = ["SECTIONS", "Job", "load_data", "make_budget", "make_executor", "make_method", "make_trainer", "read_job"]

SECTIONS: dict[str, tuple[str, ...]] = {
    "data": ("name", "file", "loader", "kind", "validation", "records", "classes"),
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
    "budget": ("epsilon", "delta"),
    "run": ("ledger", "dataset", "executor", "workers", "address", "trusted", "seed", "release_at", "rehearsal"),
}
_METHODS: dict[str, Any] = {
    one.name: one
    for one in (
        RandomStopping, Adaptive, Subset, Threshold, NoisyBest, Vote, Naive, RandomGuess, NonPrivateOptimum,
    )
}  # fmt: skip
_OPTIMIZERS = {"sgd": Sgd, "momentum": Momentum, "adam": Adam}
_BENCHMARKS = ("digits", "mnist", "fashion-mnist", "adult", "imdb")


@dataclass(frozen=True)
class Job:
    """The sections, checked for names that do not exist."""

    sections: dict[str, dict[str, Any]]

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
        return Job({**self.sections, section: merged}) if given else self


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
    job = Job(sections)
    for section, field in (("data", "file"), ("data", "validation"), ("run", "ledger")):
        value = job.get(section, field)
        if isinstance(value, str) and value not in ("test", "private"):
            job = job.with_fields(section, **{field: str((path.parent / value).absolute())})
    if job.get("data", "loader") or job.get("model", "trainer"):
        sys.path.insert(0, str(path.parent.absolute()))
    return job


def _attribute(text: str, what: str) -> Any:
    module, _, name = str(text).partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"The {what} {text!r} cannot be imported ({error}); write 'module:name'.") from None


def _arrays(path: str, classes: int | None) -> Dataset:
    """Records from an .npz file with arrays x and y."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            x, y = arrays["x"], arrays["y"]
    except OSError as error:
        raise InvalidInput(f"The records {path} cannot be read ({error.strerror or error}).") from None
    except (KeyError, ValueError) as error:
        raise InvalidInput(f"{path} must be an .npz file with arrays 'x' and 'y' ({error}).") from None
    if classes is None:
        raise InvalidInput("Section [data] needs 'classes': their number must be public, not read off the records.")
    return Dataset(x, y, integer("classes", classes, 2), Path(path).stem)


def load_data(job: Job) -> tuple[Any, Dataset | None]:
    """The private records, and the public ones for validation (None: private validation)."""
    name, file, loader = (job.get("data", field) for field in ("name", "file", "loader"))
    if sum(value is not None for value in (name, file, loader)) != 1:
        raise InvalidInput("Section [data] needs exactly one of 'name' (a benchmark), 'file' (.npz) and 'loader'.")
    classes, validation = job.get("data", "classes"), job.get("data", "validation")
    if loader is not None:
        return _attribute(loader, "loader")(), None
    if file is not None:
        return _arrays(file, classes), None if validation in (None, "private") else _arrays(validation, classes)
    split = load(str(name))
    if validation in (None, "private"):
        return split.train, None
    if validation != "test":
        raise InvalidInput(f"'validation' must be 'test', 'private' or an .npz file; got {validation!r}.")
    return split.train, split.test


def _records(job: Job, data: Any) -> int:
    """The public number of records: stated, or that of a published benchmark."""
    stated = job.get("data", "records")
    if stated is not None:
        return integer("records", stated, 1)
    if job.get("data", "name") in _BENCHMARKS:
        return len(data)
    raise InvalidInput("Section [data] needs 'records': a public figure, about their number; it must not be counted.")


def make_trainer(job: Job, data: Any, public: Dataset | None) -> Any:
    """The trainer: the user's own, or DP-SGD on softmax regression or a small network."""
    own = job.get("model", "trainer")
    if own is not None:
        return _attribute(own, "trainer")
    if not isinstance(data, Dataset):
        raise InvalidInput("The built-in models need a dptune Dataset; bring your own 'trainer' for other data.")
    kind = job.get("model", "kind", "softmax")
    if kind not in ("softmax", "mlp"):
        raise InvalidInput(f"'kind' of [model] must be 'softmax' or 'mlp'; got {kind!r}.")
    hidden = tuple(job.get("model", "hidden", [64])) if kind == "mlp" else ()
    optimizer = job.get("model", "optimizer", "sgd")
    if optimizer not in _OPTIMIZERS:
        raise InvalidInput(f"'optimizer' must be one of {', '.join(_OPTIMIZERS)}; got {optimizer!r}.")
    records = _records(job, data)
    batch = real("batch_size", job.get("model", "batch_size", min(256, max(1, records // 8))), 0, low_open=True)
    settings = Settings.from_batch(
        batch,
        records,
        noise_multiplier=1.0,  # the plan sets it
        steps=job.get("model", "steps", 200),
        clip_norm=job.get("model", "clip_norm", 1.0),
        learning_rate=job.get("model", "learning_rate", 1.0),
        optimizer=_OPTIMIZERS[optimizer](),
    )
    model = Mlp(data.x.shape[1], data.classes, hidden, job.get("model", "activation", "tanh"))
    # Without public records the trainer scores on none; the method scores on private ones, noised and paid for.
    nobody = Dataset(np.empty((0, data.x.shape[1])), np.empty(0, np.int64), data.classes, "none")
    return DpSgdTrainer(model, settings, validation=nobody if public is None else public)


def _dimension(name: str, value: Any) -> Float | Int | Choice:
    if isinstance(value, list):
        return Choice(*value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= {"low", "high", "log"}:
        raise InvalidInput(f"The parameter {name!r} must be a list of choices, or {{low, high, log}}; got {value!r}.")
    whole = all(isinstance(value[end], int) and not isinstance(value[end], bool) for end in ("low", "high"))
    kind = Int if whole else Float
    return kind(value["low"], value["high"], bool(value.get("log", False)))


def make_space(job: Job, points: Any) -> Domain:
    """The space; with ``points`` a grid of candidates."""
    fields = job.sections.get("space", {})
    if not fields:
        fields = {"learning_rate": {"low": 0.01, "high": 10.0, "log": True}, "clip_norm": [0.1, 0.3, 1.0, 3.0]}
    space = Space(**{name: _dimension(name, value) for name, value in fields.items()})
    if points is None:
        return space
    return space.grid(**points) if isinstance(points, Mapping) else space.grid(points)


def make_method(job: Job, data: Any, public: Dataset | None) -> Any:
    """The method with its space and, without public records, private validation."""
    fields = dict(job.sections.get("method", {}))
    name = fields.pop("name", "subset")
    if name not in _METHODS:
        raise InvalidInput(f"Unknown method {name!r}; choose one of {', '.join(sorted(_METHODS))}.")
    own = job.get("model", "trainer") is not None
    hold = real("validation_fraction", fields.pop("validation_fraction", 0.2), 0, 1, low_open=True, high_open=True)
    validation = None
    if public is None and not own and name != RandomGuess.name:
        share = float(fields.get("fraction", 0.1)) if name == Subset.name else 1.0
        validation = PrivateValidation(hold, max(1.0, hold * share * _records(job, data)))
    if name == Subset.name:
        inner = fields.pop("inner", RandomStopping.name)
        if inner not in (RandomStopping.name, Adaptive.name):
            raise InvalidInput(f"'inner' must be 'random-stopping' or 'adaptive'; got {inner!r}.")
        outer: dict[str, Any] = {key: fields.pop(key) for key in ("final", "transfer", "warm_start") if key in fields}
        fraction = fields.pop("fraction", 0.1)
        tuner = _tuner(job, _METHODS[inner], fields, validation)
        return _build(Subset, {"method": tuner, "fraction": fraction, **outer})
    return _tuner(job, _METHODS[name], fields, validation)


def _tuner(job: Job, kind: Any, fields: dict[str, Any], validation: PrivateValidation | None) -> Any:
    """A method that is not made of another one."""
    given = dict(fields)
    accepted = inspect.signature(kind).parameters
    grid = given.pop("grid", 5 if "candidates" in accepted else None)
    given["candidates" if "candidates" in accepted else "space"] = make_space(job, grid)
    if "runs" in accepted:
        given["runs"] = parse_runs(str(given.get("runs", "geometric:10")))
    if "density" in given:
        given["density"] = tuple(given["density"])
    if "votes" in accepted:
        given.setdefault("votes", 5)
    if "shards" in accepted:
        given.setdefault("shards", 50)
    if validation is not None and "validation" in accepted:
        given["validation"] = validation
    return _build(kind, given)


def _build(kind: Any, fields: dict[str, Any]) -> Any:
    accepted = [key for key in inspect.signature(kind).parameters if key not in ("method",)]
    unknown = sorted(set(fields) - set(accepted) - {"method"})
    if unknown:
        shown = ", ".join(key for key in accepted if key not in ("space", "candidates", "validation"))
        raise InvalidInput(f"The method {kind.name!r} has no setting {unknown[0]!r}; it has {shown}.")
    return kind(**fields)


def make_budget(job: Job) -> Budget:
    """The budget; both figures must be stated."""
    epsilon = job.need("budget", "epsilon", "state the total budget, for example --epsilon 3.")
    delta = job.need("budget", "delta", "state it, for example --delta 1e-5, far below one over the number of records.")
    return Budget(epsilon, delta)


def make_executor(job: Job) -> Executor:
    """Where trials run."""
    name, workers = job.get("run", "executor", "processes"), job.get("run", "workers")
    if name == "processes":
        return Processes(workers)
    if name == "ray":
        from dptune.executors.ray import Ray  # noqa: PLC0415 - optional dependency

        return Ray(workers, address=job.get("run", "address"), trusted=bool(job.get("run", "trusted", False)))
    raise InvalidInput(f"'executor' must be 'processes' or 'ray'; got {name!r}.")
