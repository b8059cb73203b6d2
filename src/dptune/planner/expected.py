"""What tuning is expected to lose where the best value of a parameter is expected somewhere (``Float(around=...)``).

A joint model of choice and score: the best value is drawn from the space's own prior, candidates too; accuracy falls
with the square of the distance from the best; a run's score is that accuracy on a part of the records, with noise.
Which candidate wins follows from the law of the number of runs. So the planner can tell on how many records to tune,
and when tuning does not pay. Its constants come from public landscapes (``benchmarks/forecast.py``,
``docs/accuracy.md``); nothing here may look at private records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np

from dptune._typing import Array
from dptune.accounting import NegativeBinomial, Runs
from dptune.planner.forecast import BOWL, FLATTER, HUNGER, Forecast, Part, data_loss, score_deviation
from dptune.spaces import Domain, Float, Space

__all__ = ["Outlook", "outlook", "parts", "scarcity", "toll"]

_USUAL = 60_000.0  # records at epsilon 1, for which the constants stand
_SCARCER = 0.6  # with fewer, or less epsilon, everything counts more: by this power
_LEAST = 1e-9  # records times epsilon: with less, nothing is learnt anyway
_PLACES, _NOISES, _TRUTHS = 41, 80, 15  # how finely the model is computed
_FRACTIONS = (0.02, 0.03, 0.05, 0.1, 0.2)
_SHARES = (0.35, 0.5)
_MEANS = (10, 20, 30, 60)
_SHAPE = 5.0  # a law with little mass on few runs
_MOST_WORK = 3.0  # trainings on everything that the tuning may take
_SPARED = 0.4  # the least noise that a part needs, as a power of what it leaves: records left out pay less, too
_WORK = 5e-5  # accuracy that one more training's worth of work must gain


@dataclass(frozen=True)
class Outlook:
    """Accuracy around the best value of one parameter, before any record was seen.

    Args:
        octaves: one deviation of the prior, in octaves.
        bowl: accuracy lost at one deviation from the best value, on all records; grows with the square.
        hunger: accuracy lost when noise per record grows e-fold.
        flatter: how much flatter the bowl is on all records than on a part of them.

    Example:
        >>> Outlook(1.0, 0.003, 0.012).untuned
        0.003
    """

    octaves: float
    bowl: float
    hunger: float
    flatter: float = FLATTER

    @property
    def untuned(self) -> float:
        """What the expected value is expected to lose against the best one."""
        return self.bowl

    @cached_property
    def _grid(self) -> tuple[Array, Array, Array]:
        places, noises, truths = (_quantiles(count) for count in (_PLACES, _NOISES, _TRUTHS))
        places, noises, truths = np.meshgrid(places, noises, truths, indexing="ij")
        return tuple(one.reshape(-1, _TRUTHS) for one in (places, noises, truths))  # type: ignore[return-value]

    def tuned(self, runs: Runs, deviation: float) -> float:
        """What the winner of K noisy scores is expected to lose against the best value.

        Args:
            runs: the law of K; without a run the expected value is released.
            deviation: of a score.

        Returns:
            A difference of accuracies.

        Example:
            >>> from dptune import Geometric
            >>> bowl = Outlook(1.0, 0.003, 0.012)
            >>> bowl.tuned(Geometric(30), 0.0) < 0.001 < bowl.tuned(Geometric(30), 0.02) < bowl.untuned
            True
        """
        places, noises, truths = self._grid
        lost = self.bowl * (places - truths) ** 2
        order = np.argsort(deviation * noises - lost / self.flatter, axis=0)
        ends = np.linspace(0.0, 1.0, len(places) + 1)
        wins = np.diff(runs.generating(ends))  # the chance that the winner is of this rank
        none = float(runs.generating(np.zeros(1))[0])
        picked = np.take_along_axis(lost, order, axis=0)
        return float(np.mean(wins @ picked) + none * self.bowl * np.mean(truths[0] ** 2))


def _quantiles(count: int) -> Array:
    """Values that stand for a normal law: the middles of equally likely pieces, with the law's variance."""
    drawn = np.array([NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)])
    return drawn / math.sqrt(float(np.mean(drawn**2)))


