"""What a law of the number of runs must answer, and what follows from it: quantiles, draws, chances.

A law is public and independent of the data; ``docs/theorems/select.md`` uses it only through its generating
function f(z) = E[z^K] and derivatives. The laws themselves are in ``runs`` and ``_negative_binomial``.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np

from dptune._codec import register_tagged, to_values
from dptune._typing import Array
from dptune._validate import integer, real

__all__ = ["LAWS", "Runs"]

LAWS: dict[str, type[Runs]] = {}
"""The laws by name; defining one registers it."""

_CHUNK = 4096


def _os_uniform() -> float:
    """A uniform in (0, 1) from the operating system, on a grid fine enough for every law here."""
    return (secrets.randbits(64) + 0.5) * 2.0**-64


class Runs(ABC):
    """A law of the number of runs K, which random stopping draws before the first training.

    A law is public, immutable and independent of the data; K itself must never be released. An implementer gives the
    expectation, the generating function f(z) = E[z^K] with three derivatives and differences of it, and the
    probabilities of single values; everything else follows. A law is a frozen dataclass with a class attribute ``law``,
    the name by which job files and JSON know it. Functions of z accept arrays of any shape with entries in
    [0, 1], and their relative error must stay below :attr:`roundoff`: prices are rounded outward by that much and no
    more.

    Example:
        >>> from dptune.accounting import Geometric
        >>> law = Geometric(10)
        >>> law.expected, law.quantile(0.95)
        (10.0, 29)
        >>> round(law.hit_probability(0.1), 3)  # that one of the runs is among the best tenth of the space
        0.526
    """

    law: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "law" in cls.__dict__:
            LAWS[cls.law] = cls

    @property
    @abstractmethod
    def expected(self) -> float:
        """The mean E[K]."""

    @abstractmethod
    def generating(self, z: Array) -> Array:
        """The generating function f(z) = E[z^K].

        Args:
            z: points in [0, 1].

        Returns:
            Its values there.
        """

    @abstractmethod
    def slope(self, z: Array, order: int = 1) -> Array:
        """A derivative of the generating function; the first is what the papers call w.

        Args:
            z: points in [0, 1].
            order: of the derivative, 1 to 3.

        Returns:
            Its values there.
        """

    @abstractmethod
    def gain(self, z: Array, d: Array) -> Array:
        """The difference f(z) - f(z - d), computed without cancellation.

        Args:
            z: upper ends, in [0, 1].
            d: lengths, with 0 <= d <= z.

        Returns:
            The differences.
        """

    def slopes_between(self, top: Array, bottom: Array, least: Array, *orders: int) -> tuple[Array, ...]:
        """Derivatives of the generating function at max(top - bottom, least), for rows that meet columns.

        Args:
            top: columns.
            bottom: rows.
            least: rows; the smallest argument that may occur.
            orders: of the derivatives, each 1 to 3.

        Returns:
            For each order, one value for every row and column, in an array that the caller may overwrite.
        """
        z = np.maximum(top - bottom, least)
        return tuple(np.array(self.slope(z, order)) for order in orders)  # a law may keep its own, or share them

    def gains_between(self, top: Array, bottom: Array, d: Array) -> Array:
        """The differences f(z) - f(z - d) at z = max(top - bottom, d), for rows that meet columns.

        Args:
            top: columns.
            bottom: rows.
            d: rows; the lengths.

        Returns:
            One difference for every row and column.
        """
        return self.gain(np.maximum(top - bottom, d), d)

    @abstractmethod
    def log_probabilities(self, first: int, count: int, previous: float) -> Array:
        """log P(K = k) for consecutive k.

        Args:
            first: the first k, at least 1.
            count: how many.
            previous: log P(K = first - 1), from which the next ones follow; not looked at where ``first`` is 1.

        Returns:
            One logarithm for each k.
        """

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values, which :func:`runs_from_json` turns back into an equal law."""
        described: dict[str, object] = to_values(self)
        return described

    @cached_property
    def roundoff(self) -> float:
        """A relative error that no value of f, its slopes or its gains exceeds: z itself is known to 1e-16 only."""
        one = np.ones(1)
        steepness = float(self.slope(one, 2)[0] / self.slope(one)[0])
        return min(1e-14 + 1e-15 * steepness, 1.0)

    @property
    def never(self) -> float:
        """The probability P(K = 0) that nothing runs and the public default is released."""
        return float(self.generating(np.zeros(1))[0])

    def hit_probability(self, fraction: float) -> float:
        """The probability that at least one run falls in the best part of the space.

        Args:
            fraction: the share of the space that counts as good, in [0, 1].

        Returns:
            The probability.

        Raises:
            InvalidInput: the fraction is not a number in [0, 1].

        Example:
            >>> from dptune.accounting import Poisson
            >>> round(Poisson(10).hit_probability(0.1), 3)
            0.632
        """
        r = real("fraction", fraction, 0, 1, hint="It is the share of the space that counts as good.")
        return float(self.gain(np.ones(1), np.array([r]))[0])

    def probability(self, k: int) -> float:
        """The probability P(K = k) of one number of runs.

        Args:
            k: a whole number from 0 on.

        Returns:
            The probability.

        Raises:
            InvalidInput: ``k`` is not a whole number from 0 on.

        Example:
            >>> from dptune.accounting import Binomial
            >>> round(Binomial(20, 0.5).probability(10), 3)
            0.176
        """
        integer("k", k, 0)
        if k == 0:
            return self.never
        return self._scan(lambda first, pmf, _: float(pmf[k - first]) if k < first + len(pmf) else None, k)

    def quantile(self, level: float) -> int:
        """The smallest k with P(K <= k) >= level.

        Args:
            level: a probability below 1.

        Returns:
            The number of runs that is not exceeded with this probability.

        Raises:
            InvalidInput: the level is not a number in [0, 1).
        """
        target = real("level", level, 0, 1, high_open=True)
        if self.never >= target:
            return 0

        def found(first: int, pmf: Array, below: float) -> float | None:
            reached = below + np.cumsum(pmf)
            index = int(np.searchsorted(reached, target))
            return float(first + index) if index < len(pmf) else None

        return int(self._scan(found))

    def sample(self, uniform: Callable[[], float] = _os_uniform) -> int:
        """Draw K, by inversion of one uniform.

        Args:
            uniform: gives a number in (0, 1); the operating system's, unless a rehearsal or a run brings its own.

        Returns:
            The number of runs, which must never be released.

        Example:
            >>> from dptune.accounting import Geometric
            >>> Geometric(10).sample(lambda: 0.5)  # the median
            7
        """
        # A uniform of exactly 0 would stand for no run even under a law that always runs.
        return self.quantile(min(max(uniform(), 2.0**-65), 1.0 - 2.0**-53))

    def _scan(self, visit: Callable[[int, Array, float], float | None], at_least: int = 0) -> float:
        """Walk the probabilities in blocks until ``visit`` answers or nothing measurable is left."""
        first, previous, below = 1, math.nan, self.never
        while True:
            logs = self.log_probabilities(first, _CHUNK, previous)
            pmf = np.exp(logs)
            answer = visit(first, pmf, below)
            if answer is not None:
                return answer
            below += float(pmf.sum())
            previous = float(logs[-1])
            first += _CHUNK
            beyond = first > self.expected and previous < -760.0
            if beyond and first > at_least:
                return float(first)


register_tagged(Runs, "law", LAWS)
