"""Audits of code, not of formulas: is what an implementation releases as hard to tell apart as its account says?

A :class:`Target` draws outputs of the real code in two neighbouring worlds and reduces each to a number; marks are
fixed beforehand. :func:`check` bounds every event's probabilities by Clopper and Pearson and calls the code broken
if some event's power lies above the account's trade-off curve. All limits hold together, so correct code is accused
with probability at most ``false_alarm``, whatever the number of marks. :func:`fits_law` does the same for the law
of K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import Cost, Runs
from dptune.audit.statistics import lower_limit, upper_limit

__all__ = ["FALSE_ALARM", "Finding", "Target", "check", "fits_law"]


FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Target:
    """An implementation under audit. World 1 has the record (or the changed vote), world 0 has not.

    ``draw(world, games, seed)`` runs the real code ``games`` times and returns the attacker's statistic of each
    release; the events are "the statistic exceeds a mark" and its complement, for every mark and both directions.
    """

    name: str
    cost: Cost
    draw: Callable[[int, int, int], Array]
    marks: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """The event that came closest to breaking the account, or broke it."""

    target: str
    caught: bool
    event: str
    power: float  # at least this, in the tested world
    level: float  # at most this, in the other
    allowed: float  # the largest power that the account allows at this level

    def __str__(self) -> str:
        verdict = "BROKEN" if self.caught else "holds"
        return f"{self.target}: {verdict}; {self.event}: {self.power:.4g} of {self.allowed:.4g} at {self.level:.4g}"


_LOSSES = np.linspace(-8.0, 16.0, 121)


def _allowed(profile: Array, level: Array) -> Array:
    """The largest power at each level: every loss e gives the line d(e) + exp(e) x above the trade-off curve."""
    lines = profile + np.exp(_LOSSES) * np.asarray(level)[:, None]
    return np.asarray(np.minimum(lines.min(axis=1), 1.0))


def check(target: Target, games: int, seed: int = 0, false_alarm: float = FALSE_ALARM) -> Finding:
    """Play a target in both worlds and hold every event against its account.

    Args:
        target: The implementation under audit.
        games: How many times it is run in each world.
        seed: From which the randomness of the games follows.
        false_alarm: The probability with which correct code may be accused, at most.

    Returns:
        The event that came closest to breaking the account, or broke it.
    """
    integer("games", games, 1)
    seen = [target.draw(world, games, 2 * seed + world) for world in (0, 1)]
    # A mark gives two events, an event two directions, a direction two limits.
    alpha = real("false_alarm", false_alarm, 0, 1, low_open=True, high_open=True) / (8 * len(target.marks))
    findings = []
    for tested, direction in ((1, "remove"), (0, "add")):
        profile = target.cost.profile(_LOSSES, direction)
        for above in (True, False):
            hits = [[int(np.sum((x > mark) == above)) for mark in target.marks] for x in seen]
            power = lower_limit(hits[tested], games, alpha)
            level = upper_limit(hits[1 - tested], games, alpha)
            allowed = _allowed(profile, level)
            for i, mark in enumerate(target.marks):
                event = f"world {tested} if {'above' if above else 'not above'} {mark:g}"
                broken = bool(power[i] > allowed[i])
                findings.append(
                    Finding(target.name, broken, event, float(power[i]), float(level[i]), float(allowed[i]))
                )
    return max(findings, key=lambda found: found.power / found.allowed)


def fits_law(counts: Sequence[int], runs: Runs, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether observed numbers of runs are compatible with their law.

    Every value up to the 99.9 % quantile, and the rest together, must have its probability within its
    Clopper-Pearson interval. A law with memory is needed to see a K that was drawn again after some runs: a geometric
    law looks the same from any point on.
    """
    top = runs.quantile(0.999)
    values = np.asarray(counts)
    seen = np.array([np.sum(values == k) for k in range(top + 1)] + [np.sum(values > top)])
    chance = np.array([runs.probability(k) for k in range(top + 1)])
    chance = np.append(chance, max(0.0, 1.0 - chance.sum()))
    alpha = false_alarm / (2 * len(seen))
    low, high = lower_limit(seen, len(values), alpha), upper_limit(seen, len(values), alpha)
    return bool(np.all((low <= chance) & (chance <= high)))
