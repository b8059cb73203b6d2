"""Exact privacy of tiny mechanisms, written from the definitions and sharing no formula with the library.

Everything here enumerates: orders of outcomes with ties, ranks of parts of outcomes, histories of an adaptive
sampler. It must stay independent of ``dptune.accounting``: only the laws' constructors and the class that feeds
outcomes into the public functions are imported from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import (
    ADDED_OR_REMOVED,
    Binomial,
    Cost,
    Geometric,
    Logarithmic,
    NegativeBinomial,
    Neighbours,
    Poisson,
    Runs,
)
from dptune.accounting.atoms import pair_from_atoms
from dptune.accounting.profiles import ProfilePair

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


# Laws of the number of runs, from their definitions.


@dataclass(frozen=True)
class Law:
    """A law of the library beside its generating function and derivative, both derived by hand."""

    name: str
    runs: Runs
    f: Callable[[Array], Array]
    w: Callable[[Array], Array]
    step: Callable[[Array, Array], Array]  # f(z) - f(z - d) without cancellation

    @property
    def never(self) -> float:
        return float(self.f(np.zeros(1))[0])

    @property
    def mean(self) -> float:
        return float(self.w(np.ones(1))[0])


def _bisect(target: Callable[[float], float], low: float, high: float) -> float:
    """The root of a decreasing function."""
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if target(middle) > 0 else (low, middle)
    return (low + high) / 2.0


def stopping(shape: float, mean: float) -> float:
    """gamma of the truncated negative binomial law with this mean (privacy of random stopping, section on laws)."""

    def excess(gamma: float) -> float:
        if shape == 0.0:
            return (1.0 / gamma - 1.0) / math.log(1.0 / gamma) - mean
        return float(shape * (1.0 - gamma) / (gamma * (1.0 - gamma**shape)) - mean)

    return _bisect(excess, 1e-9, 1.0 - 1e-9)


def tnb(shape: float, mean: float) -> Law:
    """Truncated negative binomial: f(z) = ((1 - (1-gamma) z)^-shape - 1) / (gamma^-shape - 1)."""
    gamma = 1.0 / mean if shape == 1.0 else stopping(shape, mean)

    def f(z: Array) -> Array:
        left = 1.0 - (1.0 - gamma) * z
        if shape == 0.0:
            return np.asarray(np.log(left) / math.log(gamma))
        return np.asarray((left**-shape - 1.0) / (gamma**-shape - 1.0))

    def w(z: Array) -> Array:
        return np.asarray(mean * (gamma / (1.0 - (1.0 - gamma) * z)) ** (1.0 + shape))

    def step(z: Array, d: Array) -> Array:
        left = 1.0 - (1.0 - gamma) * z
        grown = np.log1p((1.0 - gamma) * d / left)
        if shape == 0.0:
            return np.asarray(-grown / math.log(gamma))
        return np.asarray(-np.expm1(-shape * grown) * left**-shape / (gamma**-shape - 1.0))

    makers: dict[float, Callable[[float], Runs]] = {1.0: Geometric, 0.0: Logarithmic}
    runs = makers[shape](mean) if shape in makers else NegativeBinomial(shape, mean)
    return Law(str(runs), runs, f, w, step)


def poisson(mean: float) -> Law:
    def f(z: Array) -> Array:
        return np.asarray(np.exp(mean * (z - 1.0)))

    def step(z: Array, d: Array) -> Array:
        return np.asarray(-np.expm1(-mean * d) * f(z))

    return Law(f"poisson({mean:g})", Poisson(mean), f, lambda z: mean * f(z), step)


def binomial(trials: int, chance: float) -> Law:
    def f(z: Array) -> Array:
        return np.asarray((1.0 - chance + chance * z) ** trials)

    def w(z: Array) -> Array:
        return np.asarray(trials * chance * (1.0 - chance + chance * z) ** (trials - 1))

    def step(z: Array, d: Array) -> Array:
        # x^n - y^n = (x - y) (x^(n-1) + x^(n-2) y + ... + y^(n-1))
        x, y = 1.0 - chance + chance * z, 1.0 - chance + chance * (z - d)
        return np.asarray(chance * d * sum(x ** (trials - 1 - i) * y**i for i in range(trials)))

    return Law(f"binomial({trials},{chance:g})", Binomial(trials, chance), f, w, step)


def once() -> Law:
    return Law("once", Geometric(1), lambda z: z + 0.0, np.ones_like, lambda z, d: d + 0.0 * z)


# Outcomes as a cost.


@dataclass(frozen=True)
class Atoms(Cost):
    """A mechanism with finitely many outcomes: p with the record, q without it."""

    kind: ClassVar[str] = "test-atoms"
    p: tuple[float, ...]
    q: tuple[float, ...]

    @property
    def neighbours(self) -> Neighbours:
        return ADDED_OR_REMOVED

    def _profile(self) -> ProfilePair:
        return pair_from_atoms(np.array(self.p), np.array(self.q))

    def _lower(self, delta: float) -> ProfilePair:
        del delta
        return self._profile()

    def __str__(self) -> str:
        return f"p={np.round(self.p, 4).tolist()} q={np.round(self.q, 4).tolist()}"


def atoms(p: Array, q: Array) -> Atoms:
    """Outcomes with these weights, normalised."""
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    return Atoms(tuple((p / p.sum()).tolist()), tuple((q / q.sum()).tolist()))


def weights(cost: Atoms, direction: str) -> tuple[Array, Array]:
    """(tested law, other law) for a direction."""
    p, q = np.array(cost.p), np.array(cost.q)
    return (p, q) if direction == "remove" else (q, p)


def random_atoms(rng: np.random.Generator, n: int, spread: float, hidden: float = 0.0) -> Atoms:
    """Random outcomes with log ratios of about ``spread``; each may be impossible in one world."""
    q = rng.dirichlet(np.full(n, 0.8)) + 1e-6
    p = q * np.exp(spread * rng.standard_normal(n))
    for i in range(1, n):
        u = rng.random()
        if u < hidden / 2:
            p[i] = 0.0
        elif u < hidden:
            q[i] = 0.0
    p[0], q[0] = max(p[0], 1e-3), max(q[0], 1e-3)
    return atoms(p, q)


def awkward_atoms() -> dict[str, Atoms]:
    """Pairs that were chosen because something in the numerics could trip over them."""
    e1 = math.exp(1.0)
    return {
        "randomised response": atoms(np.array([e1, 1.0]), np.array([1.0, e1])),
        "pure with middle": atoms(np.array([e1, 1, 1.6, 1.6]), np.array([1, e1, 1.6, 1.6])),
        "approximate": atoms(np.array([1e-3, 0.6, 0.3, 0.099, 0.0]), np.array([0.0, 0.3, 0.6, 0.099, 1e-3])),
        "revealing": atoms(np.array([0.2, 0.4, 0.4, 0.0]), np.array([0.0, 0.3, 0.3, 0.4])),
        "one-sided": atoms(np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.3, 0.3, 0.3, 0.1])),
        "disjoint": atoms(np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])),
        "equal": atoms(np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.3, 0.5])),
        "nearly equal": atoms(np.array([0.2 + 1e-9, 0.3, 0.5, 0.1]), np.array([0.2, 0.3, 0.5 + 1e-9, 0.1])),
        "near ties": atoms(np.array([0.3, 0.3 + 1e-12, 0.2, 0.2]), np.array([0.1, 0.1 + 1e-13, 0.4, 0.4])),
        "rare and strong": atoms(np.array([1e-6, 0.4, 0.6]), np.array([1e-10, 0.5, 0.5])),
        "rare and weak": atoms(np.array([1e-10, 0.5, 0.5, 1e-4]), np.array([1e-6, 0.45, 0.5, 0.05])),
        "huge loss": atoms(np.array([0.9, 0.1, 1e-30]), np.array([1e-30, 0.1, 0.9])),
        "ladder": atoms(np.exp(0.7 * np.arange(6)), np.exp(0.7 * np.arange(6)[::-1])),
    }


# Selection by enumeration.


def hockey(p: Array, q: Array, e: Array) -> Array:
    """Exact profile of outcomes p against q: sum of (p - exp(e) q)+."""
    return np.asarray(np.maximum(p - np.exp(e)[:, None] * q, 0.0).sum(axis=-1))


def _set_partitions(n: int) -> Iterator[tuple[int, ...]]:
    """Every assignment of n outcomes to consecutive ranks: weak orders, ties included."""

    def extend(levels: list[int], top: int) -> Iterator[tuple[int, ...]]:
        if len(levels) == n:
            if len(set(levels)) == top:
                yield tuple(levels)
            return
        for level in range(top):
            yield from extend([*levels, level], top)

    for top in range(1, n + 1):
        yield from extend([], top)


@lru_cache(maxsize=8)
def weak_orders(n: int) -> tuple[Flags, Flags]:
    """For every weak order: whether outcome j ranks at or below i, and whether they tie. [orders, i, j]"""
    levels = np.array(list(_set_partitions(n)), dtype=np.int8)
    return levels[:, None, :] <= levels[:, :, None], levels[:, None, :] == levels[:, :, None]


def selected(p: Array, law: Law, orders: tuple[Flags, Flags]) -> Array:
    """Law of the winner for every order: a rank's chance of winning, shared in proportion (ties are uniform)."""
    below, level = orders[0] @ p, orders[1] @ p
    below = np.minimum(below, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(level > 0, p / level, 0.0)
    return np.asarray(share * law.step(below, np.minimum(level, below)))


def default(law: Law, e: Array) -> Array:
    """What the public default of K = 0 adds to a profile."""
    return law.never * np.maximum(1.0 - np.exp(e), 0.0)


def selection_profile(p: Array, q: Array, law: Law, e: Array) -> Array:
    """Exact worst profile over every weak order of the outcomes and every event."""
    orders = weak_orders(len(p))
    won_p, won_q = selected(p, law, orders), selected(q, law, orders)
    best = [float(np.maximum(won_p - math.exp(x) * won_q, 0.0).sum(axis=1).max()) for x in e]
    return np.array(best) + default(law, e)


def hull_profile(p: Array, q: Array, law: Law, e: Array, cells: int = 4_000) -> Array:
    """E_Q[ sup_x (w(U(x)) L - exp(e) w(x))+ ] with every cell of x rounded outward: no score exceeds it."""
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.where(q > 0, p / np.where(q > 0, q, 1.0), np.inf))
    node_q = np.append(0.0, np.cumsum(q[order]))
    node_p = np.append(0.0, np.cumsum(p[order]))
    never = p[q <= 0].sum()
    x = np.unique(np.concatenate([np.linspace(0, 1, cells), 1 - np.geomspace(1e-9, 1, 1000), np.clip(node_q, 0, 1)]))
    keep = np.append(np.diff(node_q) > 0, True)  # of several nodes at one x the highest
    u = np.minimum(np.interp(x, node_q[keep], node_p[keep]), 1.0)
    # A jump at x = 0 belongs to the first cell; the last point stands for itself.
    rise = np.append(law.w(u[1:]), law.w(np.ones(1)))
    keep_down = np.append(law.w(x[:-1]), law.w(x[-1:]))
    result = []
    for value in e:
        a = math.exp(value)
        sup = np.maximum(np.multiply.outer(p, rise) - a * np.multiply.outer(q, keep_down), 0.0).max(axis=1)
        result.append(float(sup[q > 0].sum() + never * law.mean))
    return np.array(result) + default(law, e)


