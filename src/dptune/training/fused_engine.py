"""Engine C: the small MNIST network of DP-HyPO, forward, backward and clipping in one pass over a few records.

A compiled kernel does it, or numpy where there is none. Parameters keep the order of the torch module, so models
move freely between the engines; the inner order (channels last) exists only inside a call.

For secure noise the kernel rounds every record's clipped gradient to the noise's lattice and adds whole numbers: such
a sum is exact, and a record's share of it is a function of that record and the parameters alone
(docs/theorems/exact_sums.md). Numpy does the same one record at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.data import flat_rows
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._cnn_numpy import CnnPass
from dptune.training._compiled import kernel
from dptune.training._shares import add_share, total_steps
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Cnn, dp_hypo_cnn

__all__ = ["FusedEngine", "supports"]


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


_BLOCK = 12  # records that the kernel takes at a time


def supports(model: object) -> bool:
    """Whether this engine trains the model."""
    return model == dp_hypo_cnn()


def _order() -> Indices:
    """Places in torch's order of the parameters in the kernel's order."""
    parts, start = [], 0
    for shape, axes, _ in _LAYERS:
        size = int(np.prod(shape))
        parts.append((start + np.arange(size).reshape(shape)).transpose(axes).reshape(-1))
        start += size
    return np.concatenate(parts)


@functools.cache
def _same_in_every_place() -> bool:
    """Whether this build gives a record the same bits in every place of a block.

    The source does the same operations for every place, but a compiler may fuse a product and a sum in one copy of a
    loop and not in another. What it chose does not depend on data, so random records show it.
    """
    rng = np.random.default_rng(0)
    p = rng.uniform(-0.2, 0.2, len(_order())).astype(np.float32)
    x, y = rng.random((_BLOCK, 784), dtype=np.float32), rng.integers(0, 10, _BLOCK)
    x[::2] *= rng.random((_BLOCK // 2, 784)) < np.linspace(0.0, 0.5, 784)  # zeros are left out
    shares, together = np.empty((_BLOCK, len(p))), np.empty(len(p))
    outputs, alone = np.empty((_BLOCK, 10), np.float32), np.empty((_BLOCK, 10), np.float32)
    for record in range(_BLOCK):
        kernel.cnn_sum(p, x, y, np.array([record]), 1.0, 2.0**40, shares[record])
        kernel.cnn_forward(p, x[record : record + 1], alone[record : record + 1])
    for size in range(2, _BLOCK + 1):
        kernel.cnn_sum(p, x, y, np.arange(size), 1.0, 2.0**40, together)
        kernel.cnn_forward(p, x[:size], outputs)
        if not (np.array_equal(together, shares[:size].sum(axis=0)) and np.array_equal(outputs[:size], alone[:size])):
            return False
    return True


class FusedEngine:
    """Clipped sums for :func:`~dptune.training.models.dp_hypo_cnn`; ``double`` for use with secure noise.

    The kernel always computes in single precision; with ``double`` its sums are exact (see above). Numpy then computes
    in double precision throughout, exact sums one record at a time.
    """

    together = 1

    def __init__(self, model: Cnn, *, double: bool = False, compiled: bool | None = None) -> None:
        if not supports(model):
            raise InvalidInput("The fused engine trains dp_hypo_cnn() only. Use engine='torch'.")
        if compiled and kernel is None:
            raise InvalidInput("The fused kernel is not compiled. Reinstall with a C compiler, or leave it to numpy.")
        self.compiled = kernel is not None if compiled is None else compiled
        if double and self.compiled and not _same_in_every_place():
            if compiled:
                raise InvalidInput(
                    "This build of the kernel rounds a record's gradient differently in different places of a batch, "
                    "so its sums are not exact. Rebuild it with gcc and its default options, or leave it to numpy."
                )
            self.compiled = False
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        self._inner: type[np.floating[Any]] = np.float32 if self.compiled else self.dtype
        self._pass = None if self.compiled else CnnPass(self._inner)
        self._alone = None if self.compiled or not double else CnnPass(self._inner, records=1)
        self._judge: CnnPass | None = None
        self._to_inner = _order()
        self._to_torch = np.argsort(self._to_inner)
        self.dimension = len(self._to_inner)
        self._sum = np.empty(self.dimension, self._inner)
        self._data: Dataset | None = None
        self._x, self._y = np.empty((0, 784), self._inner), np.empty(0, np.int64)

    def start(self, key: Randomness) -> Floats:
        """Initial parameters: uniform within 1/sqrt(inputs), as torch does."""
        rng = key.child("weights").generator()
        parts = [rng.uniform(-(n**-0.5), n**-0.5, int(np.prod(shape))) for shape, _, n in _LAYERS]
        return np.concatenate(parts).astype(np.float32).astype(self.dtype)

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        data = data.flat
        if data.x.shape[1] != 784 or data.classes != 10:
            raise InvalidInput(
                f"The network takes 784 pixels and 10 classes; got {data.x.shape[1]} and {data.classes}. Use a Cnn."
            )
        if data is not self._data:
            self._data = data
            with np.errstate(all="ignore"):  # a record that is too large for single precision will be dropped
                self._x = np.ascontiguousarray(data.x, dtype=self._inner)
            self._y = np.ascontiguousarray(data.y, dtype=np.int64)

    @property
    def layer_places(self) -> list[Indices]:
        """The places of every layer's parameters: weights and the biases behind them."""
        sizes = [int(np.prod(shape)) for shape, _, _ in _LAYERS]
        return np.split(np.arange(self.dimension), np.cumsum(sizes)[1:-1:2])

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for row, batch in enumerate(batches):
            inner = np.asarray(parameters[row], self._inner)[self._to_inner]
            places, clip = np.ascontiguousarray(batch, dtype=np.int64), float(clips[row])
            if self._pass is None:
                kernel.cnn_sum(inner, self._x, self._y, places, clip, 0.0, self._sum)
            else:
                self._pass.clipped_sum(inner, self._x, self._y, places, clip, self._sum)
            out[row] = self._sum[self._to_torch]

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of clipped gradients, rounded to ``lattices[s]``.

        Lattices are powers of two; zero asks for a sum that is not rounded. Returns False if this engine cannot, and
        leaves ``out`` alone.
        """
        if not self.compiled and self._alone is None:
            return False
        for row, (batch, lattice) in enumerate(zip(batches, lattices, strict=True)):
            one = slice(row, row + 1)
            if lattice == 0.0:
                self.clipped_sums(parameters[one], [batch], clips[one], out[one])
                continue
            inner = np.asarray(parameters[row], self._inner)[self._to_inner]
            steps = total_steps(batch, functools.partial(self._steps, inner, float(clips[row]), lattice))
            out[row] = steps[self._to_torch] * lattice
        return True

    def _steps(self, inner: Floats, clip: float, lattice: float, batch: Indices) -> Array:
        """The sum of the shares of these records in lattice steps, in the kernel's order."""
        exact, places = np.zeros(self.dimension), np.ascontiguousarray(batch, dtype=np.int64)
        if self._alone is None:
            kernel.cnn_sum(inner, self._x, self._y, places, clip, 1.0 / lattice, exact)
            return exact
        gradient = np.empty(self.dimension)
        for place in places:
            self._alone.gradient(inner, self._x[place], self._y[place], gradient)
            add_share(exact, gradient, clip, lattice)
        return exact

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``; the bits of each are a function of that row alone."""
        with np.errstate(all="ignore"):
            rows = flat_rows(np.ascontiguousarray(x, dtype=self._inner))
            if rows.ndim != 2 or rows.shape[1] != 784:
                raise InvalidInput(f"The network takes rows of 784 pixels; got {rows.shape}.")
            inner = np.asarray(parameters, dtype=self._inner)[self._to_inner]
            if self._pass is not None:  # a product over several records rounds by their places
                self._judge = self._judge or CnnPass(self._inner, records=1)
                return self._judge.logits(inner, rows)
            outputs = np.empty((len(rows), 10), np.float32)
            together = max(1, len(rows)) if _same_in_every_place() else 1
            for first in range(0, len(rows), together):
                kernel.cnn_forward(inner, rows[first : first + together], outputs[first : first + together])
            return outputs
