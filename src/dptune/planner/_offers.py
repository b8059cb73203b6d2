"""What the planner compares: methods that fit a budget, what accuracy each is expected to lose, and words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, Method, Plan, RandomGuess, Subset
from dptune.methods.comparison import TOP
from dptune.planner.forecast import Forecast, data_loss
from dptune.spaces import Domain
from dptune.trainer import DeclaresCost

__all__ = ["Offer", "explain", "worth"]


@dataclass(frozen=True)
class Offer:
    """A method that fits the budget, what it plans, and what accuracy it is expected to lose but for its noise."""

    name: str
    method: Method
    plan: Plan
    forecast: Forecast


def worth(offer: Offer) -> tuple[float, float]:
    """Least expected loss of accuracy; where noise cannot be tuned, least price."""
    noise = offer.plan.noise_multiplier
    if noise is None:
        return 0.0, offer.plan.price()
    return offer.forecast.choice + offer.forecast.score + data_loss(noise / seen(offer)), offer.plan.price()


def seen(offer: Offer) -> float:
    """The share of the records that the released model saw."""
    if isinstance(offer.method, Subset):
        return offer.method.final_share
    held = offer.plan.validation
    return 1.0 if held is None else 1.0 - held.fraction


def explain(
    chosen: Offer, offers: Sequence[Offer], reasons: list[str], trainer: DeclaresCost, space: Domain, budget: Budget
) -> str:
    plan, law = chosen.plan, chosen.plan.law
    noise = plan.noise_multiplier
    said = f"Chosen: {chosen.name}. The total, tuning included, is epsilon {plan.price():.4g} at delta {budget.delta:g}"
    parts = [f"{said}, with noise {noise:.4g} in every run." if noise is not None else f"{said}."]
    others = [
        f"{other.name} needs {other.plan.noise_multiplier:.4g}"
        for other in offers
        if other is not chosen and other.plan.noise_multiplier
    ]
    if others and noise is not None:
        parts.append(f"At the same budget {'; '.join(others)}.")
    single = untuned(trainer, space, budget) if noise is not None else None
    if single is not None:
        parts.append(f"A single untuned run could use {single:.4g}.")
    if law is not None:
        parts.append(
            f"About {law.expected:g} configurations are tried in expectation; one of the best 5 % is among them with "
            f"probability {law.hit_probability(TOP):.2f}."
        )
    if noise is not None and single is not None:
        lost = replace(chosen.forecast, data=data_loss(noise / seen(chosen) / single))
        parts.append(
            f"By the public model of docs/accuracy.md this loses about {max(lost.total, 0.0):.4f} of accuracy against "
            f"the best configuration trained once on everything: {lost.choice:.4f} because not all are tried, "
            f"{lost.score:.4f} because scores are noisy, {lost.data:.4f} because of noise and records left out."
        )
    held = plan.validation
    if held is not None and held.noise is not None:
        parts.append(
            f"No public validation records were given, so a share of {held.fraction:g} of the tuning records "
            f"is held back for scores, which are noised by {held.noise / held.denominator:.2g}. This costs no "
            "further epsilon: a record is either trained on or scored on."
        )
    parts.append(
        "Adaptive sampling was not chosen: more independent runs find good configurations as often and usually cost "
        "less privacy; it can save compute."
    )
    return " ".join([*parts, *reasons])


def untuned(trainer: DeclaresCost, space: Domain, budget: Budget) -> float | None:
    """The noise of one run without tuning at the same budget."""
    try:
        return RandomGuess(space).plan(budget, trainer).noise_multiplier
    except (BudgetExceeded, InvalidInput):
        return None
