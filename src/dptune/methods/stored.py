"""Stored plans: what a plan says is derived again from its settings when it is read, and an edited one is refused.

Nothing here may read data; an older plan is completed by what was the only possibility when it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dptune._codec import from_json, to_values
from dptune.accounting import ADDED_OR_REMOVED, Cost
from dptune.accounting.cost import completed
from dptune.accounting.neighbours import neighbours_from_text
from dptune.errors import InvalidInput
from dptune.methods.budget import Budget
from dptune.methods.plan import Plan
from dptune.methods.registry import plan_named

__all__ = ["plan_from_json"]

_EDITED = "it was edited, or made by another version. Plan again."


def plan_from_json(data: str | Mapping[str, Any]) -> Plan:
    """Read a plan that :meth:`Plan.to_json` wrote, and derive again all that it says.

    Args:
        data: the text, or the parsed object.

    Returns:
        An equal plan.

    Raises:
        InvalidInput: it is not a plan, or it says anything that its settings do not give: it was edited, or made by
            another version.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> plan = dpt.RandomStopping(dpt.Space.of([{"layers": 1}]), dpt.Geometric(10)).plan(dpt.Budget(1, 1e-5), train)
        >>> plan_from_json(plan.to_json()) == plan
        True
        >>> edited = plan.to_json().replace('"expected_runs": 10.0', '"expected_runs": 2.0')
        >>> plan_from_json(edited)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The plan's 'expected_runs' is not what its settings give: it was edited, ...
    """
    try:
        stored = _completed(json.loads(data) if isinstance(data, str) else dict(data))
        method, settings = str(stored["method"]), dict(stored["settings"])
        relation = neighbours_from_text(stored["neighbours"])
        budget, default = Budget(stored["epsilon"], stored["delta"], relation), dict(stored["default"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"Not a plan: {error}. Write it with Plan.to_json().") from None
    kind = plan_named(method)
    fields = {**settings, "budget": to_values(budget), "default": default}
    plan = from_json(fields, kind, "a plan with the settings of its method")
    _compare(plan, stored)
    return plan


def _completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored plan with its relation; those of older versions, which do not say it, are about single records."""
    whole = completed(stored)
    return {"neighbours": str(ADDED_OR_REMOVED), **whole} if isinstance(whole, dict) else dict(stored)


def _compare(plan: Plan, stored: Mapping[str, Any]) -> None:
    """Refuse a stored plan that says anything but what its settings give."""
    derived = json.loads(plan.to_json())
    if derived["guaranteed"] and stored.get("cost") != derived["cost"]:
        stated = from_json(stored.get("cost", {}), Cost, "a cost").epsilon(plan.budget.delta)  # type: ignore[type-abstract] # a family
        raise InvalidInput(
            f"The plan states a cost of epsilon {stated:.6g}, but its settings cost {plan.price():.6g} at delta "
            f"{plan.budget.delta:g}: {_EDITED}"
        )
    wrong = [name for name in {**derived, **stored} if name not in stored or derived.get(name) != stored[name]]
    if wrong:
        raise InvalidInput(f"The plan's {wrong[0]!r} is not what its settings give: {_EDITED}")
