"""Methods and their plans: everything about a run that is fixed before data is touched, one frozen type for each.

What a plan says beside its fields (cost, noise, law, theorem, assumptions) is derived from them, so it cannot say
anything else; a plan that was stored is derived again when it is read, and an edited one is refused. Adding a method
means one file with a subclass of :class:`Plan` and one of :class:`Method`: both are known by their name from then on,
to commands, planners, audits and tests (``docs/contributing.md``). Nothing here may read data, print or log.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from dptune._codec import from_json, to_values
from dptune.accounting import ADDED_OR_REMOVED, Cost, Runs
from dptune.accounting.cost import completed
from dptune.accounting.neighbours import neighbours_from_text
from dptune.errors import InvalidInput
from dptune.methods.budget import Budget
from dptune.methods.trial import Params, Search
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Candidates, Domain
from dptune.trainer import DeclaresCost

if TYPE_CHECKING:
    from dptune.methods.comparison import Entry, Setting

__all__ = ["ENTRY_POINTS", "Budget", "Method", "Plan", "known_methods", "method_named", "plan_from_json"]

ENTRY_POINTS = "dptune.methods"
"""The group of entry points by which an installed package offers methods: ``name = "package.module:Class"``."""

_KINDS: dict[str, type[Plan]] = {}
_METHODS: dict[str, type[Method]] = {}
_EDITED = "it was edited, or made by another version. Plan again."


class Method(ABC):
    """A frozen description of how to tune; one with a ``name`` is registered where it is defined.

    Its fields are its settings, by the names that job files use. Some names are filled from the rest of the job
    (:mod:`dptune.methods.settings`): ``space`` or ``candidates``, ``runs``, ``validation``, and ``method`` for one
    that is made of another. An implementer gives :meth:`plan`, which must depend on the settings, the budget and the
    declared costs alone, and must return a plan whose cost is within the budget. :mod:`dptune.methods.toolkit` has what
    methods are made of, :func:`dptune.testing.searches.check_method` tests one.

    Example:
        >>> import dptune as dpt
        >>> isinstance(dpt.RandomStopping(dpt.Space.of([{"layers": 1}]), dpt.Geometric(10)), Method)
        True
    """

    name: ClassVar[str]
    usual: ClassVar[Mapping[str, Any]] = {}
    """Settings that a job may leave out although the class has no default for them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            _register(_METHODS, cls.name, cls)

    place: ClassVar[int] = 100
    """Where tables of all methods list it: the smaller, the earlier."""

    @abstractmethod
    def plan(self, budget: Budget, trainer: DeclaresCost) -> Plan:
        """The plan with the smallest noise whose total cost stays within the budget; touches no data.

        Args:
            budget: the total for everything that leaves a run.
            trainer: declares what one training costs.

        Returns:
            The plan.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer cannot be used with this method.
        """

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """The rows of this method in a comparison of all methods; none, unless it says otherwise.

        Args:
            setting: what all methods are given.

        Returns:
            One entry for each row.
        """
        del setting
        return ()


