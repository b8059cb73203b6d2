"""From counts of a distinguishing game to a lower bound on epsilon, with a confidence that was stated before.

A mechanism that is (epsilon, delta)-DP obeys P(E) <= exp(epsilon) Q(E) + delta for every event, so an event that
was fixed before the games were looked at gives epsilon >= log((P(E) - delta) / Q(E)) (``docs/audit.md``). Both
probabilities are bounded by Clopper and Pearson (1934); the confidence is shared among all bounds that are used
together. Nothing here may choose an event from the counts that then judge it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import Gdp
from dptune.errors import InvalidInput

__all__ = [
    "Counts",
    "EmpiricalBound",
    "GdpReading",
    "choose_threshold",
    "empirical_bound",
    "expected_bound",
    "games_needed",
    "gdp_reading",
    "lower_limit",
    "quantile_bound",
    "upper_limit",
]


_MOST_GAMES = 10**13


def lower_limit(hits: Any, games: int, alpha: float) -> Array:
    """The Clopper-Pearson lower limit: wrong (above the truth) with probability at most ``alpha``.

    Hits need not be whole, so that expected counts can be planned with.
    """
    k = np.asarray(hits, dtype=float)
    inside = betaincinv(np.maximum(k, 1e-300), games - k + 1.0, alpha)
    return np.where(k > 0.0, inside, 0.0)


def upper_limit(hits: Any, games: int, alpha: float) -> Array:
    """The Clopper-Pearson upper limit: wrong (below the truth) with probability at most ``alpha``."""
    k = np.asarray(hits, dtype=float)
    inside = betaincinv(k + 1.0, np.maximum(games - k, 1e-300), 1.0 - alpha)
    return np.where(k < games, inside, 1.0)


def _loss(power: Any, level: Any, delta: float) -> Array:
    """log((power - delta) / level), never below 0: epsilon is at least 0 whatever was seen."""
    power, level = np.asarray(power, dtype=float), np.asarray(level, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(np.maximum(power - delta, 0.0)) - np.log(level)
    return np.where(power > delta, np.maximum(loss, 0.0), 0.0)


@dataclass(frozen=True)
class Counts:
    """How often the event was seen in each world.

    Args:
        tested: In the world in which it should be likelier.
        other: In the other world.
        games: How many games were played in each.

    Raises:
        InvalidInput: If there are more hits than games.

    Example:
        >>> from dptune.audit import Counts
        >>> Counts(tested=500, other=50, games=1000)
        Counts(tested=500, other=50, games=1000)
    """

    tested: int
    other: int
    games: int

    def __post_init__(self) -> None:
        integer("games", self.games, 1)
        integer("tested", self.tested, 0, self.games)
        integer("other", self.other, 0, self.games)


@dataclass(frozen=True)
class EmpiricalBound:
    """What the games prove: epsilon is at least ``low`` with the stated confidence.

    Args:
        low: The lower bound.
        point: The loss at the observed frequencies.
        high: The upper end for this event alone (another event may cost more): a measure of noise, not a guarantee.
        confidence: The probability with which ``low`` holds.
        counts: What was seen.

    Example:
        >>> from dptune.audit import Counts, empirical_bound
        >>> bound = empirical_bound(Counts(500, 50, 1000), delta=1e-5)
        >>> bound.low < bound.point < bound.high
        True
    """

    low: float
    point: float
    high: float
    confidence: float
    counts: Counts


def _alpha(confidence: float, bounds: int) -> float:
    level = real("confidence", confidence, 0, 1, low_open=True, high_open=True, hint="A common choice is 0.95.")
    return (1.0 - level) / bounds


def empirical_bound(counts: Counts, delta: float, confidence: float = 0.95, events: int = 1) -> EmpiricalBound:
    """The lower bound from one of ``events`` events that were all fixed beforehand.

    Each event needs two limits; all of them hold together with probability at least ``confidence``.

    Args:
        counts: How often the event was seen.
        delta: The delta of the statement.
        confidence: The probability with which the bound must hold.
        events: How many events were fixed, if this is the best of several.

    Returns:
        The lower bound, and the interval of this event.

    Raises:
        InvalidInput: If the confidence is not between 0 and 1.

    Example:
        >>> from dptune.audit import Counts, empirical_bound
        >>> round(empirical_bound(Counts(500, 50, 1000), delta=1e-5).low, 2)
        1.97
    """
    alpha = _alpha(confidence, 2 * integer("events", events, 1))
    n = counts.games
    low = _loss(lower_limit(counts.tested, n, alpha), upper_limit(counts.other, n, alpha), delta)
    high = _loss(upper_limit(counts.tested, n, alpha), lower_limit(counts.other, n, alpha), delta)
    point = _loss(counts.tested / n, counts.other / n, delta)
    return EmpiricalBound(float(low), float(point), float(high), confidence, counts)


def expected_bound(
    power: Any, level: Any, games: int, delta: float, confidence: float = 0.95, events: int = 1
) -> Array:
    """The bound at the expected counts, for planning: ``power`` and ``level`` are known from theory."""
    alpha = _alpha(confidence, 2 * events)
    seen, false = np.asarray(power, dtype=float) * games, np.asarray(level, dtype=float) * games
    return _loss(lower_limit(seen, games, alpha), upper_limit(false, games, alpha), delta)


def quantile_bound(
    power: float, level: float, games: int, delta: float, chance: float, confidence: float = 0.95
) -> float:
    """About the value that the empirical bound of honest games undercuts with probability ``chance``.

    Both counts are binomial and independent; each is taken at 400 equally likely quantiles.
    """
    from scipy.stats import binom  # noqa: PLC0415 - slow import, and every command of the command line would wait

    alpha = _alpha(confidence, 2)
    even = (np.arange(400) + 0.5) / 400
    low = lower_limit(binom.ppf(even, games, power), games, alpha)
    high = upper_limit(binom.ppf(even, games, level), games, alpha)
    return float(np.quantile(_loss(low[:, None], high[None, :], delta), chance))


def games_needed(expected: Callable[[int], float], target: float) -> int:
    """The smallest number of games (to two digits) whose expected bound exceeds ``target``; ``expected`` plans anew."""
    real("target", target, 0)
    high = 10
    while expected(high) <= target:
        high *= 10
        if high > _MOST_GAMES:
            raise InvalidInput(
                f"No number of games up to {_MOST_GAMES:g} is expected to show {target:g}; ask for a target further "
                "below the certificate."
            )
    low = high // 10
    while high > low * 1.1 and high - low > 1:
        middle = math.ceil(math.sqrt(low * high))
        low, high = (low, middle) if expected(middle) > target else (middle, high)
    unit = int(10 ** max(0, len(str(high)) - 2))
    return -(-high // unit) * unit


@dataclass(frozen=True)
class GdpReading:
    """A heuristic, NOT a lower bound: the epsilon of the Gaussian pair that would explain two rates.

    The selected output of private selection is not Gaussian, so this number may exceed the truth.
    """

    mu: float
    epsilon: float
    label: str = "heuristic: assumes a Gaussian trade-off, proves nothing"


def gdp_reading(counts: Counts, delta: float, confidence: float = 0.95) -> GdpReading:
    """The mu-GDP reading of one event, from the same limits as the bound."""
    alpha = _alpha(confidence, 2)
    power = float(lower_limit(counts.tested, counts.games, alpha))
    level = float(upper_limit(counts.other, counts.games, alpha))
    mu = float(ndtri(power) - ndtri(level)) if power > level else 0.0
    return GdpReading(mu, Gdp(min(mu, 20.0)).epsilon(delta) if mu > 1e-6 else 0.0)


def choose_threshold(tested: Array, other: Array, delta: float, confidence: float, candidates: int = 200) -> float:
    """A threshold t for the event {statistic > t}, from games that must not be used again to judge it."""
    pooled = np.sort(np.concatenate([tested, other]))
    places = np.unique(np.linspace(0, len(pooled) - 1, candidates).astype(np.int64))
    t = np.unique(pooled[places])
    seen = len(tested) - np.searchsorted(np.sort(tested), t, side="right")
    false = len(other) - np.searchsorted(np.sort(other), t, side="right")
    games = min(len(tested), len(other))
    alpha = _alpha(confidence, 2)
    bound = _loss(lower_limit(seen, games, alpha), upper_limit(np.minimum(false, games), games, alpha), delta)
    return float(t[int(np.argmax(bound))])
