"""What one training costs, for every configuration of a space, and the noise that makes them fit together.

Where configurations differ in cost (sampling rate, epochs), each kind's noise is calibrated to one common epsilon and
the profiles are averaged under the prior, or their pointwise maximum is taken (Koskela and Kulkarni 2023,
section 4; ``docs/theorems/mixture.md``). A cost that changes with a continuous parameter cannot be enumerated; it is
refused unless every candidate is kept under a line (their appendix D; :mod:`dptune.methods.lines`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dptune.accounting import Cost
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods._declared import NOISE, declared_cost, tunable_noise
from dptune.methods._kinds import combinations, costs_of, noise_of
from dptune.methods.base import Budget, Params
from dptune.methods.lines import Line
from dptune.spaces import Candidates, Domain, Float, Space

__all__ = ["Bases", "Priced", "calibrated", "class_params"]

_MOST_KINDS = 256
_INNER_TOLERANCE = 1e-4
_OUTER_TOLERANCE = 2e-3  # where kinds are matched to each other, whose own tolerance must stay far below
_PROBES = (0.02, 0.37, 0.98)


@dataclass(frozen=True)
class Priced:
    """One choice of noise: the cost of a run whose candidate is drawn from the prior, and of the worst candidate."""

    base: Cost
    worst: Cost
    noise: float | None
    all_candidates: tuple[Cost, ...]
    settings: Params = field(compare=False)


@dataclass(frozen=True)
class _Kind:
    """Configurations of equal cost: one of them, and what they have in common."""

    example: Params
    when: Params


class Bases:
    """The costs of a trainer over a space, as a function of one level of noise."""

    def __init__(self, trainer: Any, space: Domain, budget: Budget, costs: str | Line = "average") -> None:
        line = Line() if costs == "line" else costs if isinstance(costs, Line) else None
        if line is None and costs not in ("average", "largest"):
            raise InvalidInput(f"'costs' must be 'average', 'largest', 'line' or Line(...); got {costs!r}.")
        self._trainer, self._budget, self._costs, self._space = trainer, budget, costs, space
        self._line = None if line is None else line.for_budget(budget)
        self.tunable = tunable_noise(trainer, space.default)
        self._of: list[int] | None = None
        self._names: list[str] = []
        self._kinds: list[_Kind] = []
        if self._line is not None:
            self._line.check(trainer, space, self.tunable)
        else:
            self._kinds = self._listed(space) if isinstance(space, Candidates) else self._enumerated(space)
        self._guess: dict[int, float] = {}
        self._known: dict[float | None, Priced] = {}

    # Which configurations cost the same.

    def _probe(self, params: Params) -> Cost:
        return declared_cost(self._trainer, {**params, NOISE: 2.0} if self.tunable else params)

    def _listed(self, space: Candidates) -> list[_Kind]:
        found: dict[Cost, int] = {}
        examples: list[Params] = []
        of: list[int] = []
        for item in space.items:
            cost = self._probe(item)
            if cost not in found:
                found[cost] = len(found)
                examples.append(item)
            of.append(found[cost])
        self._of = of if len(found) > 1 else None
        return [_Kind(item, {}) for item in examples]

    def _enumerated(self, space: Space) -> list[_Kind]:
        middle = space.default
        usual = self._probe(middle)
        for name, one in space.dimensions:
            values = [one.at(u) for u in _PROBES] if isinstance(one, Float) else [value for value, _ in one.law()]
            if all(self._probe({**middle, name: value}) == usual for value in values):
                continue
            if isinstance(one, Float):
                raise InvalidInput(
                    f"The cost of a run changes with {name!r}, which is continuous, so its average cannot be computed. "
                    f"Make {name!r} a Choice or an Int, tune over space.grid(...), or keep every candidate under "
                    "a line (costs='line')."
                )
            self._names.append(name)
        kinds = [_Kind({**middle, **when}, when) for when, _ in combinations(space, self._names)]
        if len(kinds) > _MOST_KINDS:
            raise InvalidInput(
                f"{len(kinds)} combinations of {', '.join(self._names)} differ in cost, more than {_MOST_KINDS}. "
                "Offer fewer values of them."
            )
        return kinds

    @property
    def tolerance(self) -> float:
        """How finely the level of noise can be calibrated."""
        return _INNER_TOLERANCE if len(self._kinds) <= 1 else _OUTER_TOLERANCE

    @property
    def adjustable(self) -> bool:
        """Whether there is anything that a budget can set."""
        return self.tunable if self._line is None else self._line.slope is None

    # Their costs at one level of noise.

    def at(self, level: float | None) -> Priced:
        """Costs when the first kind has this noise and all others the same epsilon; None if noise is not tunable."""
        if level not in self._known:
            self._known[level] = self._at(level)
        return self._known[level]

    def _at(self, level: float | None) -> Priced:
        base: Params = {"costs": "line", "kinds": [], "names": [], "of": None, "line": None}
        if self._line is not None:
            base["line"] = self._line.cost(level).describe()
        else:
            noises = self._noises(level)
            costs = [self._cost(kind, noise) for kind, noise in zip(self._kinds, noises, strict=True)]
            base |= {"costs": self._costs, "names": self._names, "of": self._of}
            base["kinds"] = [
                {"when": kind.when, "noise": noise, "cost": cost.describe()}
                for kind, noise, cost in zip(self._kinds, noises, costs, strict=True)
            ]
        found = costs_of(base, self._space)
        return Priced(found.base, found.worst, noise_of(base), found.all_candidates, base)

    def _noises(self, level: float | None) -> list[float | None]:
        noises: list[float | None] = [level if self.tunable else None]
        if level is not None and self.tunable and len(self._kinds) > 1:
            target = self._cost(self._kinds[0], level).epsilon(self._budget.delta)
            return noises + [self._matched(i, target) for i in range(1, len(self._kinds))]
        return noises + [None] * (len(self._kinds) - 1)

    def _cost(self, kind: _Kind, noise: float | None) -> Cost:
        return declared_cost(self._trainer, kind.example if noise is None else {**kind.example, NOISE: noise})

    def _matched(self, place: int, target: float) -> float:
        kind = self._kinds[place]
        noise = calibrate_noise(
            lambda level: self._cost(kind, level),
            target,
            self._budget.delta,
            tolerance=_INNER_TOLERANCE,
            start=self._guess.get(place, 1.0),
        )
        self._guess[place] = noise
        return noise


def calibrated(
    bases: Bases,
    total: Callable[[Priced], Cost],
    budget: Budget,
    what: str,
    guide: Callable[[Priced], Cost] | None = None,
) -> tuple[Priced, Cost]:
    """The smallest noise whose total stays within the budget, the costs there, and the total.

    ``guide`` is the part of the total that the noise moves, if the rest is known to fit; the total is verified.
    """
    if not bases.adjustable:
        priced = bases.at(None)
        cost = total(priced)
        price = cost.epsilon(budget.delta)
        if price > budget.epsilon:
            raise BudgetExceeded(
                f"{what} costs epsilon {price:.4g} at delta {budget.delta:g}, more than the budget {budget.epsilon:g}, "
                "and the trainer's noise is not tunable (its cost does not follow 'noise_multiplier') or the line is "
                "fixed. Raise the budget, expect fewer runs, or declare a smaller cost per run."
            )
        return priced, cost
    level = calibrate_noise(
        lambda noise: (guide or total)(bases.at(noise)), budget.epsilon, budget.delta, tolerance=bases.tolerance
    )
    priced = bases.at(level)
    cost = total(priced)
    if cost.epsilon(budget.delta) > budget.epsilon:
        raise BudgetExceeded(f"{what} could not be brought within epsilon {budget.epsilon:g}; raise the budget.")
    return priced, cost


def class_params(base: Params, params: Params, place: int | None = None) -> tuple[Params, Params]:
    """The parameters that a trainer gets for a configuration (noise included), and what its cost must obey.

    That is ``{"cost": ...}``, the cost that it must declare, or ``{"line": ...}``, under which its curve must stay.

    ``base`` is ``Priced.settings``; ``place`` is the index in a list of candidates, if the space is one.
    """
    if base["costs"] == "line":
        return dict(params), {"line": base["line"]}
    kinds = base["kinds"]
    if base["of"] is not None:
        if place is None:
            raise InvalidInput("A candidate whose cost depends on its place in the list needs that place.")
        kind = kinds[base["of"][place]]
    elif base["names"]:
        when = json.dumps({name: params[name] for name in base["names"]}, sort_keys=True)
        kind = next(one for one in kinds if json.dumps(one["when"], sort_keys=True) == when)
    else:
        kind = kinds[0]
    noise = {} if kind["noise"] is None else {NOISE: kind["noise"]}
    return {**params, **noise}, {"cost": kind["cost"]}
