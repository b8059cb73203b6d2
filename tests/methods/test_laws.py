"""The released winner's law matches the theory, method by method, on toys with known laws.

Chi-square at level 1e-6 on seeded runs: a false alarm cannot come from chance, only from a change of code, and then has
probability 1e-6.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2_contingency, chisquare

from dptune.accounting import Binomial, Gaussian, Geometric, Logarithmic, NegativeBinomial, Poisson, Runs
from dptune.accounting.shards import ElasticRounds, ElasticStep
from dptune.judging import correct
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
)
from dptune.methods._machinery.projection import project
from dptune.methods.drive import drive
from dptune.methods.execute import fit_trial
from dptune.methods.parts import ALL, Client, Coin, DataPart, Shard, records
from dptune.methods.plan import Plan
from dptune.methods.random_stopping import StoppingPlan
from dptune.methods.subset import SubsetPlan
from dptune.methods.surrogate import register_rule
from dptune.methods.trial import Outcome, Trial
from dptune.methods.voting import VoteSearch
from dptune.randomness import Randomness
from dptune.spaces import Float, Space
from dptune.testing.searches import run_plan

LEVEL = 1e-6
BUDGET = Budget(50.0, 1e-5)
ITEMS = Space.of([{"x": i} for i in range(5)], prior=[1, 2, 3, 2, 2])
RUNS = [Geometric(4), Logarithmic(4), NegativeBinomial(2.5, 4), Poisson(2), Binomial(4, 0.6)]


class Toy:
    """A fixed cost: nothing to calibrate, so plans are quick."""

    def cost(self, params: dict[str, Any]) -> Gaussian:
        return Gaussian(4.0)

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, float(params["x"])


def _with_runs(plan: Plan, runs: Runs) -> Plan:
    """The same plan with another law of runs; its cost is not what these tests are about."""
    assert isinstance(plan, StoppingPlan | SubsetPlan)
    return replace(plan, tuning=replace(plan.tuning, runs=runs))


def _winners(plan: Plan, n: int, score: Any) -> Counter[int]:
    found: Counter[int] = Counter()
    for seed in range(n):
        _, selection = drive(plan, Randomness.rehearsal(seed), score)
        found[-1 if selection.winner is None and selection.final is None else selection.params["x"]] += 1
    return found


def _agrees(seen: Counter[int], law: dict[int, float]) -> None:
    n = sum(seen.values())
    assert math.fsum(law.values()) == pytest.approx(1, abs=1e-9)
    values = [v for v in law if law[v] * n > 1e-9]
    assert set(seen) <= set(values)
    assert chisquare([seen[v] for v in values], [law[v] * n for v in values]).pvalue > LEVEL


def _selected(runs: Runs, masses: list[float]) -> dict[int, float]:
    """Best of K draws from masses in increasing order of score: differences of the generating function."""
    reached = np.concatenate([[0.0], np.cumsum(masses)])
    values = runs.generating(np.minimum(reached, 1.0))
    return {-1: float(values[0]), **{i: float(d) for i, d in enumerate(np.diff(values))}}


@pytest.mark.parametrize("runs", RUNS, ids=str)
def test_random_stopping_releases_the_best_of_k(runs: Runs) -> None:
    plan = _with_runs(RandomStopping(ITEMS, Geometric(4)).plan(BUDGET, Toy()), runs)
    _agrees(_winners(plan, 1500, lambda trial: float(trial.params["x"])), _selected(runs, list(ITEMS.prior)))


@pytest.mark.parametrize("runs", RUNS, ids=str)
def test_hits_match_the_generating_function(runs: Runs) -> None:
    plan, n = _with_runs(RandomStopping(ITEMS, Geometric(4)).plan(BUDGET, Toy()), runs), 1500
    hits = 0
    for seed in range(n):
        trials = plan.start(Randomness.rehearsal(seed)).ask()
        hits += any(trial.params["x"] == 4 for trial in trials)
    assert binomtest(hits, n, runs.hit_probability(ITEMS.prior[4])).pvalue > LEVEL


def test_ties_are_broken_evenly_and_failures_never_win() -> None:
    plan = _with_runs(RandomStopping(ITEMS, Geometric(4)).plan(BUDGET, Toy()), Binomial(3, 1.0))
    seen = _winners(plan, 3000, lambda trial: -math.inf if trial.params["x"] == 2 else 0.0)
    alive = 1 - ITEMS.prior[2]
    none = ITEMS.prior[2] ** 3
    law = {i: (1 - none) * w / alive for i, w in enumerate(ITEMS.prior) if i != 2}
    _agrees(seen, {-1: none, **law})


def test_subset_trains_what_its_tuning_chose() -> None:
    """The law of random stopping, except that no run means training the public default."""
    runs = Poisson(2)
    plan = _with_runs(Subset(RandomStopping(ITEMS, Geometric(4)), 0.2).plan(Budget(5, 1e-5), Toy()), runs)
    law = _selected(runs, list(ITEMS.prior))
    law[2] += law.pop(-1)  # the likeliest candidate is the default
    _agrees(_winners(plan, 1000, lambda trial: float(trial.params["x"])), law)


def test_baselines_guess_by_the_prior_or_take_the_best() -> None:
    guess = RandomGuess(ITEMS).plan(BUDGET, Toy())
    _agrees(_winners(guess, 1000, lambda trial: 0.0), dict(enumerate(ITEMS.prior)))
    for method in (Naive(ITEMS), NonPrivateOptimum(ITEMS)):
        assert _winners(method.plan(BUDGET, Toy()), 20, lambda trial: float(trial.params["x"])) == {4: 20}


# Adaptive sampling.

register_rule("fixed slope", lambda seen, scores, points: np.exp(3 * points[:, 0]))
register_rule("follow the best", lambda seen, scores, points: np.exp(-9 * abs(points[:, 0] - seen[scores.argmax(), 0])))


def test_adaptive_without_room_is_random_stopping() -> None:
    runs = Geometric(3)
    plan = Adaptive(ITEMS, runs, density=(1.0, 1.0), rule="fixed slope").plan(BUDGET, Toy())
    _agrees(_winners(plan, 700, lambda trial: float(trial.params["x"])), _selected(runs, list(ITEMS.prior)))


def test_adaptive_law_by_enumeration() -> None:
    """Two certain runs: the first from the prior, the second from the projected law given the first."""
    density = (0.6, 1.8)
    planned = Adaptive(ITEMS, Geometric(2), density=density, rule="follow the best").plan(BUDGET, Toy())
    plan = _with_runs(planned, Binomial(2, 1.0))
    prior = np.array(ITEMS.prior)
    codes = np.arange(5) / 4
    law = dict.fromkeys(range(-1, 5), 0.0)
    for first in range(5):
        second = project(np.exp(-9 * abs(codes - codes[first])) * prior, prior, density)
        assert (second / prior > 1.7).any()  # really adaptive
        for other in range(5):
            law[max(first, other)] += prior[first] * second[other]
    _agrees(_winners(plan, 2000, lambda trial: float(trial.params["x"])), law)


def test_no_history_leaves_the_box() -> None:
    """Whatever the scores: the law that the Gaussian process search draws from stays within [c, C] times the prior."""
    density = (0.7, 2.2)
    plan = _with_runs(Adaptive(ITEMS, Geometric(2), density=density, beta=1e4).plan(BUDGET, Toy()), Binomial(12, 1.0))
    prior = np.array(ITEMS.prior)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        search: Any = plan.start(Randomness.rehearsal(seed))
        law = search.law
        kept: list[Any] = []

        def spy(points: Any, base: Any, seen: int, law: Any = law, kept: Any = kept) -> Any:
            found = law(points, base, seen)
            kept.append(found / found.sum() / prior)
            return found

        search.law = spy
        while trials := search.ask():
            for trial in trials:
                search.tell(Outcome(trial.index, float(rng.normal() * 10.0 ** rng.integers(-3, 4))))
        ratios = np.array(kept)
        assert ratios.shape == (12, 5)
        assert ratios.min() >= density[0]
        assert ratios.max() <= density[1]
        assert np.ptp(ratios[-1]) > 0.5


@pytest.mark.slow
def test_thousands_of_candidates_and_hundreds_of_runs() -> None:
    """2,500 candidates, 200 runs: the search finds the good corner more often than the prior would."""
    grid = Space(lr=Float(1e-4, 1, log=True), clip=Float(0.1, 100)).grid(lr=50, clip=50)
    plan = _with_runs(Adaptive(grid, Geometric(2), density=(0.5, 3.0)).plan(BUDGET, Toy()), Binomial(200, 1.0))
    codes = {(item["lr"], item["clip"]): code for item, code in zip(grid.items, grid.encode(grid.items), strict=True)}

    def score(trial: Trial) -> float:
        code = codes[trial.params["lr"], trial.params["clip"]]
        return float(1 - abs(code - 0.8).sum())

    trials, _ = drive(plan, Randomness.rehearsal(0), score)
    assert len(trials) == 200
    top = sorted((score(t) for t in trials), reverse=True)
    every = sorted((float(1 - abs(code - 0.8).sum()) for code in codes.values()), reverse=True)
    hits = sum(value >= every[len(every) // 10] for value in top)
    assert binomtest(hits, 200, 0.1, alternative="greater").pvalue < 1e-6


# Shards and votes.


def test_noisy_best_is_permute_and_flip() -> None:
    budget = Budget(3.0, 1e-5)
    items = Space.of([{"x": i} for i in range(4)])
    plan = NoisyBest(items, 10, share=0.3).plan(budget, Toy())
    quality = [0.9, 0.5, 0.5, 0.1]
    heads = [math.exp(0.9 * 10 * (q - 0.9) / 2) for q in quality]
    law = dict.fromkeys(range(4), 0.0)
    for order in itertools.permutations(range(4)):
        left = 1 / 24
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    _agrees(_winners(plan, 1500, lambda trial: quality[trial.params["x"]]), law)


def _paper_rounds(utilities: list[float], k: int, total: float, *, e: float, g: float, rng: Any) -> int:
    """Algorithm 1 with the filter, in floating point and numpy: written independently of the package."""
    u, step, chosen, spent = 0.0, 1, -2, 0.0
    while step and spent + e <= total * (1 + 1e-12):
        passed = None
        if u + step * g <= 1 + 1e-12:
            level = u + step * g + rng.laplace(0, 2 / (k * e))
            for s, value in enumerate(utilities):
                if value + rng.laplace(0, 4 / (k * e)) >= level:
                    passed = s
                    break
            spent += e / 2 if passed is None else e
        if passed is None:
            step //= 2
        else:
            chosen, u, step = passed, u + g * step, 2 * step
    return chosen


def test_threshold_is_the_filtered_algorithm() -> None:
    """Two samples, one from the package and one from an independent implementation: contingency chi-square."""
    items = Space.of([{"x": i} for i in range(5)])
    plan = Threshold(items, 20, granularity=0.05, share=0.9, default={"x": 0}).plan(Budget(10, 1e-5), Toy())
    quality = [0.2, 0.75, 0.5, 0.9, 0.35]
    ours = _winners(plan, 700, lambda trial: quality[trial.params["x"]])
    rng = np.random.default_rng(11)
    each = plan.rounds.per_round
    theirs = Counter(max(0, _paper_rounds(quality, 20, 9.0, e=each, g=0.05, rng=rng)) for _ in range(1500))
    table = np.array([[ours[i] for i in range(5)], [theirs[i] for i in range(5)]])
    table = table[:, table.sum(axis=0) > 0]
    assert chi2_contingency(table).pvalue > LEVEL
    assert ours[3] > 140  # it does find the best


def _sparse_vector(utilities: list[float], k: int, total: float, *, passes: int, g: float, rng: Any) -> int:
    """One sparse vector (Lyu, Su and Li 2017) over the same proposals, in floating point and numpy."""
    share = 1 / (1 + (2 * passes) ** (2 / 3))
    shift = rng.laplace(0, 1 / (k * total * share))
    u, step, chosen, left = 0.0, 1, -2, passes
    while step and left:
        passed = None
        if u + step * g <= 1 + 1e-12:
            scale = 2 * passes / (k * total * (1 - share))
            noisy = (s for s, value in enumerate(utilities) if value + rng.laplace(0, scale) >= u + step * g + shift)
            passed = next(noisy, None)
        if passed is None:
            step //= 2
        else:
            chosen, u, step, left = passed, u + g * step, 2 * step, left - 1
    return chosen


def test_the_sparse_threshold_is_one_sparse_vector() -> None:
    """Two samples, one from the package and one from an independent implementation: contingency chi-square."""
    items = Space.of([{"x": i} for i in range(5)])
    method = Threshold(items, 20, granularity=0.05, share=0.6, variant="sparse", default={"x": 0})
    plan = method.plan(Budget(10, 1e-5), Toy())
    quality = [0.2, 0.75, 0.5, 0.9, 0.35]
    ours = _winners(plan, 700, lambda trial: quality[trial.params["x"]])
    rng = np.random.default_rng(12)
    passes = plan.rounds.passes
    theirs = Counter(max(0, _sparse_vector(quality, 20, 6.0, passes=passes, g=0.05, rng=rng)) for _ in range(1500))
    table = np.array([[ours[i] for i in range(5)], [theirs[i] for i in range(5)]])
    table = table[:, table.sum(axis=0) > 0]
    assert len(table[0]) > 1
    assert chi2_contingency(table).pvalue > LEVEL


@pytest.mark.parametrize("best", [0.0, 0.03, 0.5, 0.77, 0.999, 1.0])
@pytest.mark.parametrize("granularity", [0.02, 0.1])
def test_rounds_without_noise_are_the_formula(best: float, granularity: float) -> None:
    elastic, rounds = ElasticStep(0.0, granularity), 0
    while elastic.step:
        elastic.answer(elastic.proposal() <= best + 1e-12)
        rounds += 1
    assert rounds == ElasticRounds(0.0, granularity).rounds(best)


def test_much_budget_finds_the_best() -> None:
    items = Space.of([{"x": i} for i in range(6)])
    for method in (
        Threshold(items, 40, granularity=0.02, share=0.9),
        Threshold(items, 40, granularity=0.02, share=0.9, variant="sparse"),
        NoisyBest(items, 40, share=0.9),
        Vote(items, 1, 40, share=0.4),
    ):
        plan = method.plan(Budget(40, 1e-5), Toy())
        seen = _winners(plan, 12, lambda trial: 0.2 + 0.12 * ((trial.params["x"] * 5) % 6))
        assert seen[1] >= 10, plan.method


def test_vote_adds_the_noise_that_is_priced() -> None:
    """Three candidates, unanimous clients: the winner's law by summing over discrete Gaussians."""
    items = Space.of([{"x": i} for i in range(3)])
    plan = Vote(items, 1, 3, share=0.5).plan(Budget(2.0, 1e-3), Toy())
    sigma = plan.sigma
    reach = int(12 * sigma)
    x = np.arange(-reach, reach + 1)
    pmf = np.exp(-(x**2) / (2 * sigma**2))
    pmf /= pmf.sum()

    def law_of(votes: list[int]) -> list[float]:
        shifted = [np.concatenate([np.zeros(v), pmf, np.zeros(3 - v)]) for v in votes]
        below = [np.concatenate([[0.0], np.cumsum(p)[:-1]]) for p in shifted]
        out = []
        for i in range(3):
            a, b = (j for j in range(3) if j != i)
            lost = shifted[i] * (below[a] * below[b])
            one = shifted[i] * (shifted[a] * below[b] + below[a] * shifted[b]) / 2
            both = shifted[i] * shifted[a] * shifted[b] / 3
            out.append(float((lost + one + both).sum()))
        return out

    law = law_of([0, 3, 0])
    seen = _winners(plan, 1500, lambda trial: 1.0 if trial.params["x"] == 1 else 0.0)
    _agrees(seen, dict(enumerate(law)))


