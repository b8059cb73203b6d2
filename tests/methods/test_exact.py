"""The exact samplers: laws by chi-square on seeded streams (level 1e-6; seeded, so no false alarms)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from scipy.stats import binomtest, chisquare

from dptune.methods.exact import Bits
from dptune.randomness import Randomness

LEVEL = 1e-6


def _bits(seed: int = 0) -> Bits:
    return Bits(Randomness.rehearsal(seed), "test")


def _fits(seen: Counter[int], law: dict[int, float], n: int) -> None:
    values = [v for v in law if law[v] * n >= 5]
    inside = sum(seen[v] for v in values)
    observed = [*(seen[v] for v in values), n - inside]
    share = math.fsum(law[v] for v in values)
    expected = [*(law[v] * n for v in values), (1 - share) * n]
    if expected[-1] < 1e-6:
        observed, expected = observed[:-1], expected[:-1]
    scale = sum(observed) / sum(expected)
    assert chisquare(observed, [e * scale for e in expected]).pvalue > LEVEL


def test_below_is_uniform() -> None:
    bits = _bits()
    _fits(Counter(bits.below(7) for _ in range(14_000)), dict.fromkeys(range(7), 1 / 7), 14_000)


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_bernoulli_exp(x: Fraction) -> None:
    bits, n = _bits(1), 20_000
    heads = sum(bits.bernoulli_exp(x) for _ in range(n))
    assert binomtest(heads, n, math.exp(-x)).pvalue > LEVEL


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(7, 3)])
def test_discrete_laplace(scale: Fraction) -> None:
    bits, n = _bits(2), 20_000
    b = math.exp(-1 / float(scale))
    law = {x: (1 - b) / (1 + b) * b ** abs(x) for x in range(-60, 61)}
    _fits(Counter(bits.discrete_laplace(scale) for _ in range(n)), law, n)


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(5, 2)])
def test_discrete_gaussian(sigma: Fraction) -> None:
    bits, n = _bits(3), 20_000
    weights = {x: math.exp(-(x**2) / (2 * float(sigma) ** 2)) for x in range(-40, 41)}
    total = math.fsum(weights.values())
    law = {x: w / total for x, w in weights.items()}
    _fits(Counter(bits.discrete_gaussian(sigma) for _ in range(n)), law, n)


def permute_and_flip_law(utilities: list[int], sensitivity: int, budget: float) -> list[float]:
    """By enumeration of all orders, straight from the definition."""
    best, n = max(utilities), len(utilities)
    heads = [math.exp(budget * (u - best) / (2 * sensitivity)) for u in utilities]
    law = [0.0] * n
    for order in itertools.permutations(range(n)):
        left = 1.0 / math.factorial(n)
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return law


def test_permute_and_flip() -> None:
    bits, n = _bits(4), 20_000
    utilities = [10, 8, 8, 3]
    law = permute_and_flip_law(utilities, 2, 0.8)
    assert math.fsum(law) == pytest.approx(1)
    seen = Counter(bits.permute_and_flip(utilities, 2, Fraction(4, 5)) for _ in range(n))
    _fits(seen, dict(enumerate(law)), n)


def test_draws_are_replayed_by_label() -> None:
    def draws(label: str) -> list[int]:
        bits = Bits(Randomness.rehearsal(5), label)
        return [bits.discrete_laplace(Fraction(40)) for _ in range(20)]

    assert draws("a") == draws("a")
    assert draws("a") != draws("b")
