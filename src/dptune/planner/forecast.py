"""What accuracy a plan is expected to lose, by a public model; so the planner can choose by accuracy.

The model is about the distance between the released model and the best candidate, trained on everything without tuning.
Three things lose accuracy: few configurations are tried, scores on a part are noisy, and the records that are tuned on
are not trained on. Its constants are medians over public landscapes; ``benchmarks/forecast.py`` fits them and scores
them on data sets that were left out (``docs/accuracy.md``). Nothing here may look at private records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dptune.accounting import NegativeBinomial, Runs
from dptune.spaces import Domain, Float, Int, Space

__all__ = [
    "BOWL",
    "FLATTER",
    "HUNGER",
    "Forecast",
    "Part",
    "best_part",
    "choice_loss",
    "data_loss",
    "score_deviation",
    "score_loss",
]

BOWL = 0.0037  # accuracy lost at one octave from the best learning rate; grows with the square
FLATTER = 0.35  # how much flatter that bowl is on all records than on a part of them
_DISAGREE = 0.05  # records on which two good candidates disagree
_RESTLESS = 0.55  # deviation of a training's own score, times the root of the records it saw
HUNGER = 0.019  # accuracy lost when noise per record grows e-fold
_OTHER = 2.0  # octaves that a parameter counts for which has no logarithmic range
_BALLS = (1.0, 2.0, math.pi, 4 * math.pi / 3)  # volumes of unit balls
_FRACTIONS = (0.05, 0.1, 0.15, 0.2)
_SHARES = (0.2, 0.35, 0.5)
_MEANS = (10, 20, 30, 60, 100, 150)
_SHAPE = 5.0  # a law with little mass on few runs
_MOST_WORK = 3.0  # trainings on everything that the tuning may take
_CLOSE = 3e-4  # plans that differ by less are as good: the one with less work is taken


@dataclass(frozen=True)
class Forecast:
    """What accuracy is expected to be lost, and by what.

    Args:
        choice: because only so many configurations are tried.
        score: because scores are noisy.
        data: because records are not trained on, or noise is larger.

    Example:
        >>> round(Forecast(0.001, 0.002, 0.003).total, 6)
        0.006
    """

    choice: float
    score: float
    data: float

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.choice + self.score + self.data


@dataclass(frozen=True)
class Part:
    """How to tune on a part of the records.

    Args:
        fraction: the probability that a record is tuned on.
        runs: the law of the number of runs.
        held: the share of the part that is held back for private scores; 0 with public ones.
        forecast: what accuracy this is expected to lose.

    Example:
        >>> from dptune import Float, Space
        >>> part = best_part(Space(learning_rate=Float(1, 64, log=True)), 60000, public=False, noise=4.7)
        >>> part.fraction, part.held, part.forecast.total < 0.01
        (0.1, 0.35, True)
    """

    fraction: float
    runs: Runs
    held: float
    forecast: Forecast


def choice_loss(space: Domain, runs: Runs) -> float:
    """What the best of K configurations is expected to lose against the best of all.

    Accuracy falls with the square of the distance from the best configuration, counted in octaves, wherever in the
    space that one is.

    Args:
        space: what is tried.
        runs: the law of K.

    Returns:
        A difference of accuracies.

    Example:
        >>> from dptune import Float, Geometric, Space
        >>> wide = Space(learning_rate=Float(1e-4, 10, log=True))
        >>> choice_loss(wide, Geometric(3)) > choice_loss(wide, Geometric(30))
        True
    """
    widths = list(_octaves(space))
    dimensions = len(widths)
    ball = _BALLS[min(dimensions, len(_BALLS) - 1)]
    edge = BOWL * (math.prod(widths) / ball) ** (2 / dimensions)
    ends = np.linspace(0.0, 1.0, 2001) ** 2  # quantiles of the space, dense near the best
    missed = runs.generating(1.0 - (ends[1:] + ends[:-1]) / 2)  # the chance that every configuration is worse
    return float(edge * np.sum(missed * np.diff(ends ** (2 / dimensions))))


def _octaves(space: Domain) -> Iterator[float]:
    """The widths of a space's dimensions, in octaves."""
    if not isinstance(space, Space):
        yield _OTHER
        return
    for _, one in space.dimensions:
        yield max(0.5, math.log2(one.high / one.low)) if isinstance(one, Float | Int) and one.log else _OTHER


