"""Which method for this trainer, space and budget, and why.

Subset tuning is the default when there are enough records, random stopping otherwise (``docs/choosing.md``); the
explanation gives the numbers that decided. Everything is computed from public descriptions: no data is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dptune._validate import integer
from dptune.accounting import Geometric, Runs
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, Method, Plan, PrivateValidation, RandomGuess, RandomStopping, Subset
from dptune.methods.comparison import TOP
from dptune.spaces import Domain
from dptune.trainer import DeclaresCost, DeclaresRecords, DeclaresScore, has_own_score

__all__ = ["Advice", "choose", "default_validation", "public_records"]

_LEAST_TUNING_RECORDS = 500
_FRACTIONS = (0.1, 0.2)
_VALIDATION_SHARE = 0.1


_Offer = tuple[str, Method, Plan]


@dataclass(frozen=True)
class Advice:
    """A plan and, in one paragraph, why this one.

    Args:
        plan: what will be run.
        method: the method that made the plan.
        explanation: the figures that decided, in plain sentences.

    Example:
        >>> from dptune import Budget, Float, Space
        >>> from dptune.training import DpSgdTrainer, Settings, softmax
        >>> settings = Settings(0.1, 1.0, steps=50, clip_norm=1.0, learning_rate=1.0, batch_size=60)
        >>> trainer = DpSgdTrainer(softmax(4, 2), settings)
        >>> advice = choose(trainer, Space(learning_rate=Float(0.1, 10, log=True)), Budget(2, 1e-5), records=600)
        >>> advice.explanation.split(".")[0]
        'Chosen: random stopping with geometric(10) runs on all records'
    """

    plan: Plan
    method: Method
    explanation: str


def default_validation(trainer: object, records: int | None) -> PrivateValidation | None:
    """Private validation on a tenth of the records, if the trainer says that it has no public ones.

    Args:
        trainer: any trainer; it is asked whether it scores its runs itself.
        records: the public number of records.

    Returns:
        The validation, or None where the trainer has scores of its own.

    Raises:
        InvalidInput: scores must come from private records, and their number is not given.

    Example:
        >>> default_validation(object(), 1000) is None
        True
    """
    if has_own_score(trainer):
        return None
    if records is None:
        raise InvalidInput(
            "The trainer has no public validation records, so scores must come from private ones; say how many records "
            "there are (a public number), or give a method with validation=PrivateValidation(...)."
        )
    score = trainer.declared_score if isinstance(trainer, DeclaresScore) else None
    return PrivateValidation.of(_VALIDATION_SHARE, records, score=score)


def public_records(trainer: object) -> int | None:
    """The number of records that a trainer declares publicly, if it does.

    Args:
        trainer: any trainer.

    Returns:
        The declared number, or None.

    Example:
        >>> public_records(object()) is None
        True
    """
    declared = trainer.declared_records if isinstance(trainer, DeclaresRecords) else None
    return None if declared is None else integer("declared_records", declared, 1)


def choose(
    trainer: DeclaresCost, space: Domain, budget: Budget, *, records: int | None = None, runs: Runs | None = None
) -> Advice:
    """Pick a method for a trainer, a space and a budget, and explain the choice. No record is looked at.

    Offers are random stopping and subset tuning; the least noise per record trained on wins.

    Args:
        trainer: declares what one training costs.
        space: what may be tried.
        budget: the total, tuning included.
        records: the public number of records; a DP-SGD trainer implies one.
        runs: the law of the number of runs; by default geometric.

    Returns:
        The plan, its method and the reasons.

    Raises:
        BudgetExceeded: no offer fits the budget.
        InvalidInput: scores must come from private records, and their number is not known.

    Example:
        >>> from dptune import Budget, Float, PureDp, Space, trainer
        >>> @trainer(cost=PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return None, 0.5
        >>> advice = choose(guess, Space(lr=Float(0.1, 10)), Budget(1, 1e-5), records=100)
        >>> advice.plan.price() <= 1
        True
    """
    records = public_records(trainer) if records is None else integer("records", records, 1)
    law, many = runs or Geometric(10), runs or Geometric(30)
    whole = RandomStopping(space, law, validation=default_validation(trainer, records))
    offers: list[_Offer] = []
    reasons: list[str] = []
    refused: BudgetExceeded | None = None
    try:
        offers.append((f"random stopping with {law} runs on all records", whole, whole.plan(budget, trainer)))
    except BudgetExceeded as error:
        refused = error
    fraction = _fraction(records)
    if records is not None and fraction is not None:
        share = max(1, round(fraction * records))
        subset = Subset(RandomStopping(space, many, validation=default_validation(trainer, share)), fraction)
        try:
            what = f"{many} runs on a share of {fraction:g}, then training on the rest"
            offers.append((what, subset, subset.plan(budget, trainer)))
        except BudgetExceeded as error:
            refused = refused or error
    if not offers:
        raise refused or BudgetExceeded("No method fits this budget; raise epsilon.")
    if records is None:
        reasons.append("Subset tuning was not considered because the number of records was not given.")
    elif fraction is None:
        reasons.append(f"With {records} records a random part would be too small to tune on.")
    name, method, plan = min(offers, key=lambda offer: _worth(offer[1], offer[2]))
    return Advice(
        plan, method, _explain(name, plan, offers, reasons, trainer, space, budget, law if method is whole else many)
    )


def _fraction(records: int | None) -> float | None:
    """The share to tune on: a tenth of many records, a fifth of fewer, none of too few."""
    for share in _FRACTIONS:
        if records is not None and share * records >= _LEAST_TUNING_RECORDS:
            return share
    return None


def _worth(method: Method, plan: Plan) -> tuple[float, float]:
    """Least noise for the records that the released model saw; where noise cannot be tuned, least price."""
    seen = method.final_share if isinstance(method, Subset) else 1.0
    return ((plan.noise_multiplier or 0.0) / seen, plan.price())


def _explain(
    name: str, plan: Plan, offers: Sequence[_Offer], reasons: list[str], trainer: DeclaresCost,
    space: Domain, budget: Budget, law: Runs,
) -> str:  # fmt: skip
    noise = plan.noise_multiplier
    said = f"Chosen: {name}. The total, tuning included, is epsilon {plan.price():.4g} at delta {budget.delta:g}"
    parts = [f"{said}, with noise {noise:.4g} in every run." if noise is not None else f"{said}."]
    others = [
        f"{other} needs {rival.noise_multiplier:.4g}"
        for other, _, rival in offers
        if rival is not plan and rival.noise_multiplier
    ]
    if others and noise is not None:
        parts.append(f"At the same budget {'; '.join(others)}.")
    try:
        single = RandomGuess(space).plan(budget, trainer).noise_multiplier
        if single is not None:
            parts.append(f"A single untuned run could use {single:.4g}.")
    except (BudgetExceeded, InvalidInput):
        pass
    parts.append(
        f"About {law.expected:g} configurations are tried in expectation; one of the best 5 % is among them with "
        f"probability {law.hit_probability(TOP):.2f}."
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
