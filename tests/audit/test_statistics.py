"""Clopper-Pearson limits and the bounds made of them: closed forms, coverage, planning."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from dptune.audit.statistics import (
    Counts,
    choose_threshold,
    empirical_bound,
    expected_bound,
    games_needed,
    gdp_reading,
    lower_limit,
    quantile_bound,
    upper_limit,
)
from dptune.errors import InvalidInput


@pytest.mark.parametrize(("hits", "games"), [(1, 10), (7, 50), (300, 1000), (5, 10**8)])
def test_limits_solve_their_binomial_equations(hits: int, games: int) -> None:
    low, high = float(lower_limit(hits, games, 0.025)), float(upper_limit(hits, games, 0.025))
    assert binom.sf(hits - 1, games, low) == pytest.approx(0.025, rel=1e-6)
    assert binom.cdf(hits, games, high) == pytest.approx(0.025, rel=1e-6)


def test_limits_at_the_ends() -> None:
    assert float(lower_limit(0, 20, 0.025)) == 0.0
    assert float(upper_limit(20, 20, 0.025)) == 1.0
    assert float(upper_limit(0, 20, 0.025)) == pytest.approx(1 - 0.025 ** (1 / 20))


def test_the_bound_fails_no_more_often_than_stated() -> None:
    """Exact coverage, no sampling: the chance that the bound exceeds the true log ratio."""
    power, level, games, delta = 0.3, 0.1, 200, 1e-3
    truth = math.log((power - delta) / level)
    wrong = 0.0
    chance_b = binom.pmf(np.arange(games + 1), games, level)
    for tested in range(games + 1):
        chance = binom.pmf(tested, games, power)
        if chance < 1e-12:
            continue
        low = lower_limit(tested, games, 0.025) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = np.log(np.maximum(low, 0.0) / upper_limit(np.arange(games + 1), games, 0.025))
        wrong += chance * float(chance_b[bounds > truth].sum())
    assert wrong < 0.05


def test_more_events_share_the_confidence() -> None:
    counts = Counts(900, 100, 1000)
    one, many = empirical_bound(counts, 1e-5).low, empirical_bound(counts, 1e-5, events=10).low
    assert 0 < many < one
    assert one == pytest.approx(float(expected_bound(0.9, 0.1, 1000, 1e-5)))


def test_nothing_seen_shows_nothing() -> None:
    assert empirical_bound(Counts(0, 0, 1000), 1e-5).low == 0.0
    assert empirical_bound(Counts(500, 500, 1000), 1e-5).low == 0.0


def test_quantile_is_where_binomial_counts_fall() -> None:
    power, level, games = 2e-3, 5e-4, 10**6
    source = np.random.default_rng(3)
    tested, other = source.binomial(games, power, 4000), source.binomial(games, level, 4000)
    bounds = expected_bound(tested / games, other / games, games, 1e-5)
    # 4,000 draws at one percent: the share has a standard error of 0.0016; the seed is fixed.
    assert np.mean(bounds < quantile_bound(power, level, games, 1e-5, 0.01)) == pytest.approx(0.01, abs=0.006)


def test_games_needed_is_the_first_that_suffices() -> None:
    def expected(games: int) -> float:
        return float(expected_bound(0.3, 0.1, games, 1e-5))

    needed = games_needed(expected, 0.9)
    assert expected(needed) > 0.9 > expected(int(needed * 0.8))
    with pytest.raises(InvalidInput, match="below the certificate"):
        games_needed(expected, 2.0)


def test_gaussian_reading_is_labelled() -> None:
    reading = gdp_reading(Counts(800, 200, 1000), 1e-5)
    assert "heuristic" in reading.label
    assert 1.4 < reading.mu < 2 * 0.8416  # below the reading of the plain rates, .8 and .2


def test_threshold_separates() -> None:
    source = np.random.default_rng(1)
    other, tested = source.normal(0, 1, 2000), source.normal(4, 1, 2000)
    assert 1.0 < choose_threshold(tested, other, 1e-5, 0.95) < 4.5
