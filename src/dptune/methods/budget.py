"""The budget of a run: one total for everything that leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dptune._validate import real
from dptune.accounting import ADDED_OR_REMOVED, Cost, Neighbours, in_relation
from dptune.accounting.neighbours import check_relation

__all__ = ["Budget"]


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
