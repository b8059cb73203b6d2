"""Which method for this trainer, space and budget, and why.

Subset tuning is the default when there are enough records, random stopping otherwise (``docs/choosing.md``); what part,
which law of the number of runs and how many records for scores follows from the accuracy that a public model expects
(:mod:`dptune.planner.forecast`). Where the space says what is expected to be best, the choice is between tuning around
it and training it once (:mod:`dptune.planner.weighing`). The explanation gives the numbers that decided. Everything is
computed from public descriptions: no data is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from dptune._validate import integer
from dptune.accounting import Geometric, NegativeBinomial, Runs
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, Method, Plan, PrivateValidation, RandomStopping
from dptune.planner._offers import Offer, explain, worth
from dptune.planner.forecast import Forecast, Part, best_part, choice_loss, score_loss
from dptune.planner.weighing import LEAST_TUNING_RECORDS, scaled_space, score_noise, subset_offer, weigh
from dptune.spaces import Domain
from dptune.trainer import DeclaresCost, DeclaresRecords, DeclaresScore, has_own_score

__all__ = ["Advice", "choose", "default_validation", "public_records", "scaled_space"]

_VALIDATION_SHARE = 0.1
_LAWS = (Geometric(10), NegativeBinomial(5.0, 10), NegativeBinomial(5.0, 20))  # of runs on all records, each is priced


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
        >>> advice.explanation.split(";")[0]
        'Chosen: random stopping with tnb(shape 5, mean 10) runs on all records'
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

    Offers are random stopping and subset tuning; the least expected loss of accuracy wins, by the public model of
    :mod:`dptune.planner.forecast`. Where a part is tuned on and the trainer's learning rate grows with the records, the
    space holds the rates of the final training: on the part, rates are tried that become those.

    Args:
        trainer: declares what one training costs.
        space: what may be tried.
        budget: the total, tuning included.
        records: the public number of records; a DP-SGD trainer implies one.
        runs: the law of the number of runs; by default one that the model chooses.

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
    weighed = None if records is None else weigh(trainer, space, budget, records, runs)
    if weighed is not None:
        said = explain(weighed.chosen, weighed.offers, weighed.reasons, trainer, space, budget)
        return Advice(weighed.chosen.plan, weighed.chosen.method, said)
    offers: list[Offer] = []
    refused: BudgetExceeded | None = None
    try:
        offers.append(_whole(trainer, space, budget, records, _LAWS if runs is None else (runs,)))
    except BudgetExceeded as error:
        refused = error
    part = None if records is None else _part(trainer, space, budget, records, runs)
    if records is not None and part is not None:
        try:
            offers.append(subset_offer(trainer, space, budget, records, part))
        except BudgetExceeded as error:
            refused = refused or error
    if not offers:
        raise refused or BudgetExceeded("No method fits this budget; raise epsilon.")
    chosen = min(offers, key=worth)
    return Advice(chosen.plan, chosen.method, explain(chosen, offers, _reasons(records, part), trainer, space, budget))


def _whole(trainer: DeclaresCost, space: Domain, budget: Budget, records: int | None, laws: tuple[Runs, ...]) -> Offer:
    """Random stopping on all records, with the law that is expected to lose least, its noise counted.

    A law with little mass on few runs costs more noise than a geometric one and misses less: which counts more follows
    from the space and the budget.
    """
    offers, refused = list[Offer](), list[BudgetExceeded]()
    for law in laws:
        method = RandomStopping(space, law, validation=default_validation(trainer, records))
        try:
            plan = method.plan(budget, trainer)
        except BudgetExceeded as error:
            refused.append(error)
            continue
        what = f"random stopping with {law} runs on all records"
        offers.append(Offer(what, method, plan, _forecast_whole(trainer, space, records, law)))
        if plan.noise_multiplier is None:  # its cost is fixed, so a law that costs more buys nothing here
            break
    if not offers:
        raise refused[0]
    return min(offers, key=worth)


def _reasons(records: int | None, part: Part | None) -> list[str]:
    """Why a part was not even considered."""
    if records is None:
        return ["Subset tuning was not considered because the number of records was not given."]
    return [] if part is not None else [f"With {records} records a random part would be too small to tune on."]


def _part(trainer: object, space: Domain, budget: Budget, records: int, runs: Runs | None) -> Part | None:
    """The part that is expected to lose the least accuracy, for this budget's noise on private scores."""
    public = has_own_score(trainer)
    noise = 0.0 if public else score_noise(budget)
    return best_part(space, records, public=public, noise=noise, runs=runs, least=LEAST_TUNING_RECORDS)


def _forecast_whole(trainer: object, space: Domain, records: int | None, law: Runs) -> Forecast:
    """Random stopping on all records, but for its noise."""
    if records is None or has_own_score(trainer):
        lost = score_loss(records or 10_000, 10_000, 0.0)
    else:
        lost = score_loss(records, _VALIDATION_SHARE * records, 0.0)
    return Forecast(choice_loss(space, law), lost, 0.0)
