"""Poisson sampling: every record independently, at the stated rate, never truncated, sometimes empty."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dptune.randomness import Randomness
from dptune.training.sampling import PoissonSampler


def test_sizes_follow_the_binomial_law() -> None:
    sampler = PoissonSampler(Randomness.rehearsal(1), 40, 0.05)
    sizes = np.array([len(sampler.batch(step)) for step in range(20_000)])
    expected = stats.binom.pmf(np.arange(9), 40, 0.05) * len(sizes)
    seen = np.bincount(sizes, minlength=41)
    assert seen[0] > 0  # empty batches happen and are kept
    tail = len(sizes) - expected.sum()
    observed = np.append(seen[:9], seen[9:].sum())
    chi = ((observed - np.append(expected, tail)) ** 2 / np.append(expected, tail)).sum()
    assert stats.chi2.sf(chi, 9) > 1e-7


def test_records_are_drawn_independently_and_at_most_once() -> None:
    records, rate, steps = 12, 0.3, 30_000
    sampler = PoissonSampler(Randomness.rehearsal(2), records, rate)
    drawn = np.zeros((steps, records))
    for step in range(steps):
        batch = sampler.batch(step)
        assert len(set(batch.tolist())) == len(batch)
        drawn[step, batch] = 1
    error = 6 * np.sqrt(rate * (1 - rate) / steps)
    assert np.abs(drawn.mean(axis=0) - rate).max() < error
    joint = drawn.T @ drawn / steps
    off = joint[~np.eye(records, dtype=bool)]
    assert np.abs(off - rate**2).max() < 6 * np.sqrt(rate**2 * (1 - rate**2) / steps)


def test_batches_are_a_function_of_run_and_step() -> None:
    one, two = (PoissonSampler(Randomness.rehearsal(3), 1000, 0.1) for _ in range(2))
    late = two.batch(7)
    assert np.array_equal(one.batch(7), late)
    assert not np.array_equal(one.batch(8), late)


def test_rates_at_the_ends() -> None:
    assert len(PoissonSampler(Randomness.rehearsal(4), 50, 1.0).batch(0)) == 50
    assert len(PoissonSampler(Randomness.rehearsal(4), 0, 0.5).batch(0)) == 0
