"""The terms of a run: what must hold before it begins, and what is stored so that it continues under the same terms.

Everything here happens before the charge and looks at no record.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dptune._codec import added_later, from_json, to_values
from dptune._files import plain
from dptune.accounting import Cost
from dptune.data import check_any_records, size, take
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.methods.lines import check_comparable
from dptune.methods.plan import Plan
from dptune.methods.stored import plan_from_json
from dptune.methods.trial import Trial
from dptune.methods.validation import validation_of
from dptune.randomness import Randomness
from dptune.scores import check_score
from dptune.sealed._quiet import silence
from dptune.sealed._units import DeclaredUnits
from dptune.sealed.vault import Vault
from dptune.trainer import SupportsCheck, Trainer, check_trainer, check_warm_start

__all__ = [
    "Terms",
    "check_able",
    "check_name",
    "check_run",
    "preflight",
    "public_trials",
    "stored_job",
    "terms_of",
]

DataT = TypeVar("DataT")

DATA_KINDS = ("private", "public", "synthetic")


def check_run(plan: Plan, trainer: object, seed: int | None, data_is: str) -> None:
    """Refuse what cannot be run, before anything is written."""
    if not isinstance(plan, Plan):
        raise InvalidInput(f"'plan' must come from a method's .plan(budget, trainer); got {plan!r}.")
    check_able(plan, trainer)
    if data_is not in DATA_KINDS:
        raise InvalidInput(f"'data_is' must be one of {', '.join(DATA_KINDS)}; got {data_is!r}.")
    if seed is not None and data_is == "private":
        raise InvalidInput(
            "A fixed seed gives no privacy, so a rehearsal needs data that is marked: data_is='synthetic' or 'public'."
        )
    if not plan.guaranteed and seed is None:
        raise InvalidInput(
            f"The method {plan.method!r} gives no privacy; it runs only as a rehearsal (seed=...) on public or "
            f"synthetic data."
        )
    if plan.guaranteed and plan.price() > plan.budget.epsilon:
        raise InvalidInput("The plan costs more than its own budget; plan again.")
    if plan.cost.neighbours != plan.budget.neighbours:
        raise InvalidInput(
            f"The plan's cost is for '{plan.cost.neighbours}', its budget for '{plan.budget.neighbours}'; its method "
            "must convert the one to the other (Budget.covering)."
        )


def check_name(dataset: str) -> str:
    """A data set's name goes into files and statements, so it must be a text that can be written."""
    if plain(dataset) != dataset:
        raise InvalidInput(f"The data set's name {dataset!r} holds half a character, which no file takes; rename it.")
    return dataset


