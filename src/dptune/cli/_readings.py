"""What a cost says about attackers: the figures that commands add to every price, and one sentence for people."""

from __future__ import annotations

from dptune.accounting import Cost
from dptune.cli._output import number

__all__ = ["in_words", "readings"]

_ALARM = 0.01  # the false positive rate at which commands state the power


def readings(cost: Cost) -> dict[str, object]:
    """The readings of a cost as JSON keys; mu and its slack belong together."""
    found = cost.mu()
    power = {"false_positive_rate": _ALARM, "power": cost.power(_ALARM)}
    return {"attack": power, "advantage": cost.advantage(), "mu": {"mu": found.mu, "slack": found.slack}}


def in_words(cost: Cost) -> str:
    """The readings as lines for people."""
    found = cost.mu()
    caught = number(100.0 * cost.power(_ALARM), 1)
    return (
        f"Of 100 people in the data, an attacker who wrongly accuses 1 in 100 outsiders finds at most {caught}.\n"
        f"As Gaussian differential privacy: mu {number(found.mu)} up to a slack of {found.slack:g}."
    )
