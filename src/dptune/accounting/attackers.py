"""The readings of a cost that people weigh, as one value: what statements, prices and pages say about attackers.

All of them are computed from one cost, are bounds on any attacker, and are rounded against us when they are printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dptune.accounting.cost import Cost

__all__ = ["ALARM", "Attackers", "attackers", "of_a_hundred"]

ALARM = 0.01  # the false positive rate at which statements give the power of attacks


@dataclass(frozen=True)
class Attackers:
    """What any attacker can reach against one cost.

    Args:
        false_positive_rate: how often it may say "in" of somebody who is not in the data.
        power: how often it then says "in" of somebody who is, at most.
        advantage: the largest difference of the two rates, whatever the first one is.
        even_guess: how often a verdict is right, at most, that began from an even guess.
        mu: of the smallest Gaussian that covers the cost; infinite if there is none.
        slack: up to which it does.

    Example:
        >>> Attackers(0.01, 0.034, 0.198, 0.599, 0.5, 1e-10).describe()["attack"]
        {'false_positive_rate': 0.01, 'power': 0.034}
    """

    false_positive_rate: float
    power: float
    advantage: float
    even_guess: float
    mu: float
    slack: float

    def describe(self) -> dict[str, Any]:
        """These figures as plain JSON values; a mu that does not exist is null."""
        return {
            "attack": {"false_positive_rate": self.false_positive_rate, "power": self.power},
            "advantage": self.advantage,
            "even_guess": self.even_guess,
            "mu": {"mu": self.mu if math.isfinite(self.mu) else None, "slack": self.slack},
        }


def attackers(cost: Cost, false_positive_rate: float = ALARM) -> Attackers:
    """Compute the readings of a cost.

    Args:
        cost: whose profile says what attackers can reach.
        false_positive_rate: at which the power is stated.

    Returns:
        Upper bounds on all of them.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> found = attackers(Gaussian(2.0))
        >>> round(found.power, 4), round(found.even_guess, 4)
        (0.0339, 0.5987)
    """
    return _computed(cost, false_positive_rate)


@lru_cache(maxsize=32)
def _computed(cost: Cost, false_positive_rate: float) -> Attackers:
    """Readings of a cost, kept: those of a plan are read for its statement, its page and its price."""
    gaussian = cost.mu()
    return Attackers(
        false_positive_rate,
        cost.power(false_positive_rate),
        cost.advantage(),
        min(1.0, (1.0 - cost.bayes_risk(0.5)) * (1.0 + 1e-15)),
        gaussian.mu,
        gaussian.slack,
    )


def of_a_hundred(probability: float) -> str:
    """An upper bound on a probability, for people: out of a hundred, rounded up to a tenth.

    Args:
        probability: in [0, 1].

    Returns:
        A number from 0 to 100 without trailing zeros.

    Example:
        >>> of_a_hundred(0.03391), of_a_hundred(0.25), of_a_hundred(0.99999)
        ('3.4', '25', '100')
    """
    tenths = math.ceil(probability * 1000.0)
    while tenths / 1000.0 < probability:  # the product was rounded down
        tenths += 1
    return f"{min(tenths, 1000) / 10.0:g}"
