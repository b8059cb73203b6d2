"""What every tuning method gives to the sealed runner: a Plan, and the Search that it starts.

A plan is made without data and says everything about a run that may be public; a search asks for trainings,
is told their scores and names the winner. A search must be a deterministic function of (randomness, outcomes
told), so that a run that was cut off is resumed by starting it again and telling the stored outcomes.
Nothing here may read data, print, log or keep state outside the search.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dptune._validate import real
from dptune.accounting.cost import Cost, cost_from_json
from dptune.errors import InvalidInput
from dptune.methods.parts import ALL, DataPart, part_from_json
from dptune.spaces import Candidates, Domain

__all__ = [
    "Budget",
    "Meaning",
    "Method",
    "Outcome",
    "Plan",
    "Randomness",
    "Search",
    "Selection",
    "Trial",
    "meaning_of",
    "plan_from_json",
    "plan_of",
    "register_search",
    "trial_from_json",
]

Params = dict[str, Any]
Label = tuple[str | int, ...]


@dataclass(frozen=True)
class Budget:
    """One total budget: everything that leaves a run together is (epsilon, delta)-differentially private."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hint = "It is the total for tuning, choice and final training."
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, 0, 500, low_open=True, hint=hint))
        hint = "It must be far below one over the number of records; a common choice is 1e-5."
        checked = real("delta", self.delta, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "delta", checked)


@runtime_checkable
class Randomness(Protocol):
    """A run's secret randomness, addressed by label, so that the order of calls does not matter."""

    def integer_bits(self, n: int, /, *label: str | int) -> int:
        """A uniform integer in [0, 2^n)."""

    def uniform(self, *label: str | int) -> float:
        """A uniform in (0, 1)."""

    def generator(self, *label: str | int) -> np.random.Generator:
        """A generator that is a cryptographic expansion of the run's secret by label."""


@dataclass(frozen=True)
class Trial:
    """One training to do.

    ``index`` numbers the trials of a run from 0; ``part`` says which records are trained on; ``seed_label``
    is the label of the run's randomness from which the trainer's generator is made. ``extra`` may hold

    * ``validation``: private validation, ``{"part": [...], "denominator": M, "noise": deviation of the count}``;
    * ``cost``: the declared cost of one training (JSON); a trainer that declares another one fails the trial;
    * ``line``: instead, a line (JSON) under which the declared cost must stay, and which sets the noise;
    * ``candidate``: the configuration as the space has it, before noise and public ratios were applied;
    * ``final``: true for the final training, whose score nobody uses;
    * ``warm_start``: the index of the trial whose model is the starting point.

    :mod:`dptune.methods.execute` obeys all of them, for one trial and for a stack; the runner calls nothing else.
    """

    index: int
    params: Params
    part: DataPart = ALL
    seed_label: Label = ()
    extra: Params = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """As plain JSON values; the inverse of :func:`trial_from_json`."""
        return {
            "index": self.index,
            "params": self.params,
            "part": self.part.describe(),
            "seed_label": list(self.seed_label),
            "extra": self.extra,
        }

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.describe(), sort_keys=True)


def trial_from_json(data: str | Mapping[str, Any]) -> Trial:
    """The inverse of :meth:`Trial.to_json`; also accepts the parsed object."""
    fields = json.loads(data) if isinstance(data, str) else data
    return Trial(
        int(fields["index"]),
        dict(fields["params"]),
        part_from_json(fields["part"]),
        tuple(fields["seed_label"]),
        dict(fields["extra"]),
    )


@dataclass(frozen=True)
class Outcome:
    """The score of a trial; minus infinity for a failure (a score that is no number is a failure too)."""

    index: int
    score: float

    def __post_init__(self) -> None:
        score = float(self.score)
        object.__setattr__(self, "score", -math.inf if math.isnan(score) else score)


@dataclass(frozen=True)
class Selection:
    """What a search chose.

    ``winner`` is the trial whose model is released, None for the public default. If ``final`` is there it is
    trained after the selection and its model is the one released (its failure releases the parameters alone).
    """

    winner: int | None
    params: Params
    final: Trial | None = None


class Search(Protocol):
    """The running half of a method. Not thread-safe: one owner asks and tells."""

    @property
    def done(self) -> bool:
        """Whether every outcome that the result needs has been told."""

    def ask(self) -> list[Trial]:
        """Trials that may run now, in any order and in parallel; each is given once; empty when none is left."""

    def tell(self, outcome: Outcome) -> None:
        """Report a trial that ``ask`` gave, once."""

    def result(self) -> Selection:
        """The choice; only when done."""


