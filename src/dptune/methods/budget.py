"""The budget of a run: one total for everything that leaves it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dptune._validate import real
from dptune.accounting import ADDED_OR_REMOVED, Cost, Neighbours, in_relation
from dptune.accounting.neighbours import check_relation

__all__ = ["Budget"]

_STRONG = 10.0  # an epsilon beyond which a guarantee says little by itself


@dataclass(frozen=True)
class Budget:
    """One total budget: everything that leaves a run together is (epsilon, delta)-differentially private.

    Args:
        epsilon: the total for tuning, choice and final training.
        delta: far below one over the number of records; a common choice is 1e-5.
        neighbours: what the guarantee is to hide; one record added or removed unless said otherwise. For patients with
            at most 5 records each it is ``ADDED_OR_REMOVED.group(5)``.

    Raises:
        InvalidInput: a figure is not a number, or outside of its range.

    Example:
        >>> Budget(3, 1e-5)
        Budget(epsilon=3.0, delta=1e-05)
        >>> print(Budget(3, 1e-5, ADDED_OR_REMOVED.group(5)).neighbours)
        at most 5 records added or removed
    """

    epsilon: float
    delta: float
    neighbours: Neighbours = field(default=ADDED_OR_REMOVED, repr=False)

    def __post_init__(self) -> None:
        check_relation(self.neighbours)
        hint = "It is the total for tuning, choice and final training."
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, 0, 500, low_open=True, hint=hint))
        hint = "It must be far below one over the number of records; a common choice is 1e-5."
        checked = real("delta", self.delta, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "delta", checked)

    def doubts(self, records: int | None = None) -> tuple[str, ...]:
        """What makes this budget a weak promise, in sentences; none of it is refused.

        Args:
            records: about how many records there are, if that is public.

        Returns:
            One sentence about each.

        Example:
            >>> Budget(3, 1e-5).doubts(30_000)
            ()
            >>> Budget(3, 0.01).doubts(30_000)[0].split(":")[0]
            'Delta 0.01 is a weak promise for about 30000 records'
        """
        found = []
        if records is not None and self.delta * records >= 1.0:
            found.append(
                f"Delta {self.delta:g} is a weak promise for about {records} records: to publish some of them as they "
                "are would keep it. Take one far below one over the number of records."
            )
        if self.epsilon > _STRONG:
            found.append(
                f"Epsilon {self.epsilon:g} is a weak promise: the odds of what is seen may change by a factor of "
                f"{math.exp(self.epsilon):.2g} for a person. Up to {_STRONG:g} is usual, up to 1 is strong."
            )
        return tuple(found)

    def covering(self, cost: Cost) -> Cost:
        """A cost as a guarantee about this budget's neighbours.

        Args:
            cost: what a plan comes to, under the relation of its mechanisms.

        Returns:
            The cost that is compared with the budget, stated and charged.

        Raises:
            InvalidInput: no theorem leads from the one relation to the other.

        Example:
            >>> from dptune.accounting import PureDp
            >>> Budget(3, 1e-5, ADDED_OR_REMOVED.group(5)).covering(PureDp(0.1)).epsilon(1e-9) > 0.49
            True
        """
        return in_relation(cost, self.neighbours)