def test_every_client_casts_exactly_k_votes() -> None:
    items = Space.of([{"x": i} for i in range(6)])
    plan = Vote(items, 2, 30).plan(BUDGET, Toy())
    search = plan.start(Randomness.rehearsal(0))
    assert isinstance(search, VoteSearch)
    for trial in search.ask():
        search.tell(Outcome(trial.index, -math.inf if trial.index % 3 else 0.5))
    assert sum(search.totals()) == 60


# Parts of the data.


def test_parts_are_independent_coins_and_labels() -> None:
    n, source = 40_000, Randomness.rehearsal(8)
    inside = DataPart((Coin(0.1),)).index(n, None, source)
    outside = DataPart((Coin(0.1, False),)).index(n, None, source)
    assert sorted([*inside, *outside]) == list(range(n))
    assert binomtest(len(inside), n, 0.1).pvalue > LEVEL
    shards = [ALL.narrowed(Shard(7, i)).index(n, None, source) for i in range(7)]
    assert sorted(np.concatenate(shards)) == list(range(n))
    assert chisquare([len(s) for s in shards]).pvalue > LEVEL
    both = ALL.narrowed(Coin(0.1), Shard(7, 2)).index(n, None, source)
    assert binomtest(len(both), n, 0.1 / 7).pvalue > LEVEL