class Method(Protocol):
    """A frozen description of how to tune."""

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise whose total cost stays within the budget; touches no data."""


@dataclass(frozen=True)
class Meaning:
    """What the settings of a plan amount to: everything that the plan says beside them."""

    cost: Cost
    noise_multiplier: float | None
    expected_runs: float
    theorem: str
    assumptions: tuple[str, ...]
    space: Domain | None = None  # if there is one, the public default must lie in it
    guaranteed: bool = True


Starter = Callable[["Plan", Randomness], Search]
Reader = Callable[[Params], Meaning]
_STARTERS: dict[str, Starter] = {}
_READERS: dict[str, Reader] = {}


def register_search(method: str, meaning: Reader) -> Callable[[Starter], Starter]:
    """Make plans know a method by its name: its search, and what its settings cost.

    ``meaning`` computes the cost from the settings alone, so that a plan that was stored cannot claim another one.
    """

    def remember(starter: Starter) -> Starter:
        _STARTERS[method], _READERS[method] = starter, meaning
        return starter

    return remember


def meaning_of(method: str, settings: Params) -> Meaning:
    """What the settings of a method's plan amount to."""
    if method not in _READERS:
        raise InvalidInput(f"Unknown method {method!r} in the plan; known: {', '.join(sorted(_READERS))}.")
    try:
        return _READERS[method](settings)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"The settings of the plan are damaged ({error!r}). Plan again.") from None


def plan_of(method: str, settings: Params, budget: Budget, default: Params) -> Plan:
    """The plan of a method with these settings; everything else in it follows from them."""
    meaning = meaning_of(method, settings)
    return Plan(
        method=method,
        settings=settings,
        cost=meaning.cost,
        budget=budget,
        noise_multiplier=meaning.noise_multiplier,
        expected_runs=meaning.expected_runs,
        theorem=meaning.theorem,
        assumptions=meaning.assumptions,
        default=default,
        guaranteed=meaning.guaranteed,
    )


@dataclass(frozen=True)
class Plan:
    """Everything about a run that is fixed before data is touched; all of it is public.

    ``settings`` is what the search needs; ``default`` is released when there was no run or all failed;
    ``assumptions`` are sentences for the statement, ``theorem`` the page in ``docs/`` that proves the cost.
    ``guaranteed`` is false for the baselines that give no privacy: the runner must refuse private data then.
    """

    method: str
    settings: Params
    cost: Cost
    budget: Budget
    noise_multiplier: float | None
    expected_runs: float
    theorem: str
    assumptions: tuple[str, ...]
    default: Params
    guaranteed: bool = True

    def price(self) -> float:
        """The epsilon of the whole run at the budget's delta."""
        return self.cost.epsilon(self.budget.delta) if self.guaranteed else math.inf

    def check(self) -> None:
        """Refuse a plan that says anything that its settings do not give: it was edited, or made by another version."""
        meaning = meaning_of(self.method, self.settings)
        if meaning.space is not None and not _lies_in(meaning.space, self.default):
            raise InvalidInput("The plan's default is outside of its space, so its cost is not known; plan again.")
        if meaning.guaranteed and self.guaranteed and meaning.cost.describe() != self.cost.describe():
            stated, derived = self.price(), meaning.cost.epsilon(self.budget.delta)
            raise InvalidInput(
                f"The plan states a cost of epsilon {stated:.6g}, but its settings cost {derived:.6g} at delta "
                f"{self.budget.delta:g}: it was edited, or made by another version. Plan again."
            )
        made, said = plan_of(self.method, self.settings, self.budget, self.default).describe(), self.describe()
        wrong = [name for name in made if made[name] != said[name]]
        if wrong:
            raise InvalidInput(
                f"The plan's {wrong[0]!r} is not what its settings give: it was edited, or made by another version. "
                "Plan again."
            )

    def start(self, randomness: Randomness) -> Search:
        """Begin, or begin again after a crash, with the run's own randomness."""
        if self.method not in _STARTERS:
            known = ", ".join(sorted(_STARTERS))
            raise InvalidInput(f"Unknown method {self.method!r} in the plan; known: {known}.")
        return _STARTERS[self.method](self, randomness)

    def describe(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "method": self.method,
            "settings": self.settings,
            "cost": self.cost.describe(),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "noise_multiplier": self.noise_multiplier,
            "expected_runs": self.expected_runs,
            "theorem": self.theorem,
            "assumptions": list(self.assumptions),
            "default": self.default,
            "guaranteed": self.guaranteed,
        }

    def to_json(self) -> str:
        """As text; the inverse of :func:`plan_from_json`."""
        return json.dumps(self.describe(), sort_keys=True)


def _lies_in(space: Domain, params: Params) -> bool:
    if isinstance(space, Candidates):
        return params in space.items
    named = dict(space.dimensions)
    return named.keys() == params.keys() and all(one.contains(params[name]) for name, one in named.items())


def plan_from_json(data: str | Mapping[str, Any]) -> Plan:
    """The inverse of :meth:`Plan.to_json`; also accepts the parsed object."""
    try:
        fields = json.loads(data) if isinstance(data, str) else data
        return Plan(
            method=str(fields["method"]),
            settings=dict(fields["settings"]),
            cost=cost_from_json(fields["cost"]),
            budget=Budget(fields["epsilon"], fields["delta"]),
            noise_multiplier=fields["noise_multiplier"],
            expected_runs=float(fields["expected_runs"]),
            theorem=str(fields["theorem"]),
            assumptions=tuple(fields["assumptions"]),
            default=dict(fields["default"]),
            guaranteed=bool(fields["guaranteed"]),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"Not a plan: {error}. Write it with Plan.to_json().") from None
