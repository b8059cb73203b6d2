"""Audits: attack our own guarantees and show how close the attack comes (``docs/audit.md``)."""

from dptune.audit.attacks import Attack, play
from dptune.audit.auditor import Audit, audit, games_for, plan_attack
from dptune.audit.games import Game
from dptune.audit.statistics import Counts, EmpiricalBound, empirical_bound

__all__ = [
    "Attack",
    "Audit",
    "Counts",
    "EmpiricalBound",
    "Game",
    "audit",
    "empirical_bound",
    "games_for",
    "plan_attack",
    "play",
]
