"""Which method for this trainer, space and budget, and why.

Subset tuning is the default when there are enough records, random stopping otherwise (``docs/choosing.md``); what part,
which law of the number of runs and how many records for scores follows from the accuracy that a public model expects
(:mod:`dptune.planner.forecast`). The explanation gives the numbers that decided. Everything is computed from public
descriptions: no data is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dptune._validate import integer
from dptune.accounting import DiscreteGaussian, Geometric, Runs
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, Method, Plan, PrivateValidation, RandomStopping, Subset
from dptune.planner._offers import Offer, explain, worth
from dptune.planner.forecast import Forecast, Part, best_part, choice_loss, score_loss
from dptune.spaces import Choice, Domain, Float, Int, Space
from dptune.trainer import DeclaresCost, DeclaresRecords, DeclaresScore, has_own_score

__all__ = ["Advice", "choose", "default_validation", "public_records", "scaled_space"]

_LEAST_TUNING_RECORDS = 500
_VALIDATION_SHARE = 0.1
_SCORE_MARGIN = 1.25
_MOST_SCORE_NOISE = 1e5


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
    law = Geometric(10) if runs is None else runs
    whole = RandomStopping(space, law, validation=default_validation(trainer, records))
    offers: list[Offer] = []
    refused: BudgetExceeded | None = None
    try:
        what = f"random stopping with {law} runs on all records"
        offers.append(Offer(what, whole, whole.plan(budget, trainer), _forecast_whole(trainer, space, records, law)))
    except BudgetExceeded as error:
        refused = error
    part = None if records is None else _part(trainer, space, budget, records, runs)
    if records is not None and part is not None:
        try:
            offers.append(_subset_offer(trainer, space, budget, records, part))
        except BudgetExceeded as error:
            refused = refused or error
    if not offers:
        raise refused or BudgetExceeded("No method fits this budget; raise epsilon.")
    chosen = min(offers, key=worth)
    return Advice(chosen.plan, chosen.method, explain(chosen, offers, _reasons(records, part), trainer, space, budget))


def _reasons(records: int | None, part: Part | None) -> list[str]:
    """Why a part was not even considered."""
    if records is None:
        return ["Subset tuning was not considered because the number of records was not given."]
    return [] if part is not None else [f"With {records} records a random part would be too small to tune on."]


def _part(trainer: object, space: Domain, budget: Budget, records: int, runs: Runs | None) -> Part | None:
    """The part that is expected to lose the least accuracy, for this budget's noise on private scores."""
    public = has_own_score(trainer)
    noise = 0.0 if public else _score_noise(budget)
    return best_part(space, records, public=public, noise=noise, runs=runs, least=_LEAST_TUNING_RECORDS)


def _score_noise(budget: Budget) -> float:
    """The noise on private counts beside which a training of the same budget tells as much: it raises no price."""
    alone = calibrate_noise(lambda level: budget.covering(DiscreteGaussian(level)), budget.epsilon, budget.delta)
    return min(_MOST_SCORE_NOISE, _SCORE_MARGIN * alone)


def _subset_offer(trainer: DeclaresCost, space: Domain, budget: Budget, records: int, part: Part) -> Offer:
    """Tuning on a part, then training on the rest. The space holds the learning rates of the final training."""

    def subset(noise: float | None) -> Subset:
        share = max(1.0, part.held * part.fraction * records)
        held = None if has_own_score(trainer) else PrivateValidation(part.held, share, noise)
        rule = Subset(RandomStopping(space, part.runs, validation=held), part.fraction).factors(trainer)
        factors = {name: ratio / (1 - part.held) for name, ratio in rule.items()}  # records held back do not train
        on_part = scaled_space(space, {name: 1 / ratio for name, ratio in factors.items()})
        tuning = RandomStopping(on_part, part.runs, validation=held)
        return Subset(tuning, part.fraction, transfer=factors or "auto")

    what = f"{part.runs} runs on a share of {part.fraction:g}, then training on the rest"
    method = subset(None if has_own_score(trainer) else _score_noise(budget))
    try:
        plan = method.plan(budget, trainer)
    except BudgetExceeded:  # of a trainer whose own cost is fixed: with as much noise on scores as is needed
        if has_own_score(trainer):
            raise
        method = subset(None)
        plan = method.plan(budget, trainer)
    return Offer(what, method, plan, part.forecast)


def scaled_space(space: Domain, factors: Mapping[str, float]) -> Domain:
    """The same space with logarithmic ranges multiplied by factors; lists stay as they are.

    Args:
        space: the space.
        factors: a factor for each parameter that changes.

    Returns:
        The scaled space.

    Example:
        >>> from dptune import Float, Space
        >>> scaled_space(Space(lr=Float(1, 4, log=True)), {"lr": 0.5}).dimensions
        (('lr', Float(low=0.5, high=2.0, log=True)),)
    """
    if not isinstance(space, Space):
        return space
    made: dict[str, Float | Int | Choice] = {}
    for name, one in space.dimensions:
        factor = factors.get(name, 1.0)
        if isinstance(one, Float) and one.log and factor != 1.0:
            made[name] = Float(one.low * factor, one.high * factor, log=True)
        else:
            made[name] = one
    return Space(**made)


def _forecast_whole(trainer: object, space: Domain, records: int | None, law: Runs) -> Forecast:
    """Random stopping on all records, but for its noise."""
    if records is None or has_own_score(trainer):
        lost = score_loss(records or 10_000, 10_000, 0.0)
    else:
        lost = score_loss(records, _VALIDATION_SHARE * records, 0.0)
    return Forecast(choice_loss(space, law), lost, 0.0)
