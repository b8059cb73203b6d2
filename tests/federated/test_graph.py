"""The neighbour graph: regular, symmetric, connected, and dense enough by exact counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

from dptune.errors import InvalidInput
from dptune.federated.graph import OPENING_FAILS, neighbours, topology


@pytest.mark.parametrize("clients", [3, 4, 5, 17, 50, 250, 1000])
def test_regular_and_symmetric(clients: int) -> None:
    shape = topology(clients, 0.2, 1)
    near = [set(neighbours(bytes(32), shape, i)) for i in range(clients)]
    assert all(len(near[i]) == shape.degree and i not in near[i] for i in range(clients))
    assert all(i in near[j] for i in range(clients) for j in near[i])


@pytest.mark.parametrize(
    ("clients", "dropout", "colluding"), [(50, 0.2, 1), (250, 0.2, 1), (250, 0.1, 5), (1000, 0.2, 50)]
)
def test_the_declared_dropout_leaves_enough_holders(clients: int, dropout: float, colluding: int) -> None:
    shape = topology(clients, dropout, colluding)
    dropped = clients - shape.minimum
    law = hypergeom(clients - 1, dropped, shape.degree)
    assert clients * law.sf(shape.degree - shape.threshold) <= OPENING_FAILS
    assert shape.split_view_safe
    assert shape.threshold > colluding


@pytest.mark.parametrize("clients", range(3, 60))
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.2, 1 / 3, 0.45])
def test_small_federations_always_open_and_never_to_colluders(clients: int, dropout: float) -> None:
    if clients - math.floor(dropout * clients + 1e-9) <= 1:
        return
    shape = topology(clients, dropout, 1)
    assert shape.threshold > shape.colluding
    if shape.complete:
        assert shape.threshold <= shape.minimum


def test_degree_grows_like_the_logarithm() -> None:
    degrees = [topology(n, 0.2, 1).degree for n in (250, 1000, 4000, 16000)]
    assert degrees[-1] < 2 * degrees[0]


def test_survivors_stay_connected() -> None:
    shape, rng = topology(250, 0.2, 1), np.random.default_rng(1)
    for trial in range(20):
        seed = trial.to_bytes(32, "big")
        alive = set(rng.permutation(250)[:199].tolist())
        reached, border = set(), [next(iter(alive))]
        while border:
            i = border.pop()
            if i not in reached:
                reached.add(i)
                border.extend(j for j in neighbours(seed, shape, i) if j in alive)
        assert reached == alive


def test_another_seed_gives_another_graph() -> None:
    shape = topology(250, 0.2, 1)
    assert neighbours(bytes(32), shape, 0) != neighbours(b"\1" * 32, shape, 0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((2, 0.0, 1), "clients"),
        ((10, 1.0, 1), "dropout"),
        ((10, 0.2, 0), "colluding"),
        ((10, 0.5, 5), "no honest client"),
    ],
)
def test_impossible_federations_are_refused(arguments: tuple[int, float, int], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        topology(*arguments)
