"""ETCV: empty training, controlled validation (Xiang et al.), played exactly.

The model is pure noise, y_t = B_t + sigma N(0, 1) with B_t ~ Bernoulli(rate) in the world with the record and 0 in
the other; the score is the log likelihood ratio, so the best of K shows the largest one. The attacker accuses above
a threshold that theory chose for the number of games (:func:`etcv_attack`); :func:`transcripts` draws whole noise
transcripts, slowly, as a check of the distribution that the fast game inverts.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from dptune._typing import Array
from dptune.accounting import DpSgd, Gdp
from dptune.accounting.atoms import pair_from_atoms
from dptune.accounting.profiles import solve
from dptune.audit.attacks import Attack
from dptune.audit.games import Game
from dptune.audit.outcomes import Outcomes, outcomes_of
from dptune.audit.statistics import expected_bound

__all__ = ["base_mu", "etcv_attack", "etcv_epsilon", "transcripts"]


_SCAN = 4000


def _attack(game: Game, outcomes: Outcomes, mark: float, top: bool) -> Attack:
    # Two pieces in the natural order are the likelihood ratio itself: the mark only names where the attacker cuts.
    return Attack("etcv", outcomes, game.runs, np.array([-math.inf, mark, math.inf]), (1, 0), mark, top=top)


def _rates(game: Game, outcomes: Outcomes, places: Array, top: bool) -> tuple[Array, Array]:
    """Probabilities of the event at every mark, tested world first."""
    above = [np.clip(outcomes.mass(world, places), 0.0, 1.0) for world in (0, 1)]
    if top:
        won = [game.runs.gain(np.ones_like(m), m) for m in above]
        return won[1], won[0]
    rest = [game.runs.gain(1.0 - m, 1.0 - m) for m in above]
    return rest[0], rest[1]


def etcv_attack(game: Game) -> Attack:
    """The direction and threshold with the largest expected bound, from theory alone."""
    outcomes = outcomes_of(game.base, game.delta)
    places = outcomes.scan(_SCAN)
    best, chosen = -1.0, (0.0, True)
    for top in (True, False):
        power, level = _rates(game, outcomes, places, top)
        bound = expected_bound(power, level, game.games, game.delta, game.confidence)
        if bound.max() > best:
            best, chosen = float(bound.max()), (float(places[int(bound.argmax())]), top)
    return _attack(game, outcomes, *chosen)


def etcv_epsilon(game: Game) -> float:
    """The exact epsilon of selection by the likelihood ratio, from below (every interval of places is one outcome)."""
    outcomes = outcomes_of(game.base, game.delta)
    places = outcomes.scan(40_000)
    above = [np.concatenate([[0.0], np.clip(outcomes.mass(world, places), 0.0, 1.0), [1.0]]) for world in (0, 1)]
    # An interval of places wins with probability f(rank at its near end) - f(rank at its far end).
    won = [game.runs.gain(1.0 - m[:-1], np.minimum(np.diff(m), 1.0 - m[:-1])) for m in above]
    never = game.runs.never
    pair = pair_from_atoms(np.append(won[1], never), np.append(won[0], never))
    return max(solve(pair.remove, game.delta, upward=False), solve(pair.add, game.delta, upward=False))


def transcripts(base: DpSgd, world: int, count: int, source: np.random.Generator) -> Array:
    """Log likelihood ratios of ``count`` whole noise transcripts, drawn step by step."""
    sigma, rate = base.noise_multiplier, base.sampling_rate
    total = np.zeros(count)
    for _ in range(base.steps):
        y = sigma * source.standard_normal(count)
        if world:
            y += source.random(count) < rate
        total += np.log1p(rate * np.expm1((2.0 * y - 1.0) / (2.0 * sigma**2)))
    return total


def base_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian base whose epsilon at delta is the given one."""
    return float(brentq(lambda mu: Gdp(mu).epsilon(delta) - epsilon, 1e-3, 15.0, xtol=1e-10))
