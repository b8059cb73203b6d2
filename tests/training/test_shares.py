"""Shares of records that are computed alone: clipped, on the lattice, whatever the size of the gradient's parts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptune.randomness import Randomness
from dptune.training import _shares
from dptune.training._shares import add_share, total_steps, wrapped
from dptune.training.noise import SecureNoise

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(-3.0, 3.0), st.sampled_from([0.0, 5e-324])
)


@given(
    gradient=st.lists(NUMBERS, min_size=1, max_size=40),
    clip=st.sampled_from([2.0**-40, 1e-3, 1.0, 7.7, 2.0**40]),
    multiplier=st.sampled_from([2.0**-10, 1.0, 100.0]),
)
@settings(max_examples=300)
def test_no_share_is_longer_than_the_clip_norm(gradient: list[float], clip: float, multiplier: float) -> None:
    scale = clip * multiplier
    lattice = SecureNoise.lattice(scale)
    limit = clip - SecureNoise(Randomness.rehearsal(1), 1).margin(len(gradient), scale, clip)
    steps = np.zeros(len(gradient))
    add_share(steps, np.array(gradient), limit, lattice)
    assert np.array_equal(steps, np.rint(steps))
    assert sum(Fraction(int(step)) ** 2 for step in steps) <= (Fraction(clip) / Fraction(lattice)) ** 2


def test_a_share_is_the_rounded_gradient() -> None:
    steps = np.ones(3)
    add_share(steps, np.array([0.3, -0.4, 0.0]), 1.0, 2.0**-4)
    assert steps.tolist() == [1.0 + 5, 1.0 - 6, 1.0]
    add_share(steps, np.array([3e300, -4e300, 0.0]), 1.0, 2.0**-4)
    assert steps.tolist() == [6.0 + 10, -5.0 - 13, 1.0]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_overflows_contributes_nothing(bad: float) -> None:
    steps = np.ones(3)
    add_share(steps, np.array([1.0, bad, 2.0]), 1.0, 2.0**-20)
    assert steps.tolist() == [1.0, 1.0, 1.0]


def test_parts_may_be_finite_and_the_norm_not() -> None:
    steps = np.zeros(4)
    add_share(steps, np.full(4, 1.7e308), 1.0, 2.0**-20)
    assert steps.tolist() == [2.0**19] * 4


def test_sums_are_exact_modulo_a_power_of_two() -> None:
    steps = np.array([0, 5, -5, 2**52 - 1, 2**52, -(2**52), -(2**52) - 1, 3 * 2**53 + 7], np.int64)
    expected = [0, 5, -5, 2**52 - 1, -(2**52), -(2**52), 2**52 - 1, 7]
    assert wrapped(steps).tolist() == expected


def test_batches_of_any_size_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of three records of about 2^50 steps each; the sum of more than three leaves the doubles' whole numbers."""
    monkeypatch.setattr(_shares, "_PART", 3)
    share = 2**50 + 1
    for size in range(30):
        total = total_steps(np.arange(size), lambda part: np.array([float(share * len(part)), -3.0 * len(part)]))
        wraps = size > 3  # one part is within the bits and stays as it is
        assert int(total[0]) == ((size * share + 2**52) % 2**53 - 2**52 if wraps else size * share)
        assert int(total[1]) == -3 * size
