"""What a game is: a secret world, the best of K runs released, an attacker who sees the winner and guesses.

A :class:`Game` is a frozen description: base mechanism, law of K, delta, games per world, confidence. It says nothing
of the outcome. ``docs/audit.md`` describes the four games; their names follow Xiang et al., except the worst case,
which is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dptune._validate import integer, real
from dptune.accounting import Cost, Runs, select
from dptune.accounting.literature import Bound, published
from dptune.errors import InvalidInput

__all__ = ["EMPTY", "NAMES", "TRAINED", "Game", "Played"]

EMPTY = ("etcv", "worst-case")  # empty training: the model is pure noise
TRAINED = ("ntnv", "ntcv")  # normal training: models are really trained
NAMES = (*EMPTY, *TRAINED)

_MOST = 10**12


class Played(Protocol):
    """What a verdict needs to know of a game, whoever played it. All of it is fixed before the first game."""

    @property
    def name(self) -> str:
        """One of ``NAMES``."""

    @property
    def delta(self) -> float:
        """The delta of the statement."""

    @property
    def games(self) -> int:
        """How many were played in each world."""

    @property
    def confidence(self) -> float:
        """The probability with which the lower bound holds."""

    @property
    def cost(self) -> Cost:
        """What the account charges for the release."""

    def published(self) -> Mapping[str, Bound]:
        """Published bounds by name."""


@dataclass(frozen=True)
class Game:
    """What is audited: the best of a random number of runs, in two worlds that differ by one record.

    Args:
        name: "etcv" or "worst-case" (empty training), "ntnv" or "ntcv" (models are really trained).
        base: The cost of one run.
        runs: The law of the number of runs.
        delta: The delta of the statement.
        games: How many games are played in each world.
        confidence: The probability with which the lower bound holds.

    Raises:
        InvalidInput: If the name is unknown or a figure is out of range.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game
        >>> game = Game("worst-case", Gdp(1.0), Geometric(5), delta=1e-5, games=10**6)
        >>> game.base_epsilon() < game.certificate() <= game.upper()
        True
    """

    name: str
    base: Cost
    runs: Runs
    delta: float
    games: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InvalidInput(f"'game' must be one of {', '.join(NAMES)}; got {self.name!r}.")
        if not isinstance(self.base, Cost) or not isinstance(self.runs, Runs):
            raise InvalidInput(
                "A game needs a base mechanism such as Gdp(1.0) and a law of runs such as Geometric(10)."
            )
        hint = "Without a delta a Gaussian mechanism has no finite epsilon; a common choice is 1e-5."
        real("delta", self.delta, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "games", integer("games", self.games, 1, _MOST, hint="Games are counted per world."))
        hint = "It is the probability that the lower bound holds; a common choice is 0.95."
        real("confidence", self.confidence, 0, 1, low_open=True, high_open=True, hint=hint)

    @property
    def cost(self) -> Cost:
        """What the account charges for the released winner."""
        return select(self.base, self.runs)

    def published(self) -> Mapping[str, Bound]:
        """Published bounds on the released winner."""
        return published(self.base, self.runs, self.delta)

    def base_epsilon(self) -> float:
        """The epsilon of one run."""
        return self.base.epsilon(self.delta)

    def upper(self) -> float:
        """The epsilon that the account claims; no audit may exceed it."""
        return self.cost.epsilon(self.delta)

    def certificate(self) -> float:
        """What some score really costs, from theory."""
        return self.cost.epsilon_lower(self.delta)
