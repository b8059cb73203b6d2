"""Keeping every candidate under a line (Koskela and Kulkarni 2023, appendix D.1): costs that cannot be enumerated.

A line is a bound slope * a on Renyi divergences at public orders a. The noise of each candidate is the smallest whose
declared cost stays under it; a candidate that cannot is not admitted and fails, which depends on no record. The whole
then costs what the line costs, whichever candidates were drawn (``docs/theorems/line.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dptune._validate import real
from dptune.accounting import Cost, RenyiLine
from dptune.accounting.lines import line_orders
from dptune.accounting.renyi import base_curve
from dptune.errors import InvalidInput, NotComparable
from dptune.methods._machinery.declared import NOISE, declared_cost, tunable_noise
from dptune.methods.budget import Budget
from dptune.methods.trial import Params, Selection, Trial
from dptune.spaces import Candidates, Domain
from dptune.trainer import DeclaresCost, check_cost_declared

__all__ = ["Line", "admit", "check_comparable", "settle", "settle_selection", "under_line"]

_LEAST, _MOST = 0.05, 1e4
_TOLERANCE = 1e-4
_GUARD = 1e-9  # relative, and in units of the slope: what roundoff in a computed curve may hide


@dataclass(frozen=True)
class Line:
    """One bound for candidates whose costs cannot be enumerated: every Renyi curve stays under ``slope * a``.

    Args:
        slope: of the line; None for the largest that the budget allows.
        orders: where the curves are compared with the line, above 1 and increasing; None for the budget's own.

    Raises:
        InvalidInput: the slope is outside of its range, or the orders are not above 1 and increasing.

    Example:
        >>> from dptune import Budget
        >>> line = Line(slope=0.02).for_budget(Budget(1, 1e-5))
        >>> print(line.cost(None))
        RenyiLine(slope 0.02, orders 2 to 24)
    """

    slope: float | None = None
    orders: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.slope is not None:
            real("slope", self.slope, 0, 200, low_open=True)
        if self.orders is not None:
            RenyiLine(1.0, tuple(self.orders))

    def for_budget(self, budget: Budget) -> Line:
        """The line with orders: its own, or those that suit the budget."""
        return self if self.orders is not None else replace(self, orders=line_orders(budget.epsilon, budget.delta))

    def cost(self, level: float | None) -> RenyiLine:
        """The cost that is charged: that of the line itself.

        Args:
            level: where the budget sets the slope, the noise of a Gaussian mechanism whose curve is the line.

        Returns:
            The cost.

        Raises:
            InvalidInput: there is neither a slope nor a level.
        """
        slope = self.slope
        if slope is None:
            if level is None:
                raise InvalidInput("A line needs a slope, or a level of noise that sets it.")
            slope = 1.0 / (2.0 * level * level)
        return RenyiLine(slope, self.orders or ())

    def check(self, trainer: DeclaresCost, space: Domain, tunable: bool) -> None:
        """Refuse a cost without a Renyi curve and, if the slope is known, candidates that it cannot admit.

        Args:
            trainer: declares the costs.
            space: what may be tried.
            tunable: whether the planner sets the trainer's noise.

        Raises:
            InvalidInput: no candidate, or one of the list, could be kept under the line.
        """
        listed = isinstance(space, Candidates)
        line = self.cost(1.0)
        for item in space.items if isinstance(space, Candidates) else (space.default,):
            declared = declared_cost(trainer, {**item, NOISE: 2.0} if tunable else item)
            above = not under_line(declared, line)
            if above and listed and not tunable and self.slope is not None:
                raise InvalidInput(
                    f"The candidate {item!r} is above the line of slope {self.slope:g}, and the trainer's noise is not "
                    "tunable. Raise the line, or leave the candidate out."
                )


def _curve(cost: Cost, line: RenyiLine) -> Any:
    """The Renyi curve of a cost at a line's orders; refuses a cost that has none."""
    try:
        return base_curve(cost, line.orders)
    except NotComparable:
        raise InvalidInput(
            f"No Renyi curve is known for a cost of kind {cost.kind!r}, so it cannot be kept under a line. Use "
            "costs='average' or 'largest'."
        ) from None


def under_line(cost: Cost, line: RenyiLine) -> bool:
    """Whether a cost's Renyi curve provably stays under a line.

    Args:
        cost: what a trainer declares.
        line: what it is compared with.

    Returns:
        False also where roundoff leaves it open.
    """
    curve = _curve(cost, line) * (1.0 + _GUARD) + _GUARD * line.slope
    return bool((curve <= line.slope * np.array(line.orders)).all())


def admit(trainer: DeclaresCost, params: Params, line: RenyiLine) -> Params:
    """The parameters with the smallest noise, to a ten-thousandth, under the line.

    Args:
        trainer: declares the costs.
        params: a configuration.
        line: what its cost must stay under.

    Returns:
        The configuration with its noise; as it was, where the trainer sets its noise itself.

    Raises:
        InvalidInput: the candidate is not admitted, whatever the noise.
    """

    def below(noise: float) -> bool:
        return under_line(declared_cost(trainer, {**params, NOISE: noise}), line)

    if not tunable_noise(trainer, params):
        if not under_line(declared_cost(trainer, params), line):
            raise InvalidInput(f"A candidate is above the line of slope {line.slope:g} and is not admitted.")
        return dict(params)
    low, high = _LEAST, 1.0
    while not below(high):
        low, high = high, 2.0 * high
        if high > _MOST:
            raise InvalidInput(f"No noise brings this candidate under the line of slope {line.slope:g}.")
    while high > low * (1.0 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if below(middle) else (middle, high)
    return {**params, NOISE: high}


def settle(trainer: object, trial: Trial) -> Trial:
    """The trial with the noise that its line demands; a trial without a line is as it was.

    Args:
        trainer: declares the costs.
        trial: what is to be trained.

    Returns:
        The trial.

    Raises:
        InvalidInput: the candidate is not admitted under the line.
    """
    if trial.line is None:
        return trial
    return replace(trial, params=admit(check_cost_declared(trainer), trial.params, trial.line))


def check_comparable(trainer: DeclaresCost, trial: Trial) -> None:
    """Refuse a trainer whose cost cannot be compared with the trial's line; no candidate would ever be admitted.

    Args:
        trainer: declares the costs.
        trial: what is to be trained.

    Raises:
        InvalidInput: no Renyi curve is known for its cost.
    """
    if trial.line is not None:
        tunable = tunable_noise(trainer, trial.params)
        _curve(declared_cost(trainer, {**trial.params, NOISE: 2.0} if tunable else trial.params), trial.line)


def settle_selection(trainer: DeclaresCost, selection: Selection) -> Selection:
    """The selection with the noise of its winner among the parameters, where a line decided it."""
    decided = selection.final if selection.final is not None else selection.best
    if decided is None or decided.line is None:
        return selection
    return replace(selection, params=dict(settle(trainer, decided).params))
