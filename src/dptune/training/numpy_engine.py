"""Engine A: clipped gradient sums of softmax regression and MLPs in numpy, by book-keeping.

The gradient of a linear layer for one record is the outer product of its input and its output's derivative,
so its norm is a product of two vector norms and the clipped sum is one weighted matrix product: per-record
gradients never exist. Several candidates of one shape are computed as a stack; each has its own parameters,
batch and clip norm, and nothing flows between them. Padding in a stack is of records (weight zero), never of
parameters. Sums for secure noise are exact, in whole numbers (see :mod:`_fixed_point`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.training._compiled import kernel
from dptune.training._fixed_point import FixedPoint
from dptune.training.datasets import Dataset
from dptune.training.models import Activation, Mlp
from dptune.training.noise import RunKey

__all__ = ["NumpyEngine"]

Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

_FEW_FEATURES, _FEW_UNITS = 1024, 256


class NumpyEngine:
    """Clipped sums for an :class:`~dptune.training.models.Mlp`; ``double`` for use with secure noise."""

    stacks = True

    def __init__(self, model: Mlp, *, double: bool = False, compiled: bool | None = None) -> None:
        self.model = model
        self.dimension = model.dimension
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        possible = kernel is not None and not double and _suits_kernel(model)
        wanted = _faster_compiled(model) if compiled is None else compiled
        self.compiled = possible and wanted
        self._widths = np.array(model.widths, np.int64)
        self._shapes = list(itertools.pairwise(model.widths))
        self._gathered = np.empty((0, model.features), self.dtype)
        self._data: Dataset | None = None
        self._fixed: FixedPoint | None = None
        self._x = np.empty((0, model.features), self.dtype)
        self._square = np.empty(0, self.dtype)
        self._y = np.empty(0, np.int64)

    def start(self, key: RunKey) -> Floats:
        """Initial parameters: uniform within 1/sqrt(inputs), as torch does; zero for softmax regression."""
        flat = np.zeros(self.dimension, self.dtype)
        if self.model.hidden:
            rng = key.child("weights").generator()
            for weight, bias in self._layers(flat[None]):
                bound = 1.0 / np.sqrt(weight.shape[1])
                weight[0] = rng.uniform(-bound, bound, weight.shape[1:])
                bias[0] = rng.uniform(-bound, bound, bias.shape[1:])
        return flat

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        if data.x.shape[1] != self.model.features:
            raise InvalidInput(
                f"the model takes {self.model.features} features but the data has {data.x.shape[1]}. "
                "Build the model with features=data.x.shape[1]."
            )
        if data.classes != self.model.classes:
            raise InvalidInput(f"the model has {self.model.classes} classes but the data has {data.classes}.")
        if data is self._data:
            return
        self._data = data
        self._fixed = None
        self._y = np.ascontiguousarray(data.y)
        self._x = np.empty((0, self.model.features), self.dtype)
        if self.dtype is np.float32:  # a secure run needs no copy in double precision
            self._load()

    def _load(self) -> None:
        if self._data is not None and len(self._x) != len(self._data):
            self._x = np.ascontiguousarray(self._data.x, dtype=self.dtype)
            self._square = np.einsum("nd,nd->n", self._x, self._x)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        if self.compiled:
            for row, batch in enumerate(batches):
                places = np.ascontiguousarray(batch, np.int64)
                weights = np.ascontiguousarray(parameters[row], np.float32)
                tanh = self.model.nonlinearity.kind == "tanh"
                kernel.mlp_sum(weights, self._x, self._y, places, self._widths, tanh, float(clips[row]), out[row])
            return
        self._load()
        stack, most = len(batches), max((len(batch) for batch in batches), default=0)
        if most == 0:
            out.fill(0.0)
            return
        index = np.zeros((stack, most), np.int64)
        valid = np.zeros((stack, most), self.dtype)
        for row, batch in enumerate(batches):
            index[row, : len(batch)] = batch
            valid[row, : len(batch)] = 1.0
        layers = self._layers(parameters)
        # Records come last in everything but the gathered rows: sums over units are then vectorised.
        rows = self._gather(index)
        inputs = [rows.transpose(0, 2, 1)]
        for place, (weight, bias) in enumerate(layers):
            values = np.matmul(weight.transpose(0, 2, 1), inputs[-1])
            values += bias[:, :, None]
            if place + 1 < len(layers):
                _activate(self.model.nonlinearity, values)
                inputs.append(values)
        _softmax_minus_label(values, self._y[index])
        deltas = [values]
        for (weight, _), hidden in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
            delta = np.matmul(weight, deltas[-1])
            _times_slope(self.model.nonlinearity, delta, hidden)
            deltas.append(delta)
        deltas.reverse()
        square = (self._square[index] + 1.0) * np.square(deltas[0]).sum(axis=1)
        for hidden, delta in zip(inputs[1:], deltas[1:], strict=True):
            square += (np.square(hidden).sum(axis=1) + 1.0) * np.square(delta).sum(axis=1)
        norm = np.sqrt(square, out=square)
        if not np.isfinite(norm).all():
            _drop_overflows(norm, inputs, deltas)
        limit = clips.astype(self.dtype)[:, None]
        factor = valid * (limit / np.maximum(norm, limit))
        for (weight, bias), hidden, delta in zip(self._layers(out), inputs, deltas, strict=True):
            np.multiply(delta, factor[:, None, :], out=delta)
            np.matmul(hidden, delta.transpose(0, 2, 1), out=weight)
            np.sum(delta, axis=2, out=bias)

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """The same, exactly: every record's share is a function of that record and the parameters, of norm at most
        ``clips[s]``. Large sums are multiples of ``lattices[s]``."""
        if self._fixed is None:
            self._fixed = FixedPoint(self.model)
            if self._data is not None:
                self._fixed.bind(self._data)
        self._fixed.sums(parameters, batches, clips, lattices, out)
        return True

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs of one candidate on the rows of ``x``."""
        layers = self._layers(np.asarray(parameters)[None])
        values = np.asarray(x, dtype=self.dtype)
        for place, (weight, bias) in enumerate(layers):
            values = values @ weight[0] + bias[0]
            if place + 1 < len(layers):
                _activate(self.model.nonlinearity, values)
        return values

    def _layers(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        """Views (weights, biases) of stacked flat parameters."""
        views, start = [], 0
        for rows, columns in self._shapes:
            middle, end = start + rows * columns, start + (rows + 1) * columns
            views.append((flat[:, start:middle].reshape(len(flat), rows, columns), flat[:, middle:end]))
            start = end
        return views

    def _gather(self, index: Indices) -> Floats:
        if len(self._gathered) < index.size:
            self._gathered = np.empty((index.size + index.size // 4, self.model.features), self.dtype)
        rows = self._gathered[: index.size]
        np.take(self._x, index.ravel(), axis=0, out=rows, mode="clip")
        return rows.reshape(*index.shape, self.model.features)


def _suits_kernel(model: Mlp) -> bool:
    """Small networks are faster in one compiled pass; large ones leave the work to the matrix library."""
    small = model.features <= _FEW_FEATURES and all(width <= _FEW_UNITS for width in model.hidden)
    known = model.nonlinearity.kind in {"relu", "tanh"}
    return small and known and model.classes <= 16 and len(model.hidden) < 8


def _faster_compiled(model: Mlp) -> bool:
    """A stack of regressions with a few outputs leaves most lanes of the kernel empty."""
    return bool(model.hidden) or model.classes > 4


def _activate(activation: Activation, values: Floats) -> None:
    if activation.kind == "relu":
        np.maximum(values, 0.0, out=values)
    elif activation.kind == "tanh":
        np.tanh(values, out=values)
    else:  # scale * sigmoid(t x) - offset = scale/2 * tanh(t x / 2) + scale/2 - offset
        values *= 0.5 * activation.temperature
        np.tanh(values, out=values)
        values *= 0.5 * activation.scale
        values += 0.5 * activation.scale - activation.offset


def _times_slope(activation: Activation, delta: Floats, output: Floats) -> None:
    """Multiply ``delta`` by the activation's derivative, given the activation's output."""
    if activation.kind == "relu":
        delta *= output > 0.0
    elif activation.kind == "tanh":
        delta *= 1.0 - output * output
    else:
        sigmoid = (output + activation.offset) * (1.0 / activation.scale)
        delta *= (activation.scale * activation.temperature) * sigmoid * (1.0 - sigmoid)


def _drop_overflows(norm: Floats, inputs: list[Floats], deltas: list[Floats]) -> None:
    """Let records whose gradient overflows contribute zero: an infinite sum has no sensitivity."""
    bad = ~np.isfinite(norm)
    norm[bad] = 0.0
    for values in (*inputs, *deltas):
        values.transpose(0, 2, 1)[bad] = 0.0


def _softmax_minus_label(logits: Floats, labels: Indices) -> None:
    """Turn logits (stack, class, record) into the derivative of the cross-entropy, in place."""
    stack, classes, records = logits.shape
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    rows = np.arange(stack)[:, None] * classes + labels
    rows *= records
    rows += np.arange(records)
    logits.reshape(-1)[rows.ravel()] -= 1.0
