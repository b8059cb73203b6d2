"""Relations: nothing is mixed, and every conversion holds against brute force over all events of tiny mechanisms.

The brute force enumerates events, integrates densities or composes ROC curves corner by corner; nothing of it uses the
search over splits by which the conversions are computed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from dptune.accounting import (
    ADDED_OR_REMOVED,
    CLIENT_REPLACED,
    RECORD_REPLACED,
    Cost,
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Neighbours,
    PureDp,
    RenyiLine,
    compose,
    cost_from_json,
    disjoint,
    grouped,
    in_relation,
    mixture,
    parallel,
    replaced,
    select,
    subsample,
    within_client,
    worst,
)
from dptune.accounting._steps import power_of, stepped
from dptune.accounting.neighbours import neighbours_from_text
from dptune.accounting.profiles import GaussianProfile, gaussian_pair
from dptune.accounting.voting import RingVote, continuous_vote
from dptune.errors import InvalidInput
from tests.accounting._exact import Atoms

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

RELATIONS = (ADDED_OR_REMOVED, RECORD_REPLACED, CLIENT_REPLACED)
GROUPS = tuple(one.group(7) for one in RELATIONS)
LOSSES = np.array([-3.0, -1.0, -0.2, 0.0, 0.1, 0.4, 0.9, 1.6, 2.5, 4.0])


# The value.


@pytest.mark.parametrize("relation", [*RELATIONS, *GROUPS], ids=str)
def test_a_relation_comes_back_from_its_text(relation: Neighbours) -> None:
    assert neighbours_from_text(str(relation)) == relation
    assert relation.single in RELATIONS


@pytest.mark.parametrize(
    "text",
    ["", "one record", "at most 1 records replaced", "one records replaced", "one client added or removed", 3, None],
)
def test_other_texts_are_no_relation(text: object) -> None:
    with pytest.raises(InvalidInput, match="A neighbouring relation is"):
        neighbours_from_text(text)


def test_a_group_of_groups_is_refused() -> None:
    with pytest.raises(InvalidInput, match="already"):
        ADDED_OR_REMOVED.group(2).group(3)
    with pytest.raises(InvalidInput, match="already"):
        grouped(grouped(Gdp(0.1), 2), 3)
    with pytest.raises(InvalidInput, match="'neighbours' must be a relation"):
        Gdp(1.0, neighbours="one record replaced")  # type: ignore[arg-type] # what is tested


def _leaves(relation: Neighbours) -> list[Cost]:
    return [
        Gdp(0.3, neighbours=relation),
        Gaussian(3.0, neighbours=relation),
        Laplace(3.0, neighbours=relation),
        PureDp(0.3, neighbours=relation),
        DiscreteGaussian(3.0, neighbours=relation),
        RenyiLine(0.1, (2.0, 3.0), neighbours=relation),
    ]


@pytest.mark.parametrize("relation", [*RELATIONS, *GROUPS], ids=str)
def test_every_mechanism_takes_a_relation_and_json_carries_it(relation: Neighbours) -> None:
    for leaf in _leaves(relation):
        for cost in (leaf, select(leaf, Geometric(3)), compose(leaf, leaf), mixture([(0.5, leaf), (0.5, leaf)])):
            assert cost.neighbours == relation
            stored = json.loads(cost.to_json())
            assert stored["neighbours"] == str(relation)
            assert cost_from_json(stored) == cost


def test_records_are_added_or_removed_unless_said_otherwise() -> None:
    vote = RingVote(5, 1, 1, 4.0, 1)
    assert {leaf.neighbours for leaf in (Gdp(1.0), PureDp(1.0), DpSgd(0.1, 1.0, 1))} == {ADDED_OR_REMOVED}
    assert vote.neighbours == continuous_vote(5, 1, 4.0).neighbours == CLIENT_REPLACED


def test_what_older_versions_wrote_is_about_records() -> None:
    """They had no key. A vote was always composed with trainings, which one client replaced allows."""
    vote = {"cost": "ring-vote", "candidates": 12, "votes": 2, "scale": 1, "sigma": 37.97944641113281, "shares": 1}
    training = {"cost": "dpsgd", "noise_multiplier": 1.3487257855983394, "sampling_rate": 0.05, "steps": 100}
    cost = cost_from_json({"cost": "compose", "parts": [vote, training]})
    assert cost.neighbours == ADDED_OR_REMOVED
    assert cost.epsilon(1e-5) == pytest.approx(1.9999522528319111, rel=1e-9)  # as it was priced then


def test_a_description_cannot_claim_a_relation_that_its_parts_do_not_have() -> None:
    stored = json.loads(select(Gdp(1.0), Geometric(3)).to_json())
    with pytest.raises(InvalidInput, match="its fields are about 'one record added or removed'"):
        cost_from_json({**stored, "neighbours": "one record replaced"})
    with pytest.raises(InvalidInput, match="it says 'one person', but"):
        cost_from_json({**stored, "neighbours": "one person"})
    with pytest.raises(InvalidInput, match="A neighbouring relation is"):
        cost_from_json({**Gdp(1.0).describe(), "neighbours": "one person"})
    mixed: dict[str, object] = {
        "cost": "compose",
        "parts": [Gdp(1.0).describe(), Gdp(1.0, neighbours=RECORD_REPLACED).describe()],
    }
    with pytest.raises(InvalidInput, match="cannot mix"):
        cost_from_json(mixed)


# What is refused.


@pytest.mark.parametrize("other", [*RELATIONS[1:], *GROUPS], ids=str)
@pytest.mark.parametrize(
    "operation",
    [
        compose,
        parallel,
        worst,
        lambda one, two: mixture([(0.5, one), (0.5, two)]),
        lambda one, two: disjoint(one, two, 0.5),
    ],
    ids=["compose", "parallel", "worst", "mixture", "disjoint"],
)
def test_relations_are_not_mixed(operation: Callable[[Cost, Cost], Cost], other: Neighbours) -> None:
    for pair in ((Gdp(1.0), Gdp(0.5, neighbours=other)), (Gdp(0.5, neighbours=other), Gdp(1.0))):
        with pytest.raises(InvalidInput, match=r"cannot mix|is proven for one record added or removed") as refused:
            operation(*pair)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("other", [*RELATIONS[1:], *GROUPS], ids=str)
def test_theorems_about_records_added_or_removed_refuse_others(other: Neighbours) -> None:
    cost = Gdp(0.5, neighbours=other)
    operations: tuple[Callable[[], Cost], ...] = (
        lambda: DpSgd(0.1, 1.0, 5, neighbours=other),
        lambda: subsample(cost, 0.1),
        lambda: disjoint(cost, cost, 0.1),
        lambda: parallel(cost, cost),  # even of equal costs: a record that is replaced may change two parts
        lambda: replaced(cost),
    )
    for refused in operations:
        with pytest.raises(InvalidInput, match="is proven for one record added or removed; got a cost for"):
            refused()
    assert worst(cost, cost) == cost


def test_no_theorem_leads_from_replacing_to_adding() -> None:
    for cost, wanted in (
        (Gdp(1.0, neighbours=RECORD_REPLACED), ADDED_OR_REMOVED),
        (Gdp(1.0), CLIENT_REPLACED),
        (grouped(Gdp(1.0), 3), RECORD_REPLACED),
        (grouped(Gdp(1.0), 3), ADDED_OR_REMOVED.group(4)),
    ):
        with pytest.raises(InvalidInput, match="No theorem turns a cost"):
            in_relation(cost, wanted)
    with pytest.raises(InvalidInput, match="starts from one client replaced"):
        within_client(Gdp(1.0))


def test_conversions_come_back_from_json_and_chain() -> None:
    base = select(DpSgd(0.1, 2.0, 1), Geometric(3))
    for wanted in (*RELATIONS[:2], *GROUPS[:2]):
        cost = in_relation(base, wanted)
        assert cost.neighbours == wanted
        assert cost_from_json(cost.to_json()) == cost
    clients = select(RingVote(5, 1, 1, 9.0, 1), Geometric(3))
    inside = in_relation(clients, ADDED_OR_REMOVED)
    assert inside.neighbours == ADDED_OR_REMOVED
    assert inside.epsilon(1e-5) == clients.epsilon(1e-5)
    assert cost_from_json(inside.to_json()) == inside


# Brute force over all events.


def _truth(p: Array, q: Array, e: float) -> float:
    """sup over all events E of p(E) - exp(e) q(E), by listing the events."""
    events = itertools.product((0.0, 1.0), repeat=len(p))
    return max(float(np.dot(event, p) - math.exp(e) * np.dot(event, q)) for event in events)


def _laws(rng: np.random.Generator, count: int, outcomes: int) -> list[Array]:
    """Random laws, some outcomes impossible under some of them."""
    found = []
    for _ in range(count):
        law = rng.dirichlet(np.full(outcomes, 0.7)) * np.exp(rng.normal(size=outcomes))
        if rng.random() < 0.4:
            law[rng.integers(outcomes)] = 0.0
        found.append(law / law.sum())
    return found


def _edges(*pairs: tuple[Array, Array]) -> Cost:
    """What a mechanism costs whose laws with and without a record are these."""
    return worst(*(Atoms(tuple(p.tolist()), tuple(q.tolist())) for p, q in pairs))


@pytest.mark.parametrize("seed", range(25))
def test_replacing_a_record_of_a_tiny_mechanism(seed: int) -> None:
    """Data sets none, a, b, ab: every step between them is paid for; a against b is never underestimated."""
    rng = np.random.default_rng(seed)
    none, a, b, both = _laws(rng, 4, int(rng.integers(2, 6)))
    cost = replaced(_edges((a, none), (b, none), (both, a), (both, b)))
    for one, two in ((a, b), (b, a)):
        for direction in ("remove", "add"):
            claimed = cost.profile(LOSSES, direction)
            assert all(claim >= _truth(one, two, e) - 1e-13 for claim, e in zip(claimed, LOSSES, strict=True))


@pytest.mark.parametrize("most", [2, 3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_a_group_of_records_of_a_tiny_mechanism(seed: int, most: int) -> None:
    """Data sets that grow by one record: any two at most ``most`` apart, smaller groups too."""
    rng = np.random.default_rng(1000 * most + seed)
    laws = _laws(rng, most + 1, int(rng.integers(2, 5)))
    cost = grouped(_edges(*((big, small) for small, big in itertools.pairwise(laws))), most)
    for small, big in itertools.combinations(laws, 2):
        for direction, one, two in (("remove", big, small), ("add", small, big)):
            claimed = cost.profile(LOSSES, direction)
            assert all(claim >= _truth(one, two, e) - 1e-13 for claim, e in zip(claimed, LOSSES, strict=True))


def _curve(p: Array, q: Array) -> Callable[[Array], Array]:
    """The ROC curve of two laws, by the lemma of Neyman and Pearson."""
    order = sorted(range(len(p)), key=lambda i: math.inf if q[i] == 0 else p[i] / q[i], reverse=True)
    x = np.concatenate([[0.0], np.cumsum(q[order])])
    y = np.concatenate([[0.0], np.cumsum(p[order])])
    return lambda at: np.array([float(y[x <= v + 1e-15].max()) if v <= 0 else float(np.interp(v, x, y)) for v in at])


@pytest.mark.parametrize("seed", range(8))
def test_conversions_are_the_roc_curves_one_after_the_other(seed: int) -> None:
    """Tight: the profile is that of U(V(x)), found here corner by corner of dense points, and somebody attains it."""
    rng = np.random.default_rng(seed)
    p, q = (rng.dirichlet(np.ones(4)) + 0.02 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    ahead, back = _curve(p, q), _curve(q, p)
    x = np.unique(np.concatenate([np.linspace(0.0, 1.0, 20_001), np.cumsum(q), np.cumsum(p)]).clip(0.0, 1.0))
    base = Atoms(tuple(p.tolist()), tuple(q.tolist()))
    group, change = grouped(base, 2), replaced(base)
    twice, there_and_back, back_and_there = ahead(ahead(x)), ahead(back(x)), back(ahead(x))
    for e in (0.0, 0.3, 0.8, 1.5):
        exact = float(np.max(twice - math.exp(e) * x))
        assert exact - 1e-12 <= group.profile(np.array([e]))[0] <= exact + 3e-4
        exact = min(float(np.max(curve - math.exp(e) * x)) for curve in (there_and_back, back_and_there))
        assert exact - 1e-12 <= change.profile(np.array([e]))[0] <= exact + 3e-4


# Closed forms.


@pytest.mark.parametrize("noise", [0.7, 2.0, 9.0])
@pytest.mark.parametrize("most", [2, 3, 6])
def test_shifts_add_up(noise: float, most: int) -> None:
    """A clipped sum moves by 2 C when a record is replaced, by k C when k are added: Gaussian and Laplace exactly."""
    for delta in (1e-3, 1e-6):
        assert grouped(Gaussian(noise), most).epsilon(delta) == pytest.approx(Gaussian(noise / most).epsilon(delta))
        assert replaced(Gaussian(noise)).epsilon(delta) == pytest.approx(Gaussian(noise / 2).epsilon(delta))
        assert replaced(Gaussian(noise)).epsilon_lower(delta) == pytest.approx(Gaussian(noise / 2).epsilon(delta))
        assert grouped(Laplace(noise), most).epsilon(delta) == pytest.approx(Laplace(noise / most).epsilon(delta))
        assert replaced(PureDp(1.0 / noise)).epsilon(delta) <= 2.0 / noise * (1.0 + 1e-12)


@pytest.mark.parametrize("mu", [0.05, 0.7, 2.0])
def test_steps_of_a_gaussian_are_rounded_up_and_little(mu: float) -> None:
    e = np.linspace(0.0, 4.0 * mu + 4.0 * mu * mu, 60)
    pair = gaussian_pair(mu)
    for times, found in ((2, stepped(pair, pair).remove), (5, power_of(pair, 5).remove)):
        exact = GaussianProfile(mu * times, below=True).delta(e)
        assert (found.delta(e) >= exact).all()
        assert found.delta(e) == pytest.approx(exact, rel=2e-3, abs=1e-15)


@pytest.mark.parametrize("most", [2, 5])
def test_whole_noise_moves_by_whole_steps(most: int) -> None:
    x = np.arange(-80, 81)
    q, p = (np.array([math.exp(-((int(v) - shift) ** 2) / 18.0) for v in x]) for shift in (0, most))
    q, p = q / q.sum(), p / p.sum()
    cost = grouped(DiscreteGaussian(3.0), most)
    for e in (0.0, 0.3, 1.0, 2.0):
        exact = float(np.maximum(p - math.exp(e) * q, 0.0).sum())
        assert exact - 1e-14 <= cost.delta(e) <= exact * (1.0 + 1e-9) + 1e-14


def test_the_simple_bound_is_never_better() -> None:
    """Two (eps, delta) steps are (2 eps, delta + exp(eps) delta)."""
    for base in (DpSgd(0.05, 1.0, 20), Gaussian(2.0), Laplace(3.0)):
        for e in (0.2, 0.5, 1.0):
            simple = base.delta(e) * (1.0 + math.exp(e))
            assert grouped(base, 2).delta(2.0 * e) <= simple * (1.0 + 1e-9)
            assert replaced(base).delta(2.0 * e) <= simple * (1.0 + 1e-9)


def test_composing_two_outputs_would_be_too_cheap() -> None:
    """Replacing is two steps of one output; two independent outputs have sqrt(2) times the shift, the truth is 2."""
    truth = Gaussian(1.0).epsilon(1e-5)
    assert compose(Gaussian(2.0), Gaussian(2.0)).epsilon(1e-5) < 0.75 * truth
    assert replaced(Gaussian(2.0)).epsilon(1e-5) >= truth * (1.0 - 1e-12)


# DP-SGD, one step, by integration.


def _integrated(p: Array, q: Array, width: float, e: float) -> float:
    return float(np.maximum(p - math.exp(e) * q, 0.0).sum() * width)


@pytest.mark.parametrize(("rate", "noise"), [(0.05, 0.8), (0.3, 1.0), (0.9, 2.0)])
def test_one_step_of_dp_sgd_when_a_record_is_replaced(rate: float, noise: float) -> None:
    """The gradient turns from +C to -C where the record is in the batch."""
    y, width = np.linspace(-20.0 * noise, 20.0 * noise, 400_001, retstep=True)
    rest = (1.0 - rate) * norm.pdf(y, 0.0, noise)
    p, q = (rest + rate * norm.pdf(y, shift, noise) for shift in (1.0, -1.0))
    cost = replaced(DpSgd(rate, noise, 1))
    for e in (0.0, 0.1, 0.5, 1.0, 2.0):
        assert cost.delta(e) >= _integrated(p, q, width, e) * (1.0 - 1e-6) - 1e-12
    assert cost.delta(0.5) <= 3.0 * _integrated(p, q, width, 0.5)  # a bound worth having


@pytest.mark.parametrize(("rate", "noise", "most"), [(0.05, 0.8, 2), (0.3, 1.0, 3), (0.1, 2.0, 5)])
def test_one_step_of_dp_sgd_when_a_unit_is_added_or_removed(rate: float, noise: float, most: int) -> None:
    """Each of the unit's records has a coin of its own, and all gradients point the same way."""
    y, width = np.linspace(-20.0 * noise, 20.0 * noise + most, 400_001, retstep=True)
    q = norm.pdf(y, 0.0, noise)
    p = np.sum([binom.pmf(j, most, rate) * norm.pdf(y, float(j), noise) for j in range(most + 1)], axis=0)
    cost = grouped(DpSgd(rate, noise, 1), most)
    for e in (0.0, 0.1, 0.5, 1.0, 2.0):
        removed, added = (float(cost.profile(np.array([e]), way)[0]) for way in ("remove", "add"))
        assert removed >= _integrated(p, q, width, e) * (1.0 - 1e-6) - 1e-12
        assert added >= _integrated(q, p, width, e) * (1.0 - 1e-6) - 1e-12


