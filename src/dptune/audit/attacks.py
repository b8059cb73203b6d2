"""An attack on empty training: a score chosen by the attacker, an event, and the machine that plays it.

A score is an order of pieces of the line of places (``outcomes``), lowest rank first; inside a piece outputs with a
higher likelihood ratio rank higher. :func:`play` draws the winner of every game by inversion, one uniform a game (fast
where an output known to the width of a small cell decides, exactly elsewhere: ``_interpolated``), and lets the
attacker look at the output alone. It never samples counts from probabilities; those are known too
(:meth:`Attack.rates`), but serve planning and tests only.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dptune._typing import Array, Mask
from dptune.accounting.runs import Runs
from dptune.audit._interpolated import Interpolated
from dptune.audit.inversion import winning_complement
from dptune.audit.outcomes import Lookup, Outcomes
from dptune.audit.statistics import Counts

__all__ = ["Attack", "play"]


_CHUNK = 1 << 15  # fits the processor's cache
_BATCH = 1 << 22  # games of one stream of the generator


@dataclass(frozen=True, eq=False)
class Attack:
    """A score of the attacker's choice, and the event by which he distinguishes the worlds.

    The score ranks pieces of the line of places (from high to low likelihood ratio), and the attacker accuses when the
    released place lies on one side of a mark.

    Args:
        name: What the attack is called.
        outcomes: Where the outputs of one run lie in both worlds.
        runs: The law of the number of runs.
        cuts: The ends of the pieces, from minus to plus infinity.
        order: The pieces from the lowest rank to the highest.
        mark: Where the event begins or ends.
        top: Whether he says "world 1" before the mark; otherwise he says "world 0" at the mark or behind it.
        forward: Whether world 1 holds the record.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, plan_attack
        >>> attack = plan_attack(Game("etcv", Gdp(1.0), Geometric(5), delta=1e-5, games=10**6))
        >>> power, level = attack.rates()
        >>> power > 2.718 * level  # one run alone would cost mu = 1
        True
    """

    name: str
    outcomes: Outcomes
    runs: Runs
    cuts: Array
    order: tuple[int, ...]
    mark: float
    top: bool = True
    forward: bool = True

    @property
    def tested(self) -> int:
        """The world in which the event is likelier."""
        return 1 if self.top else 0

    def _mass(self, world: int) -> Array:
        inner = self.outcomes.mass(world, self.cuts[1:-1])
        return np.concatenate([[0.0], inner, [1.0]])

    def _ranks(self, world: int) -> tuple[Array, Array]:
        """For every piece in order of rank: the mass below it, and the base mass at its far end."""
        mass = self._mass(world)
        order = np.array(self.order)
        sizes = np.diff(mass)[order]
        return np.concatenate([[0.0], np.cumsum(sizes)]), mass[order + 1]

    def rates(self) -> tuple[float, float]:
        """Exact probabilities of the event in the tested and in the other world."""
        first = int(np.searchsorted(self.cuts, self.mark))
        chosen = np.array(self.order) < first if self.top else np.array(self.order) >= first
        found = []
        for world in (self.tested, 1 - self.tested):
            below, _ = self._ranks(world)
            top = np.minimum(below[1:], 1.0)
            won = self.runs.gain(top, np.minimum(np.diff(below), top))
            found.append(float(won[chosen].sum()))
        return found[0], found[1]

    def winners(self, world: int) -> Callable[[Array], Array]:
        """A function from uniforms to the places of released outputs (NaN: the public default)."""
        below, far = self._ranks(world)
        piece = Lookup(below)
        # Inside a piece the rank rises as the place falls: mass = far end - (z - below), with z = 1 - c.
        offset = far + below[:-1] - 1.0

        idle = self.runs.never > 0.0

        def draw(v: Array) -> Array:
            c = winning_complement(self.runs, v)
            default = np.flatnonzero(np.isnan(c)) if idle else None
            if default is not None:
                c[default] = 0.5  # any rank: replaced below
            if len(offset) > 1:
                c = c + np.take(offset, piece(1.0 - c))
                np.clip(c, 0.0, 1.0, out=c)
            places = self.outcomes.place(world, c)
            if default is not None:
                places[default] = np.nan
            return places

        return draw

    def piece(self, world: int) -> Callable[[Array], Array]:
        """A function from uniforms to the rank of the piece they fall in (-1: the public default)."""
        below, _ = self._ranks(world)
        find = Lookup(below)

        def rank(v: Array) -> Array:
            c = winning_complement(self.runs, v)
            return np.asarray(np.where(np.isnan(c), -1, find(1.0 - np.nan_to_num(c))), dtype=float)

        return rank

    def guess(self, place: Array) -> Mask:
        """Whether the attacker accuses, from the released output alone."""
        return place < self.mark if self.top else place >= self.mark


def _count(attack: Attack, table: Interpolated, entropy: int, world: int, block: int, games: int) -> int:
    """Play one block; its randomness is a function of (entropy, world, block)."""
    seed = np.random.SeedSequence(entropy, spawn_key=(world, block))
    source = np.random.Generator(np.random.SFC64(seed))
    draw, uniforms, hits = table.drawer(_CHUNK), np.empty(_CHUNK), 0
    for start in range(0, games, _CHUNK):
        v = source.random(out=uniforms[: min(_CHUNK, games - start)])
        hits += int(np.count_nonzero(attack.guess(draw(v))))
    return hits


def play(attack: Attack, games: int, seed: int | None = None, threads: int | None = None) -> Counts:
    """Play a planned attack: draw released outputs in both worlds and let the attacker look at each.

    Args:
        attack: The attack.
        games: How many games in each world.
        seed: For tests alone; without one the operating system's randomness is used.
        threads: How many threads play; as many as there are processors, at most 8, if left out.

    Returns:
        How often the attacker accused in each world.

    Example:
        >>> from dptune import Gdp, Geometric
        >>> from dptune.audit import Game, plan_attack, play
        >>> game = Game("etcv", Gdp(1.0), Geometric(5), delta=1e-5, games=10_000)
        >>> counts = play(plan_attack(game), game.games, seed=1)
        >>> counts.tested > counts.other
        True
    """
    entropy = secrets.randbits(256) if seed is None else seed
    blocks = math.ceil(games / _BATCH)
    sizes = [min(_BATCH, games - block * _BATCH) for block in range(blocks)]
    jobs = [(world, block, size) for world in (0, 1) for block, size in enumerate(sizes)]
    tables = [Interpolated(attack.winners(world), attack.piece(world), attack.mark) for world in (0, 1)]
    hits = {0: 0, 1: 0}
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        for (world, _, _), found in zip(
            jobs, pool.map(lambda job: _count(attack, tables[job[0]], entropy, *job), jobs), strict=True
        ):
            hits[world] += found
    return Counts(hits[attack.tested], hits[1 - attack.tested], games)
