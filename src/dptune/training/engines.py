"""Which engine trains which model: numpy for MLPs, compiled passes for wide regressions, CNNs and modules that they
know, or torch.

Torch is imported only when a model needs it. All engines compute the same sums; they differ in speed alone. Which one
computes is public: it follows from the model and the install, never from a record.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.training._compiled import kernel
from dptune.training._formula import formula_of
from dptune.training.clipping import Clipping, Flat
from dptune.training.dpsgd import Engine
from dptune.training.fused_engine import FusedEngine, supports
from dptune.training.models import Cnn, Mlp, Regression, dp_hypo_cnn
from dptune.training.network_engine import FusedModuleEngine, NetworkEngine
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.softmax_engine import SoftmaxEngine, suits

__all__ = ["engine_for"]


@dataclass(frozen=True)
class _Need:
    """What an engine must be able to do, beside the model."""

    double: bool
    threads: int
    rule: Clipping
    numbers: bool

    @property
    def flat(self) -> bool:
        return isinstance(self.rule, Flat)

    @property
    def precise(self) -> bool:
        """Whether an engine that only knows to clip to a norm must compute in double precision."""
        return self.double or self.numbers or not self.flat


def engine_for(
    model: Any,
    *,
    double: bool = False,
    engine: str = "auto",
    threads: int = 1,
    rule: Clipping | None = None,
    numbers: bool = False,
) -> Engine:
    """The engine that trains a model.

    Args:
        model: A description (``Mlp``, ``Cnn``), or a ``torch.nn.Module``.
        double: Whether to compute in double precision, as secure noise and units of several rows need it.
        engine: "auto", or the engine by name: "numpy", "torch", "fused", "network". The last one trains modules that
            are an ``nn.Sequential`` of layers it knows (docs/engine.md); "auto" takes it wherever it can, and one
            compiled pass for softmax regressions over wide records.
        threads: How many threads share a batch, in the "network" engine and that pass; others use one.
        rule: The clipping rule of the run; None: flat. Only these two follow other rules by themselves
            (:mod:`~dptune.training.ruled_sums`); others then compute in double precision.
        numbers: Whether the targets of the records are numbers; modules in torch then compute in double precision.

    Returns:
        A new engine, not yet bound to records.

    Raises:
        InvalidInput: If there is no such engine, it cannot train this model, or torch is needed and missing.

    Example:
        >>> from dptune.training import engine_for, softmax
        >>> engine = engine_for(softmax(784, 10))
        >>> engine.dimension
        7850
    """
    _validate.integer("threads", threads, 1)
    need = _Need(double, threads, Flat() if rule is None else rule, numbers)
    makers: dict[str, Callable[[], Engine]] = {
        "auto": lambda: _automatic(model, need),
        "numpy": lambda: _numpy(model, need),
        "torch": lambda: _torch(model, need),
        "fused": lambda: FusedEngine(model, double=need.precise),
        "network": lambda: _network(model, need),
    }
    if engine not in makers:
        raise InvalidInput(f"There is no engine called {engine!r}. Choose one of {', '.join(makers)}.")
    return makers[engine]()


def _automatic(model: Any, need: _Need) -> Engine:
    if isinstance(model, Mlp):
        fast = suits(model, need.rule) and not need.double
        return SoftmaxEngine(model, threads=need.threads) if fast else _numpy(model, need)
    if supports(model) and (need.flat or kernel is None):
        return FusedEngine(model, double=need.precise)
    if kernel is None:
        return _torch(model, need)
    try:
        return _network(model, need, special=need.flat and not need.numbers)
    except _Unknown as unknown:
        _say_once(str(unknown))
        return _torch(model, need)


class _Unknown(InvalidInput):
    """The compiled engine cannot train this module; torch can, or says why not."""


@functools.cache
def _say_once(reason: str) -> None:
    """Modules are public, so a reason is, too."""
    logging.getLogger(__name__).warning("The compiled engine leaves this module to torch, which is slower: %s", reason)


def _network(model: Any, need: _Need, *, special: bool = False) -> Engine:
    """The compiled engine; ``special`` where a network that has a kernel of its own may use it."""
    if isinstance(model, Regression):
        raise InvalidInput("The compiled engine trains modules of your own; a Regression is trained by engine='numpy'.")
    double = need.double or formula_of(need.rule, 1.0, 1.0) is None  # a rule that it does not know
    _need_torch(model)
    from dptune.training import _recognise  # noqa: PLC0415 - optional dependency
    from dptune.training._public_check import refuse_layers  # noqa: PLC0415 - the same
    from dptune.training.torch_models import build  # noqa: PLC0415 - the same

    described = isinstance(model, Mlp | Cnn)
    module = build(model) if described else model
    refuse_layers(module)
    source = _recognise.ModuleSource(module, fresh=described)
    try:
        layers = _recognise.describe(module)
        shape = _recognise.record_shape(layers)
        if special and not described and layers == _recognise.describe(build(dp_hypo_cnn())):
            return FusedModuleEngine(source, double=double)
        return NetworkEngine(layers, source, shape, double=double, threads=need.threads)
    except (_recognise.NotDescribed, InvalidInput) as error:
        raise _Unknown(f"{error}.".replace("..", ".")) from error


def _numpy(model: Any, need: _Need) -> Engine:
    if not isinstance(model, Mlp):
        raise InvalidInput(f"The numpy engine trains Mlp models, not {type(model).__name__}. Use engine='torch'.")
    # Errors of a regression may change their sign with the last bits of an output, and those with the size of a batch.
    return NumpyEngine(model, double=need.precise or isinstance(model, Regression))


def _torch(model: Any, need: _Need) -> Engine:
    if isinstance(model, Regression):
        raise InvalidInput("The torch engine trains modules of your own; a Regression is trained by engine='numpy'.")
    _need_torch(model)
    from dptune.training.torch_engine import TorchEngine  # noqa: PLC0415 - optional dependency
    from dptune.training.torch_models import build  # noqa: PLC0415 - the same

    if isinstance(model, Mlp | Cnn):
        return TorchEngine(build(model), double=need.precise, fresh=True)
    return TorchEngine(model, double=need.precise)


def _need_torch(model: Any) -> None:
    try:
        import torch  # noqa: F401, PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput(
            f"{type(model).__name__} needs torch, which is not installed. Run: pip install 'dptune[torch]'."
        ) from error
