"""What a trainer declares that one run costs, and whether the planner may set its noise.

One place for both sides: planning asks here, and so does every run that admits a candidate under a line.
"""

from __future__ import annotations

from collections.abc import Mapping

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.trainer import DeclaresCost, Params, check_cost_declared

__all__ = ["NOISE", "check_factors", "declared_cost", "tunable_noise"]

NOISE = "noise_multiplier"


def declared_cost(trainer: DeclaresCost, params: Params) -> Cost:
    """The cost that a trainer declares for one run, checked to be a cost of the algebra."""
    check_cost_declared(trainer)
    cost = trainer.cost(params)
    if not isinstance(cost, Cost):
        raise InvalidInput(f"The trainer's cost must be a Cost such as DpSgd(...) or Gaussian(...); got {cost!r}.")
    return cost


def tunable_noise(trainer: DeclaresCost, params: Params) -> bool:
    """Whether the trainer's cost follows a parameter 'noise_multiplier' that the planner may set.

    A trainer that refuses the parameter, in whatever way, sets its noise itself.
    """
    if NOISE in params:
        return False
    try:
        few, many = (declared_cost(trainer, {**params, NOISE: noise}) for noise in (2.0, 4.0))
    except Exception:
        return False
    return few != many


def _same_cost(trainer: DeclaresCost, one: Params, other: Params) -> bool:
    """Whether two configurations cost the same at the same noise; what a trainer refuses costs something else."""
    noise = {NOISE: 2.0} if tunable_noise(trainer, one) else {}
    try:
        return declared_cost(trainer, {**one, **noise}) == declared_cost(trainer, {**other, **noise})
    except Exception:
        return False


def check_factors(
    factors: Mapping[str, float], priced: tuple[str, ...], trainer: DeclaresCost, default: Params
) -> None:
    """Refuse factors on what a training costs: the final one would cost something else than what was chosen.

    It would be charged for and then refused, so that no model could be released.
    """
    for name, factor in factors.items():
        if factor == 1.0 or name not in default:
            continue
        if name in priced or not _same_cost(trainer, default, {**default, name: default[name] * factor}):
            raise InvalidInput(
                f"'transfer' multiplies {name!r} by {factor:g}, but what a training costs follows from {name!r}: the "
                "final training would cost something else than what was tuned. Leave it out."
            )