# Scores on parts of outcomes.


def divide(p: Array, q: Array, parts: NDArray[np.int64]) -> tuple[Array, Array]:
    """Each outcome cut into equal parts by an independent uniform."""
    return np.repeat(p / parts, parts), np.repeat(q / parts, parts)


def ranked_profile(p: Array, q: Array, law: Law, a: Array, ranks: NDArray[np.int64]) -> Array:
    """max over events of P(S) - a Q(S) for strict orders ``ranks`` (lowest first), one a for each row."""
    won = []
    for mass in (p, q):
        total = np.minimum(np.cumsum(mass[ranks], axis=-1), 1.0)
        won.append(law.step(total, np.minimum(mass[ranks], total)))
    return np.asarray(np.maximum(won[0] - a[..., None] * won[1], 0.0).sum(axis=-1))


def best_path(p: Array, q: Array, law: Law, e: Array) -> Array:
    """Best interleaving of high ratios (ranked upward) with low ratios (ranked downward), each part whole.

    A lower bound on the worst score, whatever the library believes: every path is one order of the parts. Summed in
    extended precision where the machine has it: hundreds of parts, each a difference of steep powers, would lose more
    than the tests allow.
    """
    p, q = p.astype(np.longdouble), q.astype(np.longdouble)
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.where(q > 0, p / np.where(q > 0, q, 1.0), np.inf), kind="stable")
    up = np.minimum(np.append(0.0, np.cumsum(p[order])), 1.0)
    across = np.minimum(np.append(0.0, np.cumsum(q[order])), 1.0)
    n, a = len(p), np.exp(e.astype(np.longdouble))[:, None]
    value = np.zeros((len(e), n + 1), np.longdouble)  # parts r.. y-1 are ranked so far; here y varies and r falls
    for r in range(n - 1, -1, -1):
        y = np.arange(r + 1, n + 1)
        gain_p = law.step(up[y] - up[r], np.minimum(p[order[r]], up[y] - up[r]))
        gain_q = law.step(across[y] - across[r], np.minimum(q[order[r]], across[y] - across[r]))
        step = value[:, r + 1 :] + gain_p - a * gain_q
        row = np.zeros_like(value)
        row[:, r + 1 :] = step
        value = np.maximum.accumulate(np.maximum(row, 0.0), axis=1)
    return np.asarray(value.max(axis=1) + default(law, e), dtype=np.float64)


