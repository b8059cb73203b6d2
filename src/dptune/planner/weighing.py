"""Tuning on a part of the records against one untuned training: what is tried there, how scores are noised, what wins.

The space holds the learning rates of the final training; on the part, rates are tried that become those. Touches no
data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dptune.accounting import DiscreteGaussian, Runs
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded
from dptune.methods import Budget, PrivateValidation, RandomGuess, RandomStopping, Subset
from dptune.planner._offers import Offer, seen
from dptune.planner.expected import Outlook, outlook, parts, toll
from dptune.planner.forecast import HUNGER, Forecast, Part, data_loss
from dptune.spaces import Choice, Domain, Float, Int, Space
from dptune.trainer import DeclaresCost, has_own_score

__all__ = ["LEAST_TUNING_RECORDS", "Weighed", "expected_loss", "scaled_space", "score_noise", "subset_offer", "weigh"]

LEAST_TUNING_RECORDS = 500
_SCORE_MARGIN = 1.25
_MOST_SCORE_NOISE = 1e5
_LEAST_GAIN = 0.001  # of accuracy that tuning must be expected to gain: a third of the forecast's own error
_MOST_PRICED = 4  # parts: each takes one to three seconds


@dataclass(frozen=True)
class Weighed:
    """What was weighed, and what it came to.

    Args:
        chosen: the offer with the least expected loss.
        offers: the two best ways to tune that were priced.
        reasons: why there is no tuning, where there is none.
    """

    chosen: Offer
    offers: tuple[Offer, ...]
    reasons: tuple[str, ...] = ()


def weigh(trainer: DeclaresCost, space: Domain, budget: Budget, records: int, runs: Runs | None) -> Weighed | None:
    """Where the best value is expected somewhere: the part that is expected to lose least, or one training of that.

    Parts are priced from the most promising one on, until the next one could not be better at any price.

    Args:
        trainer: declares what one training costs.
        space: what may be tried.
        budget: the total, tuning included.
        records: the public number of records.
        runs: the law of the number of runs, where it is given; then there is tuning in any case.

    Returns:
        The choice; None where the model does not speak of such a space or trainer, or nothing fits the budget.

    Example:
        >>> from dptune import Budget, Float, Space
        >>> from dptune.planner.kinds import kind_named
        >>> image = kind_named("image")
        >>> trainer, space = image.trainer(64, 10, 600, epsilon=1), image.space(64, 600, epsilon=1)
        >>> weigh(trainer, space, Budget(1, 1e-5), 600, None).reasons
        ('With 600 records a random part would be too small to tune on at this budget.',)
    """
    model = outlook(space, records, budget.epsilon)
    once = None if model is None else _once(trainer, space, budget, model)
    if model is None or once is None:
        return None
    found = _weighed_parts(trainer, budget, records, runs, model)
    untuned = model.untuned - _LEAST_GAIN if runs is None else math.inf
    hunger = model.hunger
    priced = _priced(lambda part: subset_offer(trainer, space, budget, records, part, hunger), found, once, untuned)
    lost = priced[0].lost if priced else math.inf
    shown = tuple(one.offer for one in priced[:2])
    if lost < untuned:
        return Weighed(shown[0], shown)
    return None if runs is not None else Weighed(once, shown, (_untuned_reason(records, found, lost),))


def _weighed_parts(
    trainer: DeclaresCost, budget: Budget, records: int, runs: Runs | None, model: Outlook
) -> list[Part]:
    """Ways to tune on a part; none where no noise hides private scores within the budget."""
    public = has_own_score(trainer)
    try:
        noise = 0.0 if public else score_noise(budget)
    except BudgetExceeded:
        return []
    return parts(model, records, public=public, noise=noise, runs=runs, least=LEAST_TUNING_RECORDS)


@dataclass(frozen=True)
class _Priced:
    """A part with its price: what it is expected to lose, its work counted, and what of that is noise."""

    part: Part
    offer: Offer
    lost: float
    noisy: float


def _priced(price: Callable[[Part], Offer], found: list[Part], once: Offer, untuned: float) -> list[_Priced]:
    """Parts by the least that they can lose, until none is left that could beat what was found, or enough were tried.

    Those that fit the budget are given with their price, the best first.

    Noise grows with the part and with the number of runs, so what one part needs bounds what larger ones need.
    """
    left, priced = list(found), list[_Priced]()
    for _ in range(_MOST_PRICED):
        part = min(left, key=lambda one: _least(one, priced), default=None)
        if part is None or _least(part, priced) >= min([untuned, *(one.lost for one in priced)]):
            break
        left.remove(part)
        try:
            offer = price(part)
        except BudgetExceeded:
            left = [one for one in left if not _larger(one, part)]
            continue
        lost = expected_loss(offer, once)
        noisy = lost - part.forecast.choice - part.forecast.score
        priced.append(_Priced(part, offer, lost + toll(part), noisy))
    return sorted(priced, key=lambda one: one.lost)


def _least(part: Part, priced: list[_Priced]) -> float:
    """The least that a part can lose, by what others needed."""
    noisy = max([part.forecast.data, *(one.noisy for one in priced if _larger(part, one.part))])
    return part.forecast.choice + part.forecast.score + noisy + toll(part)


def _larger(one: Part, other: Part) -> bool:
    return one.fraction >= other.fraction and one.runs.expected >= other.runs.expected


def expected_loss(offer: Offer, once: Offer) -> float:
    """What accuracy an offer is expected to lose against the best configuration trained once on everything."""
    noise, least = offer.plan.noise_multiplier, once.plan.noise_multiplier
    noisy = 0.0 if noise is None or least is None else data_loss(noise / seen(offer) / least, offer.hunger)
    return offer.forecast.choice + offer.forecast.score + noisy


def _untuned_reason(records: int, found: list[Part], lost: float) -> str:
    if not found:
        return f"With {records} records a random part would be too small to tune on at this budget."
    if math.isinf(lost):
        return f"Every way to tune that was weighed is expected to gain less than {_LEAST_GAIN:g}."
    return f"The best way to tune that was priced is expected to lose {lost:.4f}: too small a gain, if any."


def _once(trainer: DeclaresCost, space: Domain, budget: Budget, model: Outlook) -> Offer | None:
    """One training with what is expected to be best; None where it does not fit, or its noise cannot be tuned."""
    method = RandomGuess(Space.of([space.default]))
    try:
        plan = method.plan(budget, trainer)
    except BudgetExceeded:
        return None
    what = "one training on all records with what is expected to be best, without tuning"
    made = Offer(what, method, plan, Forecast(model.untuned, 0.0, 0.0), model.hunger)
    return None if plan.noise_multiplier is None else made


def score_noise(budget: Budget) -> float:
    """The noise on private counts beside which a training of the same budget tells as much: it raises no price.

    Args:
        budget: the total.

    Returns:
        The deviation of the noise on a count.
    """
    alone = calibrate_noise(lambda level: budget.covering(DiscreteGaussian(level)), budget.epsilon, budget.delta)
    return min(_MOST_SCORE_NOISE, _SCORE_MARGIN * alone)


def subset_offer(
    trainer: DeclaresCost, space: Domain, budget: Budget, records: int, part: Part, hunger: float = HUNGER
) -> Offer:
    """Tuning on a part, then training on the rest. The space holds the learning rates of the final training.

    Args:
        trainer: declares what one training costs.
        space: what may be tried.
        budget: the total, tuning included.
        records: the public number of records.
        part: how to tune.
        hunger: accuracy lost when noise per record grows e-fold.

    Returns:
        The method with its plan.

    Raises:
        BudgetExceeded: it does not fit the budget.
    """

    def subset(noise: float | None) -> Subset:
        share = max(1.0, part.held * part.fraction * records)
        held = None if has_own_score(trainer) else PrivateValidation(part.held, share, noise)
        rule = Subset(RandomStopping(space, part.runs, validation=held), part.fraction).factors(trainer)
        tuned = {name: ratio for name, ratio in rule.items() if name in space.names}
        factors = {name: ratio / (1 - part.held) for name, ratio in tuned.items()}  # records held back do not train
        on_part = scaled_space(space, {name: 1 / ratio for name, ratio in factors.items()})
        tuning = RandomStopping(on_part, part.runs, validation=held)
        return Subset(tuning, part.fraction, transfer=factors or "auto")

    what = f"{part.runs} runs on a share of {part.fraction:g}, then training on the rest"
    method = subset(None if has_own_score(trainer) else score_noise(budget))
    try:
        plan = method.plan(budget, trainer)
    except BudgetExceeded:  # of a trainer whose own cost is fixed: with as much noise on scores as is needed
        if has_own_score(trainer):
            raise
        method = subset(None)
        plan = method.plan(budget, trainer)
    return Offer(what, method, plan, part.forecast, hunger)


def scaled_space(space: Domain, factors: Mapping[str, float]) -> Domain:
    """The same space with logarithmic ranges multiplied by factors; lists stay as they are.

    Args:
        space: the space.
        factors: a factor for each parameter that changes.

    Returns:
        The scaled space.

    Example:
        >>> from dptune import Float, Space
        >>> scaled_space(Space(lr=Float(1, 4, log=True)), {"lr": 0.5}) == Space(lr=Float(0.5, 2, log=True))
        True
    """
    if not isinstance(space, Space):
        return space
    made: dict[str, Float | Int | Choice] = {}
    for name, one in space.dimensions:
        factor = factors.get(name, 1.0)
        made[name] = one.times(factor) if isinstance(one, Float) and one.log and factor != 1.0 else one
    return Space(**made)
