"""Conformance of tuning methods: what every plan and every search must do, whoever wrote it.

Call :func:`check_method` from your tests with a method of your own. The randomness here is seeded and gives no privacy:
it must never serve a run on private data.
"""

from __future__ import annotations

import math
from typing import TypeVar

from dptune.methods.budget import Budget
from dptune.methods.drive import Score, drive
from dptune.methods.execute import fit_trial
from dptune.methods.plan import Method, Plan, plan_from_json
from dptune.methods.trial import Selection, Trial, trial_from_json
from dptune.randomness import Randomness
from dptune.trainer import DeclaresCost, Trainer

__all__ = ["check_method", "run_plan"]

DataT = TypeVar("DataT")
ModelT = TypeVar("ModelT")


def run_plan(
    plan: Plan, trainer: Trainer[DataT, ModelT], data: DataT, randomness: Randomness
) -> tuple[Selection, ModelT | None]:
    """Train everything in this process, without any seal; returns the selection and the released model."""
    models: dict[int, ModelT] = {}

    def attempt(trial: Trial) -> float:
        try:
            models[trial.index], score = fit_trial(trainer, trial, data, randomness)
        except Exception:
            return -math.inf
        return score

    _, selection = drive(plan, randomness, attempt)
    if selection.final is None:
        return selection, models.get(-1 if selection.winner is None else selection.winner)
    warm = selection.final.warm_start
    start = None if warm is None else models[warm]
    return selection, fit_trial(trainer, selection.final, data, randomness, start=start)[0]


def check_method(method: Method, budget: Budget, trainer: DeclaresCost, score: Score, seeds: range = range(5)) -> Plan:
    """Raise AssertionError unless the plan fits the budget, survives JSON, and its searches can be resumed."""
    plan = method.plan(budget, trainer)
    if plan.guaranteed:
        price = plan.price()
        assert price <= budget.epsilon, f"the plan costs {price}, more than {budget.epsilon}"
        assert price == plan.cost.epsilon(budget.delta), "the price is not the cost's epsilon"
    stored = plan_from_json(plan.to_json())
    assert stored.to_json() == plan.to_json(), "the plan does not survive JSON"
    for seed in seeds:
        _check_search(plan, stored, seed, score)
    return plan


def _check_search(plan: Plan, stored: Plan, seed: int, score: Score) -> None:
    seen, chosen = drive(plan, Randomness.rehearsal(seed), score)
    indices = [trial.index for trial in seen]
    assert len(set(indices)) == len(indices), "a trial was asked for twice"
    for trial in seen:
        assert trial_from_json(trial.to_json()) == trial, "a trial does not survive JSON"
    again, same = drive(stored, Randomness.rehearsal(seed), score, reverse=True)
    assert sorted(again, key=lambda t: t.index) == sorted(seen, key=lambda t: t.index), "not the same trials again"
    assert same == chosen, "not the same result again"
    _, failed = drive(plan, Randomness.rehearsal(seed), lambda trial: -math.inf)
    assert failed.winner is None, "a failed trial won"
    labels = [trial.seed_label for trial in seen] + ([] if chosen.final is None else [chosen.final.seed_label])
    assert len(set(labels)) == len(labels), "two trainings share their randomness"
