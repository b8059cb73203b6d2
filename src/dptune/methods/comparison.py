"""How methods are set side by side at one budget: what all of them are given, and what each enters with.

A method enters by :meth:`~dptune.methods.plan.Method.entries`, in its own file. Chances of a good choice hold under a
stated model (``models``), never on records: nothing here touches data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.accounting import Runs
from dptune.methods.budget import Budget
from dptune.methods.plan import Method
from dptune.spaces import Candidates

__all__ = ["TOP", "Entry", "Setting"]

TOP = 0.05  # the best share of the candidates, one of which is to be found
_REPEATS = 400


@dataclass(frozen=True)
class Setting:
    """What every method is given.

    Args:
        candidates: what may be tried.
        budget: the common total.
        runs: the law of the number of runs, for methods that draw it.
        fraction: the share of the records that subset tuning uses.
        density: the box of adaptive sampling.
        shards: how many parts the records are split into.
        clients: how many clients vote.
        votes: how many votes each has.
        share: the share of epsilon that a choice by shards or votes gets.
        rng: draws the simulated utilities.
    """

    candidates: Candidates
    budget: Budget
    runs: Runs
    fraction: float
    density: tuple[float, float]
    shards: int
    clients: int
    votes: int
    share: float
    rng: np.random.Generator

    @cached_property
    def utilities(self) -> Array:
        """Simulated utilities of the candidates, uniform on (0, 1): one row for every simulated space."""
        return self.rng.random((_REPEATS, len(self.candidates)))

    @property
    def k_epsilon(self) -> float:
        """Shards times the epsilon of a choice: what the noise on average utilities follows."""
        return self.share * self.budget.epsilon * self.shards

    @property
    def hit(self) -> float:
        """The probability that random stopping tries one of the best."""
        return self.runs.hit_probability(TOP)


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    Args:
        name: how the table calls it.
        method: what is planned.
        trainings: how many trainings on all records it amounts to, in expectation.
        chance: given its plan, the probability that one of the best is tried or chosen, or a lower and an upper bound.
        note: what the chance rests on.
    """

    name: str
    method: Method
    trainings: float
    chance: Callable[[Any], tuple[float, float | None]]
    note: str = ""
