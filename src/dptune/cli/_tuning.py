"""From a job's sections to a trainer, a space and a plan. No record is looked at, but for the width of a row.

Without public validation records the trainer has no score of its own and the method scores on private records, noised
and paid for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from dptune._validate import real
from dptune.accounting.runs import parse_runs
from dptune.cli._job import Job, public_records
from dptune.errors import InvalidInput
from dptune.methods import (
    Adaptive,
    Budget,
    Line,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    Plan,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
)
from dptune.planner import choose
from dptune.spaces import Choice, Domain, Float, Int, Space
from dptune.trainer import DeclaresCost, Trainer, check_trainer
from dptune.training import Adam, Dataset, DpSgdTrainer, Mlp, Momentum, Settings, Sgd

__all__ = ["AUTO", "make_plan", "make_space", "make_trainer"]

AUTO = "auto"
_METHODS: dict[str, Any] = {
    one.name: one
    for one in (
        RandomStopping, Adaptive, Subset, Threshold, NoisyBest, Vote, Naive, RandomGuess, NonPrivateOptimum,
    )
}  # fmt: skip
_OPTIMIZERS = {"sgd": Sgd, "momentum": Momentum, "adam": Adam}


def make_trainer(job: Job, data: object, public: Dataset | None) -> Trainer[Any, object]:
    """The trainer: the user's own, or DP-SGD on softmax regression or a small network."""
    own = job.get("model", "trainer")
    if own is not None:
        found: Trainer[Any, object] = job.attribute(own, "trainer")
        check_trainer(found)
        return found
    if not isinstance(data, Dataset):
        raise InvalidInput("The built-in models need a dptune Dataset; bring your own 'trainer' for other data.")
    kind = job.get("model", "kind", "softmax")
    if kind not in ("softmax", "mlp"):
        raise InvalidInput(f"'kind' of [model] must be 'softmax' or 'mlp'; got {kind!r}.")
    hidden = tuple(job.get("model", "hidden", [64])) if kind == "mlp" else ()
    optimizer = job.get("model", "optimizer", "sgd")
    if optimizer not in _OPTIMIZERS:
        raise InvalidInput(f"'optimizer' must be one of {', '.join(_OPTIMIZERS)}; got {optimizer!r}.")
    records = public_records(job, data)
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
    return DpSgdTrainer(model, settings, validation=public)


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


def make_plan(job: Job, data: Any, trainer: DeclaresCost, budget: Budget) -> tuple[Plan, str | None]:
    """The plan of the job's method; if the planner chose it, also why."""
    fields = dict(job.sections.get("method", {}))
    name = fields.pop("name", AUTO)
    if name == AUTO:
        runs = fields.pop("runs", None)
        if fields:
            raise InvalidInput(f"The setting {sorted(fields)[0]!r} belongs to a method; name one in [method].")
        records = public_records(job, data) if isinstance(trainer, DpSgdTrainer) else None
        law = None if runs is None else parse_runs(str(runs))
        advice = choose(trainer, make_space(job, None), budget, records=records, runs=law)
        return advice.plan, advice.explanation
    if name not in _METHODS:
        raise InvalidInput(f"Unknown method {name!r}; choose one of {', '.join([AUTO, *sorted(_METHODS)])}.")
    hold = real("validation_fraction", fields.pop("validation_fraction", 0.2), 0, 1, low_open=True, high_open=True)
    validation = None
    unscored = isinstance(trainer, DpSgdTrainer) and trainer.validation is None
    if unscored and name != RandomGuess.name:
        share = float(fields.get("fraction", 0.1)) if name == Subset.name else 1.0
        validation = PrivateValidation(hold, max(1.0, hold * share * public_records(job, data)))
    if name != Subset.name:
        return _tuner(job, _METHODS[name], fields, validation).plan(budget, trainer), None
    inner = fields.pop("inner", RandomStopping.name)
    if inner not in (RandomStopping.name, Adaptive.name):
        raise InvalidInput(f"'inner' must be 'random-stopping' or 'adaptive'; got {inner!r}.")
    outer: dict[str, Any] = {key: fields.pop(key) for key in ("final", "transfer", "warm_start") if key in fields}
    outer["fraction"] = fields.pop("fraction", 0.1)
    tuner = _tuner(job, _METHODS[inner], fields, validation)
    return _build(Subset, {"method": tuner, **outer}).plan(budget, trainer), None


def _tuner(job: Job, kind: Any, fields: dict[str, Any], validation: PrivateValidation | None) -> Any:
    """A method that is not made of another one."""
    given = dict(fields)
    accepted = inspect.signature(kind).parameters
    grid = given.pop("grid", 5 if "candidates" in accepted else None)
    given["candidates" if "candidates" in accepted else "space"] = make_space(job, grid)
    if "runs" in accepted:
        given["runs"] = parse_runs(str(given.get("runs", "geometric:10")))
    if str(given.get("costs", "")).startswith("line:"):
        given["costs"] = _line(str(given["costs"]).partition(":")[2])
    if "density" in given:
        given["density"] = tuple(given["density"])
    if "votes" in accepted:
        given.setdefault("votes", 5)
    if "shards" in accepted:
        given.setdefault("shards", 50)
    if validation is not None and "validation" in accepted:
        given["validation"] = validation
    return _build(kind, given)


def _line(text: str) -> Line:
    try:
        return Line(float(text))
    except ValueError:
        raise InvalidInput(f'Cannot read the line {text!r}; write costs = "line" or "line:SLOPE".') from None


def _build(kind: Any, fields: dict[str, Any]) -> Any:
    accepted = [key for key in inspect.signature(kind).parameters if key not in ("method",)]
    unknown = sorted(set(fields) - set(accepted) - {"method"})
    if unknown:
        shown = ", ".join(key for key in accepted if key not in ("space", "candidates", "validation"))
        raise InvalidInput(f"The method {kind.name!r} has no setting {unknown[0]!r}; it has {shown}.")
    return kind(**fields)
