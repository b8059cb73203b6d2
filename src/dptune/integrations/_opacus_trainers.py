"""Opacus training functions as trainers: run through a given engine, whose history must be what was declared.

See :mod:`dptune.integrations.opacus`. A function must never be trusted to report its own epsilon.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from dptune._global_state import plain_torch
from dptune._validate import real
from dptune.accounting import Cost, DpSgd
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Rng, as_randomness
from dptune.trainer import Fitted, Params

__all__ = ["OpacusLoaderTrainer", "OpacusTrainer", "batches_in_a_pass", "check_history"]

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
        clip: The declared clip norm for given parameters, where one is declared.

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
    clip: Callable[[Params], float] | None = None

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
                for more, which would be left out; if it used more noise than declared; or if one record's gradient
                follows the others of its batch, as where ``loss_reduction`` is not that of the loss.
        """
        fitted, engine = self._fit(params, data, rng, probing=True)
        history, cost = engine.accountant.history, self.declared(params)
        steps, more, declared = sum(count for _, _, count in history), engine.asked_for_more, cost.steps
        most = max(noise for noise, _, _ in history)
        if most > cost.noise_multiplier * (1 + _ROUNDING):
            raise InvalidInput(
                f"The run used noise {most:g} but declared {cost.noise_multiplier:g}, which is less. Train with that."
            )
        if self.exact_steps and (more or steps < declared):
            asked = "more than that" if more else f"{steps}"
            raise InvalidInput(
                f"The training function declares {declared} steps but takes {asked}. Declare what it takes; if it "
                "stops early, or leaves it to the loader to end it, say so: opacus_trainer(..., exact_steps=False)."
            )
        return fitted

    def _prepared(self, params: Params, data: DataT) -> tuple[Any, DataT]:
        """A fresh engine, and what the function is called with."""
        return self._engine(params, None), data

    def _engine(self, params: Params, batch: float | None) -> Any:
        clip = None if self.clip is None else real("clip", self.clip(params), 0.0, low_open=True)
        return _adapter().DeclaredEngine(self.declared(params), batch=batch, clip=clip)

    @plain_torch()
    def _fit(self, params: Params, data: DataT, rng: Rng, probing: bool = False) -> tuple[Fitted[ModelT], Any]:
        """The outcome, and the engine, whose history tells what was done."""
        torch, (engine, records) = _torch(), self._prepared(params, data)
        engine.probing = probing
        with torch.random.fork_rng(devices=[]):
            own = as_randomness(rng).child("opacus")
            # Weights and masks: where masks are known, one record more shifts those of all others of its batch.
            torch.set_rng_state(_watch().secret_generator(own.child("masks").generator()).get_state())
            engine.generator = _watch().secret_generator(own.child("noise").generator())
            outcome = self.function(params, records, engine)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise InvalidInput(
                f"A training function must return (model, score); this one returned {type(outcome).__name__}."
            )
        check_history(engine.accountant.history, engine.declared)
        if sum(count for _, _, count in engine.accountant.history) > engine.drawn:
            raise InvalidInput(
                "The run took steps on batches that were not drawn at the declared rate, such as those of a DataLoader "
                "with a fixed batch size. Iterate over the loader that engine.make_private() returned."
            )
        engine.check_over()
        return Fitted(_adapter().released(outcome[0]), float(outcome[1])), engine


@dataclass(frozen=True)
class OpacusLoaderTrainer(OpacusTrainer[Dataset, ModelT]):
    """An Opacus training function that is handed its loader: ``(params, loader, engine) -> (model, score)``.

    The loader draws every record at the declared rate whatever part of the records a trial is about, and its length is
    the public one over the rate. Gradients are divided by the rate times the declared number of records, scaled by the
    plan where it trains on a part.

    Args:
        records: About how many records there are: declared, never counted.
        declared_shape: The shape of one record, where it is declared.
        declared_classes: How many classes there are, or a list of them, where they are declared.

    Example:
        >>> from dptune import DpSgd
        >>> from dptune.integrations.opacus import OpacusLoaderTrainer
        >>> trainer = OpacusLoaderTrainer(lambda *given: (None, 0.0), lambda p: DpSgd(0.01, 1.0, 100), records=6000)
        >>> trainer.declared_batch
        60.0
    """

    records: int = 1
    declared_shape: tuple[int, ...] | None = None
    declared_classes: int | Sequence[object] | None = None

    @property
    def takes_datasets(self) -> bool:
        """Whatever is brought becomes a :class:`~dptune.data.Dataset`."""
        return True

    @property
    def declared_records(self) -> int:
        """About how many records there are."""
        return self.records

    @property
    def declared_batch(self) -> float:
        """The denominator of gradients when all records are trained on."""
        rates = {float(self.declared(_Same(value)).sampling_rate) for value in (1, 2)}
        if len(rates) > 1:
            raise InvalidInput(
                "The sampling rate must not depend on a tuned parameter: it is what every part of the records keeps. "
                "Declare cost=lambda params: DpSgd(rate, params['noise_multiplier'], steps)."
            )
        return rates.pop() * self.records

    def check(self, params: Params, data: object) -> None:
        """Refuse records that are no :class:`~dptune.data.Dataset`; looks at their type alone.

        Args:
            params: The parameters of a run.
            data: The records.

        Raises:
            InvalidInput: They are of another type.
        """
        if not isinstance(data, Dataset):
            raise InvalidInput(
                f"With 'records' declared, Opacus functions train on a dptune Dataset; got {type(data).__name__}. Make "
                "one of arrays: dptune.Dataset(x, y, classes=...)."
            )

    def _prepared(self, params: Params, data: Dataset) -> tuple[Any, Dataset]:
        engine = self._engine(params, float(params.get("batch_size", self.declared_batch)))
        return engine, cast(Dataset, engine.load(data))  # the function gets a loader instead


class _Same(dict[str, Any]):
    """Parameters that all have the same value, to see what depends on them."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, name: str) -> float:
        return self._value


def batches_in_a_pass(rate: float) -> int:
    """How many batches a loader of this rate gives in one pass: about one over the rate, which is public.

    Args:
        rate: The sampling rate.

    Returns:
        The number, at least 1.

    Example:
        >>> batches_in_a_pass(64 / 60000)
        938
    """
    return max(1, round(1 / rate))


def check_history(history: History, declared: DpSgd) -> None:
    """Refuse a run that used less noise, a higher rate or more steps than declared.

    Args:
        history: What the engine's accountant kept: noise, rate and number of steps, as often as they changed.
        declared: The cost of one run.

    Raises:
        InvalidInput: The run did more than that, or took no step.

    Example:
        >>> from dptune import DpSgd
        >>> from dptune.integrations.opacus import check_history
        >>> check_history([(1.0, 0.01, 100)], DpSgd(0.01, 1.0, 100))
    """
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


def _watch() -> Any:
    return importlib.import_module("dptune.integrations._opacus_watch")


def _adapter() -> Any:
    """The part of the adapter that needs Opacus."""
    try:
        importlib.import_module("opacus")
    except ImportError as error:
        raise InvalidInput("Opacus is not installed. Run: pip install 'dptune[torch]'.") from error
    return importlib.import_module("dptune.integrations._opacus_engine")
