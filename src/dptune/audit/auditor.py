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
    """What an audit found.

    Args:
        game: What was played.
        attack: The attack's name.
        bound: What the games prove; ``bound.low`` holds with the game's confidence.
        expected: The lower bound that theory foretold.
        base_epsilon: The epsilon of one run.
        certificate: What some score really costs, from theory.
        upper: The epsilon that the account claims.
        seconds: How long it took.
        curve: The attack's measured trade-off, for a figure; None where it has not been measured.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, audit
        >>> found = audit(Game("etcv", Gdp(1.0), Geometric(5), delta=1e-5, games=10_000), seed=1)
        >>> found.broken, found.bound.low < found.upper
        (False, True)
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

    def describe(self) -> dict[str, object]:
        """The verdict as plain JSON values."""
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
    """The attack of a game on empty training, chosen by theory for its number of games.

    Args:
        game: A game called "etcv" or "worst-case".

    Returns:
        The attack that is expected to show most; no game is played.

    Raises:
        InvalidInput: If the game trains models.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, plan_attack
        >>> plan_attack(Game("etcv", Gdp(1.0), Geometric(5), delta=1e-5, games=10_000)).tested
        1
    """
    if game.name not in EMPTY:
        raise InvalidInput(f"The game {game.name!r} trains models; play it with dptune.audit.training_games.")
    return etcv_attack(game) if game.name == "etcv" else worst_case_attack(game)


def expected_of(game: Game, attack: Attack) -> float:
    """The bound at the expected counts."""
    power, level = attack.rates()
    return float(expected_bound(power, level, game.games, game.delta, game.confidence))


def games_for(game: Game, target: float) -> int:
    """How many games in each world are expected to show more than a target.

    Args:
        game: A game on empty training; its own number of games does not matter.
        target: The epsilon that the lower bound should exceed.

    Returns:
        The number of games, to two digits.

    Raises:
        InvalidInput: If the game trains models, or no feasible number of games would do.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, games_for
        >>> games_for(Game("etcv", Gdp(1.0), Geometric(5), delta=1e-5, games=1), target=2.0)
        1700
    """
    if game.name not in EMPTY:
        raise InvalidInput(f"Nobody can foretell what {game.name} shows on real trainings; state 'games' and see.")
    quick = etcv_attack if game.name == "etcv" else three_block_attack

    def expected(games: int) -> float:
        tried = replace(game, games=games)
        return expected_of(tried, quick(tried))

    return games_needed(expected, target)


def audit(game: Game, seed: int | None = None) -> Audit:
    """Audit private selection on empty training: plan the attack, play the games, set the bounds side by side.

    Args:
        game: What is audited, and how many games are played.
        seed: For tests and rehearsals alone; without one the operating system's randomness is used.

    Returns:
        The proven lower bound beside the account's epsilon.

    Raises:
        InvalidInput: If the game trains models, or so few games cannot be expected to show any loss.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, audit
        >>> found = audit(Game("worst-case", Gdp(1.0), Geometric(5), delta=1e-5, games=10_000), seed=1)
        >>> found.broken
        False
    """
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
