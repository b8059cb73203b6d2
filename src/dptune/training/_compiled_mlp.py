"""Which MLPs the compiled kernel computes, and how it is told of their activation."""

from __future__ import annotations

from dptune.training.models import Activation, Mlp

__all__ = ["faster_compiled", "in_kernel", "suits_kernel"]

_FEW_FEATURES, _FEW_UNITS = 1024, 256


def in_kernel(activation: Activation) -> tuple[bool, float, float, float]:
    """Whether it is relu; else inner, outer and shift of ``tanh(inner z) outer + shift``."""
    if activation.kind != "tempered_sigmoid":
        return activation.kind == "relu", 1.0, 1.0, 0.0
    half = 0.5 * activation.scale
    return False, 0.5 * activation.temperature, half, half - activation.offset


def suits_kernel(model: Mlp) -> bool:
    """Small networks are faster in one compiled pass; large ones leave the work to the matrix library."""
    small = model.features <= _FEW_FEATURES and all(width <= _FEW_UNITS for width in model.hidden)
    known = model.nonlinearity.kind in {"relu", "tanh"}
    return small and known and 1 < model.classes <= 16 and len(model.hidden) < 8


def faster_compiled(model: Mlp) -> bool:
    """A stack of regressions with a few outputs leaves most lanes of the kernel empty."""
    return bool(model.hidden) or model.classes > 4
