"""From a job's sections to a trainer, a space and a plan. No record is looked at, but for the width of a row.

Without public validation records the trainer has no score of its own and the method scores on private records, noised
and paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptune._validate import flag, real
from dptune.accounting.runs import parse_runs
from dptune.cli._job import Job, make_budget, public_records, stated_records
from dptune.cli._kinds import features_of, kind_of
from dptune.errors import InvalidInput
from dptune.methods import Budget, Method, Plan
from dptune.methods.registry import method_named
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.planner import (
    choose,
    default_regression,
    named_score,
    regression_space,
    with_score,
)
from dptune.planner.asked import evenly
from dptune.planner.changes import Changed, Changes
from dptune.regression import range_of
from dptune.spaces import Choice, Float, Int, Space
from dptune.tables import Encoder
from dptune.trainer import DeclaresCost, DeclaresScore, Trainer, check_trainer
from dptune.training import (
    Adam,
    AdamBC,
    Constant,
    Cosine,
    Dataset,
    Decay,
    DpSgdTrainer,
    Mlp,
    Momentum,
    Regression,
    Settings,
    Sgd,
)
from dptune.training.clipping import named_clipping
from dptune.training.whitening import Whitening
from dptune.units import UnitDataset

__all__ = ["AUTO", "find_method", "make_plan", "make_space", "make_trainer"]

AUTO = "auto"
_OPTIMIZERS = {"sgd": Sgd, "momentum": Momentum, "adam": Adam, "adambc": AdamBC}
_SCHEDULES = {"constant": Constant, "cosine": Cosine, "decay": Decay}


def make_trainer(
    job: Job, data: object, public: Dataset | None, encoder: Encoder | None = None
) -> Trainer[Any, object]:
    """The trainer: the user's own, or DP-SGD on softmax or linear regression or a small network; with its score."""
    seen = job.get("data", "kind") == "public"
    score = named_score(job.get("data", "score"), job.get("data", "shares"), data, encoder, public=seen)
    return with_score(_trainer(job, data, public), score)


