"""Readings of a cost: what its profile says about attackers, in numbers that people can weigh.

Every reading is a bound on *any* attacker, whatever it knows and computes, rounded against us: power, advantage and mu
up, Bayes risk down. They follow from the profile alone (``docs/theorems/readings.md``), so they hold for every
operation of the algebra. :class:`Readings` is what :class:`~dptune.accounting.Cost` inherits them from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.accounting._gaussian_cover import cover
from dptune.accounting._polygon import coarse_losses, outer_polygon, refine
from dptune.accounting.profiles import ProfilePair

__all__ = ["GaussianReading", "Readings"]

_OUTWARD = 1.0 + 1e-12  # more than the roundoff of the few operations that follow the profile


class GaussianReading(NamedTuple):
    """A Gaussian that covers a cost: no attack does better than against ``mu``-GDP, but for ``slack``.

    Example:
        >>> print(GaussianReading(0.5, 1e-10))
        mu 0.5 up to a slack of 1e-10
    """

    mu: float
    slack: float

    def __str__(self) -> str:
        return f"mu {self.mu:.4g} up to a slack of {self.slack:g}"


class Readings(ABC):
    """Profile, ROC curve and their readings, for anything that has an upper profile in both directions."""

    @abstractmethod
    def _both(self) -> ProfilePair:
        """The upper profile, as exact as it is known."""

    @abstractmethod
    def _both_fast(self) -> ProfilePair:
        """The upper profile in a form that is cheap at many losses."""

    def profile(self, epsilon: Array, direction: str = "remove") -> Array:
        """The privacy profile: delta as a function of epsilon, in one direction.

        Args:
            epsilon: an array of any shape, of any sign.
            direction: "remove" (the data with a record against the data without it) or "add" (the other way round).

        Returns:
            The smallest proven delta at each entry.

        Raises:
            InvalidInput: the direction is neither.

        Example:
            >>> import numpy as np
            >>> from dptune.accounting import Gaussian
            >>> Gaussian(2.0).profile(np.array([0.0, 1.0])).round(4)
            array([0.1974, 0.0068])
        """
        return self._both().seen_from(direction).delta(np.asarray(epsilon, dtype=float))

    def roc(self, x: Array, direction: str = "remove") -> Array:
        """The ROC curve of the best attack: the largest power of a test, as an upper bound.

        Args:
            x: false positive rates, in [0, 1].
            direction: "remove" or "add", as in :meth:`profile`.

        Returns:
            The largest true positive rate at each of them.

        Raises:
            InvalidInput: the direction is neither.

        Example:
            >>> import numpy as np
            >>> from dptune.accounting import Gaussian
            >>> Gaussian(2.0).roc(np.array([0.01, 0.05])).round(3)
            array([0.034, 0.126])
        """
        pair = self._both_fast().seen_from(direction)
        t = coarse_losses(pair)
        t = refine(t, np.ones(len(t) - 1), 2000)
        return outer_polygon(pair, t).roc(np.asarray(x, dtype=float))

    def power(self, false_positive_rate: float) -> float:
        """The largest power of any attack: nobody who accuses so few outsiders finds more than this share of insiders.

        Args:
            false_positive_rate: how often the attack may say "in" of somebody who is not, in (0, 1).

        Returns:
            The largest probability with which it says "in" of somebody who is; the worse of the two directions.

        Raises:
            InvalidInput: the rate is not a number in (0, 1).

        Example:
            >>> from dptune.accounting import Gaussian
            >>> round(Gaussian(2.0).power(0.01), 4)  # Phi(Phi^-1(.01) + 1/2)
            0.0339
        """
        rate = real("false_positive_rate", false_positive_rate, 0, 1, low_open=True, high_open=True)
        exact, fast = self._both(), self._both_fast()
        return max(_power(exact, fast, rate), _power(exact.flip(), fast.flip(), rate))

    def advantage(self) -> float:
        """The largest advantage of any attack: its power minus its false positive rate, whatever that is.

        Returns:
            The total variation distance of the two outputs, as an upper bound.

        Example:
            >>> from dptune.accounting import Gaussian
            >>> round(Gaussian(2.0).advantage(), 4)
            0.1974
        """
        pair, zero = self._both(), np.zeros(1)
        return min(1.0, float(max(pair.remove.delta(zero)[0], pair.add.delta(zero)[0])) * _OUTWARD)

    def bayes_risk(self, prior: float) -> float:
        """The smallest error of any attack that starts from a belief: how often its verdict on one person is wrong.

        Args:
            prior: the probability with which the attacker believes, before it looks, that the person is in the data.

        Returns:
            The smallest probability of a wrong verdict, rounded down; without any leak ``min(prior, 1 - prior)``.

        Raises:
            InvalidInput: the prior is not a number in (0, 1).

        Example:
            >>> from dptune.accounting import Gaussian
            >>> round(Gaussian(2.0).bayes_risk(0.5), 4)  # a coin would err half of the time
            0.4013
        """
        belief = real("prior", prior, 0, 1, low_open=True, high_open=True)
        odds = math.log1p(-belief) - math.log(belief)
        pair = self._both()
        found = 1.0 - float(pair.delta(np.array([odds]))[0]) * _OUTWARD
        return max(0.0, belief * found * (2.0 - _OUTWARD))

    def mu(self, slack: float = 1e-10) -> GaussianReading:
        """The smallest Gaussian that covers the cost: its parameter, and the slack up to which it does.

        Args:
            slack: by how much the profile may exceed that of the Gaussian. Without any, the far tail of a DP-SGD
                profile alone would decide, and mu would say nothing about the rest.

        Returns:
            Both numbers, which belong together; ``mu`` is infinite if more than ``slack`` of the loss is unbounded.

        Raises:
            InvalidInput: the slack is not a number in (0, 0.1].

        Example:
            >>> from dptune.accounting import DpSgd
            >>> print(DpSgd(0.01, 1.0, 1000).mu())
            mu 0.5158 up to a slack of 1e-10
        """
        level = real("slack", slack, 0, 0.1, low_open=True, hint="A common choice is 1e-10.")
        return GaussianReading(cover(self._both(), level), level)


def _power(exact: ProfilePair, fast: ProfilePair, rate: float) -> float:
    """min over t of d(t) + exp(t) rate: every t gives a bound, so a search cannot err on the wrong side."""

    def bounds(pair: ProfilePair, losses: Array) -> Array:
        return np.asarray(pair.delta(losses) + np.exp(np.minimum(losses, 700.0)) * rate)

    losses = coarse_losses(fast)
    losses = refine(losses, np.ones(len(losses) - 1), 2000)
    best = int(np.argmin(bounds(fast, losses)))
    losses = losses[max(0, best - 20) : best + 21]  # the cheap form may be off by a little
    for _ in range(3):
        found = bounds(exact, losses)
        best = int(np.argmin(found))
        low, high = losses[max(0, best - 1)], losses[min(len(losses) - 1, best + 1)]
        losses = np.linspace(low, high, 21)
    return min(1.0, float(np.min(found)) * _OUTWARD)