def test_dirichlet_clients_partition_and_are_skewed() -> None:
    labels = np.repeat(np.arange(4), 1000)
    data = (np.arange(4000), labels)
    source = Randomness.rehearsal(9)
    parts = [records(ALL.narrowed(Client(5, i, 0.3)), data, source) for i in range(5)]
    assert sorted(np.concatenate([p[0] for p in parts])) == list(range(4000))
    counts = np.array([[np.sum(p[1] == c) for c in range(4)] for p in parts])
    assert chi2_contingency(counts + 1).pvalue < 1e-12  # skewed
    even = np.array(
        [[np.sum(records(ALL.narrowed(Client(5, i)), data, source)[1] == c) for c in range(4)] for i in range(5)]
    )
    assert chi2_contingency(even).pvalue > LEVEL


class Sums:
    """Remembers which records it saw; 'right' is a record's parity."""

    def cost(self, params: dict[str, Any]) -> Gaussian:
        return Gaussian(4.0)

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return Seen(data), math.nan


class Seen:
    judges_each_record_alone = True  # it does

    def __init__(self, data: Any) -> None:
        self.data = data

    def correct(self, data: Any) -> Any:
        return data % 2 == 0


def test_subset_trains_and_validates_on_disjoint_records_and_scales_the_rate() -> None:
    space = Space.of([{"lr": 0.1}, {"lr": 0.2}])
    inner = RandomStopping(space, Geometric(3), validation=PrivateValidation(0.25, 250))
    data = np.arange(5000)
    for final, ratio in (("rest", 4.0), ("all", 5.0)):
        planned = Subset(inner, 0.2, final=final, transfer="sgd").plan(Budget(5, 1e-5), Sums())
        plan = _with_runs(planned, Binomial(3, 1.0))
        source = Randomness.rehearsal(4)
        trials, selection = drive(plan, source, lambda trial: trial.params["lr"])
        trained = records(trials[0].part, data, source)
        validation = trials[0].validation
        assert validation is not None
        held = records(validation.part, data, source)
        assert selection.final is not None
        after = records(selection.final.part, data, source)
        assert not set(trained) & set(held)
        assert (set(after) & (set(trained) | set(held)) == set()) == (final == "rest")
        assert len(set(after) | set(trained) | set(held)) == 5000
        assert abs(len(trained) - 750) < 150
        assert selection.params["lr"] == pytest.approx(selection.final.candidate["lr"] * ratio)
        assert selection.final.validation is None
        model = run_plan(plan, Sums(), data, source)[1]
        assert model is not None
        assert len(model.data) == len(after)


