"""Exact samplers from random bits: no floating point between the randomness and the decision.

Bernoulli(exp(-x)), discrete Laplace and discrete Gaussian noise follow Canonne, Kamath and Steinke 2020 (rational
arithmetic only); permutations are uniform. Bits come from a run's labelled randomness, so draws can be replayed.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptune.accounting.shards import flip_rate
from dptune.randomness import Randomness

__all__ = ["Bits", "short_fraction"]


def short_fraction(scale: float) -> float:
    """A scale of noise with a short binary fraction, never smaller: what is priced is what the exact sampler draws."""
    return math.ceil(scale * 2**16) / 2**16


class Bits:
    """A stream of exact draws for one purpose. The order of draws is part of the stream; not thread-safe."""

    def __init__(self, source: Randomness, *label: str | int) -> None:
        self._source, self._label, self._drawn = source, label, 0
        self._pool = self._left = 0

    def _take(self, bits: int) -> int:
        """The next bits of the stream, as a whole number."""
        while self._left < bits:
            self._pool = (self._pool << 256) | self._source.integer_bits(256, *self._label, self._drawn)
            self._left += 256
            self._drawn += 1
        self._left -= bits
        value = self._pool >> self._left
        self._pool &= (1 << self._left) - 1
        return value

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), by rejection."""
        bits = (n - 1).bit_length()
        while True:
            value = self._take(bits) if bits else 0
            if value < n:
                return value

    def bernoulli(self, p: Fraction) -> bool:
        """True with probability p."""
        return self.below(p.denominator) < p.numerator

    def bernoulli_exp(self, x: Fraction) -> bool:
        """True with probability exp(-x), x >= 0."""
        for _ in range(math.floor(x)):
            if not self._exp_small(Fraction(1)):
                return False
        return self._exp_small(x - math.floor(x))

    def _exp_small(self, x: Fraction) -> bool:
        """True with probability exp(-x), for x in [0, 1]."""
        k = 1
        while self.bernoulli(x / k):
            k += 1
        return k % 2 == 1

    def discrete_laplace(self, scale: Fraction) -> int:
        """An integer with probability proportional to exp(-|x| / scale)."""
        s, t = scale.denominator, scale.numerator
        while True:
            u = self.below(t)
            if not self._exp_small(Fraction(u, t)):
                continue
            v = 0
            while self._exp_small(Fraction(1)):
                v += 1
            size = (u + t * v) // s
            negative = self.below(2) == 1
            if not (negative and size == 0):
                return -size if negative else size

    def discrete_gaussian(self, sigma: Fraction) -> int:
        """An integer with probability proportional to exp(-x^2 / (2 sigma^2))."""
        t = math.floor(sigma) + 1
        square = sigma * sigma
        while True:
            y = self.discrete_laplace(Fraction(t))
            if self.bernoulli_exp((abs(y) - square / t) ** 2 / (2 * square)):
                return y

    def permutation(self, n: int) -> list[int]:
        """A uniform order of 0 .. n - 1."""
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order

    def permute_and_flip(self, utilities: list[int], sensitivity: int, budget: Fraction) -> int:
        """An index, by permute-and-flip (McKenna and Sheldon 2020): budget-DP for integer utilities."""
        best, rate = max(utilities), flip_rate(budget, sensitivity)
        for index in self.permutation(len(utilities)):
            if self.bernoulli_exp(rate * (best - utilities[index])):
                return index
        raise AssertionError("The coin of the best candidate always shows heads.")
