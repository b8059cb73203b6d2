"""Targets of the choosing side: exact samplers, permute-and-flip, the sparse vector.

Each draws from the code that methods use, with randomness by label; worlds are neighbouring inputs that stretch the
sensitivity fully. What the attacker sees is what is released: a noisy number or the index that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dptune._typing import Array
from dptune.accounting import DiscreteGaussian, PureDp
from dptune.accounting.shards import permute_and_flip, sparse_vector
from dptune.audit.implementations import Target
from dptune.methods.exact import Bits
from dptune.methods.threshold import Gate, Rounds
from dptune.methods.utilities import UNIT
from dptune.randomness import Randomness

__all__ = ["discrete_gaussian", "discrete_laplace", "flipped", "sparse"]

Once = Callable[[int, Bits], float]


def _repeated(once: Once) -> Callable[[int, int, int], Array]:
    def draw(world: int, games: int, seed: int) -> Array:
        source = Randomness.rehearsal(seed)
        return np.array([once(world, Bits(source, "game", game)) for game in range(games)])

    return draw


def discrete_gaussian(sigma: Fraction = Fraction(3, 2)) -> Target:
    """A count of sensitivity 1 with discrete Gaussian noise."""
    draw = _repeated(lambda world, bits: world + bits.discrete_gaussian(sigma))
    return Target("discrete Gaussian", DiscreteGaussian(float(sigma), 1), draw, (-1.5, 0.5, 1.5, 2.5, 3.5))


def discrete_laplace(scale: Fraction = Fraction(1)) -> Target:
    """A count of sensitivity 1 with discrete Laplace noise."""
    draw = _repeated(lambda world, bits: world + bits.discrete_laplace(scale))
    return Target("discrete Laplace", PureDp(1.0 / float(scale)), draw, (-1.5, -0.5, 0.5, 1.5, 2.5))


def flipped(budget: Fraction = Fraction(2)) -> Target:
    """Permute-and-flip: the record lifts the first utility by the sensitivity and lowers the others by it."""
    utilities = ([1, 1, 1], [2, 0, 0])
    draw = _repeated(lambda world, bits: float(bits.permute_and_flip(utilities[world], 1, budget) == 0))
    return Target("permute-and-flip", permute_and_flip(float(budget)), draw, (0.5,))


def sparse(budget: float = 3.0) -> Target:
    """One sparse vector with one pass: the record moves every utility by the sensitivity, up for one, down for two."""
    utilities = ([UNIT, UNIT, UNIT], [0, 2 * UNIT, 0])
    rounds = Rounds(budget, granularity=0.75, start=0.0, variant="sparse", per_round=budget, passes=1)

    def once(world: int, bits: Bits) -> float:
        passed = Gate(rounds, 2, UNIT, bits).first_above(utilities[world], 0.75)
        return float(passed == 1)

    return Target("sparse vector", sparse_vector(budget, 1.0, 1).cost, _repeated(once), (0.5,))
