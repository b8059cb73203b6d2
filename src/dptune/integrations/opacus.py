"""Opacus as a trainer: an existing training function, with its cost read from the engine's own history.

The function gets a privacy engine that it must train through; afterwards the engine's accountant shows what was
really done, and a run that did more than was declared fails. It must never be trusted to report its own epsilon.
Rate and number of steps come from the declaration, never from the number of records (see :mod:`_opacus_engine`).
Where the number of records is declared, too, the function is handed the loader, which keeps the rate on any part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dptune._validate import flag, integer, real, shown
from dptune.accounting import DpSgd
from dptune.errors import InvalidInput
from dptune.integrations._opacus_trainers import (
    OpacusLoaderTrainer,
    OpacusTrainer,
    batches_in_a_pass,
    check_history,
)
from dptune.tables.map_style import record_shape
from dptune.trainer import Params

__all__ = ["OpacusLoaderTrainer", "OpacusTrainer", "check_history", "opacus_trainer"]


def opacus_trainer(
    *,
    cost: DpSgd | Callable[[Params], DpSgd] | None = None,
    records: int | None = None,
    batch: float | None = None,
    epochs: int | None = None,
    shape: Any = None,
    classes: int | Sequence[object] | None = None,
    clip: float | Callable[[Params], float] | None = None,
    module: Callable[[Params], Any] | None = None,
    exact_steps: bool = True,
) -> Callable[[Callable[[Params, Any, Any], tuple[Any, float]]], OpacusTrainer[Any, Any]]:
    """Make a trainer of an Opacus training function whose one run costs at most ``cost``.

    The loader that the engine returns draws at the declared rate, about one over the rate batches in a pass, and ends
    for good after the declared number of steps; gradients are divided by the batch size of the loader that it was
    given. None of this follows the number of records. An empty batch is handed over as one blank record whose gradient
    adds nothing, so the function gets the declared number of batches whatever the records are, and must take one step
    for each. The score must come from public records: nothing of the engine covers it.

    Args:
        cost: The cost of one run, or a function of the parameters that returns it; or leave it out, and give ``batch``
            and ``epochs``.
        records: About how many records there are, a public figure. With it the function is handed a loader instead of
            the records, ``(params, loader, engine)``, which keeps the declared rate on every part of them; without it,
            the function makes its own of the data that it is given.
        batch: With ``epochs`` and ``records`` in place of a cost: the mean size of a batch. The rate is ``batch /
            records``, the noise that of the plan (``params["noise_multiplier"]``).
        epochs: How many passes over the loader the function makes.
        shape: With ``records``: the shape of one record, such as (1, 28, 28), so that ``dptune.tune`` need not be told.
        classes: With ``records``: how many classes there are, or a list of them; the same.
        clip: The clip norm, or a function of the parameters that returns it, if another one is to be refused.
        module: A function of the parameters, which can be imported, that makes the modules which the function returns;
            not needed for a ``torch.nn.Sequential`` of common layers.
        exact_steps: Whether the function's own loop takes exactly the declared number of steps: one that takes more or
            fewer on blank records is refused before the charge. False for a function that may stop early, or that
            leaves it to the loader to end it.

    Returns:
        A decorator for a function ``(params, data or loader, engine) -> (model, score)``.

    Raises:
        InvalidInput: If what one run costs is not said, or said twice; or if something is not what it must be.

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
        >>> passes = opacus_trainer(batch=64, epochs=2, records=60000)(lambda params, loader, engine: (None, 0.0))
        >>> passes.cost({"noise_multiplier": 1.0}).steps
        1876
    """
    declared = _declared(cost, batch, epochs, records)
    norm = clip if clip is None or callable(clip) else real("clip", clip, 0.0, low_open=True)
    clips: Callable[[Params], float] | None = norm if norm is None or callable(norm) else lambda params: norm
    if module is not None and not callable(module):
        raise InvalidInput(f"'module' must be a function of the parameters that makes a module; got {shown(module)}.")
    flag("exact_steps", exact_steps)
    if records is None:
        if shape is not None or classes is not None:
            raise InvalidInput("'shape' and 'classes' are for functions that are handed a loader; give 'records' too.")
        return lambda function: OpacusTrainer(function, declared, module, exact_steps, clips)
    count = integer("records", records, 1)
    sides = None if shape is None else record_shape(shape)
    form: dict[str, Any] = {"records": count, "declared_shape": sides, "declared_classes": classes}
    return lambda function: OpacusLoaderTrainer(function, declared, module, exact_steps, clips, **form)


def _declared(cost: Any, batch: Any, epochs: Any, records: Any) -> Callable[[Params], DpSgd]:
    """What one run costs: as it was said, or by passes over the loader, of about one over the rate batches each."""
    if cost is not None and (batch is not None or epochs is not None):
        raise InvalidInput("Say what one run costs once: by 'cost', or by 'batch', 'epochs' and 'records'.")
    if isinstance(cost, DpSgd):
        return lambda params: cost
    if callable(cost):
        return cast(Callable[[Params], DpSgd], cost)
    if cost is not None or batch is None or epochs is None or records is None:
        raise InvalidInput(
            "'cost' must be a DpSgd cost, or a function of the parameters that returns one; or leave it out, and give "
            "'batch', 'epochs' and 'records'."
        )
    rate = real("batch", batch, 0.0, low_open=True) / integer("records", records, 1)
    if rate > 1:
        raise InvalidInput(f"'batch' is {batch:g}, more than the {records} 'records'; it is the mean size of a batch.")
    steps = integer("epochs", epochs, 1) * batches_in_a_pass(rate)
    return lambda params: DpSgd(rate, params["noise_multiplier"], steps)
