"""What one training costs, for every configuration of a space: kinds of equal cost, or one line above all of them.

Where configurations differ in cost (sampling rate, epochs), the profiles are averaged under the prior, or their
pointwise maximum is taken (Koskela and Kulkarni 2023, section 4; ``docs/theorems/mixture.md``). Everything that is
charged for trainings is computed from these values, whoever made them.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace

from dptune.accounting import Cost, RenyiLine, mixture, worst
from dptune.errors import InvalidInput
from dptune.methods._machinery.declared import NOISE
from dptune.methods.trial import Params, Trial
from dptune.spaces import Candidates, Domain, Float

__all__ = ["Costs", "Kind", "TrainingCosts", "combinations"]


@dataclass(frozen=True)
class Costs:
    """The cost of a run whose candidate is drawn from the prior, of the worst candidate, of each in a list."""

    average: Cost
    worst: Cost
    each: tuple[Cost, ...]


@dataclass(frozen=True)
class Kind:
    """Configurations of equal cost: what they have in common, their noise, and the cost of one training."""

    when: Params
    noise: float | None
    cost: Cost


@dataclass(frozen=True)
class TrainingCosts:
    """The costs of one training over a space.

    Args:
        costs: how kinds are put together: "average", "largest", or "line" for one line above all candidates.
        kinds: configurations of equal cost.
        names: the parameters that tell kinds apart in a product space.
        of: the kind of each candidate, in a list of candidates whose costs differ.
        line: the line, where there is one.
    """

    costs: str
    kinds: tuple[Kind, ...]
    names: tuple[str, ...] = ()
    of: tuple[int, ...] | None = None
    line: RenyiLine | None = None

    def __post_init__(self) -> None:
        if self.costs not in ("average", "largest", "line"):
            raise InvalidInput(f"'costs' must be 'average', 'largest' or 'line'; got {self.costs!r}.")
        if (self.costs == "line") != (self.line is not None) or (self.costs == "line") == bool(self.kinds):
            raise InvalidInput("The costs of the plan must be kinds of configurations or one line; plan again.")

    @property
    def noise(self) -> float | None:
        """The noise of the first kind; None where it varies or the trainer sets its own."""
        return self.kinds[0].noise if self.kinds else None

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        """The cost of one training of every kind."""
        return tuple(kind.cost for kind in self.kinds)

    def over(self, space: Domain) -> Costs:
        """What runs cost whose candidates come from this space."""
        count = len(space) if isinstance(space, Candidates) else 0
        if self.line is not None:
            return Costs(self.line, self.line, (self.line,) * count)
        costs = self.run_costs
        largest, weights = worst(*costs), self._weights(space)
        average = mixture(zip(weights, costs, strict=True)) if self.costs == "average" else largest
        of = (0,) * count if self.of is None else self.of
        return Costs(average, largest, tuple(costs[kind] for kind in of))

    def _weights(self, space: Domain) -> list[float]:
        """The probability of each kind under the prior; refuses kinds that do not cover the space."""
        weights = [0.0] * len(self.kinds)
        if self.of is not None:
            if not isinstance(space, Candidates) or len(self.of) != len(space) or self.names:
                raise InvalidInput("The kinds of the plan do not fit its candidates; plan again.")
            for place, share in zip(self.of, space.prior, strict=True):
                weights[place] += share
        elif self.names:
            found = combinations(space, self.names)
            if [_key(when) for when, _ in found] != [_key(kind.when) for kind in self.kinds]:
                raise InvalidInput("The kinds of the plan do not cover its space; plan again.")
            weights = [share for _, share in found]
        else:
            weights = [1.0]
        if len(weights) != len(self.kinds) or min(weights) <= 0.0:
            raise InvalidInput("The plan has kinds of configurations that its space does not; plan again.")
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def oblige(self, trial: Trial, place: int | None = None) -> Trial:
        """The trial with its noise among the parameters, and with the cost or the line that it must obey.

        ``place`` is the index in a list of candidates, if the space is one.
        """
        if self.line is not None:
            return replace(trial, line=self.line)
        kind = self._kind(trial.params, place)
        noise = {} if kind.noise is None else {NOISE: kind.noise}
        return replace(trial, params={**trial.params, **noise}, declared=kind.cost)

    def _kind(self, params: Params, place: int | None) -> Kind:
        """The kind that a configuration belongs to."""
        if self.of is not None:
            if place is None:
                raise InvalidInput("A candidate whose cost depends on its place in the list needs that place.")
            return self.kinds[self.of[place]]
        if self.names:
            key = _key({name: params[name] for name in self.names})
            return next(one for one in self.kinds if _key(one.when) == key)
        return self.kinds[0]


def _key(when: Params) -> str:
    """What tells kinds apart, as text."""
    return json.dumps(when, sort_keys=True)


def combinations(space: Domain, names: tuple[str, ...]) -> list[tuple[Params, float]]:
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
