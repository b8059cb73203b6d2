"""The budget of a run: one total for everything that leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from dptune._validate import real

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """One total budget: everything that leaves a run together is (epsilon, delta)-differentially private.

    Args:
        epsilon: the total for tuning, choice and final training.
        delta: far below one over the number of records; a common choice is 1e-5.

    Raises:
        InvalidInput: a figure is not a number, or outside of its range.

    Examples:
        >>> Budget(3, 1e-5)
        Budget(epsilon=3.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hint = "It is the total for tuning, choice and final training."
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, 0, 500, low_open=True, hint=hint))
        hint = "It must be far below one over the number of records; a common choice is 1e-5."
        checked = real("delta", self.delta, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "delta", checked)