def outlook(space: Domain, records: int, epsilon: float) -> Outlook | None:
    """The model for a space with one parameter whose best value is expected somewhere; None for other spaces.

    Args:
        space: what may be tried.
        records: the public number of records.
        epsilon: the total.

    Returns:
        The model.

    Example:
        >>> from dptune import Float, Space
        >>> space = Space(learning_rate=Float(1, 64, log=True, around=8, spread=2))
        >>> outlook(space, 60000, 1.0).octaves
        1.0
        >>> outlook(Space(learning_rate=Float(1, 64, log=True)), 60000, 1.0) is None
        True
    """
    if not isinstance(space, Space) or len(space.dimensions) != 1:
        return None
    ((_, one),) = space.dimensions
    if not isinstance(one, Float) or not one.log or one.spread is None:
        return None
    octaves, more = math.log2(one.spread), scarcity(records, epsilon)
    return Outlook(octaves, BOWL * more * octaves**2, HUNGER * more)


def scarcity(records: float, epsilon: float) -> float:
    """How many times more a wrong value and noise cost than with 60,000 records at epsilon 1.

    Args:
        records: about how many there are.
        epsilon: the total.

    Returns:
        A factor, at least 1.

    Example:
        >>> scarcity(60000, 3.0), round(scarcity(6000, 1.0), 2)
        (1.0, 3.98)
    """
    return float(max(1.0, _USUAL / max(records * epsilon, _LEAST)) ** _SCARCER)


def parts(
    model: Outlook, records: int, *, public: bool, noise: float, judged: int = 10_000, runs: Runs | None = None,
    least: int = 500,
) -> list[Part]:  # fmt: skip
    """All ways to tune on a part that are weighed, each with its best share for scores; the most promising first.

    Args:
        model: of accuracy around the best value.
        records: the public number of records.
        public: whether scores come from public records.
        noise: the deviation of the noise on a private count of right answers.
        judged: how many public records there are.
        runs: the law, where it is given.
        least: the fewest records that a part may have.

    Returns:
        Parts by expected loss, with the least noise that such a part can need.

    Example:
        >>> first = parts(Outlook(1.0, 0.003, 0.012), 60000, public=False, noise=4.7)[0]
        >>> first.forecast.total < Outlook(1.0, 0.003, 0.012).untuned
        True
    """
    found: dict[tuple[float, Runs], Part] = {}
    certain = cache(lambda law: model.tuned(law, 0.0))
    for fraction, law, held in _ways(runs, public=public):
        tuned = fraction * records
        if tuned < least:
            continue
        seen = float(judged) if public else held * tuned
        deviation = score_deviation(tuned * (1 - held), seen, 0.0 if public else noise)
        lost, choice = model.tuned(law, deviation), certain(law)
        forecast = Forecast(choice, lost - choice, data_loss((1 - fraction) ** -_SPARED, model.hunger))
        known = found.get((fraction, law))
        if known is None or forecast.total < known.forecast.total:
            found[fraction, law] = Part(fraction, law, held, forecast)
    return sorted(found.values(), key=lambda part: part.forecast.total + toll(part))


def toll(part: Part) -> float:
    """What the work of tuning on a part counts for, as accuracy: of two plans that are as good, the shorter one.

    Args:
        part: how to tune.

    Returns:
        A difference of accuracies.
    """
    return _WORK * part.fraction * part.runs.expected


def _ways(runs: Runs | None, *, public: bool) -> Iterator[tuple[float, Runs, float]]:
    for fraction in _FRACTIONS:
        means = [mean for mean in _MEANS if mean * fraction <= _MOST_WORK]
        for law in [runs] if runs is not None else [NegativeBinomial(_SHAPE, mean) for mean in means]:
            for held in (0.0,) if public else _SHARES:
                yield fraction, law, held
