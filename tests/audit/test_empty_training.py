"""ETCV and the worst-case game: exact values, the law of the drawn winners, and what the games show.

Empirical bounds are held against their one-percent quantile (known from theory) with fixed seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest

from dptune.accounting import (
    Binomial,
    DpSgd,
    Gdp,
    Geometric,
    Laplace,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    PureDp,
    Runs,
)
from dptune.audit import Game, audit, plan_attack, play
from dptune.audit._interpolated import CELLS, Interpolated
from dptune.audit.attacks import Attack
from dptune.audit.auditor import expected_of, games_for
from dptune.audit.etcv import base_mu, etcv_attack, etcv_epsilon, transcripts
from dptune.audit.inversion import winning_complement
from dptune.audit.outcomes import GaussianOutcomes, TableOutcomes, outcomes_of
from dptune.audit.statistics import quantile_bound
from dptune.audit.worst_case import interleaved_attack, three_block_attack
from dptune.errors import InvalidInput

DELTA = 1e-5
LAWS: list[Runs] = [Geometric(10), Logarithmic(50), NegativeBinomial(0.5, 8), NegativeBinomial(-0.5, 8), Poisson(15)]
LAWS += [Poisson(0.7), Binomial(12, 0.4), Geometric(1)]


def _game(name: str, epsilon: float, games: int) -> Game:
    return Game(name, Gdp(base_mu(epsilon, DELTA)), Geometric(10), DELTA, games)


@pytest.mark.parametrize("runs", LAWS, ids=str)
def test_inversion_undoes_the_generating_function(runs: Runs) -> None:
    v = np.linspace(1e-9, 1 - 1e-9, 1001)
    c = winning_complement(runs, v)
    some = ~np.isnan(c)
    assert np.abs(1.0 - runs.generating(1.0 - c[some]) - v[some]).max() < 1e-11
    assert np.mean(~some) == pytest.approx(runs.never, abs=2e-3)


@pytest.mark.parametrize("runs", [Geometric(4), Poisson(2)], ids=str)
def test_drawn_winners_are_the_best_of_k(runs: Runs) -> None:
    """Against K explicit runs of the Gaussian mechanism; Kolmogorov-Smirnov, fixed seed."""
    attack = Attack("natural", GaussianOutcomes(1.0), runs, np.array([-math.inf, 0.0, math.inf]), (1, 0), 0.0)
    source = np.random.default_rng(5)
    fast = attack.winners(1)(source.random(20_000))
    counts = [runs.sample(source.random) for _ in range(4000)]
    slow = [-(1.0 + source.standard_normal(k)).max() for k in counts if k]
    assert np.mean(np.isnan(fast)) == pytest.approx(runs.never, abs=0.015)
    assert kstest(slow, fast[~np.isnan(fast)]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("epsilon", "exact", "shown"), [(1, 1.143, 0.92), (2, 2.262, 1.86), (4, 4.472, 3.55), (8, 8.836, 6.28)]
)
def test_etcv(epsilon: float, exact: float, shown: float) -> None:
    game = _game("etcv", epsilon, 10**6)
    assert etcv_epsilon(game) == pytest.approx(exact, abs=1e-3)
    assert etcv_epsilon(game) == pytest.approx(game.base.epsilon(DELTA / 10), abs=2e-3 * epsilon)
    attack = etcv_attack(game)
    assert expected_of(game, attack) == pytest.approx(shown, abs=0.01)
    found = audit(game, seed=11)
    assert quantile_bound(*attack.rates(), game.games, DELTA, 0.01) < found.bound.low < exact


@pytest.mark.parametrize(("epsilon", "shown"), [(1, 1.28), (4, 4.67)])
def test_worst_case_passes_the_base_at_a_million_games(epsilon: float, shown: float) -> None:
    game = _game("worst-case", epsilon, 10**6)
    blocks, interleaved = three_block_attack(game), interleaved_attack(game)
    assert expected_of(game, blocks) == pytest.approx(shown, abs=0.01)
    assert expected_of(game, interleaved) >= expected_of(game, blocks)
    for attack in (blocks, interleaved):
        assert quantile_bound(*attack.rates(), game.games, DELTA, 0.01) > epsilon
    found = audit(game, seed=12)
    assert epsilon < found.bound.low < found.certificate <= found.upper
    assert found.bound.low > quantile_bound(*plan_attack(game).rates(), game.games, DELTA, 0.01)


@pytest.mark.parametrize(("epsilon", "shown", "least"), [(1, 1.487, 1.44), (4, 5.49, 5.2)])
def test_plans_for_a_hundred_million_games(epsilon: float, shown: float, least: float) -> None:
    game = _game("worst-case", epsilon, 10**8)
    assert expected_of(game, three_block_attack(game)) == pytest.approx(shown, abs=0.005)
    attack = plan_attack(game)
    assert expected_of(game, attack) > shown - 0.005
    assert quantile_bound(*attack.rates(), game.games, DELTA, 0.01) > least


@pytest.mark.parametrize(("epsilon", "least"), [(1, 1.44), (4, 5.2)])
def test_a_hundred_million_games(epsilon: float, least: float) -> None:
    found = audit(_game("worst-case", epsilon, 10**8), seed=13)
    assert least < found.bound.low < found.upper
    assert found.bound.low > quantile_bound(
        *plan_attack(_game("worst-case", epsilon, 10**8)).rates(), 10**8, DELTA, 0.01
    )


@pytest.mark.parametrize("make", [etcv_attack, three_block_attack, interleaved_attack])
@pytest.mark.parametrize(
    "base", [Gdp(0.5), DpSgd(0.05, 1.0, 50), Laplace(1.0), PureDp(1.0)], ids=["gaussian", "dpsgd", "laplace", "pure"]
)
def test_played_rates_are_the_exact_ones(make: object, base: object) -> None:
    """Counts against exact probabilities, five and a half standard deviations, fixed seed."""
    assert callable(make)
    game = Game("worst-case", base, Poisson(5), 1e-4, 200_000)  # type: ignore[arg-type]
    attack = make(game)
    counts = play(attack, game.games, seed=7, threads=1)
    for hits, rate in zip((counts.tested, counts.other), attack.rates(), strict=True):
        spread = math.sqrt(game.games * rate * (1 - rate)) + 0.5
        assert abs(hits - game.games * rate) < 5.5 * spread


@pytest.mark.parametrize("make", [etcv_attack, three_block_attack, interleaved_attack])
@pytest.mark.parametrize("base", [Gdp(0.5), DpSgd(0.05, 1.0, 50)], ids=["gaussian", "dpsgd"])
@pytest.mark.parametrize("runs", [Geometric(10), Poisson(0.7), Logarithmic(50)], ids=str)
def test_fast_draws_decide_as_exact_ones(make: object, base: object, runs: Runs) -> None:
    """Uniform by uniform, dense near every cell's ends too; outputs differ by less than what a cell spans."""
    assert callable(make)
    attack = make(Game("worst-case", base, runs, 1e-4, 10**6))  # type: ignore[arg-type]
    edges = np.arange(CELLS) / CELLS
    v = np.concatenate([np.random.default_rng(6).random(300_000), edges, edges + 1e-13, np.nextafter(edges[1:], 0.0)])
    for world in (0, 1):
        exact, table = attack.winners(world), Interpolated(attack.winners(world), attack.piece(world), attack.mark)
        places, drawn = exact(v), table.drawer(len(v))(v)
        assert (attack.guess(drawn) == attack.guess(places)).all()
        assert (np.isnan(drawn) == np.isnan(places)).all()
        cell = np.floor(v * CELLS) / CELLS
        with np.errstate(invalid="ignore"):
            span = exact(np.nextafter(cell + 1.0 / CELLS, 0.0)) - exact(cell)
            far = np.abs(drawn - places) > np.where(np.isfinite(span), span, 0.0) * (1 + 1e-9) + 1e-9
        assert not far[np.isfinite(places) & (drawn != places)].any()
        assert table.exactly < 0.01


