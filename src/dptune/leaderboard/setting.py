"""What all entrants of a race are given: a benchmark with public features, a budget, and the defaults of its kind.

The test part is halved by a fixed permutation. One half gives the figure and is looked at by nothing else; the other
one scores runs where validation is public. Every constant that an entrant takes from here is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.methods import Budget, PrivateValidation
from dptune.planner.advice import default_validation
from dptune.planner.kinds import Kind, kind_of_benchmark
from dptune.spaces import Float, Space
from dptune.training import DpSgdTrainer, load
from dptune.training.features import named_features

__all__ = ["BENCHMARKS", "SEEN", "Setting", "setting"]

BENCHMARKS = ("digits", "mnist", "fashion-mnist", "cifar-10", "adult", "imdb")
"""The data sets of the leaderboard, by the names that :func:`dptune.training.load` takes."""

SEEN = frozenset({"digits", "mnist", "fashion-mnist", "cifar-10", "adult", "imdb"})
"""Data sets that were looked at when the defaults by kind or the form of their rule were chosen."""

_HALVES = 7  # the seed of the permutation that halves a test part
_RANGE = (-1.0, 1.0)
_NEAR = 2.0


@dataclass(frozen=True)
class Setting:
    """One benchmark at one budget.

    Args:
        data: the benchmark's name.
        kind: whose defaults are used.
        train: the records that are treated as private.
        public: the half of the test part that scores runs, where validation is public; otherwise None.
        unseen: the half that gives the figure.
        budget: the total for everything that leaves a run.
    """

    data: str
    kind: Kind
    train: Dataset
    public: Dataset | None
    unseen: Dataset
    budget: Budget

    @property
    def records(self) -> int:
        """The number of records, which is public for a benchmark."""
        return len(self.train)

    @property
    def trainer(self) -> DpSgdTrainer:
        """The default trainer of this kind of data."""
        return self.kind.trainer(
            self.train.features,
            self.train.classes,
            self.records,
            epsilon=self.budget.epsilon,
            validation=self.public,
        )

    @property
    def space(self) -> Space:
        """What is tried by default: learning rates, likeliest around the rule of the kind of data."""
        return self.kind.space(self.train.features, self.records, epsilon=self.budget.epsilon)

    @property
    def range(self) -> Space:
        """For methods that take every value for as likely: the part of it that is near the rule."""
        ((name, rates),) = self.space.dimensions
        assert isinstance(rates, Float)
        if rates.around is None:
            return self.space
        return Space(**{name: Float(rates.around / _NEAR, rates.around * _NEAR, log=True)})

    @property
    def validation(self) -> PrivateValidation | None:
        """How methods score runs on private records; None where validation is public."""
        return default_validation(self.trainer, self.records)


def setting(data: str, epsilon: float, delta: float, *, public: bool) -> Setting:
    """A benchmark at a budget.

    Args:
        data: its name.
        epsilon: the total.
        delta: the delta at which it is stated.
        public: whether runs are scored on a public half of the test part.

    Returns:
        The setting.

    Raises:
        InvalidInput: there is no such benchmark, or its files are not there.

    Example:
        >>> made = setting("digits", 1.0, 1e-4, public=False)
        >>> made.kind.name, made.public, len(made.unseen)
        ('image', None, 180)
    """
    kind, train, one, other = _prepared(data)
    return Setting(data, kind, train, one if public else None, other, Budget(epsilon, delta))


@cache
def _prepared(data: str) -> tuple[Kind, Dataset, Dataset, Dataset]:
    """The kind, the training part, and the halves of the test part, with features computed record by record."""
    if data not in BENCHMARKS:
        raise InvalidInput(f"'data' must be one of {', '.join(BENCHMARKS)}; got {data!r}.")
    kind = kind_of_benchmark(data)
    assert kind is not None, data
    train, test = load(data)
    if kind.features != "none":
        make = named_features(kind.features)
        train, test = train.map(make, _RANGE), test.map(make, _RANGE)
    order = np.random.default_rng(_HALVES).permutation(len(test))
    middle = len(test) // 2
    return kind, train, test.take(order[:middle]), test.take(order[middle:])
