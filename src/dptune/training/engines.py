"""Which engine trains which model: numpy for MLPs, the fused pass or torch for CNNs, torch for modules.

Torch is imported only when a model needs it. All engines compute the same sums; they differ in speed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dptune.errors import InvalidInput
from dptune.training.dpsgd import Engine
from dptune.training.fused_engine import FusedEngine, supports
from dptune.training.models import Cnn, Mlp
from dptune.training.numpy_engine import NumpyEngine

__all__ = ["engine_for"]


def engine_for(model: Any, *, double: bool = False, engine: str = "auto") -> Engine:
    """The engine that trains a model.

    Args:
        model: A description (``Mlp``, ``Cnn``), or a ``torch.nn.Module``.
        double: Whether to compute in double precision, as secure noise and units of several rows need it.
        engine: "auto", or the engine by name: "numpy", "torch", "fused".

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
    makers: dict[str, Callable[[], Engine]] = {
        "auto": lambda: _automatic(model, double),
        "numpy": lambda: _numpy(model, double),
        "torch": lambda: _torch(model, double),
        "fused": lambda: FusedEngine(model, double=double),
    }
    if engine not in makers:
        raise InvalidInput(f"There is no engine called {engine!r}. Choose one of {', '.join(makers)}.")
    return makers[engine]()


def _automatic(model: Any, double: bool) -> Engine:
    if isinstance(model, Mlp):
        return _numpy(model, double)
    return FusedEngine(model, double=double) if supports(model) else _torch(model, double)


def _numpy(model: Any, double: bool) -> Engine:
    if not isinstance(model, Mlp):
        raise InvalidInput(f"The numpy engine trains Mlp models, not {type(model).__name__}. Use engine='torch'.")
    return NumpyEngine(model, double=double)


def _torch(model: Any, double: bool) -> Engine:
    try:
        from dptune.training.torch_engine import TorchEngine  # noqa: PLC0415 - optional dependency
        from dptune.training.torch_models import build  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput(
            f"{type(model).__name__} needs torch, which is not installed. Run: pip install 'dptune[torch]'."
        ) from error
    if isinstance(model, Mlp | Cnn):
        return TorchEngine(build(model), double=double, fresh=True)
    return TorchEngine(model, double=double)
