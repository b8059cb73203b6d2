"""The costs that a plan's settings describe: kinds of configurations and their costs, or one line above all of them.

``base`` is a dictionary of plain values: ``costs`` ("average", "largest" or "line"), ``kinds`` (of equal cost, with
their noise), ``names`` (the parameters that tell kinds apart in a product space) or ``of`` (the kind of each candidate
in a list), ``line``. Everything that is charged is computed from it here, whoever wrote it.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass

from dptune.accounting import Cost, RenyiLine, cost_from_json, mixture, parallel
from dptune.errors import InvalidInput
from dptune.methods.base import Params
from dptune.spaces import Candidates, Domain, Float

__all__ = ["Costs", "combinations", "costs_of", "kind_weights", "noise_of"]


@dataclass(frozen=True)
class Costs:
    """A run whose candidate is drawn from the prior, the worst candidate, and every candidate of a list."""

    base: Cost
    worst: Cost
    all_candidates: tuple[Cost, ...]


def combinations(space: Domain, names: list[str]) -> list[tuple[Params, float]]:
    """Every combination of the values of these parameters of a product space, with its probability."""
    if isinstance(space, Candidates):
        raise InvalidInput("Kinds in a list of candidates are told apart by their places, not by names.")
    dimensions = dict(space.dimensions)
    laws: list[list[tuple[Params, float]]] = []
    for name in names:
        one = dimensions[name]
        laws.append([] if isinstance(one, Float) else [({name: value}, share) for value, share in one.law()])
    return [
        (
            {key: value for part, _ in combination for key, value in part.items()},
            math.prod(share for _, share in combination),
        )
        for combination in itertools.product(*laws)
    ]


def kind_weights(base: Params, space: Domain) -> list[float]:
    """The probability of each kind under the prior; refuses kinds that do not cover the space."""
    kinds, of, names = base["kinds"], base["of"], base["names"]
    weights = [0.0] * len(kinds)
    if of is not None:
        if not isinstance(space, Candidates) or len(of) != len(space) or names:
            raise InvalidInput("The kinds of the plan do not fit its candidates; plan again.")
        for place, share in zip(of, space.prior, strict=True):
            weights[place] += share
    elif names:
        found = combinations(space, names)
        if [json.dumps(when, sort_keys=True) for when, _ in found] != [
            json.dumps(kind["when"], sort_keys=True) for kind in kinds
        ]:
            raise InvalidInput("The kinds of the plan do not cover its space; plan again.")
        weights = [share for _, share in found]
    else:
        weights = [1.0]
    if len(weights) != len(kinds) or min(weights) <= 0.0:
        raise InvalidInput("The plan has kinds of configurations that its space does not; plan again.")
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def costs_of(base: Params, space: Domain) -> Costs:
    """What runs with these settings cost."""
    count = len(space) if isinstance(space, Candidates) else 0
    how = base["costs"]
    if how == "line":
        line = cost_from_json(base["line"])
        if not isinstance(line, RenyiLine):
            raise InvalidInput("The line of the plan must be a 'renyi-line'; plan again.")
        return Costs(line, line, (line,) * count)
    if how not in ("average", "largest"):
        raise InvalidInput(f"'costs' must be 'average', 'largest' or 'line'; got {how!r}.")
    costs = [cost_from_json(kind["cost"]) for kind in base["kinds"]]
    worst, weights = parallel(*costs), kind_weights(base, space)
    average = mixture(zip(weights, costs, strict=True)) if how == "average" else worst
    of = [0] * count if base["of"] is None and count else base["of"]
    return Costs(average, worst, tuple(costs[kind] for kind in of or ()))


def noise_of(base: Params) -> float | None:
    """The noise of the first kind; None where it varies or the trainer sets its own."""
    noise = base["kinds"][0]["noise"] if base["kinds"] else None
    return None if noise is None else float(noise)
