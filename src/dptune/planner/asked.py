"""A method that the caller asks for, by its name or as it is, instead of the planner's own choice. Touches no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dptune.accounting import Runs
from dptune.errors import InvalidInput
from dptune.methods import Budget, Method
from dptune.methods.registry import method_named
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.planner.advice import Advice, choose
from dptune.spaces import Dimension, Domain, Float, Space
from dptune.trainer import DeclaresCost, DeclaresScore, has_own_score

__all__ = ["asked_for", "evenly", "tried_space"]

_HELD = 0.2  # of the records, for private scores; as in a job


@runtime_checkable
class _HasSpace(Protocol):
    """A method that draws from a space."""

    @property
    def space(self) -> Domain: ...


@runtime_checkable
class _HasCandidates(Protocol):
    """A method that goes through a list."""

    @property
    def candidates(self) -> Domain: ...


@runtime_checkable
class _HasMethod(Protocol):
    """A method around another one, such as on a part of the records."""

    @property
    def method(self) -> Method: ...


def asked_for(
    method: Any,
    trainer: DeclaresCost,
    space: Domain,
    budget: Budget,
    *,
    records: int | None = None,
    runs: Runs | None = None,
) -> Advice:
    """The plan of a method that the caller named, with what is usual for it, or made.

    Args:
        method: the name of a method, as ``--method`` of the command line has it; a method, which has its own space; or
            None, and the planner chooses (:func:`~dptune.planner.advice.choose`).
        trainer: declares what one training costs.
        space: what may be tried, for a name.
        budget: the total, tuning included.
        records: the public number of records; private scores need it.
        runs: the law of the number of runs, for a name; by default the method's own.

    Returns:
        The plan, its method and one sentence about it.

    Raises:
        BudgetExceeded: the method does not fit the budget.
        InvalidInput: there is no such method, or it cannot be made of this.

    Example:
        >>> from dptune import Budget, Float, PureDp, Space, trainer
        >>> @trainer(cost=PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return None, 0.5
        >>> made = asked_for("random-stopping", guess, Space(lr=Float(0.1, 10)), Budget(1, 1e-5))
        >>> made.explanation
        'As asked for: random-stopping. The total, tuning included, is epsilon 0.2635 at delta 1e-05.'
    """
    if method is None:
        return choose(trainer, space, budget, records=records, runs=runs)
    if isinstance(method, Method):
        if runs is not None:
            raise InvalidInput("'runs' is for the name of a method; one that is given as it is has its own.")
        made = method
    elif isinstance(method, str):
        made = _named(method, trainer, space, records, runs)
    else:
        raise InvalidInput(f"'method' must be the name of a method, or one itself; got {type(method).__name__}.")
    plan = made.plan(budget, trainer)
    noise = plan.noise_multiplier
    said = f"As asked for: {made.name}. The total, tuning included, is epsilon {plan.price():.4g}"
    with_noise = "." if noise is None else f", with noise {noise:.4g} in every run."
    return Advice(plan, made, f"{said} at delta {budget.delta:g}{with_noise}")


def evenly(space: Space) -> Space:
    """The same space without an expected value: that follows from rules for accuracy, not for a score of one's own.

    Args:
        space: what is tried by default.

    Returns:
        What is expected around a value is as likely from a quarter to four times of it.

    Example:
        >>> from dptune import Float, Space
        >>> ((_, rates),) = evenly(Space(rate=Float(0.1, 100, log=True, around=10, spread=2))).dimensions
        >>> rates.low, rates.high, rates.around
        (2.5, 40.0, None)
    """
    return Space(**{name: _even(one) for name, one in space.dimensions})


def _even(one: Dimension) -> Dimension:
    if not isinstance(one, Float) or one.around is None:
        return one
    return Float(max(one.low, one.around / 4.0), min(one.high, one.around * 4.0), one.log)


def tried_space(space: Domain | Mapping[str, Dimension] | None, method: Any) -> Domain | None:
    """What may be tried: as the caller said, or the own space of a method that is given as it is.

    Args:
        space: a space, a dictionary of its dimensions, or None.
        method: a method, its name, or None.

    Returns:
        The space; None where neither says one.

    Raises:
        InvalidInput: both say one.

    Example:
        >>> from dptune import Float, Geometric, RandomStopping, Space
        >>> stopping = RandomStopping(Space(lr=Float(0.1, 1)), Geometric(5))
        >>> tried_space({"lr": Float(0.1, 1)}, None) == tried_space(None, stopping)
        True
    """
    if isinstance(space, Mapping):
        space = Space(**space)
    if not isinstance(method, Method):
        return space
    if space is not None:
        raise InvalidInput("The 'method' has a space of its own; leave 'space' out, or give the method's name.")
    own = method.method if isinstance(method, _HasMethod) else method
    if isinstance(own, _HasSpace):
        return own.space
    return own.candidates if isinstance(own, _HasCandidates) else None


def _named(name: str, trainer: DeclaresCost, space: Domain, records: int | None, runs: Runs | None) -> Method:
    """The method of this name, for this space."""
    if not isinstance(space, Space):
        raise InvalidInput(
            f"The method {name!r} by its name needs a Space of ranges; for a list of candidates give the method itself."
        )
    score = trainer.declared_score if isinstance(trainer, DeclaresScore) else None
    around = Surroundings(space, None if has_own_score(trainer) else _HELD, records, score)
    return method_from_settings(method_named(name), {} if runs is None else {"runs": runs}, around)