def root(profile: Callable[[Array], Array], delta: float, high: float = 60.0, rounds: int = 7) -> float:
    """The largest e >= 0 at which a decreasing profile still exceeds delta, rounded down."""
    low = 0.0
    if float(profile(np.zeros(1))[0]) <= delta:
        return 0.0
    for _ in range(rounds):
        e = np.linspace(low, high, 17)
        k = int(np.argmax(profile(e) <= delta))
        if k == 0:  # never reached
            return high
        low, high = float(e[k - 1]), float(e[k])
    return low


def roc_nodes(p: Array, q: Array, parts: int) -> tuple[Array, Array]:
    """Points (Q(E), P(E)) of the ROC curve, with ``parts`` steps along each outcome."""
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.where(q > 0, p / np.where(q > 0, q, 1.0), np.inf), kind="stable")
    p, q = divide(p[order], q[order], np.full(len(p), parts))
    return np.minimum(np.append(0, np.cumsum(q)), 1), np.minimum(np.append(0, np.cumsum(p)), 1)


def three_block(x: Array, u: Array, law: Law, e: Array) -> Array:
    """f(U(q01)) - f(U(q01) - U(q1)) - exp(e) [f(q01) - f(q01 - q1)], the best q1 <= q01 on the given points."""
    i, j = np.triu_indices(len(x))
    gain_p, gain_q = law.step(u[j], u[i]), law.step(x[j], x[i])
    return np.array([float((gain_p - math.exp(value) * gain_q).max()) for value in e])
