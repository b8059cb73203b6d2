"""From a budget to a plan: the smallest noise, and the cheapest law of runs.

Both search over *total* costs: any expression of the algebra may be calibrated, so that nothing is left uncounted.
Answers are rounded to the safe side and verified before they are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dptune._validate import real
from dptune.accounting import _solvers
from dptune.accounting.cost import Cost
from dptune.accounting.runs import Binomial, NegativeBinomial, Poisson, Runs
from dptune.accounting.selection import select
from dptune.errors import BudgetExceeded, InvalidInput

__all__ = ["RunsChoice", "calibrate_noise", "calibrate_power", "cheapest_runs"]

_LEAST_NOISE = 0.05
_MOST_NOISE = 1e5


def calibrate_noise(
    pipeline: Callable[[float], Cost],
    epsilon: float,
    delta: float,
    *,
    tolerance: float = 1e-4,
    start: float = 1.0,
) -> float:
    """The smallest noise multiplier, to a relative tolerance, whose whole pipeline costs at most (epsilon, delta).

    ``pipeline`` maps a noise multiplier to the total cost; more noise must not cost more.
    """
    target = real("epsilon", epsilon, 0, low_open=True, hint="It is the total budget.")
    level = real("delta", delta, 0, 1, low_open=True, high_open=True)
    found, least = _smallest_noise(lambda noise: pipeline(noise).epsilon(level), target, tolerance, start)
    if found is None:
        raise BudgetExceeded(
            f"Even noise {_MOST_NOISE:g} costs epsilon {least:.4g}, more than {target:g}, at delta {level:g}; "
            "some part of the pipeline does not depend on the noise. Raise the budget or shrink that part."
        )
    return found


def calibrate_power(
    pipeline: Callable[[float], Cost],
    power: float,
    false_positive_rate: float,
    *,
    tolerance: float = 1e-4,
    start: float = 1.0,
) -> float:
    """The smallest noise multiplier under which no attack with this false positive rate has more than this power.

    Args:
        pipeline: maps a noise multiplier to the total cost; more noise must not cost more.
        power: the largest share of insiders that an attack may find.
        false_positive_rate: how often that attack may accuse an outsider.
        tolerance: relative, of the noise.
        start: where the search begins.

    Returns:
        The noise multiplier, rounded up and verified.

    Raises:
        InvalidInput: a figure is not a number in (0, 1), or the power is at most the false positive rate.
        BudgetExceeded: no noise is enough.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> round(calibrate_power(Gaussian, 0.10, 0.01), 3)  # 1 / (Phi^-1(.10) - Phi^-1(.01))
        0.957
    """
    rate = real("at", false_positive_rate, 0, 1, low_open=True, high_open=True, hint="A common choice is 0.01.")
    target = real("power", power, 0, 1, low_open=True, high_open=True)
    if target <= rate:
        raise InvalidInput(
            f"A power of {target:g} at a false positive rate of {rate:g} asks for attacks that are worse than "
            f"guessing; state a power above {rate:g}."
        )
    found, least = _smallest_noise(lambda noise: pipeline(noise).power(rate), target, tolerance, start)
    if found is None:
        raise BudgetExceeded(
            f"Even noise {_MOST_NOISE:g} lets an attack find a share of {least:.4g}, more than {target:g}, at a false "
            f"positive rate of {rate:g}; some part of the pipeline does not depend on the noise. Shrink that part."
        )
    return found


def _smallest_noise(
    price: Callable[[float], float], target: float, tolerance: float, start: float
) -> tuple[float | None, float]:
    """The smallest noise whose price is at most the target, or None; and the last price seen above it."""
    spend = real("tolerance", tolerance, 1e-8, 0.5)
    high = min(max(real("start", start, 0, low_open=True), _LEAST_NOISE), _MOST_NOISE)
    cost_high = price(high)
    low, cost_low = high, cost_high
    while cost_high > target:
        if high >= _MOST_NOISE:
            return None, cost_high
        low, cost_low = high, cost_high
        high = min(high * 2.0, _MOST_NOISE)
        cost_high = price(high)
    while cost_low <= target:
        if low <= _LEAST_NOISE:
            return low, cost_low
        high, cost_high = low, cost_low
        low = max(low / 2.0, _LEAST_NOISE)
        cost_low = price(low)
    # A price is close to a power of the noise: interpolate in logs, but keep the bracket shrinking.
    for turn in range(60):
        if high / low <= 1.0 + spend:
            break
        middle = math.sqrt(low * high)
        if turn % 3 != 2 and math.isfinite(cost_low) and cost_high > 0:
            share = math.log(cost_low / target) / math.log(cost_low / cost_high)
            guess = math.exp(math.log(low) + share * math.log(high / low))
            margin = spend / 3.0
            middle = min(max(guess * (1.0 + margin), low * (1.0 + margin)), high / (1.0 + margin))
        cost = price(middle)
        if cost <= target:
            high, cost_high = middle, cost
        else:
            low, cost_low = middle, cost
    return high, cost_low


@dataclass(frozen=True)
class RunsChoice:
    """A law of runs that reaches a goal, and what it costs on a given base."""

    runs: Runs
    epsilon: float
    hit_probability: float


def _mean_for(make: Callable[[float], Runs], least: float, fraction: float, probability: float) -> Runs | None:
    """The law of a family with the smallest mean that hits the top fraction with the probability asked for."""

    def excess(log_mean: float) -> float:
        return make(math.exp(log_mean)).hit_probability(fraction) - probability

    low, high = math.log(least), math.log(1e6)
    if excess(high) < 0:
        return None
    if excess(low) >= 0:
        return make(least)
    root = _solvers.brentq(excess, low, high, xtol=1e-10)
    return make(math.exp(root + 2e-10))


def cheapest_runs(
    base: Cost,
    *,
    fraction: float,
    probability: float,
    delta: float,
    shapes: Sequence[float] = (-0.8, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0),
) -> RunsChoice:
    """The law (family, shape, mean) with the smallest epsilon that puts at least one run in the top ``fraction``
    of the space with the given ``probability``.

    Looks at truncated negative binomial laws of several shapes, the best of which is refined, at Poisson
    laws and at binomial laws with half of their trials held.
    """
    r = real("fraction", fraction, 0, 1, low_open=True, high_open=True)
    p = real("probability", probability, 0, 1, low_open=True, high_open=True)
    level = real("delta", delta, 0, 1, low_open=True, high_open=True)

    def offer(make: Callable[[float], Runs], least: float) -> RunsChoice | None:
        law = _mean_for(make, least, r, p)
        if law is None:
            return None
        return RunsChoice(law, select(base, law).epsilon(level), law.hit_probability(r))

    def shaped(shape: float) -> RunsChoice | None:
        return offer(lambda mean: NegativeBinomial(shape, mean), 1.0)

    offers = [shaped(shape) for shape in shapes]
    known = [(o.epsilon, shape, o) for o, shape in zip(offers, shapes, strict=True) if o is not None]
    found = [o for _, _, o in known]
    if known:
        best = min(known, key=lambda item: item[0])[1]
        around = sorted(shapes)
        at = around.index(best)
        low, high = around[max(0, at - 1)], around[min(len(around) - 1, at + 1)]
        if high > low:

            def price(shape: float) -> float:
                offered = shaped(shape)
                return offered.epsilon if offered else math.inf

            refined = shaped(float(_solvers.minimize_scalar(price, bounds=(low, high), method="bounded").x))
            found += [refined] if refined else []
    poisson = offer(Poisson, 1e-3)
    found += [poisson] if poisson else []
    if poisson is not None:
        trials = math.ceil(math.log1p(-p) / math.log1p(-r / 2.0))
        law = Binomial(max(1, trials), 0.5)
        found.append(RunsChoice(law, select(base, law).epsilon(level), law.hit_probability(r)))
    if not found:
        raise BudgetExceeded(
            f"No law with mean up to a million hits the top {r:g} with probability {p:g}; ask for a larger fraction."
        )
    return min(found, key=lambda choice: choice.epsilon)
