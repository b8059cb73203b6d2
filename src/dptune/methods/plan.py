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
from typing import TYPE_CHECKING, Any, ClassVar

from dptune._codec import to_values
from dptune.accounting import Cost, Runs
from dptune.errors import InvalidInput
from dptune.methods.budget import Budget
from dptune.methods.registry import register_method, register_plan
from dptune.methods.trial import Params, Search
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Candidates, Domain
from dptune.trainer import DeclaresCost

if TYPE_CHECKING:
    from dptune.methods.comparison import Entry, Setting

__all__ = ["Budget", "Method", "Plan"]


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
    """Settings that a job may leave out although the class has no default for them; a function is given the number of
    candidates, where the method has a list of them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            register_method(cls)

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
            register_plan(cls)

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
        """The space that configurations come from."""

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
        """The plan as text, which :func:`~dptune.methods.stored.plan_from_json` reads."""
        return json.dumps(self.describe(), sort_keys=True)


def _lies_in(space: Domain, params: Params) -> bool:
    if isinstance(space, Candidates):
        return params in space.items
    named = dict(space.dimensions)
    return named.keys() == params.keys() and all(one.contains(params[name]) for name, one in named.items())
