"""Published bounds that need no Renyi curve: composition, pure privacy, profiles and trade-off curves.

Part of :mod:`dptune.accounting.literature`, for comparison only. Asymmetric bases are taken in both directions and the
worse one counts; every value is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dptune._typing import Array
from dptune.accounting._ratio import log_ratio
from dptune.accounting.combination import Compose, compose
from dptune.accounting.cost import Cost, profile
from dptune.accounting.mechanisms import DpSgd, Gaussian, Gdp, Laplace, PureDp
from dptune.accounting.profiles import ProfilePair
from dptune.accounting.runs import Binomial, NegativeBinomial, Poisson, Runs
from dptune.errors import NotComparable

__all__ = ["koskela_redberg_wang", "liu_talwar", "naive_composition", "pure_epsilon", "xiang_theorem3"]


# Composition and pure privacy.


def naive_composition(base: Cost, runs: Runs, delta: float) -> float:
    """A fixed number of runs, ceil(E[K]), all of them released: composed tightly.

    It is for the same expected number of runs, not for the same procedure, so it bounds no random stopping.
    """
    n = math.ceil(runs.expected - 1e-9)
    if isinstance(base, DpSgd) and base.steps * n <= 10**7:
        return DpSgd(base.sampling_rate, base.noise_multiplier, base.steps * n).epsilon(delta)
    if isinstance(base, Gaussian | Gdp):
        if base.distance * math.sqrt(n) > 20:
            raise NotComparable(f"Composing {n} runs of {base} leaves no privacy to account for.")
        return Gdp(base.distance * math.sqrt(n)).epsilon(delta)
    if isinstance(base, DpSgd) or n > 1000:
        raise NotComparable(f"Composing {n} runs of this base is beyond what the accountant holds.")
    return compose(*[base] * n).epsilon(delta)


def pure_epsilon(base: Cost, paper: str) -> float:
    """The epsilon of a base with pure privacy; :class:`NotComparable` for any other."""
    if isinstance(base, PureDp):
        return base.pure_epsilon
    if isinstance(base, Laplace):
        return 1.0 / base.noise_multiplier
    if isinstance(base, Compose):
        return math.fsum(pure_epsilon(part, paper) for part in base.parts)
    raise NotComparable(f"{paper} needs a base with pure differential privacy.")


def liu_talwar(base: Cost, runs: Runs, delta: float) -> float:
    """Random stopping with a geometric law triples a pure epsilon, whatever delta."""
    del delta
    if not (isinstance(runs, NegativeBinomial) and runs.shape == 1.0):
        raise NotComparable(f"Liu and Talwar's random stopping draws a geometric number of runs, not {runs}.")
    return 3.0 * pure_epsilon(base, "Liu and Talwar's Theorem 3.2")


# Bounds from profiles and trade-off curves. Each is taken in both directions, the worse one counts.


def _shifted(base: Cost, runs: Runs, delta: float, term: Callable[[ProfilePair], float]) -> float:
    """The base's epsilon at delta / E[K] plus the direction's additive term."""
    pair = profile(base)
    level = delta / runs.expected
    found = [
        (direction.remove.epsilon(level) if level < 1.0 else 0.0) + term(direction)
        for direction in ([pair] if pair.symmetric else [pair, pair.flip()])
    ]
    return max(found)


def _d(pair: ProfilePair, e: float) -> float:
    return float(pair.delta(np.array([e]))[0])


def xiang_theorem3(base: Cost, runs: Runs, delta: float) -> float:
    """Xiang, Wang, Wang and Wang's Theorem 3: e(delta/m) + max over x of log w(U(x)) / w(x), in closed form."""
    if isinstance(runs, Binomial) and runs.probability_each == 1.0:
        raise NotComparable("A binomial law with probability 1 is a fixed number of runs; the ratio is unbounded.")
    if not isinstance(runs, NegativeBinomial | Poisson | Binomial):
        raise NotComparable(f"No closed form of the ratio is known for {runs}.")
    return _shifted(base, runs, delta, lambda pair: log_ratio(pair, runs))


def _smallest(f: Callable[[Array], Array], top: float) -> float:
    """The smallest value found on [0, top]; every point is a valid bound, so a grid is enough."""
    low, high = 0.0, max(top, 1e-9)
    best = math.inf
    for _ in range(4):
        t = np.linspace(low, high, 257)
        values = f(t)
        k = int(np.argmin(values))
        best = min(best, float(values[k]))
        low, high = float(t[max(k - 1, 0)]), float(t[min(k + 1, 256)])
    return best


def koskela_redberg_wang(base: Cost, runs: Runs, delta: float) -> float:
    """Koskela, Redberg and Wang: e(delta/m) plus an additive term that is minimised over a free epsilon."""
    if isinstance(runs, NegativeBinomial):
        odds = (1.0 - runs.stopping) / runs.stopping

        def negative(p: ProfilePair) -> float:
            back = p.flip()
            top = math.log1p(odds * _d(back, 0.0))
            return (1.0 + runs.shape) * _smallest(lambda t: np.log(np.exp(t) + odds * back.delta(t)), top)

        return _shifted(base, runs, delta, negative)
    if isinstance(runs, Poisson):

        def poisson(p: ProfilePair) -> float:
            top = math.log1p(_d(p, 0.0))
            return runs.mean * _smallest(lambda t: np.expm1(t) + p.delta(t), top)

        return _shifted(base, runs, delta, poisson)
    if isinstance(runs, Binomial):
        each = runs.probability_each
        if each == 1.0:
            raise NotComparable("A binomial law with probability 1 is a fixed number of runs; the ratio is unbounded.")

        def binomial(p: ProfilePair) -> float:
            # F <= exp(t) F' + d(t); the ratio of the derivatives is then monotone in F', so its ends decide.
            top = math.log1p(_d(p, 0.0) / (1.0 - each))
            return (runs.trials - 1) * _smallest(
                lambda t: np.log1p(each * np.maximum(np.expm1(t) + p.delta(t), p.delta(t) / (1.0 - each))), top
            )

        return _shifted(base, runs, delta, binomial)
    raise NotComparable(f"Koskela, Redberg and Wang treat no law like {runs}.")
