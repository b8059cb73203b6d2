"""Checks of costs before something is done with them: that they are about the neighbours of the theorem.

Every operation of the algebra asks here, so that a refusal is worded once (``docs/theorems/relations.md``).
"""

from __future__ import annotations

import math

from dptune.accounting.cost import Cost
from dptune.accounting.neighbours import ADDED_OR_REMOVED, Neighbours
from dptune.errors import InvalidInput

__all__ = ["is_free", "only_added_or_removed", "same_relation"]


def same_relation(operation: str, *costs: Cost) -> Neighbours:
    """The relation that all of these costs share.

    Args:
        operation: what is about to be done with them, for the refusal.
        costs: at least one.

    Returns:
        The relation.

    Raises:
        InvalidInput: they are about different neighbours.

    Example:
        >>> from dptune.accounting import Gaussian, PureDp
        >>> print(same_relation("compose", Gaussian(1.0), PureDp(0.5)))
        one record added or removed
    """
    found = dict.fromkeys(cost.neighbours for cost in costs)
    if len(found) > 1:
        raise InvalidInput(
            f"'{operation}' cannot mix neighbouring relations: got {' and '.join(f'{one!s}' for one in found)}. "
            "Convert the costs to one relation first (replaced, grouped, within_client)."
        )
    return next(iter(found))


def only_added_or_removed(operation: str, cost: Cost, instead: str) -> None:
    """Refuse a cost under a relation for which an operation has no theorem.

    Args:
        operation: what is about to be done with the cost, for the refusal.
        cost: what it is to be done with.
        instead: what to do.

    Raises:
        InvalidInput: the relation is not that of one record added or removed.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> only_added_or_removed("subsample", Gaussian(1.0), "convert later")
    """
    if cost.neighbours != ADDED_OR_REMOVED:
        raise InvalidInput(
            f"'{operation}' is proven for one record added or removed; got a cost for '{cost.neighbours}'. {instead}"
        )


def is_free(cost: Cost) -> bool:
    """Whether the cost is provably nothing."""
    return math.isclose(cost.delta(0.0), 0.0, abs_tol=0.0)
