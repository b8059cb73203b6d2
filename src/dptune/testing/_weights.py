"""The numbers of a model, for suites that compare models: as one vector, where they are known."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.executors.models import pack_model
from dptune.judging import is_module
from dptune.training.trained_model import Trained

__all__ = ["close", "finite", "weights_of"]


def weights_of(model: Any) -> Array | None:
    """The numbers of a model as one vector: of arrays, of torch modules, of DP-SGD's models.

    Args:
        model: what a run returned.

    Returns:
        The numbers; None of other models.

    Example:
        >>> weights_of({"a": np.ones((1, 2)), "b": np.zeros(1)})
        array([1., 1., 0.])
    """
    if is_module(model):
        torch = sys.modules["torch"]
        return np.asarray(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy(), dtype=np.float64)
    if isinstance(model, dict) and model and all(isinstance(value, np.ndarray) for value in model.values()):
        return np.concatenate([np.ravel(value) for value in model.values()]).astype(np.float64)
    if isinstance(model, float | np.ndarray | np.floating):
        return np.ravel(np.asarray(model, dtype=np.float64))
    return model.parameters.astype(np.float64) if isinstance(model, Trained) else None


def finite(model: object) -> bool:
    """Whether all numbers of a model are finite, as far as they are known."""
    numbers = weights_of(model)
    return numbers is None or bool(np.isfinite(numbers).all())


def close(one: object, other: object, tolerance: float) -> bool:
    """Whether two models have the same numbers up to a tolerance, or the same bytes where those are not known."""
    a, b = weights_of(one), weights_of(other)
    if a is None or b is None:
        return pack_model(one, pickle=True) == pack_model(other, pickle=True)
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0.0, atol=tolerance * max(1.0, float(np.abs(b).max()))))
