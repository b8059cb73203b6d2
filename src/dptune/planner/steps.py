"""Rate and steps of a training by the accuracy that a public model expects.

With the same way (learning rate x clip norm x steps), two things lose accuracy against boundless steps: noise per
record, which falls with rate and steps to that of one Gaussian, and haste, because few steps are long ones. Records
that are read take time. The planner takes the rate and the steps that lose least, time counted. The constants come from
public landscapes (``benchmarks/steps.py``, ``docs/accuracy.md``); noise is computed by the accountant. Nothing here may
look at private records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from dptune._validate import integer, real
from dptune.accounting import DpSgd, Gaussian
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded
from dptune.planner.expected import scarcity
from dptune.planner.forecast import HUNGER

__all__ = ["HASTE", "TOLL", "Pace", "best_pace", "least_noise", "pace_loss"]

HASTE = 0.12  # accuracy lost with one step, over the steps
TOLL = 2e-4  # accuracy that reading 1e9 numbers must gain: about three seconds of one core
_DELTA = 1e-5  # what noise is compared at; the plan is priced at its own delta
_RATES = (0.02, 0.05, 0.1, 0.2)
_STEPS = (100, 150, 200, 300, 400, 600, 800)
_LEAST_BATCH = 256  # records, or a quarter of all
_CLOSE = 1e-3  # relative, of a noise that only compares
_MOST_NOISE = 1e5


@dataclass(frozen=True)
class Pace:
    """How a training reads its records.

    Args:
        rate: the probability that a record is in a batch.
        steps: how many batches there are.
        lost: what accuracy this is expected to lose against boundless steps.

    Example:
        >>> Pace(0.1, 400, 0.001).rate
        0.1
    """

    rate: float
    steps: int
    lost: float


@cache
def best_pace(features: int, records: int, epsilon: float, *, work: float, stakes: float = 1.0) -> Pace:
    """The rate and the steps that are expected to lose the least accuracy, the time for them counted.

    Args:
        features: how many numbers a record has.
        records: about how many records there are.
        epsilon: the total.
        work: the most numbers that one training may read; the least pace is taken where it reads more.
        stakes: how many times more noise and haste lose than usual.

    Returns:
        The best of a small grid.

    Raises:
        InvalidInput: a figure is out of range.

    Example:
        >>> few, much = (best_pace(976, 60000, epsilon, work=5e9) for epsilon in (0.3, 8.0))
        >>> few.rate * few.steps < much.rate * much.steps
        True
    """
    integer("features", features, 1)
    integer("records", records, 4)
    real("epsilon", epsilon, 0, low_open=True)
    best, least = None, math.inf
    for hoped, known, rate, steps in sorted(_paces(features, records, epsilon, work, stakes)):
        if hoped >= least:
            break
        lost = stakes * (HASTE / steps + _noise_loss(rate, steps, records, epsilon))
        if known + lost < least:
            best, least = Pace(rate, steps, lost), known + lost
    assert best is not None
    return best


def pace_loss(rate: float, steps: int, records: int, epsilon: float, *, stakes: float = 1.0) -> float:
    """What accuracy a training is expected to lose against boundless steps of the same way.

    Args:
        rate: the probability that a record is in a batch.
        steps: how many batches there are.
        records: about how many records there are.
        epsilon: the total.
        stakes: how many times more noise and haste lose than usual.

    Returns:
        A difference of accuracies; without the noise where no noise fits so small a budget.

    Example:
        >>> pace_loss(0.1, 400, 60000, 1.0) < pace_loss(0.05, 100, 60000, 1.0) < 0.01
        True
    """
    return stakes * (HASTE / steps + _noise_loss(rate, steps, records, epsilon))


def _paces(
    features: int, records: int, epsilon: float, work: float, stakes: float
) -> Iterator[tuple[float, float, float, int]]:
    """What may be taken: what it loses at best, what its time counts for, rate and steps."""
    rates = sorted({max(rate, min(0.25, _LEAST_BATCH / records)) for rate in _RATES})
    hunger, signal = HUNGER * scarcity(records, epsilon), 1 / least_noise(epsilon)
    for rate in rates:
        for steps in _STEPS:
            read = features * records * rate * steps
            if read > work and (rate, steps) != (rates[0], _STEPS[0]):
                continue
            share = signal / (rate * math.sqrt(steps))  # a step's part of the signal, by the central limit
            noise = math.log(share) - 0.5 * math.log(math.log1p(share**2))  # the accountant's was always larger
            toll = TOLL * read / 1e9
            yield toll + stakes * (HASTE / steps + hunger * noise), toll, rate, steps


def _noise_loss(rate: float, steps: int, records: int, epsilon: float) -> float:
    return HUNGER * scarcity(records, epsilon) * _more_noise(rate, steps, epsilon)


@cache
def _more_noise(rate: float, steps: int, epsilon: float) -> float:
    """The logarithm of noise per record over that of boundless steps, which is one Gaussian's."""
    try:
        noise = calibrate_noise(lambda level: DpSgd(rate, level, steps), epsilon, _DELTA, tolerance=_CLOSE)
    except BudgetExceeded:
        return 0.0  # no noise is enough: planning says so
    return max(0.0, math.log(noise / rate / math.sqrt(steps) / least_noise(epsilon)))


@cache
def least_noise(epsilon: float) -> float:
    """The noise multiplier of boundless steps, a single Gaussian's; as much as there may be where none is enough.

    Args:
        epsilon: the total.

    Returns:
        The noise multiplier.

    Example:
        >>> round(least_noise(1.0), 2)
        3.73
    """
    try:
        return calibrate_noise(Gaussian, epsilon, _DELTA, tolerance=_CLOSE)
    except BudgetExceeded:
        return _MOST_NOISE
