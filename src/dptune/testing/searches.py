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
from dptune.methods.plan import Method, Plan
from dptune.methods.stored import plan_from_json
from dptune.methods.trial import Selection, Trial, trial_from_json
from dptune.randomness import Randomness
from dptune.trainer import DeclaresCost, Trainer

__all__ = ["check_method", "run_plan"]

DataT = TypeVar("DataT")
ModelT = TypeVar("ModelT")


def run_plan(
    plan: Plan, trainer: Trainer[DataT, ModelT], data: DataT, randomness: Randomness
) -> tuple[Selection, ModelT | None]:
    """Train everything that a plan asks for in this process, without any seal: for tests and public data.

    Args:
        plan: what is run.
        trainer: what trains; a run that raises counts as failed.
        data: records that anybody may see.
        randomness: seeded, as ``Randomness.rehearsal(1)``.

    Returns:
        The selection, and the model that would be released; None for the public default.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.Gaussian(10.0))
        ... def train(params, data, rng):
        ...     return sum(data) + 10.0 * rng.normal(), -abs(params["guess"] - 3)
        >>> method = dpt.RandomStopping(dpt.Space.of([{"guess": 1}, {"guess": 3}]), dpt.Geometric(20))
        >>> plan = method.plan(dpt.Budget(1, 1e-5), train)
        >>> selection, model = run_plan(plan, train, [1, 1, 1], Randomness.rehearsal(1))
        >>> selection.params
        {'guess': 3}
    """
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
    """Raise AssertionError unless a method plans within its budget, survives JSON, and its searches can be resumed.

    Args:
        method: what is tested.
        budget: what it plans for.
        trainer: declares the costs; nothing is trained.
        score: of a trial, made up: any function of the trial.
        seeds: of the searches.

    Returns:
        The plan.

    Raises:
        AssertionError: with what does not hold.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> method = dpt.RandomStopping(dpt.Space.of([{"layers": 1}, {"layers": 2}]), dpt.Geometric(10))
        >>> plan = check_method(method, dpt.Budget(1, 1e-5), train, lambda trial: float(trial.params["layers"]))
        >>> plan.expected_runs
        10.0
    """
    plan = method.plan(budget, trainer)
    if plan.guaranteed:
        price = plan.price()
        assert price <= budget.epsilon, f"The plan costs {price}, more than {budget.epsilon}."
        assert price == plan.cost.epsilon(budget.delta), "The price is not the cost's epsilon."
    stored = plan_from_json(plan.to_json())
    assert stored.to_json() == plan.to_json(), "The plan does not survive JSON."
    for seed in seeds:
        _check_search(plan, stored, seed, score)
    return plan


def _check_search(plan: Plan, stored: Plan, seed: int, score: Score) -> None:
    """The same trials and the same result when told in another order, from a stored plan, or all failed."""
    seen, chosen = drive(plan, Randomness.rehearsal(seed), score)
    indices = [trial.index for trial in seen]
    assert len(set(indices)) == len(indices), "A trial was asked for twice."
    for trial in seen:
        assert trial_from_json(trial.to_json()) == trial, "A trial does not survive JSON."
    again, same = drive(stored, Randomness.rehearsal(seed), score, reverse=True)
    assert sorted(again, key=lambda t: t.index) == sorted(seen, key=lambda t: t.index), "Not the same trials again."
    assert same == chosen, "Not the same result again."
    _, failed = drive(plan, Randomness.rehearsal(seed), lambda trial: -math.inf)
    assert failed.winner is None, "A failed trial won."
    labels = [trial.seed_label for trial in seen] + ([] if chosen.final is None else [chosen.final.seed_label])
    assert len(set(labels)) == len(labels), "Two trainings share their randomness."
