"""Who masks with whom: a random regular graph on the clients, and how dense it must be.

The shape is that of Bell et al. 2020: clients sit on a circle in an order that is a public random
permutation, and each is the neighbour of the ``degree / 2`` next ones on both sides. ``topology`` returns the
smallest degree for which opening fails with probability at most 2^-20 and secrecy with probability at most
2^-40, counted exactly under independent dropout. The order must never depend on anything but the plan, or a
server could choose neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.federated.masks import stream

__all__ = ["Topology", "neighbours", "topology"]

OPENING_FAILS = 2.0**-20
"""Availability: with the declared dropout, the chance that some secret has too few holders left."""

SECRECY_FAILS = 2.0**-40
"""Secrecy: the chance that the honest survivors fall into more than one masked group."""


@dataclass(frozen=True)
class Topology:
    """The public numbers of one secure sum."""

    clients: int
    minimum: int
    """Fewer clients than this at any stage: abort."""
    colluding: int
    degree: int
    threshold: int
    """Shares that open a secret; each secret has ``degree + 1`` holders, its owner being one."""

    @property
    def complete(self) -> bool:
        """Every client is every other's neighbour, so each can count the survivors itself."""
        return self.degree == self.clients - 1

    @property
    def split_view_safe(self) -> bool:
        """No server, with all colluders, can open both secrets of a client by telling two stories."""
        return 2 * self.threshold > self.degree + 1 + self.colluding


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _too_many_dropped(population: int, dropped: int, degree: int, tolerated: int) -> float:
    """P(more than ``tolerated`` of ``degree`` neighbours are among ``dropped`` of ``population``)."""
    whole = _log_binomial(population, degree)
    total = 0.0
    for count in range(tolerated + 1, min(degree, dropped) + 1):
        if degree - count <= population - dropped:
            ways = _log_binomial(dropped, count) + _log_binomial(population - dropped, degree - count)
            total += math.exp(ways - whole)
    return total


def _gap_on_circle(clients: int, removed: int, run: int) -> float:
    """Bound on P(``run`` clients in a row are all removed somewhere): the graph may fall apart there."""
    if removed < run:
        return 0.0
    return math.exp(math.log(clients) + _log_binomial(clients - run, removed - run) - _log_binomial(clients, removed))


@lru_cache(maxsize=256)
def topology(clients: int, dropout: float, colluding: int) -> Topology:
    """Return the sparsest graph that is safe for this many clients, dropouts and colluders."""
    n = _validate.integer("clients", clients, 3, 65_535)
    fraction = _validate.real("dropout", dropout, 0, 1, high_open=True)
    corrupt = _validate.integer(
        "colluding",
        colluding,
        1,
        hint="One curious client can always subtract its own noise, so it is at least 1.",
    )
    dropped = math.floor(fraction * n + 1e-9)
    minimum = n - dropped
    if minimum <= corrupt:
        raise InvalidInput(
            f"With {n} clients, dropout {fraction:g} and {corrupt} colluding, no honest client need "
            "remain to add noise; "
            "ask for more clients, or declare less dropout or fewer colluders."
        )
    floor = 2 * math.ceil(math.log2(n))
    # Beyond three quarters of all clients the complete graph costs little more, and lets clients count survivors.
    for degree in range(floor, 3 * (n - 1) // 4, 2):
        threshold = (degree + 1 + corrupt) // 2 + 1
        if threshold > degree:
            continue
        opening = n * _too_many_dropped(n - 1, dropped, degree, degree - threshold)
        secrecy = _gap_on_circle(n, min(dropped + corrupt, n), degree // 2)
        if opening <= OPENING_FAILS and secrecy <= SECRECY_FAILS:
            return Topology(n, minimum, corrupt, degree, threshold)
    threshold = max(corrupt + 1, min((n + corrupt) // 2 + 1, minimum))
    return Topology(n, minimum, corrupt, n - 1, threshold)


@lru_cache(maxsize=64)
def _circle(seed: bytes, clients: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the public order of the clients and each one's place in it (Fisher-Yates, exact)."""
    order = list(range(clients))
    words = iter(stream(seed, 8 * clients, 64))
    for last in range(clients - 1, 0, -1):
        limit = 2**64 - 2**64 % (last + 1)
        while (word := int(next(words))) >= limit:  # pragma: no cover - one draw in 2^48
            continue
        pick = word % (last + 1)
        order[last], order[pick] = order[pick], order[last]
    places = [0] * clients
    for place, client in enumerate(order):
        places[client] = place
    return tuple(order), tuple(places)


@lru_cache(maxsize=8192)
def neighbours(seed: bytes, shape: Topology, client: int) -> tuple[int, ...]:
    """Return the neighbours of ``client``, in increasing order: a public function of the seed."""
    n = shape.clients
    if shape.complete:
        return tuple(j for j in range(n) if j != client)
    order, places = _circle(seed, n)
    place, half = places[client], shape.degree // 2
    return tuple(sorted(order[(place + step) % n] for step in range(-half, half + 1) if step))
