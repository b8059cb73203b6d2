"""Trials: one training that a search asks for, what it obeys, what came of it, and what was chosen in the end.

A search must be a deterministic function of (randomness, outcomes told), so that a run that was cut off is resumed by
starting it again and telling the stored outcomes. Nothing here may read data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dptune._codec import added_later, from_json, to_json, to_values
from dptune.accounting import Cost, RenyiLine
from dptune.methods.parts import ALL, DataPart
from dptune.scores import Score

__all__ = ["HeldOut", "Label", "Outcome", "Params", "Search", "Selection", "Trial", "trial_from_json"]

Params = dict[str, Any]
Label = tuple[str | int, ...]


@dataclass(frozen=True)
class HeldOut:
    """Private validation of one trial: which records, the public denominator, the noise of the count, the score.

    A noise of 0 is for utilities that are noised later as a whole (shards, votes). A score of None is the natural one.
    """

    part: DataPart
    denominator: float
    noise: float
    score: Score | None = field(default=None, metadata=added_later())


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

    Example:
        >>> trial = Trial(0, {"learning_rate": 0.1}, seed_label=("trial", 0))
        >>> trial_from_json(trial.to_json()) == trial
        True
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
        """The trial as plain JSON values."""
        described: Params = to_values(self)
        return described

    def to_json(self) -> str:
        """The trial as text, which :func:`trial_from_json` reads."""
        return to_json(self)


def trial_from_json(data: str | Mapping[str, Any]) -> Trial:
    """A trial from what :meth:`Trial.to_json` wrote.

    Args:
        data: the text, or the parsed object.

    Returns:
        An equal trial.

    Raises:
        InvalidInput: it describes no trial.
    """
    return from_json(data, Trial, "a trial")


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: its score.

    Args:
        index: the trial's.
        score: larger is better; minus infinity is a failure, and so is a score that is not a number.

    Example:
        >>> Outcome(0, float("nan"))
        Outcome(index=0, score=-inf)
    """

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

    Example:
        >>> Selection({"layers": 1}).winner is None  # the public default
        True
        >>> Selection({"layers": 2}, best=Trial(3, {"layers": 2})).winner
        3
    """

    params: Params
    best: Trial | None = None
    final: Trial | None = None

    @property
    def winner(self) -> int | None:
        """The number of the winning trial, whose model is released if there is no final training."""
        return None if self.best is None else self.best.index


class Search(Protocol):
    """A tuning method while it runs: says what to train next, is told the scores, and chooses in the end.

    An implementer promises that a search is a deterministic function of its plan, its randomness and the outcomes told,
    so that a run that was cut off is resumed by starting again and telling the stored outcomes; that the result does
    not depend on the order in which a batch is told; that no two trials share an index or a label of randomness; and
    that it reads no data. A failure (minus infinity) never wins. Not thread-safe: one owner asks and tells.
    """

    @property
    def done(self) -> bool:
        """Whether every outcome that the result needs has been told."""

    def ask(self) -> list[Trial]:
        """Trials that may run now, in any order and in parallel; each is given once; empty when none is left."""

    def tell(self, outcome: Outcome) -> None:
        """Report a trial that ``ask`` gave, once; anything else raises InvalidInput."""

    def result(self) -> Selection:
        """The choice; raises InvalidInput before the search is done."""
