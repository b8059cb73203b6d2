"""One audit from description to verdict: plan the attack, play the games, set the bounds side by side.

The plan comes from theory and the number of games alone; the counts come from outputs that were drawn and shown to
the attacker. Too few games for the asked confidence are refused before any is played.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from dptune._typing import Array
from dptune.audit.attacks import Attack, play
from dptune.audit.etcv import etcv_attack
from dptune.audit.games import EMPTY, Game, Played
from dptune.audit.statistics import EmpiricalBound, empirical_bound, expected_bound, games_needed
from dptune.audit.worst_case import three_block_attack, worst_case_attack
from dptune.errors import InvalidInput

__all__ = ["Audit", "Curve", "audit", "curve_of", "expected_of", "games_for", "plan_attack"]

Curve = tuple[Array, Array, bool]
"""Measured levels and powers of an attack, and whether the data with the record is the tested side."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. ``bound.low`` holds with the game's confidence; ``expected`` is what theory foretold.

    ``curve`` is the attack's measured trade-off, for a figure; None where it has not been measured.
    """

    game: Played
    attack: str
    bound: EmpiricalBound
    expected: float
    base_epsilon: float
    certificate: float
    upper: float
    seconds: float
    curve: Curve | None = field(default=None, compare=False, repr=False)

    @property
    def broken(self) -> bool:
        """Whether the games contradict the account."""
        return self.bound.low > self.upper

    def summary(self) -> dict[str, object]:
        """For machines."""
        return {
            "game": self.game.name,
            "attack": self.attack,
            "base_epsilon": self.base_epsilon,
            "epsilon_low": self.bound.low,
            "epsilon_expected": self.expected,
            "epsilon_certificate": self.certificate,
            "epsilon": self.upper,
            "delta": self.game.delta,
            "games": self.game.games,
            "judged": self.bound.counts.games,
            "hits": [self.bound.counts.tested, self.bound.counts.other],
            "event_interval": [self.bound.low, self.bound.high],
            "confidence": self.game.confidence,
            "seconds": self.seconds,
        }


def curve_of(without: Array, with_it: Array, forward: bool = True) -> Curve:
    """Levels and powers of the events "the statistic is at most t", from released statistics of both worlds."""
    ends = [np.sort(values[~np.isnan(values)]) for values in (without, with_it)]
    pooled = np.sort(np.concatenate(ends))
    marks = pooled[np.unique(np.linspace(0, len(pooled) - 1, 400).astype(np.int64))] if len(pooled) else pooled
    found = zip(ends, (without, with_it), strict=True)
    level, power = (np.searchsorted(part, marks, side="right") / len(values) for part, values in found)
    return level, power, forward


def plan_attack(game: Game) -> Attack:
    """The attack of a game on empty training, chosen for its number of games."""
    if game.name not in EMPTY:
        raise InvalidInput(f"The game {game.name!r} trains models; play it with dptune.audit.training_games.")
    return etcv_attack(game) if game.name == "etcv" else worst_case_attack(game)


def expected_of(game: Game, attack: Attack) -> float:
    """The bound at the expected counts."""
    power, level = attack.rates()
    return float(expected_bound(power, level, game.games, game.delta, game.confidence))


def games_for(game: Game, target: float) -> int:
    """How many games per world are expected to show more than ``target``."""
    if game.name not in EMPTY:
        raise InvalidInput(f"Nobody can foretell what {game.name} shows on real trainings; state 'games' and see.")
    quick = etcv_attack if game.name == "etcv" else three_block_attack

    def expected(games: int) -> float:
        tried = replace(game, games=games)
        return expected_of(tried, quick(tried))

    return games_needed(expected, target)


def audit(game: Game, seed: int | None = None) -> Audit:
    """Plan and play; a fixed ``seed`` is for tests and rehearsals alone."""
    began = time.perf_counter()
    attack = plan_attack(game)
    expected = expected_of(game, attack)
    if expected <= 0.0:
        raise InvalidInput(
            f"'games' must be at least {games_for(game, 0.0)} per world for confidence {game.confidence:g} here; got "
            f"{game.games}. Fewer cannot be expected to show any loss at all."
        )
    counts = play(attack, game.games, seed)
    seconds = time.perf_counter() - began
    return Audit(
        game=game,
        attack=attack.name,
        bound=empirical_bound(counts, game.delta, game.confidence),
        expected=expected,
        base_epsilon=game.base_epsilon(),
        certificate=game.certificate(),
        upper=game.upper(),
        seconds=seconds,
    )
