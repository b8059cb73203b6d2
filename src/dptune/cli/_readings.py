"""What a cost says about attackers: the figures that commands add to every price, and one sentence for people."""

from __future__ import annotations

from dptune.accounting import Cost
from dptune.accounting.attackers import attackers, of_a_hundred
from dptune.cli._output import number

__all__ = ["in_words", "readings"]


def readings(cost: Cost) -> dict[str, object]:
    """The readings of a cost as JSON keys; mu and its slack belong together."""
    return attackers(cost).describe()


def in_words(cost: Cost) -> str:
    """The readings as lines for people."""
    found = attackers(cost)
    return (
        f"Of 100 people in the data, an attacker who wrongly accuses 1 in 100 outsiders finds at most "
        f"{of_a_hundred(found.power)}.\n"
        f"As Gaussian differential privacy: mu {number(found.mu)} up to a slack of {found.slack:g}."
    )