# A record within a client.


def _noisy(shift: tuple[int, ...], noise: Array, reach: int) -> Array:
    """The joint law of two sums of votes with noise, on a square."""
    sides = []
    for votes in shift:
        law = np.zeros(2 * reach + 8)
        law[votes : votes + len(noise)] = noise
        sides.append(law)
    return np.multiply.outer(*sides).ravel()


@pytest.mark.parametrize("seed", range(6))
def test_a_vote_covers_one_record_of_one_client(seed: int) -> None:
    """Records fall to two clients by coins; each client votes by any rule of its own records; one record is added."""
    rng = np.random.default_rng(seed)
    sigma, reach = 1.5, 20
    x = np.arange(-reach, reach + 1)
    noise = np.exp(-(x**2) / (2.0 * sigma**2))
    noise /= noise.sum()
    rule: dict[tuple[int, frozenset[int]], int] = {}

    def law(records: tuple[int, ...]) -> Array:
        total: Array = np.zeros((2 * reach + 8) ** 2)
        for coins in itertools.product((0, 1), repeat=len(records)):
            sums = [0, 0]
            for client in (0, 1):
                own = frozenset(r for r, coin in zip(records, coins, strict=True) if coin == client)
                sums[rule.setdefault((client, own), int(rng.integers(2)))] += 1
            total += _noisy(tuple(sums), noise, reach) / 2.0 ** len(records)
        return total

    without, with_it = law((0, 1, 2)), law((0, 1, 2, 3))
    cost = within_client(RingVote(2, 1, 1, sigma, 1))
    for e in (0.0, 0.2, 0.5, 1.0):
        for p, q in ((with_it, without), (without, with_it)):
            assert float(np.maximum(p - math.exp(e) * q, 0.0).sum()) <= cost.delta(e) + 1e-12
