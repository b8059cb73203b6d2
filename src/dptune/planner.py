"""The planner: which method for this trainer, space and budget, and why; and all methods side by side.

Subset tuning is the default when there are enough records, random stopping otherwise (``docs/choosing.md``); the
explanation gives the numbers that decided. Everything is computed from public descriptions: no data is touched.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dptune._validate import integer, real
from dptune.accounting import ADDED_OR_REMOVED, DpSgd, Geometric, Neighbours, Runs
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import (
    Budget,
    Plan,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    known_methods,
    method_named,
)
from dptune.methods.comparison import TOP, Setting
from dptune.spaces import Candidates, Domain
from dptune.trainer import DeclaresCost, DeclaresRecords, Trainer, has_own_score

__all__ = ["Advice", "Compared", "choose", "compare", "default_validation", "public_records", "tune"]

DataT = TypeVar("DataT")

_LEAST_TUNING_RECORDS = 500
_FRACTIONS = (0.1, 0.2)
_VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class Advice:
    """A plan and, in one paragraph, why this one."""

    plan: Plan
    method: Any
    explanation: str


def default_validation(trainer: object, records: int | None) -> PrivateValidation | None:
    """Private validation on a tenth of the records, if the trainer says that it has no public ones."""
    if has_own_score(trainer):
        return None
    if records is None:
        raise InvalidInput(
            "The trainer has no public validation records, so scores must come from private ones; say how many records "
            "there are (a public number), or give a method with validation=PrivateValidation(...)."
        )
    return PrivateValidation(_VALIDATION_SHARE, max(1.0, _VALIDATION_SHARE * records))


def public_records(trainer: object) -> int | None:
    """The number of records that a trainer declares publicly, if it does."""
    declared = trainer.declared_records if isinstance(trainer, DeclaresRecords) else None
    return None if declared is None else integer("declared_records", declared, 1)


def tune(
    trainer: Trainer[DataT, object],
    space: Domain,
    data: DataT,
    epsilon: float,
    delta: float,
    *,
    records: int | None = None,
    runs: Runs | None = None,
    neighbours: Neighbours = ADDED_OR_REMOVED,
    explain: Callable[[str], None] | None = print,
    **options: Any,
) -> Any:
    """Tune in one call: the planner picks the method, says why, and the sealed runner releases the winner.

    ``options`` go to the runner (``ledger``, ``dataset``, ``out``, ...). The explanation comes before data is touched;
    with a ``rehearsal`` it offers a public time of release too. ``neighbours`` is what the guarantee hides: for
    patients with at most 5 records each ``ADDED_OR_REMOVED.group(5)``.
    """
    advice = choose(trainer, space, Budget(epsilon, delta, neighbours), records=records, runs=runs)
    if explain is not None:
        explain(advice.explanation)
        rehearsal, hidden = options.get("rehearsal"), options.get("release_at") is not None
        if rehearsal is not None and not hidden and options.get("seed") is None:
            duration = importlib.import_module("dptune.sealed.duration")
            explain(duration.offer(advice.plan, Path(rehearsal), options.get("executor")))
    return importlib.import_module("dptune.sealed.run").run(advice.plan, trainer, data, **options)


def choose(
    trainer: DeclaresCost, space: Domain, budget: Budget, *, records: int | None = None, runs: Runs | None = None
) -> Advice:
    """Pick a method and explain it. ``records`` is the public number of records; a DP-SGD trainer implies one.

    Offers are random stopping and subset tuning; the least noise per record trained on wins.
    """
    records = public_records(trainer) if records is None else integer("records", records, 1)
    law, many = runs or Geometric(10), runs or Geometric(30)
    whole = RandomStopping(space, law, validation=default_validation(trainer, records))
    offers: list[tuple[str, Any, Plan]] = []
    reasons: list[str] = []
    refused: BudgetExceeded | None = None
    try:
        offers.append((f"random stopping with {law} runs on all records", whole, whole.plan(budget, trainer)))
    except BudgetExceeded as error:
        refused = error
    fraction = _fraction(records)
    if records is not None and fraction is not None:
        share = max(1, round(fraction * records))
        subset = Subset(RandomStopping(space, many, validation=default_validation(trainer, share)), fraction)
        try:
            what = f"{many} runs on a share of {fraction:g}, then training on the rest"
            offers.append((what, subset, subset.plan(budget, trainer)))
        except BudgetExceeded as error:
            refused = refused or error
    if not offers:
        raise refused or BudgetExceeded("No method fits this budget; raise epsilon.")
    if records is None:
        reasons.append("Subset tuning was not considered because the number of records was not given.")
    elif fraction is None:
        reasons.append(f"With {records} records a random part would be too small to tune on.")
    name, method, plan = min(offers, key=lambda offer: _worth(offer[1], offer[2]))
    return Advice(
        plan, method, _explain(name, plan, offers, reasons, trainer, space, budget, law if method is whole else many)
    )


def _fraction(records: int | None) -> float | None:
    """The share to tune on: a tenth of many records, a fifth of fewer, none of too few."""
    for share in _FRACTIONS:
        if records is not None and share * records >= _LEAST_TUNING_RECORDS:
            return share
    return None


def _worth(method: Any, plan: Plan) -> tuple[float, float]:
    """Least noise for the records that the released model saw; where noise cannot be tuned, least price."""
    seen = method.final_share if isinstance(method, Subset) else 1.0
    return ((plan.noise_multiplier or 0.0) / seen, plan.price())


def _explain(
    name: str, plan: Plan, offers: Sequence[tuple[str, Any, Plan]], reasons: list[str], trainer: DeclaresCost,
    space: Domain, budget: Budget, law: Runs,
) -> str:  # fmt: skip
    noise = plan.noise_multiplier
    said = f"Chosen: {name}. The total, tuning included, is epsilon {plan.price():.4g} at delta {budget.delta:g}"
    parts = [f"{said}, with noise {noise:.4g} in every run." if noise is not None else f"{said}."]
    others = [
        f"{other} needs {rival.noise_multiplier:.4g}"
        for other, _, rival in offers
        if rival is not plan and rival.noise_multiplier
    ]
    if others and noise is not None:
        parts.append(f"At the same budget {'; '.join(others)}.")
    try:
        single = RandomGuess(space).plan(budget, trainer).noise_multiplier
        if single is not None:
            parts.append(f"A single untuned run could use {single:.4g}.")
    except (BudgetExceeded, InvalidInput):
        pass
    parts.append(
        f"About {law.expected:g} configurations are tried in expectation; one of the best 5 % is among them with "
        f"probability {law.hit_probability(TOP):.2f}."
    )
    held = plan.validation
    if held is not None and held.noise is not None:
        parts.append(
            f"No public validation records were given, so a share of {held.fraction:g} of the tuning records "
            f"is held back and scores are noised by {held.noise / held.denominator:.2g}: paid on the "
            "side, at no extra epsilon."
        )
    parts.append(
        "Adaptive sampling was not chosen: it hits any set at most as often as C times more uniform runs, and those "
        "are usually cheaper in privacy; it can save compute."
    )
    return " ".join([*parts, *reasons])


# All methods at one budget.


@dataclass(frozen=True)
class Compared:
    """One method at the common budget."""

    name: str
    noise: float | None
    epsilon: float
    expected_runs: float
    gradients: float | None
    top: float
    top_high: float | None
    note: str = ""


def _passes(plan: Plan) -> float:
    """Gradient evaluations per record of one training on everything."""
    cost = plan.run_costs[0]
    parts = getattr(cost, "parts", (cost,))
    found = [part.sampling_rate * part.steps for part in parts if isinstance(part, DpSgd)]
    return max(found, default=1.0)


def compare(
    trainer: DeclaresCost,
    candidates: Candidates,
    budget: Budget,
    *,
    runs: Runs,
    records: int,
    fraction: float = 0.1,
    density: tuple[float, float] = (0.75, 2.0),
    shards: int = 100,
    clients: int = 100,
    votes: int = 5,
    share: float = 0.1,
    seed: int = 0,
) -> list[Compared]:
    """Every method at one budget: noise, runs, gradient evaluations, chance of one of the best 5 %.

    For shards and votes the chance holds under a stated model: utilities uniform on (0, 1); a client's score
    deviates by 0.2. A method that does not fit the budget is listed with the reason.
    """
    n = integer("records", records, 1)
    real("share", share, 0, 1, low_open=True, high_open=True)
    rng = np.random.default_rng(seed)
    setting = Setting(candidates, budget, runs, fraction, density, shards, clients, votes, share, rng)
    setting.utilities  # noqa: B018 - drawn first, whichever methods there are
    methods = sorted((method_named(name) for name in known_methods()), key=lambda one: (one.place, one.name))
    rows = []
    for entry in (entry for method in methods for entry in method.entries(setting)):
        try:
            plan = entry.method.plan(budget, trainer)
        except BudgetExceeded as error:
            rows.append(Compared(entry.name, None, math.inf, math.nan, None, math.nan, None, str(error)))
            continue
        low, high = entry.chance(plan)
        gradients = entry.trainings * n * _passes(plan)
        noise, price = plan.noise_multiplier, plan.price()
        rows.append(Compared(entry.name, noise, price, plan.expected_runs, gradients, low, high, entry.note))
    return rows
