"""What a trainer declares: the cost of one training, and whether it follows a noise that the planner may set.

Planning, running and checking ask here and nowhere else, so that what is priced is what is drawn.
"""

from __future__ import annotations

from typing import Any

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.methods.trial import Params

__all__ = ["NOISE", "declared_cost", "follows_noise"]

NOISE = "noise_multiplier"


def declared_cost(trainer: Any, params: Params) -> Cost:
    """The cost that a trainer declares for one run, checked to be a cost of the algebra."""
    declare = getattr(trainer, "cost", None)
    if not callable(declare):
        raise InvalidInput(
            f"The trainer {type(trainer).__name__} declares no cost, so nothing can be promised. Give it a method "
            "'cost(params)', or wrap a function with dptune.trainer(cost=...)."
        )
    cost = declare(params)
    if not isinstance(cost, Cost):
        raise InvalidInput(f"The trainer's cost must be a Cost such as DpSgd(...) or Gaussian(...); got {cost!r}.")
    return cost


def follows_noise(trainer: Any, params: Params) -> bool:
    """Whether the declared cost follows a parameter 'noise_multiplier' that the planner may set."""
    if NOISE in params:
        return False
    try:
        few, many = (declared_cost(trainer, {**params, NOISE: noise}) for noise in (2.0, 4.0))
    except (InvalidInput, TypeError, KeyError):
        return False
    return few != many