def _register(known: dict[str, type[Any]], name: str, cls: type[Any]) -> None:
    """Keep a class by its name; two methods of one name would read each other's plans."""
    other = known.get(name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidInput(
            f"{cls.__qualname__} calls itself {name!r}, as {other.__qualname__} of {other.__module__} does; give it "
            "another name."
        )
    known[name] = cls


@dataclass(frozen=True)
class Plan(ABC):
    """What a run does and costs, before any record is read; all of it is public.

    Every method has a subclass whose fields are what its search needs. The properties below answer what others
    ask of any plan; a method without, say, a law of the number of runs leaves the answer None. Whatever a plan says
    is derived from its fields, and :meth:`check` refuses fields that its theorem does not cover.

    Args:
        budget: the total that was planned for.
        default: what is released when there was no run or all failed; it must lie in the space.

    Raises:
        InvalidInput: the default is outside of the space, so its cost would not be known.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> space = dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True))
        >>> plan = dpt.RandomStopping(space, dpt.Geometric(10)).plan(dpt.Budget(1, 1e-5), train)
        >>> plan.expected_runs, round(plan.price(), 3), plan.theorem
        (10.0, 0.541, 'docs/theorems/select.md')
    """

    budget: Budget
    default: Params

    method: ClassVar[str]
    guaranteed: ClassVar[bool] = True
    """False for yardsticks that give no privacy: the runner refuses private data then."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "method" in cls.__dict__:
            _register(_KINDS, cls.method, cls)

    def __post_init__(self) -> None:
        if not _lies_in(self.space, self.default):
            raise InvalidInput("The plan's default is outside of its space, so its cost is not known; plan again.")
        self.check()

    def check(self) -> None:  # noqa: B027 - a theorem may cover every value that the types allow
        """Refuse fields that the method's theorem does not cover: a stored plan may have been edited."""

    # What every method answers.

    @property
    @abstractmethod
    def space(self) -> Domain:
        """What may be tried."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """The cost of everything that leaves a run under this plan."""

    @property
    @abstractmethod
    def noise(self) -> float | None:
        """The noise multiplier of a training; None where it varies or the trainer sets its own."""

    @property
    @abstractmethod
    def expected_runs(self) -> float:
        """How many trainings there are in expectation."""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The page in ``docs/`` that proves the cost."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """Sentences for the statement: what the guarantee rests on."""

    @abstractmethod
    def start(self, randomness: Randomness) -> Search:
        """Begin, or begin again after a crash, with the run's own randomness."""

    # What some methods answer.

    @property
    def law(self) -> Runs | None:
        """The law of the number of runs, if it is drawn."""
        return None

    @property
    def validation(self) -> PrivateValidation | None:
        """How private records score the runs; None where scores are public or the method has none."""
        return None

    @property
    def scored(self) -> bool:
        """Whether the trainer's own score decides, unless there is private validation."""
        return True

    @property
    def needs_warm_start(self) -> bool:
        """Whether a training continues from a tuned model, so that the trainer must have ``fit_from``."""
        return False

    @property
    def batch(self) -> int | None:
        """How many runs are drawn from one sampling law, where earlier scores steer later draws."""
        return None

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        """The costs of one training, one for each kind of configuration that differs in cost."""
        return (self.cost,)

    @property
    def published_form(self) -> tuple[Cost, Runs] | None:
        """The cost of a run and the law of their number, where published bounds know the method; None elsewhere."""
        return None

    # What follows from the above.

    @property
    def noise_multiplier(self) -> float | None:
        """The noise of a training (:attr:`noise`), by the name that trainers use."""
        return self.noise

    def price(self) -> float:
        """The epsilon of the whole run at the budget's delta; infinite for a method without a guarantee."""
        return self.cost.epsilon(self.budget.delta) if self.guaranteed else math.inf

    def describe(self) -> dict[str, Any]:
        """The plan as plain JSON values: the settings, and what follows from them for readers."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("budget", "default")]
        return {
            "method": self.method,
            "settings": {name: to_values(getattr(self, name)) for name in names},
            "cost": self.cost.describe(),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "neighbours": str(self.budget.neighbours),
            "noise_multiplier": self.noise,
            "expected_runs": self.expected_runs,
            "theorem": self.theorem,
            "assumptions": list(self.assumptions),
            "default": to_values(self.default),
            "guaranteed": self.guaranteed,
        }

    def to_json(self) -> str:
        """The plan as text, which :func:`plan_from_json` reads."""
        return json.dumps(self.describe(), sort_keys=True)


def known_methods() -> tuple[str, ...]:
    """The names of all methods that are loaded.

    Returns:
        The names, sorted.

    Example:
        >>> import dptune.methods
        >>> "random-stopping" in known_methods()
        True
    """
    return tuple(sorted(_METHODS))


def method_named(name: str) -> type[Method]:
    """The method of this name: one that is loaded, or one that an installed package offers by an entry point.

    Args:
        name: as in ``known_methods()``, or the name of an entry point of the group ``dptune.methods``.

    Returns:
        The class.

    Raises:
        InvalidInput: there is no such method, or its package cannot be imported.

    Example:
        >>> import dptune.methods
        >>> method_named("noisy-best").__name__
        'NoisyBest'
    """
    if name not in _METHODS:
        _load_offered(name)
    if name not in _METHODS:
        raise InvalidInput(f"Unknown method {name!r}; known: {', '.join(known_methods())}.")
    return _METHODS[name]


def _load_offered(name: str) -> None:
    """Import what an installed package offers under this name, if any does."""
    for offered in metadata.entry_points(group=ENTRY_POINTS, name=name):
        try:
            offered.load()
        except Exception as error:
            raise InvalidInput(
                f"The method {name!r} is offered by {offered.value!r}, which cannot be imported ({error}); mend or "
                "remove that package."
            ) from None


def plan_from_json(data: str | Mapping[str, Any]) -> Plan:
    """Read a plan that :meth:`Plan.to_json` wrote, and derive again all that it says.

    Args:
        data: the text, or the parsed object.

    Returns:
        An equal plan.

    Raises:
        InvalidInput: it is not a plan, or it says anything that its settings do not give: it was edited, or made by
            another version.

    Example:
        >>> import dptune as dpt
        >>> train = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
        >>> plan = dpt.RandomStopping(dpt.Space.of([{"layers": 1}]), dpt.Geometric(10)).plan(dpt.Budget(1, 1e-5), train)
        >>> plan_from_json(plan.to_json()) == plan
        True
        >>> edited = plan.to_json().replace('"expected_runs": 10.0', '"expected_runs": 2.0')
        >>> plan_from_json(edited)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The plan's 'expected_runs' is not what its settings give: it was edited, ...
    """
    try:
        stored = _completed(json.loads(data) if isinstance(data, str) else dict(data))
        method, settings = str(stored["method"]), dict(stored["settings"])
        relation = neighbours_from_text(stored["neighbours"])
        budget, default = Budget(stored["epsilon"], stored["delta"], relation), dict(stored["default"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"Not a plan: {error}. Write it with Plan.to_json().") from None
    if method not in _KINDS:
        _load_offered(method)
    if method not in _KINDS:
        raise InvalidInput(
            f"Unknown method {method!r} in the plan; known: {', '.join(known_methods())}. Import the module of a "
            "method of your own first."
        )
    fields = {**settings, "budget": to_values(budget), "default": default}
    plan = from_json(fields, _KINDS[method], "a plan with the settings of its method")
    _compare(plan, stored)
    return plan


def _completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored plan with its relation; those of older versions, which do not say it, are about single records."""
    whole = completed(stored)
    return {"neighbours": str(ADDED_OR_REMOVED), **whole} if isinstance(whole, dict) else dict(stored)


def _compare(plan: Plan, stored: Mapping[str, Any]) -> None:
    """Refuse a stored plan that says anything but what its settings give."""
    derived = json.loads(plan.to_json())
    if derived["guaranteed"] and stored.get("cost") != derived["cost"]:
        stated = from_json(stored.get("cost", {}), Cost, "a cost").epsilon(plan.budget.delta)  # type: ignore[type-abstract] # a family
        raise InvalidInput(
            f"The plan states a cost of epsilon {stated:.6g}, but its settings cost {plan.price():.6g} at delta "
            f"{plan.budget.delta:g}: {_EDITED}"
        )
    wrong = [name for name in {**derived, **stored} if name not in stored or derived.get(name) != stored[name]]
    if wrong:
        raise InvalidInput(f"The plan's {wrong[0]!r} is not what its settings give: {_EDITED}")


def _lies_in(space: Domain, params: Params) -> bool:
    if isinstance(space, Candidates):
        return params in space.items
    named = dict(space.dimensions)
    return named.keys() == params.keys() and all(one.contains(params[name]) for name, one in named.items())
