"""Trainers: what tuning needs to know of training, and no more.

:class:`Trainer` is the contract that an implementer must meet. What a trainer may be able to do beside it is a protocol
of its own (``Supports...`` for methods, ``Declares...`` for public facts), asked by ``isinstance``: no base class is
needed, an object that has the members has the capability. :func:`dptune.testing.trainers.check_trainer` tests a trainer
against all of it. A trainer must never return anything but a model and a score, and nothing here may look at records.
The file is long because it is the contract, on one page: most of it is what an implementer must know.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.scores import Score

__all__ = [
    "DeclaresBatch",
    "DeclaresCost",
    "DeclaresFactory",
    "DeclaresForm",
    "DeclaresGenerator",
    "DeclaresHoldout",
    "DeclaresRecords",
    "DeclaresScore",
    "DeclaresTraining",
    "DeclaresTransfer",
    "DeclaresValidation",
    "Fitted",
    "FunctionTrainer",
    "HonoursUnits",
    "Params",
    "SupportsCheck",
    "SupportsFit",
    "SupportsPreflight",
    "SupportsShapes",
    "SupportsStacking",
    "SupportsThreads",
    "SupportsWarmStart",
    "TakesDatasets",
    "Trainer",
    "check_cost_declared",
    "check_trainer",
    "check_warm_start",
    "fit_many",
    "has_own_score",
    "trainer",
    "trains_itself",
]

Params = dict[str, Any]
"""A configuration: a value for every parameter of the space, and what the plan sets beside it."""

DataT_contra = TypeVar("DataT_contra", contravariant=True)
ModelT_co = TypeVar("ModelT_co", covariant=True)
ModelT = TypeVar("ModelT")
DataT = TypeVar("DataT")


class Fitted(NamedTuple, Generic[ModelT]):
    """The outcome of one run; any pair of a model and a score will do instead.

    Args:
        model: what is released, if this run wins.
        score: larger is better; one that is not a number is a failed run.

    Example:
        >>> model, score = Fitted([0.5, 1.5], 0.87)
        >>> score
        0.87
    """

    model: ModelT
    score: float


@runtime_checkable
class DeclaresCost(Protocol):
    """The half of a trainer that planning asks: what one run costs."""

    def cost(self, params: Params, /) -> Cost:
        """The privacy cost of one run with these parameters, its score included.

        It is a function of ``params`` alone: asked before any record is read, again in every worker process, and
        again when a run is resumed, it must give equal costs; a trial whose trainer declares another one fails. It must
        not look at data. If it follows a parameter ``noise_multiplier``, the planner sets that parameter to fit the
        budget; a trainer that refuses the parameter, or does not follow it, sets its noise itself.

        Args:
            params: the configuration, which must not be changed.

        Returns:
            A cost of :mod:`dptune.accounting`.

        Raises:
            Exception: the parameters cannot be run; the plan is refused.
        """


@runtime_checkable
class SupportsFit(Protocol[DataT_contra, ModelT_co]):
    """The half of a trainer that runs: where something else pays (a vote, a game), a cost is not asked for."""

    def fit(self, params: Params, data: DataT_contra, rng: np.random.Generator, /) -> tuple[ModelT_co, float]:
        """Train once and score.

        Args:
            params: the configuration, which must not be changed.
            data: the records that this run may see: what the run was given, or a part of it in the same form
                (:func:`dptune.data.take`), perhaps none.
            rng: all randomness of the run.

        Returns:
            The model and its score, larger is better; a :class:`Fitted`, or any pair.

        Raises:
            Exception: the run failed, whatever is raised. It then scores minus infinity, and nobody outside of the
                vault hears of it; the declared cost must cover that it may happen.
        """


@runtime_checkable
class Trainer(DeclaresCost, SupportsFit[DataT_contra, ModelT_co], Protocol[DataT_contra, ModelT_co]):
    """Trains once per call, privately, at a declared cost.

    Any object with ``cost(params)`` and ``fit(params, data, rng)`` is a trainer; :func:`trainer` makes one of a
    function. The first type is that of the records it takes, the second that of its models.

    An implementer promises:

    * **The cost covers the whole outcome**, the score and whether the run fails included. A score on private records
      is noised and counted in ``cost``, or left out (return 0) where the method has ``PrivateValidation``.
    * **A run is total.** It never refuses records for what they hold or how many there are: an invalid record is
      repaired on its own by a public rule, no records at all are trained on like any others. A failure that depends
      on a record would show it, unpaid.
    * **Randomness comes from ``rng`` alone**, which is fresh for every run and a function of the run's secret. The same
      generator gives the same outcome, so that a run that was cut off does not draw a second time. Global generators
      are neither used nor changed.
    * **Runs know nothing of each other.** Nothing is kept between calls: an outcome is a function of the arguments.
    * **It travels.** Worker processes get a pickled copy. Models come back as files that are safe to open: arrays and
      plain values, built-in models, torch modules (:class:`DeclaresFactory`), scikit-learn estimators; anything else
      is refused, unless the run was asked for pickles. Calls are made by one thread at a time.
    * Arguments belong to the caller: ``params`` and ``data`` must not be changed.

    Example:
        A private mean, made by noise on a sum of numbers that are each brought into [0, 1]:

        >>> import numpy as np
        >>> from dptune import Gaussian
        >>> class PrivateMean:
        ...     def cost(self, params):
        ...         return Gaussian(params.get("noise_multiplier", 5.0))
        ...     def fit(self, params, data, rng):
        ...         noise = rng.normal(scale=params.get("noise_multiplier", 5.0))
        ...         mean = (np.clip(np.nan_to_num(data), 0, 1).sum() + noise) / params["about"]
        ...         return mean, -abs(mean - 0.5)  # a function of the noised mean: nothing more to pay
        >>> isinstance(PrivateMean(), Trainer)
        True
        >>> model, score = PrivateMean().fit({"about": 100.0}, np.full(90, 0.7), np.random.default_rng(0))
        >>> round(float(model), 3)
        0.636
    """


# What a trainer may be able to do.


@runtime_checkable
class SupportsStacking(Protocol[DataT_contra, ModelT_co]):
    """Several runs are faster together. Sealed runs then hand over up to 16 trials on the same records at once."""

    def fit_many(
        self, params: Sequence[Params], data: DataT_contra, rngs: Sequence[np.random.Generator], /
    ) -> Sequence[tuple[ModelT_co, float]]:
        """Train several candidates on the same records.

        For every candidate it returns what ``fit`` would return with that candidate's parameters and generator, up to
        rounding: nothing flows from one candidate to another and no draw is shared, because the theorems are about
        runs that are independent.

        Args:
            params: one configuration for each candidate.
            data: the records that all of them see.
            rngs: one generator for each candidate.

        Returns:
            One (model, score) for each candidate, in their order.

        Raises:
            Exception: where ``fit`` would raise for one of them. Each is then trained alone, from a fresh copy of its
                generator, so that one that fails takes nobody with it.
        """


@runtime_checkable
class SupportsThreads(Protocol):
    """One training can use several threads. A sealed run then gives its final training those of all its workers."""

    def with_threads(self, threads: int, /) -> Self:
        """The same trainer, whose trainings use several threads.

        What it trains must be the same for any number of them, bit for bit.

        Args:
            threads: how many it may use, from 1 on.

        Returns:
            A trainer that uses them, or this one where its user said how many.
        """


@runtime_checkable
class SupportsShapes(Protocol):
    """A stacking trainer that says which candidates are worth a stack."""

    def shape(self, params: Params, /) -> Hashable | None:
        """What candidates must have in common to be stacked; it must not look at data.

        Args:
            params: the configuration of one candidate.

        Returns:
            Candidates of equal shape are stacked; one of shape None is trained alone.
        """


@runtime_checkable
class SupportsCheck(Protocol[DataT_contra]):
    """A trainer that can tell, without looking at records, that it cannot train."""

    def check(self, params: Params, data: DataT_contra, /) -> None:
        """Raise where every run would; a sealed run asks before it charges anything.

        It may look at what is public of ``data`` (types, number of features, declared classes), never at records or
        at how many there are: what it raises is shown to everybody.

        Args:
            params: a candidate from public randomness, never one of the run's own.
            data: all records.

        Raises:
            Exception: the model does not fit the records, or cannot be made.
        """


@runtime_checkable
class SupportsPreflight(Protocol[DataT_contra, ModelT_co]):
    """A trainer that compares what it declares with what it does, on blank records, before anything is charged."""

    def preflight(self, params: Params, data: DataT_contra, rng: np.random.Generator, /) -> tuple[ModelT_co, float]:
        """As :meth:`Trainer.fit`, but also refuse where declaration and code disagree.

        Args:
            params: a candidate from public randomness.
            data: a few made-up records.
            rng: public randomness.

        Returns:
            The model and its score.

        Raises:
            Exception: it cannot train such records, or would do something else than it declares.
        """


@runtime_checkable
class SupportsWarmStart(Protocol[DataT_contra, ModelT]):
    """A trainer that can continue from a model; ``Subset(warm_start=True)`` needs it."""

    def fit_from(
        self, params: Params, data: DataT_contra, rng: np.random.Generator, start: ModelT, /
    ) -> tuple[ModelT, float]:
        """As :meth:`Trainer.fit`, at the same cost, but beginning from a model of an earlier run.

        Args:
            params: the configuration.
            data: the records that this run may see.
            rng: all randomness of the run.
            start: what an earlier ``fit`` of this trainer returned as its model, perhaps with other parameters; it
                must not be changed.

        Returns:
            The model and its score.

        Raises:
            Exception: the run failed.
        """


# What a trainer may declare: public facts, decided without looking at records.


@runtime_checkable
class DeclaresValidation(Protocol):
    """A trainer that scores on records which its owner declares public.

    None says that it has none: unless it has a holdout (:class:`DeclaresHoldout`), its score says nothing, and plans
    need ``PrivateValidation``. A trainer without this attribute is trusted to pay for its score in ``cost``.
    """

    @property
    def validation(self) -> object | None:
        """The public records, or None."""


@runtime_checkable
class DeclaresHoldout(Protocol):
    """A trainer that holds private records back and noises its score itself, at a cost that ``cost`` includes."""

    @property
    def holdout(self) -> object | None:
        """How records are held back, or None."""


@runtime_checkable
class DeclaresScore(Protocol):
    """A trainer that says how its models are to be compared, on public and on private records."""

    @property
    def declared_score(self) -> Score | None:
        """The score; None for accuracy, and for targets that are numbers the absolute error."""


@runtime_checkable
class DeclaresRecords(Protocol):
    """A trainer that knows a public figure for the number of records, from which the planner chooses a method."""

    @property
    def declared_records(self) -> int | None:
        """About how many records there are: declared, never counted. None if nothing was declared."""


@runtime_checkable
class DeclaresBatch(Protocol):
    """A trainer that divides sums of gradients by a public constant, which a parameter ``batch_size`` sets.

    Where the learning rate is tuned on a part of the records, the plan scales the constant by the part's public share.
    """

    @property
    def declared_batch(self) -> float:
        """The constant for training on all records."""


@runtime_checkable
class DeclaresTraining(Protocol):
    """A trainer that says in words how it trains; statements quote it."""

    @property
    def declared_training(self) -> str:
        """One line that follows from public settings alone."""


@runtime_checkable
class DeclaresTransfer(Protocol):
    """A trainer that says what ``Subset(transfer="auto")`` does to a learning rate that was tuned on a part."""

    @property
    def transfer_rule(self) -> Literal["sgd", "whitened", "none"]:
        """'sgd' multiplies it by the ratio of sizes, 'whitened' by three quarters of that, 'none' (Adam) leaves it."""


@runtime_checkable
class DeclaresGenerator(Protocol):
    """A trainer whose noise from a given ``rng`` may differ between installs.

    A sealed run notes the name and is not continued by an install that has another one, because a trial that was cut
    off would draw a second time.
    """

    @property
    def noise_generator(self) -> str:
        """The name of the generator that draws the noise here."""


@runtime_checkable
class DeclaresFactory(Protocol):
    """A trainer of torch modules that says which function makes them, so that they can be stored without a pickle.

    A sequence of known layers needs none: its file describes it. For any other module the file names the function
    (``package.module:name``), so it must be one that can be imported, and whoever opens the file gives it.
    """

    @property
    def module_factory(self) -> Callable[[Params], Any] | None:
        """A function of the parameters that returns a new module, or None."""


@runtime_checkable
class TakesDatasets(Protocol):
    """A trainer that is given a :class:`~dptune.data.Dataset`, whatever form the records of ``dptune.tune`` have."""

    @property
    def takes_datasets(self) -> bool:
        """Whether it is given one."""


@runtime_checkable
class DeclaresForm(Protocol):
    """A trainer that knows what records it is for, so that ``dptune.tune`` need not be told: both are public."""

    @property
    def declared_shape(self) -> tuple[int, ...] | None:
        """The shape of one record, or None where nothing was declared."""

    @property
    def declared_classes(self) -> int | Sequence[object] | None:
        """How many classes there are, or a list of them; None where nothing was declared."""


@runtime_checkable
class HonoursUnits(Protocol):
    """A trainer whose declared cost is for one unit, where records are units of several rows.

    It is given a :class:`~dptune.units.UnitDataset`, draws units, never rows, and bounds what all rows of a unit do
    together. Without this attribute a statement says that it is assumed.
    """

    @property
    def honours_units(self) -> bool:
        """Whether its declared cost is for one unit."""


def trains_itself(trainer: object, method: str, *, beside: str | None = None) -> bool:
    """Whether a trainer offers another way to train that is its own.

    A wrapper that passes unknown names on (by ``__getattr__``) would offer its inner trainer's way, which trains as the
    inner one does, not as the wrapper. A class that overrides ``fit`` alone would be passed by an inherited way that
    does not call it. Both are trained by ``fit``.

    Args:
        trainer: any trainer.
        method: the name of the way: "fit_many", "fit_from", "with_threads".
        beside: a method that the way replaces and that must not be defined by a more special class, such as "fit".

    Returns:
        True only if the object or its class has the method, and it is not older than the one beside it.

    Example:
        >>> class Plain:
        ...     def fit(self, params, data, rng): ...
        ...     def fit_many(self, params, data, rngs): ...
        >>> class Other(Plain):
        ...     def fit(self, params, data, rng): ...
        >>> class Wrapper:
        ...     def __getattr__(self, name):
        ...         return getattr(Plain(), name)
        >>> [trains_itself(one(), "fit_many", beside="fit") for one in (Plain, Other, Wrapper)]
        [True, False, False]
    """
    if not callable(inspect.getattr_static(trainer, method, None)):
        return False
    return beside is None or _owner(trainer, method) <= _owner(trainer, beside)


def _owner(trainer: object, method: str) -> int:
    """How far up in the line of its classes a method is defined; the object itself comes first."""
    with contextlib.suppress(TypeError):  # an object without attributes of its own
        if method in vars(trainer):
            return -1
    line = type(trainer).__mro__
    return next((place for place, one in enumerate(line) if method in vars(one)), len(line))


def has_own_score(trainer: object) -> bool:
    """Whether a trainer's score is its own affair: public records, a paid holdout, or its author's promise.

    Args:
        trainer: any trainer.

    Returns:
        False only for one that says that it has neither (``validation`` is None and there is no ``holdout``).

    Example:
        >>> class Unscored:
        ...     validation = None
        >>> has_own_score(Unscored()), has_own_score(object())
        (False, True)
    """
    if not isinstance(trainer, DeclaresValidation) or trainer.validation is not None:
        return True
    return isinstance(trainer, DeclaresHoldout) and trainer.holdout is not None


def check_trainer(trainer: object) -> None:
    """Refuse what is not a trainer, before anything is charged.

    Args:
        trainer: what a user gave.

    Raises:
        InvalidInput: it is a class, or lacks a method ``fit`` or ``cost``.

    Example:
        >>> check_trainer(print)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The trainer has no fit(params, data, rng). Decorate a function with ...
    """
    if isinstance(trainer, type):
        raise InvalidInput(f"The trainer is the class {trainer.__name__}; give an object, {trainer.__name__}(...).")
    if not isinstance(trainer, SupportsFit) or not callable(trainer.fit):
        raise InvalidInput("The trainer has no fit(params, data, rng). Decorate a function with dpt.trainer(cost=...).")
    check_cost_declared(trainer)


def check_cost_declared(trainer: object) -> DeclaresCost:
    """Refuse what declares no cost: nothing could be promised about it.

    Args:
        trainer: what a user gave; planning asks for its cost alone.

    Returns:
        The same trainer.

    Raises:
        InvalidInput: it is a class, or has no method ``cost``.

    Example:
        >>> from dptune import Gaussian
        >>> class Costly:
        ...     def cost(self, params):
        ...         return Gaussian(2.0)
        >>> check_cost_declared(Costly()).cost({})
        Gaussian(noise_multiplier=2.0)
    """
    if isinstance(trainer, type):
        raise InvalidInput(f"The trainer is the class {trainer.__name__}; give an object, {trainer.__name__}(...).")
    if not isinstance(trainer, DeclaresCost) or not callable(trainer.cost):
        raise InvalidInput(
            f"The trainer {type(trainer).__name__} declares no cost, so its privacy cannot be accounted. Give it a "
            "method cost(params), or make one of a function with dpt.trainer(cost=...)."
        )
    return trainer


def check_warm_start(trainer: object) -> SupportsWarmStart[Any, Any]:
    """Refuse a trainer that cannot continue from a model, where a plan asks for it.

    Args:
        trainer: any trainer.

    Returns:
        The same trainer.

    Raises:
        InvalidInput: it has no method ``fit_from``.

    Example:
        >>> check_warm_start(object())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The plan continues from the tuned model, but the trainer object has no fit_from(...
    """
    if not isinstance(trainer, SupportsWarmStart) or not trains_itself(trainer, "fit_from"):
        raise InvalidInput(
            f"The plan continues from the tuned model, but the trainer {type(trainer).__name__} has no "
            "fit_from(params, data, rng, start). Give it one, or plan with warm_start=False."
        )
    return trainer


# Trainers from functions.


@dataclass(frozen=True)
class FunctionTrainer(Generic[DataT, ModelT]):
    """A training function together with its declared cost; :func:`trainer` makes one.

    Args:
        function: what :meth:`fit` calls with (params, data, rng); it must meet the contract of :class:`Trainer`.
        declared: the cost of one run, or a function of the parameters that returns it.
        module_factory: makes the torch modules that the function returns, where they are no ``Sequential``.

    Example:
        >>> import numpy as np
        >>> from dptune import Gaussian
        >>> noisy = FunctionTrainer(lambda params, data, rng: (len(data) + 2.0 * rng.normal(), 0.0), Gaussian(2.0))
        >>> noisy.cost({})
        Gaussian(noise_multiplier=2.0)
        >>> noisy.fit({}, [1, 2, 3], np.random.default_rng(0)).score
        0.0
    """

    function: Callable[[Params, DataT, np.random.Generator], tuple[ModelT, float]]
    declared: Cost | Callable[[Params], Cost]
    module_factory: Callable[[Params], Any] | None = None

    def cost(self, params: Params) -> Cost:
        """The declared cost of one run with these parameters."""
        declared = self.declared
        return declared if isinstance(declared, Cost) else declared(params)

    def fit(self, params: Params, data: DataT, rng: np.random.Generator) -> Fitted[ModelT]:
        """Call the function.

        Args:
            params: the configuration.
            data: the records that this run may see.
            rng: all randomness of the run.

        Returns:
            The model and its score.

        Raises:
            InvalidInput: the function did not return such a pair.
        """
        outcome = self.function(params, data, rng)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise InvalidInput(f"A training function must return (model, score); got {type(outcome).__name__}.")
        return Fitted(outcome[0], float(outcome[1]))


def trainer(
    *, cost: Cost | Callable[[Params], Cost], module: Callable[[Params], Any] | None = None
) -> Callable[[Callable[[Params, DataT, np.random.Generator], tuple[ModelT, float]]], FunctionTrainer[DataT, ModelT]]:
    """Make a trainer of a function ``(params, data, rng) -> (model, score)`` whose one run costs ``cost``.

    The declaration is the caller's promise: dptune cannot see inside the function. The score must come from
    public records, or be noised and counted in ``cost``.

    Args:
        cost: the cost of one run, or a function of the parameters that returns it.
        module: a function of the parameters, which can be imported, that makes the torch modules which the function
            returns; not needed for a ``torch.nn.Sequential`` of common layers (:class:`DeclaresFactory`).

    Returns:
        A decorator for the function.

    Raises:
        InvalidInput: ``cost`` is neither.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=lambda params: dpt.Gaussian(params["noise_multiplier"]))
        ... def noisy_sum(params, data, rng):
        ...     total = sum(data) + params["noise_multiplier"] * rng.normal()
        ...     return total, 0.0
        >>> noisy_sum.cost({"noise_multiplier": 2.0})
        Gaussian(noise_multiplier=2.0)
    """
    if not isinstance(cost, Cost) and not callable(cost):
        raise InvalidInput(
            f"'cost' must be a cost, or a function of the parameters that returns one; got {cost!r:.80}."
        )
    return lambda function: FunctionTrainer(function, cost, module)


def fit_many(
    trainer: SupportsFit[DataT, ModelT], params: Sequence[Params], data: DataT, rngs: Sequence[np.random.Generator]
) -> Sequence[tuple[ModelT, float]]:
    """Fit several candidates on the same records, in one stack if the trainer can, else one after the other.

    Args:
        trainer: any trainer.
        params: one configuration for each candidate.
        data: the records.
        rngs: one generator for each candidate.

    Returns:
        One (model, score) for each candidate, in their order.

    Example:
        >>> import numpy as np
        >>> from dptune import Gaussian
        >>> noisy = FunctionTrainer(lambda params, data, rng: (params["a"] + rng.normal(), params["a"]), Gaussian(1.0))
        >>> rngs = [np.random.default_rng(seed) for seed in (0, 1)]
        >>> [score for _, score in fit_many(noisy, [{"a": 1.0}, {"a": 2.0}], [], rngs)]
        [1.0, 2.0]
    """
    if isinstance(trainer, SupportsStacking) and trains_itself(trainer, "fit_many", beside="fit"):
        stacked: Sequence[tuple[ModelT, float]] = trainer.fit_many(params, data, rngs)
        return stacked
    return [trainer.fit(one, data, rng) for one, rng in zip(params, rngs, strict=True)]


class _Decorator(ModuleType):
    """``dptune.trainer`` is this module and the decorator in it: whichever of both was bound last can be called."""

    def __call__(
        self, *, cost: Cost | Callable[[Params], Cost], module: Callable[[Params], Any] | None = None
    ) -> Callable[
        [Callable[[Params, DataT, np.random.Generator], tuple[ModelT, float]]], FunctionTrainer[DataT, ModelT]
    ]:
        return trainer(cost=cost, module=module)


sys.modules[__name__].__class__ = _Decorator
