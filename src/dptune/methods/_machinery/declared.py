"""What a trainer declares that one run costs, and whether the planner may set its noise.

One place for both sides: planning asks here, and so does every run that admits a candidate under a line.
"""

from __future__ import annotations

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.trainer import DeclaresCost, Params, check_cost_declared

__all__ = ["NOISE", "declared_cost", "tunable_noise"]

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
