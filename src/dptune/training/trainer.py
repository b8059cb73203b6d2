"""The trainer protocol: what a tuning method needs to know of training, and no more.

A trainer declares the privacy cost of one run for a configuration and runs it. It knows nothing of budgets,
ledgers or other runs, and must never return anything but a model and a score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.randomness import Rng

__all__ = ["Fitted", "FunctionTrainer", "Params", "Rng", "Trainer", "fit_many", "trainer"]

Params = Mapping[str, Any]


class Fitted(NamedTuple):
    """The outcome of one run: the model, and its score (larger is better)."""

    model: Any
    score: float


@runtime_checkable
class Trainer(Protocol):
    """One private training run per call.

    A trainer may also have ``fit_many(params, data, rngs) -> [(model, score), ...]``, one result for each of several
    candidates in their order (and ``starts=`` if its ``fit`` has ``start=``). It must return for each what ``fit``
    would return for it alone, up to rounding: nothing may flow from one candidate to another, no draw be shared, and
    where one of them would raise it must raise, too (then each is trained alone). Sealed runs hand candidates over
    together only to trainers that have it; ``shape(params)``, if there is one, says which: those of equal shape, and
    none for which it is None. It must not look at data.

    And it may have ``check(params, data)``, which raises where every run would: a sealed run calls it before it
    charges anything. It may look at what is public of ``data`` (features, classes), never at records or their number.
    """

    def cost(self, params: Params) -> Cost:
        """The cost of one :meth:`fit` with these parameters, score included; must not look at data."""

    def fit(self, params: Params, data: Any, rng: Rng) -> Fitted:
        """Train once and score; all randomness comes from ``rng``."""


@dataclass(frozen=True)
class FunctionTrainer:
    """A training function together with its declared cost."""

    function: Callable[[Params, Any, Rng], tuple[Any, float]]
    declared: Cost | Callable[[Params], Cost]

    def cost(self, params: Params) -> Cost:
        declared = self.declared
        return declared if isinstance(declared, Cost) else declared(params)

    def fit(self, params: Params, data: Any, rng: Rng) -> Fitted:
        outcome = self.function(params, data, rng)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise InvalidInput("a training function must return (model, score).")
        return Fitted(outcome[0], float(outcome[1]))


def trainer(
    *, cost: Cost | Callable[[Params], Cost]
) -> Callable[[Callable[[Params, Any, Rng], tuple[Any, float]]], FunctionTrainer]:
    """Make a trainer of a function ``(params, data, rng) -> (model, score)`` whose one run costs ``cost``.

    The declaration is the caller's promise: dptune cannot see inside the function. The score must come from
    public records, or be noised and counted in ``cost``.
    """
    if not isinstance(cost, Cost) and not callable(cost):
        raise InvalidInput("'cost' must be a cost, or a function of the parameters that returns one.")
    return lambda function: FunctionTrainer(function, cost)


def fit_many(trainer: Trainer, params: Sequence[Params], data: Any, rngs: Sequence[Rng]) -> list[Fitted]:
    """Fit several candidates, in one stack if the trainer can, else one after the other."""
    together = getattr(trainer, "fit_many", None)
    if together is not None:
        outcome: list[Fitted] = together(params, data, rngs)
        return outcome
    return [trainer.fit(one, data, rng) for one, rng in zip(params, rngs, strict=True)]
