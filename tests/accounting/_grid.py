"""Random plans over all bases, laws, sizes and deltas, and the published bounds that price the very same procedure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dptune.accounting import (
    Binomial,
    Cost,
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Gdp,
    Geometric,
    Laplace,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    PureDp,
    RenyiLine,
    Runs,
    compose,
    disjoint,
    select_adaptive,
    subsample,
)
from dptune.accounting import literature as lit
from dptune.accounting.lines import ORDERS

# They price another procedure: every run released, or tuning on all the data in place of a subset.
OTHER_PROCEDURES = {"naive_composition", "koskela_kulkarni_theorem5"}
LARGEST_STEPS = 20_000


@dataclass(frozen=True)
class Plan:
    base: Cost
    runs: Runs
    delta: float
    density: tuple[float, float] = (1.0, 1.0)
    subset: float | None = None
    variant: int = 1

    def cost(self) -> Cost:
        tuning = select_adaptive(self.base, self.runs, self.density)
        if self.subset is None:
            return tuning
        if self.variant == 1:
            return disjoint(tuning, self.base, self.subset)
        return compose(subsample(tuning, self.subset), self.base)

    def published(self) -> dict[str, float]:
        """Every published epsilon for this procedure, by name."""
        variant = None if self.subset is None else self.variant
        found = lit.published(
            self.base, self.runs, self.delta, density=self.density, subset=self.subset, variant=variant
        )
        return {
            name: bound.epsilon
            for name, bound in found.items()
            if bound.epsilon is not None and name not in OTHER_PROCEDURES
        }


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def random_base(rng: np.random.Generator) -> Cost:
    makers: list[Callable[[], Cost]] = [
        lambda: Gaussian(_log_uniform(rng, 0.1, 1e4)),
        lambda: Gdp(_log_uniform(rng, 1e-4, 8.0)),
        lambda: Laplace(_log_uniform(rng, 0.1, 1e4)),
        lambda: PureDp(_log_uniform(rng, 1e-4, 30.0)),
        lambda: DiscreteGaussian(_log_uniform(rng, 0.5, 40.0), 1),
        lambda: RenyiLine(_log_uniform(rng, 1e-7, 1.0), ORDERS),
        lambda: _random_dp_sgd(rng),
        lambda: _random_dp_sgd(rng),
    ]
    return makers[int(rng.integers(len(makers)))]()


def _random_dp_sgd(rng: np.random.Generator) -> Cost:
    # The standard deviation of the loss is about rate sqrt(steps) / noise: let it be of every size.
    steps = int(_log_uniform(rng, 1, LARGEST_STEPS))
    rate = float(rng.choice([_log_uniform(rng, 1e-4, 1.0), 1.0 - _log_uniform(rng, 1e-8, 0.5)]))
    return DpSgd(rate, max(0.4, rate * math.sqrt(steps) / _log_uniform(rng, 1e-3, 4.0)), steps)


def random_law(rng: np.random.Generator) -> Runs:
    mean = _log_uniform(rng, 1.0, 1e6)
    kind = int(rng.integers(6))
    if kind == 0:
        return Geometric(mean)
    if kind == 1:
        return Logarithmic(mean)
    if kind == 2:
        return NegativeBinomial(float(rng.uniform(-0.8, 0.0)), mean)
    if kind == 3:
        return NegativeBinomial(_log_uniform(rng, 0.01, 50.0), mean)
    if kind == 4:
        return Poisson(_log_uniform(rng, 0.01, 1e6))
    return Binomial(int(_log_uniform(rng, 1.0, 1e5)), float(rng.uniform(0.001, 0.999)))


def random_plans(seed: int, count: int, kind: str = "whole") -> Iterator[Plan]:
    """Plans that tune on all the data ("whole"), with adaptive sampling ("adaptive") or on a subset ("subset")."""
    rng = np.random.default_rng([seed, count])
    for _ in range(count):
        base, runs, delta = random_base(rng), random_law(rng), _log_uniform(rng, 1e-15, 0.3)
        if kind == "adaptive":
            box = (float(rng.uniform(0.3, 1.0)), float(rng.uniform(1.0, 4.0)))
            yield Plan(base, runs, delta, density=box)
        elif kind == "subset":
            yield Plan(base, runs, delta, subset=float(rng.uniform(0.02, 0.8)), variant=int(rng.integers(1, 3)))
        else:
            yield Plan(base, runs, delta)


def random_lines(seed: int, count: int) -> Iterator[tuple[RenyiLine, float]]:
    """Lines of every slope over the usual orders or a few of any size, each with a delta."""
    rng = np.random.default_rng([seed, count])
    sizes = (1.05, 1.5, 2.0, 2.5, 3.0, 4.0, 7.3, 9.0, 16.0, 33.0, 64.0, 100.0, 500.0)
    for number in range(count):
        few = sorted(rng.choice(sizes, int(rng.integers(1, 8)), replace=False).tolist())
        orders = ORDERS if number % 3 == 0 else tuple(few)
        yield RenyiLine(_log_uniform(rng, 1e-7, 20.0), orders), _log_uniform(rng, 1e-15, 0.3)


def above(plan: Plan) -> tuple[float, str]:
    """How far our price is above the least published one, as a ratio minus 1 (negative if below), and whose it is."""
    bounds = plan.published()
    if not bounds:
        return -1.0, ""
    name = min(bounds, key=lambda key: bounds[key])
    ours, least = plan.cost().epsilon(plan.delta), bounds[name]
    if ours <= least:
        return -1.0 + (ours / least if least > 0.0 else 1.0), name
    return (ours / least - 1.0 if least > 0.0 else math.inf), name