def _plain(condition: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in condition.items() if key != "kind"}


def test_private_scores_are_noised_counts() -> None:
    space = Space.of([{"lr": 0.1}, {"lr": 0.2}])
    method = RandomStopping(space, Geometric(3), validation=PrivateValidation(0.5, 100, noise=3.0))
    plan = _with_runs(method.plan(BUDGET, Sums()), Binomial(400, 1.0))
    source, data = Randomness.rehearsal(2), np.arange(400)
    trials = plan.start(source).ask()
    held = records(DataPart((Coin(0.5, True, "validation"),)), data, source)
    exact = float((held % 2 == 0).sum())
    scores = np.array([fit_trial(Sums(), trial, data, source)[1] for trial in trials]) * 100
    added = scores - exact
    assert np.allclose(added, np.round(added), atol=1e-9)  # whole numbers, up to the division
    # The law of the discrete Gaussian with parameter 3, from its definition; tails are pooled.
    values = np.arange(-60, 61)
    law = np.exp(-(values**2) / 18.0)
    law /= law.sum()
    edges = np.arange(-5, 6)
    observed = np.array([np.sum(np.clip(np.round(added), -5, 5) == v) for v in edges])
    clipped = np.clip(values, -5, 5)
    expected = 400 * np.array([law[clipped == v].sum() for v in edges])
    assert chisquare(observed, expected).pvalue > LEVEL


