"""Which engine trains which model: numpy for MLPs, compiled passes for CNNs and modules that they know, or torch.

Torch is imported only when a model needs it. All engines compute the same sums; they differ in speed alone. Which one
computes is public: it follows from the model and the install, never from a record.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.training._compiled import kernel
from dptune.training.dpsgd import Engine
from dptune.training.fused_engine import FusedEngine, supports
from dptune.training.models import Cnn, Mlp, Regression, dp_hypo_cnn
from dptune.training.network_engine import FusedModuleEngine, NetworkEngine
from dptune.training.numpy_engine import NumpyEngine

__all__ = ["engine_for"]


def engine_for(model: Any, *, double: bool = False, engine: str = "auto", threads: int = 1) -> Engine:
    """The engine that trains a model.

    Args:
        model: A description (``Mlp``, ``Cnn``), or a ``torch.nn.Module``.
        double: Whether to compute in double precision, as secure noise and units of several rows need it.
        engine: "auto", or the engine by name: "numpy", "torch", "fused", "network". The last one trains modules that
            are an ``nn.Sequential`` of layers it knows (docs/engine.md); "auto" takes it wherever it can.
        threads: How many threads share a batch, in the "network" engine; others use one.

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
    makers: dict[str, Callable[[], Engine]] = {
        "auto": lambda: _automatic(model, double, threads),
        "numpy": lambda: _numpy(model, double),
        "torch": lambda: _torch(model, double),
        "fused": lambda: FusedEngine(model, double=double),
        "network": lambda: _network(model, double, threads),
    }
    if engine not in makers:
        raise InvalidInput(f"There is no engine called {engine!r}. Choose one of {', '.join(makers)}.")
    return makers[engine]()


def _automatic(model: Any, double: bool, threads: int) -> Engine:
    if isinstance(model, Mlp):
        return _numpy(model, double)
    if supports(model):
        return FusedEngine(model, double=double)
    if kernel is None:
        return _torch(model, double)
    try:
        return _network(model, double, threads, special=True)
    except _Unknown as unknown:
        _say_once(str(unknown))
        return _torch(model, double)


class _Unknown(InvalidInput):
    """The compiled engine cannot train this module; torch can, or says why not."""


@functools.cache
def _say_once(reason: str) -> None:
    """Modules are public, so a reason is, too."""
    logging.getLogger(__name__).warning("The compiled engine leaves this module to torch, which is slower: %s", reason)


def _network(model: Any, double: bool, threads: int, *, special: bool = False) -> Engine:
    """The compiled engine; ``special`` where a network that has a kernel of its own may use it."""
    if isinstance(model, Regression):
        raise InvalidInput("The compiled engine trains classifiers; real targets are trained by engine='numpy'.")
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
        return NetworkEngine(layers, source, shape, double=double, threads=threads)
    except (_recognise.NotDescribed, InvalidInput) as error:
        raise _Unknown(f"{error}.".replace("..", ".")) from error


def _numpy(model: Any, double: bool) -> Engine:
    if not isinstance(model, Mlp):
        raise InvalidInput(f"The numpy engine trains Mlp models, not {type(model).__name__}. Use engine='torch'.")
    # Errors of a regression may change their sign with the last bits of an output, and those with the size of a batch.
    return NumpyEngine(model, double=double or isinstance(model, Regression))


def _torch(model: Any, double: bool) -> Engine:
    _need_torch(model)
    from dptune.training.torch_engine import TorchEngine  # noqa: PLC0415 - optional dependency
    from dptune.training.torch_models import build  # noqa: PLC0415 - the same

    if isinstance(model, Mlp | Cnn):
        return TorchEngine(build(model), double=double, fresh=True)
    return TorchEngine(model, double=double)


def _need_torch(model: Any) -> None:
    try:
        import torch  # noqa: F401, PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput(
            f"{type(model).__name__} needs torch, which is not installed. Run: pip install 'dptune[torch]'."
        ) from error
