"""Trials: one training that a search asks for, what it obeys, what came of it, and what was chosen in the end.

A search must be a deterministic function of (randomness, outcomes told), so that a run that was cut off is resumed by
starting it again and telling the stored outcomes. Nothing here may read data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dptune._codec import from_json, to_json, to_values
from dptune.accounting import Cost, RenyiLine
from dptune.methods.parts import ALL, DataPart

__all__ = ["HeldOut", "Label", "Outcome", "Params", "Search", "Selection", "Trial", "trial_from_json"]

Params = dict[str, Any]
Label = tuple[str | int, ...]


@dataclass(frozen=True)
class HeldOut:
    """Private validation of one trial: which records, the public denominator, the noise of the count.

    A noise of 0 is for utilities that are noised later as a whole (shards, votes).
    """

    part: DataPart
    denominator: float
    noise: float


@dataclass(frozen=True)
class Trial:
    """One training to do, and everything that it obeys. :mod:`dptune.methods.execute` obeys all of it.

    Args:
        index: numbers the trials of a run from 0; the final training has a number of its own.
        params: what the trainer gets.
        part: which records are trained on.
        seed_label: the label of the run's randomness from which the trainer's generator is made.
        candidate: the configuration as the space has it, before noise and public ratios were applied.
        declared: the cost that was paid for one training; a trainer that declares another one fails the trial.
        line: instead, a line under which the declared cost must stay, and which sets the noise.
        validation: the private records that score the trial, if any do.
        final: the final training, whose score nobody uses.
        warm_start: the index of the trial whose model is the starting point.
    """

    index: int
    params: Params
    part: DataPart = ALL
    seed_label: Label = ()
    candidate: Params = field(default_factory=dict)
    declared: Cost | None = None
    line: RenyiLine | None = None
    validation: HeldOut | None = None
    final: bool = False
    warm_start: int | None = None

    def describe(self) -> Params:
        """As plain JSON values; the inverse of :func:`trial_from_json`."""
        described: Params = to_values(self)
        return described

    def to_json(self) -> str:
        """As text."""
        return to_json(self)


def trial_from_json(data: str | Mapping[str, Any]) -> Trial:
    """The inverse of :meth:`Trial.to_json`; also accepts the parsed object."""
    return from_json(data, Trial, "a trial")


@dataclass(frozen=True)
class Outcome:
    """The score of a trial; minus infinity for a failure (a score that is no number is a failure too)."""

    index: int
    score: float

    def __post_init__(self) -> None:
        score = float(self.score)
        object.__setattr__(self, "score", -math.inf if math.isnan(score) else score)


@dataclass(frozen=True)
class Selection:
    """What a search chose.

    Args:
        params: the parameters that are released.
        best: the winning trial itself, None for the public default.
        final: if there is one, it is trained after the selection and its model is the one released (its failure
            releases the parameters alone).
    """

    params: Params
    best: Trial | None = None
    final: Trial | None = None

    @property
    def winner(self) -> int | None:
        """The number of the winning trial, whose model is released if there is no final training."""
        return None if self.best is None else self.best.index


class Search(Protocol):
    """The running half of a method. Not thread-safe: one owner asks and tells."""

    @property
    def done(self) -> bool:
        """Whether every outcome that the result needs has been told."""

    def ask(self) -> list[Trial]:
        """Trials that may run now, in any order and in parallel; each is given once; empty when none is left."""

    def tell(self, outcome: Outcome) -> None:
        """Report a trial that ``ask`` gave, once."""

    def result(self) -> Selection:
        """The choice; only when done."""
