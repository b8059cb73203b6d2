"""What the planner compares: methods that fit a budget, what accuracy each is expected to lose, and words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, Method, Plan, RandomGuess, Subset
from dptune.methods.comparison import TOP
from dptune.planner.forecast import HUNGER, Forecast, data_loss
from dptune.planner.kinds import lost_to_steps
from dptune.spaces import Domain
from dptune.trainer import DeclaresCost
from dptune.training import DpSgdTrainer

__all__ = ["Offer", "explain", "worth"]


@dataclass(frozen=True)
class Offer:
    """A method that fits the budget, what it plans, and what accuracy it is expected to lose but for its noise.

    ``hunger`` is what noise costs: accuracy lost when noise per record grows e-fold.
    """

    name: str
    method: Method
    plan: Plan
    forecast: Forecast
    hunger: float = HUNGER


def worth(offer: Offer) -> tuple[float, float]:
    """Least expected loss of accuracy; where noise cannot be tuned, least price."""
    noise = offer.plan.noise_multiplier
    if noise is None:
        return 0.0, offer.plan.price()
    noisy = data_loss(noise / seen(offer), offer.hunger)
    return offer.forecast.choice + offer.forecast.score + noisy, offer.plan.price()


def seen(offer: Offer) -> float:
    """The share of the records that the released model saw."""
    if isinstance(offer.method, Subset):
        return offer.method.final_share
    held = offer.plan.validation
    return 1.0 if held is None else 1.0 - held.fraction


def explain(
    chosen: Offer, offers: Sequence[Offer], reasons: Sequence[str], trainer: DeclaresCost, space: Domain, budget: Budget
) -> str:
    """Three sentences with the figures that decided: the price, what is lost by what, where scores come from.

    Reasons for what was not chosen end the first one.
    """
    price = _price(chosen, offers, trainer, space, budget).removesuffix(".")
    because = [f"{one[0].lower()}{one[1:]}".removesuffix(".") for one in reasons]
    return " ".join([f"{'; '.join([price, *because])}.", *_loss(chosen, trainer, space, budget), *_scores(chosen.plan)])


def _price(chosen: Offer, offers: Sequence[Offer], trainer: DeclaresCost, space: Domain, budget: Budget) -> str:
    noise = chosen.plan.noise_multiplier
    total = f"epsilon {chosen.plan.price():.4g} at delta {budget.delta:g}"
    once = isinstance(chosen.method, RandomGuess)
    said = f"Chosen: {chosen.name}; the total{'' if once else ', tuning included,'} is {total}"
    if noise is None:
        return f"{said}."
    others = [
        f"{other.name} needs {other.plan.noise_multiplier:.4g}"
        for other in offers
        if other.name != chosen.name and other.plan.noise_multiplier
    ]
    single = None if once else untuned(trainer, space, budget)
    if single is not None:
        others.append(f"a single untuned run could use {single:.4g}")
    beside = f" ({'; '.join(others)})" if others else ""
    return f"{said}, with noise {noise:.4g}{'' if once else ' in every run'}{beside}{_steps(trainer, space)}."


def _steps(trainer: DeclaresCost, space: Domain) -> str:
    """How a training reads its records, where that is known."""
    if not isinstance(trainer, DpSgdTrainer) or _tunes_steps(space):
        return ""
    own = trainer.settings
    return f"; a training takes {own.steps} steps, each with a share of {own.sampling_rate:.3g} of its records"


def _tunes_steps(space: Domain) -> bool:
    """Whether candidates differ in how they read their records."""
    return not {"steps", "batch_size"}.isdisjoint(space.names)


def _loss(chosen: Offer, trainer: DeclaresCost, space: Domain, budget: Budget) -> list[str]:
    noise, law = chosen.plan.noise_multiplier, chosen.plan.law
    single = untuned(trainer, space, budget) if noise is not None else None
    parts = []
    if law is not None:
        parts.append(
            f"about {law.expected:g} configurations are tried, one of the best 5 % among them with probability "
            f"{law.hit_probability(TOP):.2f}"
        )
    if noise is not None and single is not None:
        lost = replace(chosen.forecast, data=data_loss(noise / seen(chosen) / single, chosen.hunger))
        by_what = (
            f" ({lost.choice:.4f} because not all are tried, {lost.score:.4f} because scores are noisy, "
            f"{lost.data:.4f} because of noise and records left out)"
        )
        parts.append(
            f"by the public model of docs/accuracy.md this loses about {max(lost.total, 0.0):.4f} of accuracy against "
            f"the best configuration trained once on everything{'' if law is None else by_what}"
        )
    hasty = None if noise is None or _tunes_steps(space) else lost_to_steps(trainer, budget.epsilon)
    if hasty is not None:
        parts.append(f"boundless steps would gain about {hasty:.4f}")
    said = "; ".join(parts)
    return [f"{said[0].upper()}{said[1:]}."] if said else []


def _scores(plan: Plan) -> list[str]:
    held = plan.validation
    if held is None or held.noise is None:
        return []
    return [
        f"No public validation records were given, so a share of {held.fraction:g} of the tuning records is held back "
        f"for scores, noised by {held.noise / held.denominator:.2g}, which costs no further epsilon: a record is "
        "either trained on or scored on."
    ]


def untuned(trainer: DeclaresCost, space: Domain, budget: Budget) -> float | None:
    """The noise of one run without tuning at the same budget."""
    try:
        return RandomGuess(space).plan(budget, trainer).noise_multiplier
    except (BudgetExceeded, InvalidInput):
        return None
