"""The worst-case game: the score that hurts most, and the event that shows it best in a given number of games.

The score ranks outputs of low likelihood ratio on top, then the tested event, then the rest (three blocks,
``docs/theorems/select.md``), or interleaves the event with its complement as ``docs/theorems/interleaving.md``
proves to be the worst. Among both families, and both directions of the test, theory picks the attack with the
largest expected empirical bound before a single game is played.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dptune._typing import Array, Indices
from dptune.accounting.interleave import LowerProgramme, lower_programme
from dptune.audit.attacks import Attack
from dptune.audit.games import Game
from dptune.audit.outcomes import Outcomes, gaussian_mu, outcomes_of, roc_nodes
from dptune.audit.statistics import expected_bound

__all__ = ["interleaved_attack", "three_block_attack", "worst_case_attack"]


_GRID = 240
_KEPT = 400


def _expected(game: Game, attack: Attack) -> float:
    power, level = attack.rates()
    return float(expected_bound(power, level, game.games, game.delta, game.confidence))


def _directions(game: Game) -> tuple[bool, ...]:
    return (True,) if gaussian_mu(game.base) is not None else (True, False)


def _rough(power: Array, level: Array, games: int, delta: float) -> Array:
    """A quick stand-in for the expected bound: limits of two standard deviations."""
    low = power - 2.0 * np.sqrt(power / games) - delta
    high = level + 2.0 * np.sqrt(level / games) + 4.0 / games
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low > 0.0, np.log(np.maximum(low, 1e-300)) - np.log(high), -np.inf)


def _blocks(game: Game, outcomes: Outcomes, first: Array, second: Array) -> tuple[float, float, float]:
    """The best (expected bound, end of the event, beginning of the top block) among pairs of places."""
    gains = []
    for world in (1, 0):
        event = np.clip(outcomes.mass(world, first), 0.0, 1.0)[:, None]
        both = np.clip(outcomes.mass(world, second), 0.0, 1.0)[None, :]
        gains.append(game.runs.gain(np.broadcast_to(both, (len(first), len(second))), np.minimum(event, both)))
    rough = _rough(gains[0], gains[1], game.games, game.delta)
    rough[first[:, None] >= second[None, :]] = -np.inf
    likely = np.argsort(rough, axis=None)[-_KEPT:]
    bound = expected_bound(gains[0].flat[likely], gains[1].flat[likely], game.games, game.delta, game.confidence)
    i, j = np.unravel_index(int(likely[int(bound.argmax())]), rough.shape)
    return float(bound.max()), float(first[i]), float(second[j])


def three_block_attack(game: Game) -> Attack:
    """Low ratios on top, then the event, then the rest; both borders chosen for the number of games."""
    best: tuple[float, Attack] | None = None
    for forward in _directions(game):
        outcomes = outcomes_of(game.base, game.delta, forward)
        places = outcomes.scan(_GRID)
        bound, end, start = _blocks(game, outcomes, places, places)
        for _ in range(2):  # look closer around the best pair
            near = [_around(places, x) for x in (end, start)]
            bound, end, start = max((bound, end, start), _blocks(game, outcomes, *near))
            places = np.union1d(*near)
        cuts = np.array([-math.inf, end, start, math.inf])
        attack = Attack("three blocks", outcomes, game.runs, cuts, (1, 0, 2), end, forward=forward)
        if best is None or bound > best[0]:
            best = (bound, attack)
    assert best is not None  # there is at least one direction
    return best[1]


def _around(places: Array, centre: float) -> Array:
    index = int(np.searchsorted(places, centre))
    low, high = places[max(0, index - 2)], places[min(len(places) - 1, index + 2)]
    return np.linspace(low, high, 61)


def _read(outcomes: Outcomes, programme: LowerProgramme, e: float) -> tuple[Array, tuple[int, ...]]:
    """The programme's score at e, as pieces of places (merged where neighbours rank as neighbours) and their order."""
    p, q = programme.score(e)
    seen = (p > 0.0) | (q > 0.0)
    p, q = p[seen], q[seen]
    with np.errstate(divide="ignore"):
        ratio = np.log(p) - np.log(q)
    line = np.argsort(-ratio, kind="stable")  # pieces from the highest ratio down; equal ratios are one atom
    rank_of_line = np.argsort(line)  # place on the line of the piece of each rank
    ends = np.cumsum(q[line])[:-1]
    inner = outcomes.place(0, np.clip(ends, 0.0, 1.0))
    cuts = np.concatenate([[-math.inf], np.maximum.accumulate(inner), [math.inf]])
    return _merged(cuts, rank_of_line)


def _merged(cuts: Array, order: Indices) -> tuple[Array, tuple[int, ...]]:
    """Join pieces that follow each other both on the line and in rank, in the same or the opposite sense."""
    groups: list[list[int]] = []
    for piece in order.tolist():
        last = groups[-1] if groups else []
        follows = bool(last) and abs(piece - last[-1]) == 1
        if follows and (len(last) == 1 or piece - last[-1] == last[-1] - last[-2]):
            last.append(piece)
        else:
            groups.append([piece])
    starts = [min(group) for group in groups]
    new = {old: index for index, old in enumerate(sorted(starts))}
    return np.append(cuts[sorted(starts)], math.inf), tuple(new[start] for start in starts)


def interleaved_attack(game: Game) -> Attack:
    """The exact worst score at the loss that shows most in this number of games, with its best event."""
    best: tuple[float, Attack] | None = None
    for forward in _directions(game):
        q, p = roc_nodes(game.base, game.delta, forward)
        outcomes = outcomes_of(game.base, game.delta, forward)
        upper = game.upper()
        programme = lower_programme(q, p, game.runs, 0.6 * min(upper, 500.0))
        losses, step = np.linspace(0.6, 1.0, 6), 0.08
        for _ in range(2):  # a coarse look, then a closer one around the best loss
            tried = []
            for share in losses:
                cuts, order = _read(outcomes, programme, float(share) * min(upper, 500.0))
                attack = Attack("interleaved", outcomes, game.runs, cuts, order, 0.0, forward=forward)
                attack = _best_event(game, attack)
                tried.append((_expected(game, attack), float(share), attack))
            bound, centre, attack = max(tried, key=lambda item: item[0])
            if best is None or bound > best[0]:
                best = (bound, attack)
            losses = centre + np.linspace(-0.75, 0.75, 7) * step
    assert best is not None  # there is at least one direction
    return best[1]


def _best_event(game: Game, attack: Attack) -> Attack:
    """The attack whose mark is the cut with the largest expected bound."""
    if len(attack.order) == 1:
        return replace(attack, mark=-math.inf)  # this loss is beyond reach: no event, no bound
    won = []
    for world in (1, 0):
        below, _ = attack._ranks(world)
        top = np.minimum(below[1:], 1.0)
        by_rank = game.runs.gain(top, np.minimum(np.diff(below), top))
        by_place = np.empty_like(by_rank)
        by_place[list(attack.order)] = by_rank
        won.append(np.cumsum(by_place)[:-1])
    bound = expected_bound(np.minimum(won[0], 1.0), np.minimum(won[1], 1.0), game.games, game.delta, game.confidence)
    mark = float(attack.cuts[1 + int(bound.argmax())])
    return replace(attack, mark=mark)


def worst_case_attack(game: Game) -> Attack:
    """The better of the two families for this number of games."""
    return max((three_block_attack(game), interleaved_attack(game)), key=lambda attack: _expected(game, attack))
