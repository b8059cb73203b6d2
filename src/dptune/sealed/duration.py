"""How long a run will take, told by public facts alone: the plan, a rehearsal's seconds and the number of workers.

A release that appears when the run is over tells how long it took, hence how many trainings there were. So where a
rehearsal has measured a training, a public time is offered before which nothing is released
(``docs/sharp_edges.md``). Nothing here may look at a vault of a run on private data.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.executors.base import DeclaresWorkers, Executor, usual_workers
from dptune.methods.plan import Plan
from dptune.sealed.release import load_release, public_time

__all__ = ["AUTO", "likely_seconds", "measured_seconds", "offer", "offered_time", "release_time", "workers_of"]

AUTO = "auto"
_QUANTILE = 0.999  # of the number of runs
_SLOWER = 1.5  # a training may take this many times what it took in the rehearsal
_SPARE = 60.0  # seconds for starting workers and for pricing


def workers_of(executor: Executor | None) -> int:
    """How many trainings an executor runs at once; by default :func:`usual_workers`."""
    declared = executor.workers if isinstance(executor, DeclaresWorkers) else None
    return declared or usual_workers()


def measured_seconds(rehearsal: Path) -> tuple[float, int]:
    """The seconds of one training, as a rehearsal measured them, and how many were trained together there."""
    details = load_release(rehearsal).details
    seconds = details.get("seconds_per_training")
    if not isinstance(seconds, int | float):
        raise InvalidInput(
            f"{rehearsal} is not a rehearsal with a training in it, so it does not say how long one takes. "
            "Rehearse the job first (seed=...)."
        )
    return float(seconds), int(details.get("trained_together", 1))


def _trainings(plan: Plan) -> float:
    """How many trainings there will hardly be more than."""
    law = plan.law
    if law is None:
        return plan.expected_runs
    return law.quantile(_QUANTILE) + plan.expected_runs - law.expected  # and a final one, if the method has it


def _at_once(plan: Plan, workers: int) -> int:
    """How many trainings run side by side: where scores steer the sampling, a batch at a time."""
    return workers if plan.batch is None else min(workers, plan.batch)


def _asks(plan: Plan) -> int:
    """How often trials are asked for: where scores steer the sampling, a batch at a time."""
    return 1 if plan.batch is None else math.ceil(_trainings(plan) / plan.batch)


def likely_seconds(plan: Plan, seconds: float, workers: int, together: int = 1) -> float:
    """The time within which a run will most likely be over.

    ``together`` trainings took ``together * seconds`` in the rehearsal. A smaller stack takes no longer than that as a
    whole, but longer for each; of such stacks a worker has at most one more for each time that trials are asked for.
    """
    trainings = math.ceil(_trainings(plan) / _at_once(plan, workers))
    if together > 1:
        trainings += together * _asks(plan)
    return trainings * seconds * _SLOWER + _SPARE


def offered_time(plan: Plan, rehearsal: Path, workers: int, now: datetime.datetime | None = None) -> datetime.datetime:
    """A public time by which a run that begins now will most likely be over, to the next full minute."""
    begin = datetime.datetime.now(datetime.UTC) if now is None else now
    seconds, together = measured_seconds(rehearsal)
    end = begin + datetime.timedelta(seconds=likely_seconds(plan, seconds, workers, together))
    return (end + datetime.timedelta(minutes=1)).replace(second=0, microsecond=0)


def offer(plan: Plan, rehearsal: Path, executor: Any) -> str:
    """The sentence that offers a public time of release."""
    moment = offered_time(plan, rehearsal, workers_of(executor)).isoformat()
    return (
        "The time at which this run ends shows how long it took, hence about how many trainings there were. By the "
        f"rehearsal it will most likely be over by {moment}; release_at = 'auto' (--release-at auto) would release "
        "nothing before such a time."
    )


def release_time(plan: Plan, given: str | None, rehearsal: str | Path | None, executor: Any) -> str | None:
    """The public time of release, which must be ahead: one that has passed hides nothing."""
    if given is None:
        return None
    if given == AUTO:
        if rehearsal is None:
            raise InvalidInput(
                "'release_at' = 'auto' needs the folder of a rehearsal, which says how long a run takes. "
                "Give 'rehearsal'."
            )
        return offered_time(plan, Path(rehearsal), workers_of(executor)).isoformat()
    moment = public_time(given)
    if moment <= datetime.datetime.now(datetime.UTC):
        raise InvalidInput(
            f"'release_at' is a public time before which nothing is released; {given} has passed. Give one by which "
            "the run will be over, or leave it out."
        )
    return moment.isoformat()
