"""Which trials are handed to a worker together: a function of public things and of the trials alone, never of data.

A trainer with ``fit_many`` trains several candidates as a stack (``docs/training.md``). Members of a stack see the
same part of the records and have the same shape, as far as the trainer says what shapes there are; a trial that a
trainer would not stack is handed over alone, so that work stays balanced and a death loses one trial only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from dptune.methods.trial import Trial
from dptune.sealed._quiet import silence
from dptune.trainer import SupportsShapes, SupportsStacking, trains_itself

__all__ = ["MOST", "Kind", "kinds", "shares"]

MOST = 16  # trials in one hand-over: more gain little speed, and a worker that is killed loses them all

Kind = Callable[[Trial], Hashable | None]


def kinds(trainer: object, log: Path) -> Kind | None:
    """What trials must have in common to be trained together, None for a trial that stays alone.

    Without ``fit_many`` there is no such function. A trainer's ``shape(params)`` is asked in silence: it runs once
    for each trial.
    """
    if not isinstance(trainer, SupportsStacking) or not trains_itself(trainer, "fit_many", beside="fit"):
        return None
    shape = trainer.shape if isinstance(trainer, SupportsShapes) else None

    def kind(trial: Trial) -> Hashable | None:
        found: Hashable | None = True
        if callable(shape):
            try:
                with silence(log):
                    found = shape(trial.params)
                    hash(found)
            except Exception:  # parameters that the trainer refuses: a failure of this trial's own
                return None
        return None if found is None or trial.warm_start is not None else (found, trial.part)

    return kind


def shares(trials: Sequence[Trial], kind: Kind, workers: int) -> list[tuple[int, ...]]:
    """Hand-overs of these trials, by index: about equally large, enough for all workers, at most ``MOST`` each."""
    groups: list[tuple[Hashable | None, list[int]]] = []
    for trial in sorted(trials, key=lambda one: one.index):
        this = kind(trial)
        members = next((found for other, found in groups if this is not None and other == this), None)
        if members is None:
            groups.append((this, [trial.index]))
        else:
            members.append(trial.index)
    rounds = math.ceil(len(trials) / (workers * MOST))
    size = math.ceil(len(trials) / max(1, rounds * workers))
    parts = [part for _, members in groups for part in _split(members, size)]
    return sorted(parts)


def _split(members: list[int], size: int) -> list[tuple[int, ...]]:
    """In as few parts of at most ``size`` as there can be, about equally large."""
    count = math.ceil(len(members) / size)
    ends = [len(members) * place // count for place in range(count + 1)]
    return [tuple(members[begin:end]) for begin, end in itertools.pairwise(ends)]
