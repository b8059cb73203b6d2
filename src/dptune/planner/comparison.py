"""All methods at one budget, side by side: noise, runs, gradient evaluations, and how likely a good choice is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptune._validate import integer, real
from dptune.accounting import DpSgd, Runs
from dptune.accounting.combination import Compose, Parallel
from dptune.errors import BudgetExceeded
from dptune.methods import Budget, Plan, known_methods, method_named
from dptune.methods.comparison import Setting
from dptune.spaces import Candidates
from dptune.trainer import DeclaresCost

__all__ = ["Compared", "compare"]


@dataclass(frozen=True)
class Compared:
    """One method at the common budget.

    Args:
        name: the method, and its variant.
        noise: the noise multiplier of every run; None where it does not fit or cannot be set.
        epsilon: what everything costs; infinite where the method does not fit.
        expected_runs: trainings in expectation.
        gradients: gradient evaluations in expectation.
        top: the probability that one of the best 5 % is chosen.
        top_high: its upper end where only a range is known.
        note: "model" where the probability holds under a stated model; the reason where the method does not fit.

    Example:
        >>> Compared("random guess", 1.2, 3.0, 1.0, 6e4, 0.05, None).name
        'random guess'
    """

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
    parts = cost.parts if isinstance(cost, Compose | Parallel) else (cost,)
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

    Args:
        trainer: declares what one training costs.
        candidates: the list to choose from.
        budget: the common total.
        runs: the law of the number of runs, for methods that draw it.
        records: the public number of records.
        fraction: the share to tune on, for subset methods.
        density: the bounds of adaptive sampling.
        shards: how many parts threshold search and noisy best use.
        clients: how many clients vote.
        votes: how many candidates each client votes for.
        share: the part of the budget that a choice by shards or votes gets.
        seed: of the simulations.

    Returns:
        A row for each method and variant.

    Example:
        >>> from dptune import Budget, Float, Geometric, PureDp, Space, trainer
        >>> @trainer(cost=PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return None, 0.5
        >>> rows = compare(guess, Space(lr=Float(0.1, 10)).grid(5), Budget(1, 1e-5), runs=Geometric(3), records=100)
        >>> [row.name for row in rows][:3]
        ['random guess', 'naive composition', 'random stopping']
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