def check_able(plan: Plan, trainer: object) -> None:
    """The trainer must be able to do what the plan asks for: have a score, continue from a model."""
    check_trainer(trainer)
    if plan.needs_warm_start:
        check_warm_start(trainer)
    if plan.scored:
        validation_of(trainer, plan.validation)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What was agreed before the run began, beside its plan; the codec writes and reads it."""

    run: str  # the run's own name
    charge: str  # that of its charge: the same, unless the charge was committed earlier
    ledger: str | None  # None in a rehearsal
    dataset: str
    data_is: str
    release_at: str | None
    replay: str
    job: dict[str, Any] | None
    # Files of earlier versions lack some of these.
    encoder: dict[str, Any] | None = field(default=None, metadata=added_later())  # how rows become features; public
    pickle: bool = field(default=False, metadata=added_later())  # models that no safe file can hold may be pickles
    units: DeclaredUnits | None = field(default=None, metadata=added_later())  # where a record is several rows; public
    opening: tuple[float, float] | None = field(default=None, metadata=added_later())
    """Epsilon and delta with which its charge opens a data set that is new."""
    training: str | None = field(default=None, metadata=added_later())  # how the trainer says that it trains; public
    public_encoder: dict[str, Any] | None = field(default=None, metadata=added_later())
    """What made features of records, with the hash of its weights."""


@dataclass(frozen=True, kw_only=True)
class Terms(Agreement):
    """The agreement and the plan; stored in the vault, so that a run continues under the same terms."""

    plan: Plan

    def describe(self) -> dict[str, Any]:
        """The terms as plain JSON values, the plan as plans are written everywhere."""
        rest = {one.name: getattr(self, one.name) for one in fields(Agreement)}
        return {"plan": self.plan.describe(), **to_values(Agreement(**rest))}


def terms_of(vault: Vault) -> Terms:
    """The terms that a vault keeps; the plan is derived again from its settings, as every stored plan is.

    All that terms say is public, and so is what is wrong with them.
    """
    stored = vault.facts().get("terms")
    try:
        if not isinstance(stored, dict):
            raise InvalidInput("It holds no terms of a run.")
        own = ("plan", "fingerprint")  # the second is of older versions
        rest = {name: value for name, value in stored.items() if name not in own}
        agreed = from_json(rest, Agreement, "the terms of a run")
        return Terms(plan=plan_from_json(stored.get("plan", "")), **vars(agreed))
    except InvalidInput as error:
        raise Corrupt(
            f"The vault in {vault.path.parent} is damaged. {error} Restore the run folder from a backup."
        ) from None


def stored_job(vault: Vault) -> dict[str, Any] | None:
    """The job that a vault keeps, before its plan is derived again; None if the run was started from Python."""
    stored = vault.facts().get("terms")
    if not isinstance(stored, dict) or not isinstance(stored.get("job", ...), dict | None):
        raise Corrupt(f"The vault in {vault.path.parent} is damaged. Restore the run folder from a backup.")
    job: dict[str, Any] | None = stored["job"]
    return job


def preflight(plan: Plan, trainer: Trainer[DataT, object], data: DataT) -> None:
    """The trainer must declare what the plan paid for, and take what it will be given, as far as it can tell without
    looking at records (``check``); otherwise every trial would fail after the charge. There must be any records at all.

    It is asked about candidates from public randomness: a refusal that depended on the run's own draw would tilt the
    law of the number of runs, because the more there are the likelier is one that is refused.
    """
    check_any_records(data)
    with silence(Path(os.devnull)):
        trials = public_trials(plan)
        _check_parts(trials, data)
        _check_models(trainer, trials, data)
        for trial in trials:
            check_comparable(trainer, trial)
            if trial.validation is not None:
                check_score(trial.validation.score, data)
            if trial.declared is None:
                continue  # low-sensitivity utilities: the training itself is not released
            stated = trainer.cost(trial.params)
            if not isinstance(stated, Cost):
                raise InvalidInput(f"The trainer's cost(params) must return a cost such as DpSgd(...); got {stated!r}.")
            if stated != trial.declared:
                raise InvalidInput(
                    "The trainer declares another cost than the one in the plan; plan again with this trainer."
                )


def public_trials(plan: Plan, most: int = 8) -> list[Trial]:
    """Some trials of the plan that anybody could have drawn; a law of runs may give none at first."""
    drawn = (plan.start(Randomness.rehearsal(seed)).ask() for seed in range(32))
    return next((trials[:most] for trials in drawn if trials), [])


def _check_parts(trials: list[Trial], data: object) -> None:
    """Refuse data of a kind from which the plan's parts cannot be taken. None is taken: no record is looked at."""
    parts = [trial.part for trial in trials] + [trial.validation.part for trial in trials if trial.validation]
    if not any(part.conditions for part in parts):
        return
    try:
        size(data)
        take(data, np.empty(0, dtype=np.int64))
    except DptuneError:
        raise
    except Exception as error:  # what it says may quote records
        raise InvalidInput(
            f"The plan trains on parts of the records, which cannot be taken from {type(data).__name__} "
            f"({type(error).__name__}). Give a Dataset, arrays, or an object with len() and take(index)."
        ) from None


def _check_models(trainer: object, trials: list[Trial], data: object) -> None:
    """Refuse a trainer that cannot train any of these; one that cannot train some loses those trials alone."""
    if not isinstance(trainer, SupportsCheck) or not callable(trainer.check):
        return
    errors: list[Exception] = []
    for trial in trials:
        try:
            trainer.check(trial.params, data)
        except Exception as error:
            errors.append(error)
    if not errors or len(errors) < len(trials):
        return
    if isinstance(errors[0], DptuneError):
        raise errors[0]
    said = plain(str(errors[0])).splitlines()[0] if str(errors[0]) else "no reason given"
    raise InvalidInput(f"The trainer cannot make its model ({type(errors[0]).__name__}: {said}).")
