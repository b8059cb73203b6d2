"""Tuning in one call: the planner picks the method and says why, the sealed runner releases the winner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dptune.accounting import ADDED_OR_REMOVED, Neighbours, Runs
from dptune.methods import Budget
from dptune.planner.advice import choose
from dptune.sealed.duration import offer
from dptune.sealed.rehearsal import report
from dptune.sealed.release import Release
from dptune.sealed.run import run
from dptune.sealed.statement import no_model
from dptune.spaces import Domain
from dptune.trainer import Trainer

__all__ = ["tune"]

DataT = TypeVar("DataT")


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
) -> Release:
    """Tune in one call: the planner picks the method, says why, and the sealed runner releases the winner.

    Args:
        trainer: trains one configuration and declares what that costs.
        space: what may be tried.
        data: the private records, as the trainer takes them.
        epsilon: the total budget, tuning included.
        delta: the delta at which epsilon is stated.
        records: the public number of records; a DP-SGD trainer implies one.
        runs: the law of the number of runs; by default geometric.
        neighbours: what the guarantee hides; for patients with at most 5 records ``ADDED_OR_REMOVED.group(5)``.
        explain: is given the explanation before data is touched, and with a ``rehearsal`` a time of release too; after
            a rehearsal, everything that it found; and that no model was released, if none was.
        options: for the runner: ``ledger``, ``dataset``, ``out``, ... (:func:`dptune.run`).

    Returns:
        The release: the winner's parameters, its model and the statement.

    Raises:
        BudgetExceeded: no method fits the budget, or the ledger has less left.
        InvalidInput: something public is wrong; nothing was charged.

    Example:
        >>> from dptune import Float, Space
        >>> from dptune.training import DpSgdTrainer, Settings, load, softmax
        >>> digits = load("digits")
        >>> settings = Settings(0.1, 1.0, steps=30, clip_norm=1.0, learning_rate=1.0, batch_size=143.7)
        >>> trainer = DpSgdTrainer(softmax(64, 10), settings, validation=digits.test)
        >>> space = Space(learning_rate=Float(0.1, 10, log=True))
        >>> release = tune(trainer, space, digits.train, 3, 1e-4, seed=1, data_is="public", explain=None, out="digits")
        >>> sorted(release.params)
        ['learning_rate', 'noise_multiplier']
    """
    advice = choose(trainer, space, Budget(epsilon, delta, neighbours), records=records, runs=runs)
    if explain is not None:
        explain(advice.explanation)
        rehearsal, hidden = options.get("rehearsal"), options.get("release_at") is not None
        if rehearsal is not None and not hidden and options.get("seed") is None:
            explain(offer(advice.plan, Path(rehearsal), options.get("executor")))
    release = run(advice.plan, trainer, data, **options)
    if explain is not None and not release.details["guarantee"]:
        explain(report(release.path.parent))
    if explain is not None and release.outcome == "no model":
        explain(no_model(release.details["chance_of_no_model"], release.details["guarantee"]))
    return release
