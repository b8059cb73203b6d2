"""The outputs of one empty training, laid out on a line by falling likelihood ratio.

World 1 is the tested one (usually: with the record), world 0 the other. A *place* says which output was seen: for the
Gaussian mechanism it is minus the output itself, for any other base the index of an atom of its loss distribution
plus an independent uniform in [0, 1). The atoms of a table bound the mechanism from below, so an attack that works on
the table works on the mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from dptune._typing import Array, Indices
from dptune.accounting import Cost, DpSgd, Gaussian, Gdp
from dptune.accounting.cost import lower_pair
from dptune.accounting.selected_profile import roc_points

__all__ = ["GaussianOutcomes", "Lookup", "Outcomes", "TableOutcomes", "gaussian_mu", "outcomes_of", "roc_nodes"]


_ATOMS = 2500


class Outcomes(Protocol):
    """Two laws on a line of places."""

    def mass(self, world: int, place: Array) -> Array:
        """The probability of an output before this place, that is of a higher likelihood ratio."""

    def place(self, world: int, mass: Array) -> Array:
        """The inverse of :meth:`mass`."""

    def scan(self, count: int) -> Array:
        """About ``count`` places at which an event may begin or end."""


@dataclass(frozen=True)
class GaussianOutcomes:
    """N(mu, 1) in the tested world against N(0, 1); a place is minus the output."""

    mu: float

    def mass(self, world: int, place: Array) -> Array:
        return np.asarray(ndtr(np.asarray(place) + self.mu * world))

    def place(self, world: int, mass: Array) -> Array:
        places = np.asarray(ndtri(mass))
        if world:
            places -= self.mu
        return places

    def scan(self, count: int) -> Array:
        return np.linspace(-7.5 - self.mu, 6.0, count)


class Lookup:
    """Which interval of an increasing table holds a value: one look for most values, a search for the others."""

    def __init__(self, edges: Array, cells: int = 1 << 14) -> None:
        self._edges = np.ascontiguousarray(edges[1:-1])
        self._cells = cells
        grid = np.arange(cells + 1) / cells
        first = np.searchsorted(self._edges, grid[:-1], side="right")
        last = np.searchsorted(self._edges, grid[1:], side="right")
        self._first = first.astype(np.int64)
        self._mixed = first != last

    def __call__(self, value: Array) -> Indices:
        if len(self._edges) == 0:
            return np.zeros(len(value), np.int64)
        if len(self._edges) <= 4:
            index = np.zeros(len(value), np.int64)
            for edge in self._edges:
                index += value >= edge
            return index
        cell = np.minimum((value * self._cells).astype(np.int64), self._cells - 1)
        index = np.take(self._first, cell)
        unsure = np.flatnonzero(np.take(self._mixed, cell))
        index[unsure] = np.searchsorted(self._edges, value[unsure], side="right")
        return index


class TableOutcomes:
    """Finitely many atoms, from the highest likelihood ratio down, each with an independent uniform."""

    def __init__(self, q: Array, p: Array) -> None:
        kept = np.append(True, (np.diff(q) > 0.0) | (np.diff(p) > 0.0))
        self.nodes = (q[kept], p[kept])
        self._lookups = tuple(Lookup(nodes) for nodes in self.nodes)
        self._widths = tuple(np.maximum(np.diff(nodes), 1e-300) for nodes in self.nodes)

    @property
    def losses(self) -> Array:
        """The log likelihood ratio of every atom."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.diff(self.nodes[1])) - np.log(np.diff(self.nodes[0])))

    def mass(self, world: int, place: Array) -> Array:
        nodes = self.nodes[world]
        return np.asarray(np.interp(place, np.arange(len(nodes), dtype=float), nodes))

    def place(self, world: int, mass: Array) -> Array:
        atom = self._lookups[world](mass)
        share = (mass - np.take(self.nodes[world], atom)) / np.take(self._widths[world], atom)
        return np.asarray(atom + np.clip(share, 0.0, 1.0 - 1e-9))

    def scan(self, count: int) -> Array:
        last = len(self.nodes[0]) - 1
        return np.unique(np.linspace(0, last, min(count, last + 1)).astype(np.int64)).astype(float)


def gaussian_mu(base: Cost) -> float | None:
    """The mu of a base that is exactly a Gaussian mechanism."""
    if isinstance(base, Gdp | Gaussian):
        return base.distance
    if isinstance(base, DpSgd) and base.sampling_rate == 1.0:
        return math.sqrt(base.steps) / base.noise_multiplier
    return None


def outcomes_of(base: Cost, delta: float, forward: bool = True) -> Outcomes:
    """The outputs of an empty training; ``forward`` tests the data with the record against the data without it."""
    mu = gaussian_mu(base)
    if mu is not None:
        return GaussianOutcomes(mu)  # symmetric
    return TableOutcomes(*roc_nodes(base, delta, forward))


def roc_nodes(base: Cost, delta: float, forward: bool = True) -> tuple[Array, Array]:
    """Levels and powers that tests of the mechanism really reach (a point on or below its trade-off curve each).

    Neighbouring atoms of a long table are joined: the attacker sees less, which is sound, and games are faster.
    """
    pair = lower_pair(base, delta)
    q, p = roc_points(pair if forward else pair.flip())
    kept = np.unique(np.linspace(0, len(q) - 1, min(len(q), _ATOMS)).astype(np.int64))
    return q[kept], p[kept]
