"""Tuning on a random part, training on the rest or on everything (Koskela and Kulkarni 2023, variants 1 and 2).

Variant 1 costs ``disjoint(tune, base, q)``, variant 2 ``compose(subsample(tune, q), base)``; see
``docs/theorems/disjoint.md`` and ``subsample.md``. The part is drawn by independent coins; ratios used for transfer
are public, never the private sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from dptune._validate import real
from dptune.accounting import Cost, Runs, compose, disjoint, subsample
from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import TrainingCosts
from dptune.methods._machinery.declared import check_factors
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import RATES, Training, default_params, scaled_batch
from dptune.methods.budget import Budget
from dptune.methods.comparison import Entry, Setting
from dptune.methods.parts import Coin, DataPart
from dptune.methods.plan import Method, Plan
from dptune.methods.random_stopping import RandomStopping, Tuning
from dptune.methods.trial import Outcome, Params, Search, Selection, Trial
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Domain
from dptune.trainer import DeclaresCost, DeclaresTransfer

__all__ = ["Subset", "SubsetPlan"]

_SHARES = {"sgd": 1.0, "whitened": 0.75}  # of the ratio of sizes, for learning rates: benchmarks/landscapes.py


def parts_of(fraction: float, train_on: str) -> tuple[DataPart, DataPart]:
    """The records that are tuned on, and those that the final training sees."""
    rest = (Coin(fraction, False),) if train_on == "rest" else ()
    return DataPart((Coin(fraction),)), DataPart(rest)


@dataclass(frozen=True)
class SubsetPlan(Plan):
    """Tune on a random part of the records, then train once.

    Args:
        tuning: the runs on the part.
        final: the training that is released.
        fraction: the probability that a record is used for tuning.
        train_on: "rest" (variant 1) or "all" (variant 2): what the final training sees.
        factors: by what the winner's parameters are multiplied for the final training.
        warm_start: whether the final training begins from the winner's model.
    """

    tuning: Tuning
    final: Training
    fraction: float
    train_on: str
    factors: dict[str, float]
    warm_start: bool

    method: ClassVar[str] = "subset"

    def check(self) -> None:
        Subset.check(self.fraction, self.train_on)
        before, after = parts_of(self.fraction, self.train_on)
        if self.tuning.part != before or self.final.part != after or self.final.validation is not None:
            raise InvalidInput("The plan's parts of the records are not those of its fraction; plan again.")

    @property
    def space(self) -> Domain:
        return self.tuning.space

    @cached_property
    def cost(self) -> Cost:
        # The winner decides the final training, so its cost must hold for every candidate.
        tune, worst = self.tuning.cost, self.final.base.over(self.space).worst
        if self.train_on == "rest":
            return self.budget.covering(disjoint(tune, worst, self.fraction))
        return self.budget.covering(compose(subsample(tune, self.fraction), worst))

    @property
    def noise(self) -> float | None:
        return self.final.base.noise

    @property
    def expected_runs(self) -> float:
        return self.tuning.runs.expected + 1.0

    @property
    def theorem(self) -> str:
        return "docs/theorems/disjoint.md" if self.train_on == "rest" else "docs/theorems/subsample.md"

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *self.tuning.assumptions,
            f"Each record was used for tuning with probability {self.fraction:g}, by an independent coin; which "
            "records and how many is not released.",
            "The final training costs no more than declared, whatever the tuning chose.",
        )

    @property
    def law(self) -> Runs:
        return self.tuning.runs

    @property
    def validation(self) -> PrivateValidation | None:
        return self.tuning.validation

    @property
    def batch(self) -> int | None:
        return self.tuning.batch

    @property
    def needs_warm_start(self) -> bool:
        return self.warm_start

    @property
    def run_costs(self) -> tuple[Cost, ...]:
        return self.final.base.run_costs or (self.cost,)

    def start(self, randomness: Randomness) -> Search:
        return SubsetSearch(self, randomness)


@dataclass(frozen=True)
class Subset(Method):
    """Tune on a random part of the records, then train once on the rest or on everything (Koskela and Kulkarni 2023).

    Args:
        method: how to tune on the part: ``RandomStopping(...)`` or ``Adaptive(...)``.
        fraction: the probability that a record is used for tuning.
        final: what the final training sees: "rest" (variant 1) or "all" (variant 2).
        transfer: what happens to the winner's parameters: "sgd" multiplies the learning rate by the public ratio of
            sizes, "whitened" by three quarters of it, "none" (right for Adam) changes nothing, a dictionary gives a
            factor for each parameter, "auto" does as the trainer says (:class:`~dptune.trainer.DeclaresTransfer`) and
            changes nothing if it says nothing.
        warm_start: whether the final training begins from the tuned model; the trainer must have ``fit_from``
            (:class:`~dptune.trainer.SupportsWarmStart`).

    Raises:
        InvalidInput: an argument is not what it must be.

    Example:
        >>> import dptune as dpt
        >>> space = dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True))
        >>> subset = dpt.Subset(dpt.RandomStopping(space, dpt.Geometric(10)), fraction=0.2)
        >>> subset.final_share, subset.ratio  # the final training sees four times the records of a tuning run
        (0.8, 4.0)
    """

    method: RandomStopping
    fraction: float
    final: str = "rest"
    transfer: str | Mapping[str, float] = "auto"
    warm_start: bool = False

    name: ClassVar[str] = "subset"
    usual: ClassVar[Mapping[str, Any]] = {"fraction": 0.1, "inner": RandomStopping.name}
    place: ClassVar[int] = 5

    def __post_init__(self) -> None:
        if not isinstance(self.method, RandomStopping):
            raise InvalidInput(f"'method' must be RandomStopping(...) or Adaptive(...); got {self.method!r}.")
        object.__setattr__(self, "fraction", self.check(self.fraction, self.final))
        if isinstance(self.transfer, Mapping):
            for name, factor in self.transfer.items():
                if name not in self.method.space.names:
                    known = ", ".join(self.method.space.names)
                    raise InvalidInput(f"'transfer' is for what is tuned ({known}); {name!r} is not. Leave it out.")
                real(f"transfer of {name}", factor, 0, low_open=True)
        elif self.transfer not in ("auto", "none", *_SHARES):
            known = "'auto', 'sgd', 'whitened', 'none'"
            raise InvalidInput(f"'transfer' must be {known} or a dictionary; got {self.transfer!r}.")

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: one for each variant."""
        inner, q = RandomStopping(setting.candidates, setting.runs), setting.fraction
        tuned = setting.runs.expected * q
        return (
            Entry("subset, rest", cls(inner, q), tuned + 1 - q, lambda _: (setting.hit, None)),
            Entry("subset, all", cls(inner, q, final="all"), tuned + 1, lambda _: (setting.hit, None)),
        )

    @staticmethod
    def check(fraction: float, final: str) -> float:
        """The fraction, if both figures are what the theorems cover.

        Args:
            fraction: in (0, 1).
            final: "rest" or "all".

        Returns:
            The fraction as a number.

        Raises:
            InvalidInput: one of them is not.
        """
        if final not in ("rest", "all"):
            raise InvalidInput(f"'final' must be 'rest' (variant 1) or 'all' (variant 2); got {final!r}.")
        hint = "It is the probability that a record is used for tuning."
        return real("fraction", fraction, 0, 1, low_open=True, high_open=True, hint=hint)

    @property
    def final_share(self) -> float:
        """The expected share of the records that the final training sees."""
        return 1.0 - self.fraction if self.final == "rest" else 1.0

    @property
    def ratio(self) -> float:
        """How many times more records the final training sees than a tuning run: public."""
        return self.final_share / self.fraction

    def plan(self, budget: Budget, trainer: DeclaresCost) -> SubsetPlan:
        """The plan with the smallest noise of every training whose total cost stays within the budget.

        Args:
            budget: the total for tuning and final training.
            trainer: declares what one training costs.

        Returns:
            The plan, which has touched no data.

        Raises:
            BudgetExceeded: no noise brings the total within the budget.
            InvalidInput: the trainer declares no cost, or has no score and the method no private validation.
        """
        method, (before, after) = self.method, parts_of(self.fraction, self.final)
        validated = method.validated(budget, trainer)
        fixed = method.fixed(trainer, validated, self.fraction)
        last = scaled_batch(trainer, method.space, self.final_share)
        default, factors = default_params(method.space, method.default), self.factors(trainer)

        def planned(base: TrainingCosts) -> SubsetPlan:
            check_factors(factors, base.names, trainer, default)
            return SubsetPlan(
                budget,
                default,
                tuning=method.tuning(base, before, fixed, validated),
                final=Training(base, after, last, None),
                fraction=self.fraction,
                train_on=self.final,
                factors=factors,
                warm_start=self.warm_start,
            )

        what = f"Tuning on a share of {self.fraction:g} and training on {self.final}"
        pricing = Pricing(trainer, method.space, budget, method.costs)
        return calibrated(pricing, planned, budget, what)

    def factors(self, trainer: object) -> dict[str, float]:
        """By what each parameter of the winner is multiplied for the final training.

        Args:
            trainer: is asked for its rule, where ``transfer`` is "auto".

        Returns:
            A public factor for each parameter that changes.
        """
        if isinstance(self.transfer, Mapping):
            return dict(self.transfer)
        rule = self.transfer
        if rule == "auto":
            rule = trainer.transfer_rule if isinstance(trainer, DeclaresTransfer) else "none"
        return dict.fromkeys(RATES, _SHARES[rule] * self.ratio) if rule in _SHARES else {}


class SubsetSearch:
    """The search of the inner method on the part, then one final training."""

    def __init__(self, plan: SubsetPlan, randomness: Randomness) -> None:
        self._plan = plan
        self._inner = plan.tuning.start(randomness, plan.default)

    @property
    def done(self) -> bool:
        """Whether the inner search is done."""
        return self._inner.done

    def ask(self) -> list[Trial]:
        """The trials of the inner search."""
        return self._inner.ask()

    def tell(self, outcome: Outcome) -> None:
        """Hand an outcome to the inner search."""
        self._inner.tell(outcome)

    def result(self) -> Selection:
        """The winner's parameters, transferred, and the final training."""
        plan, best = self._plan, self._inner.result().best
        chosen = plan.default if best is None else best.candidate
        trial = plan.final.final_trial(plan.space, chosen)
        factors = plan.factors
        params: Params = {key: value * factors[key] if key in factors else value for key, value in trial.params.items()}
        warm = best.index if plan.warm_start and best is not None else None
        return Selection(params, best, replace(trial, params=params, warm_start=warm))