def test_no_plan_exceeds_the_account() -> None:
    for base in (Gdp(0.5), DpSgd(0.02, 0.8, 100)):
        game = Game("worst-case", base, Poisson(15), DELTA, 10**12)
        power, level = plan_attack(game).rates()
        assert math.log((power - DELTA) / level) < game.upper()
        assert expected_of(game, plan_attack(game)) > game.base_epsilon()


def test_table_of_dpsgd_is_the_law_of_real_transcripts() -> None:
    """Whole noise transcripts, step by step, against the atoms that the fast game inverts: levels and powers agree."""
    base, count = DpSgd(0.1, 0.9, 30), 40_000
    table = outcomes_of(base, DELTA)
    assert isinstance(table, TableOutcomes)
    source = np.random.default_rng(8)
    for world in (0, 1):
        seen = np.sort(transcripts(base, world, count, source))
        for mark in (-0.5, 0.0, 0.5, 1.5, 3.0):
            measured = 1.0 - np.searchsorted(seen, mark) / count
            claimed = float(np.diff(table.nodes[world])[table.losses > mark].sum())
            # The table is a lower bound on the pair, so allow its grid beside 5.5 standard deviations.
            assert measured == pytest.approx(claimed, abs=5.5 * math.sqrt(0.25 / count) + 0.01)


def test_same_seed_same_games_other_seed_other_games() -> None:
    attack = etcv_attack(_game("etcv", 4, 10**5))
    first = play(attack, 10**5, seed=1)
    assert play(attack, 10**5, seed=1, threads=1) == first
    # Eight equal counts, of about 900 each: once in 4e13 times.
    assert len({play(attack, 10**5).tested for _ in range(8)}) > 1


def test_number_of_games_is_planned_beforehand() -> None:
    game = _game("worst-case", 1, 10**6)
    needed = games_for(game, 1.0)
    assert 10**4 < needed < 10**6
    assert games_for(_game("etcv", 1, 10**6), 1.0) > 10 * needed  # the paper's game needs far more


def test_too_few_games_say_how_many() -> None:
    with pytest.raises(InvalidInput, match=r"at least \d+ per world"):
        audit(_game("worst-case", 1, 50))