def score_loss(trained: float, judged: float, noise: float) -> float:
    """What is expected to be lost because the candidate with the best score is not the best one.

    Args:
        trained: how many records a tuning run is trained on.
        judged: how many records it is scored on.
        noise: the deviation of the noise on the count of right answers; 0 for public records.

    Returns:
        A difference of accuracies.

    Example:
        >>> score_loss(4000, 2000, 4.7) < score_loss(400, 200, 4.7)
        True
    """
    return FLATTER * score_deviation(trained, judged, noise)


def score_deviation(trained: float, judged: float, noise: float) -> float:
    """The deviation of a run's score: its noise, the records that judge it, and those that it was trained on.

    Args:
        trained: how many records a tuning run is trained on.
        judged: how many records it is scored on.
        noise: the deviation of the noise on the count of right answers; 0 for public records.

    Returns:
        A deviation, as a share of right answers.

    Example:
        >>> round(score_deviation(3000, 3000, 4.7), 4)
        0.011
    """
    return math.sqrt((noise / judged) ** 2 + _DISAGREE / judged + _RESTLESS**2 / max(trained, 1.0))


def data_loss(noise: float, hunger: float = HUNGER) -> float:
    """What noise per record loses, as a ratio to that of one untuned training on all records.

    Args:
        noise: the ratio.
        hunger: accuracy lost when noise per record grows e-fold.

    Returns:
        A difference of accuracies; negative if there is less noise.

    Example:
        >>> data_loss(1.0)
        0.0
    """
    return hunger * math.log(noise)


def best_part(
    space: Domain, records: int, *, public: bool, noise: float, judged: int | None = None, runs: Runs | None = None,
    least: int = 500,
) -> Part | None:  # fmt: skip
    """The part, the law and the share for scores with the least expected loss; None if there are too few records.

    Runs on a part cost almost no noise, whatever their law, so none is priced here.

    Args:
        space: what is tried.
        records: the public number of records.
        public: whether scores come from public records.
        noise: the deviation of the noise on a private count of right answers.
        judged: how many public records there are, where it is known.
        runs: the law, where it is given.
        least: the fewest records that a part may have.

    Returns:
        The best of a small grid; of those that are as good, the one with the least work.

    Example:
        >>> from dptune import Float, Space
        >>> best_part(Space(lr=Float(0.1, 10, log=True)), 900, public=True, noise=0.0) is None
        True
    """
    found = []
    for fraction in _FRACTIONS:
        tuned = fraction * records
        for law in [runs] if runs is not None else _laws(fraction):
            for held in (0.0,) if public else _SHARES:
                seen = (judged or 10_000) if public else held * tuned
                lost = score_loss(tuned * (1 - held), seen, 0.0 if public else noise)
                kept = 1 - fraction
                forecast = Forecast(choice_loss(space, law), lost, data_loss(1 / kept))
                if tuned >= least:
                    found.append(Part(fraction, law, held, forecast))
    if not found:
        return None
    least_loss = min(part.forecast.total for part in found)
    near = [part for part in found if part.forecast.total <= least_loss + _CLOSE]
    return min(near, key=lambda part: (part.fraction * part.runs.expected, part.forecast.total))


def _laws(fraction: float) -> list[Runs]:
    """Laws with little mass on few runs, as many runs as the work allows."""
    means = [mean for mean in _MEANS if mean * fraction <= _MOST_WORK] or [_MEANS[0]]
    return [NegativeBinomial(_SHAPE, mean) for mean in means]
