"""Opacus as a trainer: an existing training function, with its cost read from the engine's own history.

The function gets a privacy engine that it must train through; afterwards the engine's accountant shows what was
really done, and a run that did more than was declared fails. It must never be trusted to report its own epsilon.
Rate and number of steps come from the declaration, never from the number of records (see :mod:`_opacus_engine`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dptune.accounting import Cost, DpSgd
from dptune.errors import InvalidInput
from dptune.randomness import Rng, as_randomness
from dptune.trainer import Fitted, Params

__all__ = ["OpacusTrainer", "opacus_trainer"]

DataT = TypeVar("DataT")
ModelT = TypeVar("ModelT")

# This much of a difference is rounding.
_ROUNDING = 1e-9

History = Sequence[tuple[float, float, int]]


@dataclass(frozen=True)
class OpacusTrainer(Generic[DataT, ModelT]):
    """A training function that trains through a given Opacus privacy engine; :func:`opacus_trainer` makes one.

    Args:
        function: Takes ``(params, data, engine)`` and returns ``(model, score)``. The score must come from public
            records: nothing of the engine covers it.
        declared: The cost of one run for given parameters.
        module_factory: Makes the modules that the function returns, where they are no ``Sequential``.
        exact_steps: Whether the function's own loop takes exactly the declared number of steps.

    Example:
        >>> from dptune import DpSgd
        >>> from dptune.integrations.opacus import OpacusTrainer
        >>> trainer = OpacusTrainer(lambda params, data, engine: (None, 0.0), lambda params: DpSgd(0.01, 1.0, 100))
        >>> trainer.cost({}) == DpSgd(0.01, 1.0, 100)
        True
    """

    function: Callable[[Params, DataT, Any], tuple[ModelT, float]]
    declared: Callable[[Params], DpSgd]
    module_factory: Callable[[Params], Any] | None = None
    exact_steps: bool = True

    def cost(self, params: Params) -> Cost:
        """The declared cost of one run."""
        return self.declared(params)

    def fit(self, params: Params, data: DataT, rng: Rng) -> Fitted[ModelT]:
        """Train once; everything torch draws is a function of the run.

        Args:
            params: The parameters, handed to the function.
            data: The records, handed to the function.
            rng: Where the run's randomness comes from.

        Returns:
            The model and its score.

        Raises:
            InvalidInput: If the function returns something else, or did more than was declared.
        """
        return self._fit(params, data, rng)[0]

    def preflight(self, params: Params, data: DataT, rng: Rng) -> Fitted[ModelT]:
        """As :meth:`fit`, on blank records; also refuse to declare another number of steps than are taken.

        The number of steps does not follow the number of records, so it is the same for the private ones.

        Args:
            params: The parameters of a run.
            data: A few made-up records.
            rng: Public randomness.

        Returns:
            The model and its score.

        Raises:
            InvalidInput: If the function took fewer steps than declared, which would be paid for and not used, or asked
                for more, which would be left out.
        """
        fitted, steps, more = self._fit(params, data, rng)
        declared = self.declared(params).steps
        if self.exact_steps and (more or steps < declared):
            asked = "more than that" if more else f"{steps}"
            raise InvalidInput(
                f"The training function declares {declared} steps but takes {asked}. Declare what it takes; if it "
                "stops early, or leaves it to the loader to end it, say so: opacus_trainer(..., exact_steps=False)."
            )
        return fitted

    def _fit(self, params: Params, data: DataT, rng: Rng) -> tuple[Fitted[ModelT], int, bool]:
        """The outcome, the number of steps that were taken, and whether the function asked for more."""
        torch, engine = _torch(), _engine(self.declared(params))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(as_randomness(rng).child("opacus").secret()[:7], "little"))
            outcome = self.function(params, data, engine)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise InvalidInput(
                f"A training function must return (model, score); this one returned {type(outcome).__name__}."
            )
        check_history(engine.accountant.history, engine.declared)
        steps = sum(count for _, _, count in engine.accountant.history)
        return Fitted(outcome[0], float(outcome[1])), steps, engine.asked_for_more


def opacus_trainer(
    *,
    cost: DpSgd | Callable[[Params], DpSgd],
    module: Callable[[Params], Any] | None = None,
    exact_steps: bool = True,
) -> Callable[[Callable[[Params, DataT, Any], tuple[ModelT, float]]], OpacusTrainer[DataT, ModelT]]:
    """Make a trainer of an Opacus training function whose one run costs at most ``cost``.

    The loader that the engine returns draws at the declared rate, about one over the rate batches in a pass, and ends
    for good after the declared number of steps; gradients are divided by the batch size of the loader that it was
    given. None of this follows the number of records. Steps of empty batches are taken by the loader itself, so the
    function must take one step for each batch that it gets. The score must come from public records: nothing of the
    engine covers it.

    Args:
        cost: The cost of one run, or a function of the parameters that returns it.
        module: A function of the parameters, which can be imported, that makes the modules which the function returns;
            not needed for a ``torch.nn.Sequential`` of common layers.
        exact_steps: Whether the function's own loop takes exactly the declared number of steps: one that takes more or
            fewer on blank records is refused before the charge. False for a function that may stop early, or that
            leaves it to the loader to end it.

    Returns:
        A decorator for a function ``(params, data, engine) -> (model, score)``.

    Raises:
        InvalidInput: If ``cost`` is neither.

    Example:
        >>> from dptune import DpSgd
        >>> from dptune.integrations.opacus import opacus_trainer
        >>> @opacus_trainer(cost=DpSgd(sampling_rate=0.01, noise_multiplier=1.0, steps=100))
        ... def train(params, data, engine):
        ...     module, optimizer, loader = engine.make_private(
        ...         module=data.module, optimizer=data.optimizer, data_loader=data.loader, noise_multiplier=1.0,
        ...         max_grad_norm=params["clip"],
        ...     )
        ...     ...
        >>> train.cost({"clip": 1.0}).epsilon(1e-5) < 2
        True
    """
    declared: Callable[[Params], DpSgd] = (lambda params: cost) if isinstance(cost, DpSgd) else cost
    if not callable(declared):
        raise InvalidInput("'cost' must be a DpSgd cost, or a function of the parameters that returns one.")
    return lambda function: OpacusTrainer(function, declared, module, exact_steps)


def check_history(history: History, declared: DpSgd) -> None:
    """Refuse a run that used less noise, a higher rate or more steps than declared."""
    if not history:
        raise InvalidInput(
            "The training function took no step through its privacy engine. Call engine.make_private() in it and "
            "train with the optimizer that it returns."
        )
    steps = sum(count for _, _, count in history)
    for noise, rate, _ in history:
        if noise < declared.noise_multiplier * (1 - _ROUNDING):
            raise InvalidInput(
                f"The run used noise {noise:g} but declared {declared.noise_multiplier:g}. Train with that."
            )
        if rate > declared.sampling_rate * (1 + _ROUNDING):
            raise InvalidInput(
                f"The run sampled at rate {rate:g} but declared {declared.sampling_rate:g}. Take a step per batch."
            )
    if steps > declared.steps:
        raise InvalidInput(f"The run took {steps} steps but declared {declared.steps}. Declare them, or take fewer.")


def _torch() -> Any:
    return importlib.import_module("torch")


def _engine(declared: DpSgd) -> Any:
    """A fresh privacy engine that samples as declared."""
    try:
        importlib.import_module("opacus")
    except ImportError as error:
        raise InvalidInput("Opacus is not installed. Run: pip install 'dptune[torch]'.") from error
    return importlib.import_module("dptune.integrations._opacus_engine").DeclaredEngine(declared)