class Split(Sums):
    """Candidate 0 gets every record right, candidate 1 all but those that are 1."""

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return Alone(lambda held: (held == 0) | (params["x"] == 0)), math.nan


def test_the_winner_by_private_scores_has_the_law_of_two_noisy_counts() -> None:
    """Two certain runs. Four counts more win by the convolution of two discrete Gaussians; ties by a coin."""
    items = Space.of([{"x": 0}, {"x": 1}])
    method = RandomStopping(items, Geometric(3), validation=PrivateValidation(0.5, 100, noise=3.0))
    plan = _with_runs(method.plan(BUDGET, Sums()), Binomial(2, 1.0))
    x = np.arange(-50, 51)
    pmf = np.exp(-(x**2) / 18.0)
    pmf /= pmf.sum()
    difference, apart = np.convolve(pmf, pmf), np.arange(-100, 101)  # of two independent noises, which is symmetric
    better = float(difference[apart < 4].sum() + 0.5 * difference[apart == 4].sum())
    law = {0: 0.25 + 0.5 * better, 1: 0.25 + 0.5 * (1.0 - better)}  # both runs 0, both 1, or one of each
    seen = Counter[int]()
    for seed in range(1500):
        source = Randomness.rehearsal(seed)
        data = np.zeros(30, dtype=int)
        data[records(DataPart((Coin(0.5, True, "validation"),)), np.arange(30), source)[:4]] = 1
        trained = {t.index: fit_trial(Split(), t, data, source)[1] for t in plan.start(source).ask()}
        _, selection = drive(plan, source, lambda trial, known=trained: known[trial.index])  # type: ignore[misc]
        seen[selection.params["x"]] += 1
    _agrees(seen, law)