def _trainer(job: Job, data: object, public: Dataset | None) -> Trainer[Any, object]:
    own = job.get("model", "trainer")
    if own is not None:
        found: Trainer[Any, object] = job.attribute(own, "trainer")
        check_trainer(found)
        return found
    if not isinstance(data, Dataset | UnitDataset):
        raise InvalidInput("The built-in models need a dptune Dataset; bring your own 'trainer' for other data.")
    ends = range_of(data)
    if _uses_defaults(job) and ends is not None:
        records, total = public_records(job, data), make_budget(job).epsilon
        return default_regression(data.features, ends, records, validation=public, epsilon=total)
    if (usual := _usual(job)) is not None and ends is None:
        records, epsilon = public_records(job, data), make_budget(job).epsilon
        return usual.trainer(data.features, data.classes, records, epsilon=epsilon, validation=public)
    plain = "softmax" if ends is None else "linear"
    kind = job.get("model", "kind", plain)
    if kind not in (plain, "mlp"):
        raise InvalidInput(f"'kind' of [model] must be {plain!r} or 'mlp' for these targets; got {kind!r}.")
    hidden = tuple(job.get("model", "hidden", [64])) if kind == "mlp" else ()
    optimizer = _named("optimizer", job.get("model", "optimizer", "sgd"), _OPTIMIZERS)
    records = public_records(job, data)
    batch = real("batch_size", job.get("model", "batch_size", min(256, max(1, records // 8))), 0, low_open=True)
    settings = Settings.from_batch(
        batch,
        records,
        noise_multiplier=1.0,  # the plan sets it
        steps=job.get("model", "steps", 200),
        clip_norm=job.get("model", "clip_norm", 1.0 if ends is None else 0.1),
        learning_rate=job.get("model", "learning_rate", 1.0),
        optimizer=_OPTIMIZERS[optimizer](),
        schedule=_SCHEDULES[_named("schedule", job.get("model", "schedule", "constant"), _SCHEDULES)](),
        clipping=named_clipping(job.get("model", "clipping", "flat")),
    )
    activation, table = job.get("model", "activation", "tanh"), job.get("data", "schema") is not None
    if ends is not None:
        model: Mlp = Regression(data.features, hidden, activation, target_range=ends)
    else:
        model = Mlp(data.features, data.classes, hidden, activation)
    return DpSgdTrainer(
        model,
        settings,
        validation=public,
        prepared=features_of(job.sections),
        whitening=Whitening(centred=table) if job.get("model", "whitening", False) else None,
    )


def _usual(job: Job) -> Changed | None:
    """The defaults of the job's kind of data, with what its [model] changes."""
    kind, said = kind_of(job.sections), dict(job.sections.get("model", {}))
    if kind is None:
        return None
    for field, known in (("optimizer", _OPTIMIZERS), ("schedule", _SCHEDULES)):
        if field in said:
            said[field] = known[_named(field, said[field], known)]()
    return Changes(**said).of(kind)


def _named(field: str, value: object, known: Mapping[str, object]) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(f"{field!r} must be one of {', '.join(known)}; got {value!r}.")
    return value


def _uses_defaults(job: Job) -> bool:
    """Whether this is a table without a word about the model."""
    return job.get("data", "schema") is not None and not job.sections.get("model")


_EXPECTED = ("around", "spread")


def _dimension(name: str, value: Any) -> Float | Int | Choice:
    if isinstance(value, list):
        return Choice(*value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= {"low", "high", "log", *_EXPECTED}:
        raise InvalidInput(
            f"The parameter {name!r} must be a list of choices, or {{low, high, log, around, spread}}; got {value!r}."
        )
    log = flag(f"log of {name}", value.get("log", False))
    whole = all(isinstance(value[end], int) and not isinstance(value[end], bool) for end in ("low", "high"))
    if whole and not set(value) & set(_EXPECTED):
        return Int(value["low"], value["high"], log)
    return Float(value["low"], value["high"], log, *(value.get(field) for field in _EXPECTED))


def make_space(job: Job, data: object = None) -> Space:
    """The space: as the job says, or what is usual for its kind of data, of which only the width is looked at."""
    fields = job.sections.get("space", {})
    numbers = range_of(data) is not None
    if not fields and _uses_defaults(job) and numbers:
        return regression_space()
    usual = None if fields else _usual(job)
    if usual is not None and isinstance(data, Dataset | UnitDataset) and not numbers:
        found = usual.space(data.features, public_records(job, data), epsilon=make_budget(job).epsilon)
        return found if job.get("data", "score") is None else evenly(found)
    if not fields:
        fields = {"learning_rate": {"low": 0.01, "high": 10.0, "log": True}, "clip_norm": [0.1, 0.3, 1.0, 3.0]}
        if numbers:  # errors are shares of the range, and their gradients short
            fields = {"learning_rate": {"low": 0.003, "high": 1.0, "log": True}, "clip_norm": [0.03, 0.1, 0.3]}
    return Space(**{name: _dimension(name, value) for name, value in fields.items()})


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
        advice = choose(trainer, make_space(job, data), budget, records=records, runs=law)
        return advice.plan, advice.explanation
    hold = real("validation_fraction", fields.pop("validation_fraction", 0.2), 0, 1, low_open=True, high_open=True)
    unscored = isinstance(trainer, DpSgdTrainer) and trainer.validation is None
    score = trainer.declared_score if isinstance(trainer, DeclaresScore) else None
    surroundings = Surroundings(make_space(job, data), hold if unscored else None, stated_records(job, data), score)
    return method_from_settings(find_method(job, str(name)), fields, surroundings).plan(budget, trainer), None


def find_method(job: Job, name: str) -> type[Method]:
    """The method that a job names: one of ours, one that a package offers, or a class of the user's own.

    A class is written as ``package.module:Class`` and imported, from the job's folder first; so its plans are known.
    """
    if ":" in name:
        found = job.attribute(name, "method")
        if isinstance(found, type) and issubclass(found, Method) and hasattr(found, "name"):
            return found
        raise InvalidInput(f"The method {name!r} is not a class that derives from dptune.methods.Method with a 'name'.")
    try:
        return method_named(name)
    except InvalidInput as error:
        raise InvalidInput(f"{error} Or write {AUTO!r}, or 'package.module:Class' for a method of your own.") from None
