"""Engine C: the small MNIST network of DP-HyPO by a compiled kernel, forward, backward and clipping in one.

Parameters keep the order of the torch module, so models move freely between the engines; the kernel's own
order (channels last) exists only inside a call. Without a compiled kernel :func:`available` is false and the
torch engine does the same work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.training._compiled import kernel
from dptune.training.datasets import Dataset
from dptune.training.models import Cnn, dp_hypo_cnn
from dptune.training.noise import RunKey

__all__ = ["FusedEngine", "available", "supports"]

Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

# (shape in torch's order, axes of the kernel's order, inputs of one unit)
_LAYERS = [
    ((16, 1, 8, 8), (2, 3, 1, 0), 64),
    ((16,), (0,), 64),
    ((32, 16, 4, 4), (2, 3, 1, 0), 256),
    ((32,), (0,), 256),
    ((32, 32, 4, 4), (2, 3, 1, 0), 512),
    ((32,), (0,), 512),
    ((10, 32), (1, 0), 32),
    ((10,), (0,), 32),
]


def available() -> bool:
    """Whether the kernel was compiled."""
    return kernel is not None


def supports(model: object, *, double: bool = False) -> bool:
    """Whether this engine trains the model."""
    return available() and not double and model == dp_hypo_cnn()


def _order() -> Indices:
    """Places in torch's order of the parameters in the kernel's order."""
    parts, start = [], 0
    for shape, axes, _ in _LAYERS:
        size = int(np.prod(shape))
        parts.append((start + np.arange(size).reshape(shape)).transpose(axes).reshape(-1))
        start += size
    return np.concatenate(parts)


class FusedEngine:
    """Clipped sums for :func:`~dptune.training.models.dp_hypo_cnn` in single precision."""

    stacks = False
    dtype: type[np.floating[Any]] = np.float32

    def __init__(self, model: Cnn) -> None:
        if not available():
            raise InvalidInput("the fused kernel is not compiled. Reinstall with a C compiler, or use torch.")
        if not supports(model):
            raise InvalidInput("the fused engine trains dp_hypo_cnn() only. Use engine='torch'.")
        self._to_kernel = _order()
        self._to_torch = np.argsort(self._to_kernel)
        self.dimension = len(self._to_kernel)
        self._sum = np.empty(self.dimension, np.float32)
        self._data: Dataset | None = None
        self._x, self._y = np.empty((0, 784), np.float32), np.empty(0, np.int64)

    def start(self, key: RunKey) -> Floats:
        """Initial parameters: uniform within 1/sqrt(inputs), as torch does."""
        rng = key.child("weights").generator()
        parts = [rng.uniform(-(n**-0.5), n**-0.5, int(np.prod(shape))) for shape, _, n in _LAYERS]
        return np.concatenate(parts).astype(np.float32)

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        if data.x.shape[1] != 784 or data.classes != 10:
            raise InvalidInput(
                f"the network takes 784 pixels and 10 classes; got {data.x.shape[1]} and {data.classes}."
            )
        if data is not self._data:
            self._data = data
            self._x = np.ascontiguousarray(data.x, dtype=np.float32)
            self._y = np.ascontiguousarray(data.y, dtype=np.int64)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for row, batch in enumerate(batches):
            inner = np.asarray(parameters[row], np.float32)[self._to_kernel]
            places = np.ascontiguousarray(batch, dtype=np.int64)
            kernel.cnn_sum(inner, self._x, self._y, places, float(clips[row]), self._sum)
            np.take(self._sum, self._to_torch, out=out[row], mode="clip")

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        rows = np.ascontiguousarray(x, dtype=np.float32)
        outputs = np.empty((len(rows), 10), np.float32)
        inner = np.asarray(parameters, dtype=np.float32)[self._to_kernel]
        kernel.cnn_forward(inner, rows, outputs)
        return outputs