class Judged:
    """A model that is asked about every record by itself."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def correct(self, data: Any) -> Any:
        return self.answer(data)


class Alone(Judged):
    """One that may be asked about all of them at once."""

    judges_each_record_alone = True


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (lambda data: data % 2 == 0, 5),
        (lambda data: np.where(data < 3, 0.5, 0.0), 1.5),
        (lambda data: np.where(data < 3, np.nan, 1.0), 7),
        (lambda data: np.where(data < 3, 9.0, -9.0), 3),
        (lambda data: 1e9, 10),
        (lambda data: math.nan, 0),
        (lambda data: "yes", 0),
        (lambda data: [0.5, 0.5], 0),
        (lambda data: 0.5 if data[0] < 4 else None, 2),
        (lambda data: np.full(len(data), 0.1), 10 * math.floor(0.1 * 2**20) / 2**20),
    ],
)
def test_records_count_exactly_between_zero_and_one(answer: Any, right: float) -> None:
    assert correct(Judged(answer), np.arange(10)) == Fraction(right)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 1), st.integers(0, 59))
def test_one_record_moves_a_whole_count_by_at_most_one(values: list[float], more: float, place: int) -> None:
    before = np.array(values)
    after = np.insert(before, min(place, len(values)), more)
    counts = [math.floor(correct(Judged(lambda data: data), one)) for one in (before, after)]
    assert 0 <= counts[1] - counts[0] <= 1


def test_a_trainer_with_another_cost_fails_the_trial() -> None:
    plan = _with_runs(RandomStopping(ITEMS, Geometric(2)).plan(BUDGET, Toy()), Binomial(1, 1.0))
    trial: Trial = plan.start(Randomness.rehearsal(0)).ask()[0]
    fit_trial(Toy(), trial, [1, 2], Randomness.rehearsal(0))

    class Cheat(Toy):
        def cost(self, params: dict[str, Any]) -> Gaussian:
            return Gaussian(3.0)

    with pytest.raises(ValueError, match="another cost"):
        fit_trial(Cheat(), trial, [1, 2], Randomness.rehearsal(0))
