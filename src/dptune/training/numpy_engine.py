"""Engine A: clipped gradient sums of softmax regression and MLPs in numpy, by book-keeping.

The gradient of a linear layer for one record is the outer product of its input and its output's derivative,
so its norm is a product of two vector norms and the clipped sum is one weighted matrix product: per-record
gradients never exist. Several candidates of one shape are computed at once; each has its own parameters,
batch and clip norm, and nothing flows between them. Padding is of records (weight zero), never of parameters. Where
there is a compiled pass, networks go through it one after the other. Sums for secure noise are exact, in whole numbers
(see :mod:`_fixed_point`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

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
# How many candidates are computed at once in numpy: networks as many as stay in the caches.
_NETWORKS, _REGRESSIONS = 4, 16
# Records with at most this share of nonzero features are packed: the kernel then leaves the zeros out.
_SPARSE = 0.35
_PACKED: WeakKeyDictionary[Dataset, Any] = WeakKeyDictionary()


class NumpyEngine:
    """Clipped sums for an :class:`~dptune.training.models.Mlp`; ``double`` for use with secure noise."""

    def __init__(self, model: Mlp, *, double: bool = False, compiled: bool | None = None) -> None:
        self.model = model
        self.dimension = model.dimension
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        possible = kernel is not None and not double and _suits_kernel(model)
        wanted = _faster_compiled(model) if compiled is None else compiled
        self.compiled = possible and wanted
        self.together = 1 if self.compiled else _NETWORKS if model.hidden else _REGRESSIONS
        self._widths = np.array(model.widths, np.int64)
        self._shapes = list(itertools.pairwise(model.widths))
        ends = list(itertools.accumulate((rows + 1) * columns for rows, columns in self._shapes))
        self._spans = [(s, e, *shape) for s, e, shape in zip([0, *ends], ends, self._shapes, strict=False)]
        self._tanh = model.nonlinearity.kind == "tanh"
        self._gathered = np.empty((0, model.features), self.dtype)
        self._data: Dataset | None = None
        self._loaded = False
        self._packed: Any = None
        self._room = np.empty(0, np.uint8)
        self._fixed: FixedPoint | None = None
        self._x = np.empty((0, model.features), self.dtype)
        self._square = np.empty(0, self.dtype)
        self._one = np.empty(0, self.dtype)
        self._y = np.empty(0, np.int64)

    def start(self, key: RunKey) -> Floats:
        """Initial parameters: uniform within 1/sqrt(inputs), as torch does; zero for softmax regression."""
        flat = np.zeros(self.dimension, self.dtype)
        if self.model.hidden:
            rng = key.child("weights").generator()
            for block in self._blocks(flat):
                bound = 1.0 / np.sqrt(len(block) - 1)
                block[:-1] = rng.uniform(-bound, bound, block[:-1].shape)
                block[-1] = rng.uniform(-bound, bound, block[-1].shape)
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
        self._loaded = False
        if self.dtype is np.float32:  # a secure run needs no copy in double precision
            self._load()

    def _load(self) -> None:
        if self._data is None or self._loaded:
            return
        self._loaded = True
        self._x = np.ascontiguousarray(self._data.x, dtype=self.dtype)
        if self.compiled:
            self._packed = _packed(self._data, self._x, self._y)
            self._room = np.empty(kernel.mlp_room(self._widths, self._packed is not None), np.uint8)
        else:
            self._square = np.einsum("nd,nd->n", self._x, self._x)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        if self.compiled:
            for flat, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
                places = np.ascontiguousarray(batch, np.int64)
                weights = np.ascontiguousarray(flat, np.float32)
                shape = (self._widths, self._tanh, clip, self._room)
                kernel.mlp_sum(weights, self._x, self._packed, self._y, places, *shape, total)
            return
        self._load()
        if not any(len(batch) for batch in batches):
            out.fill(0.0)
        elif self.model.hidden:
            self._networks(parameters, batches, clips, out)
        else:
            self._regressions(parameters, batches, clips, out)

    def _networks(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Networks: products for each on its own rows, everything else for all rows at once."""
        index, sizes = np.concatenate(batches), [len(batch) for batch in batches]
        ends = list(itertools.accumulate(sizes))
        cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        weights = list(zip([self._blocks(flat) for flat in parameters], cuts, strict=True))
        activation, scratch = self.model.nonlinearity, np.empty((len(index), max(self.model.hidden)), self.dtype)
        inputs, squares = [self._gather(index)], [self._square[index]]
        for place, width in enumerate(self.model.hidden):
            values = np.empty((len(index), width), self.dtype)
            for blocks, own in weights:
                np.matmul(inputs[-1][own], blocks[place][:-1], out=values[own])
                values[own] += blocks[place][-1]
            _activate(activation, values)
            inputs.append(values)
            squares.append(_square_rows(values, scratch))
        top = np.empty((self.model.classes, len(index)), self.dtype)  # few classes: records last
        for blocks, own in weights:
            np.matmul(blocks[-1][:-1].T, inputs[-1][own].T, out=top[:, own])
            top[:, own] += blocks[-1][-1][:, None]
        _softmax_minus_label(top[None], self._y[index][None])
        delta = np.ascontiguousarray(top.T)
        deltas, square = [delta], (squares[-1] + 1.0) * np.square(top).sum(axis=0)
        for place in range(len(self.model.hidden) - 1, -1, -1):
            delta = np.empty_like(inputs[place + 1])
            for blocks, own in weights:
                np.matmul(deltas[-1][own], blocks[place + 1][:-1].T, out=delta[own])
            _times_slope(activation, delta, inputs[place + 1])
            square += (squares[place] + 1.0) * _square_rows(delta, scratch)
            deltas.append(delta)
        norm = np.sqrt(square, out=square)
        if not np.isfinite(norm).all():
            _drop_overflows(norm, [*inputs, *deltas])
        limit = np.repeat(clips.astype(self.dtype), sizes)
        factor = (limit / np.maximum(norm, limit))[:, None]
        sums = list(zip([self._blocks(flat) for flat in out], cuts, strict=True))
        for place, delta in enumerate(reversed(deltas)):
            np.multiply(delta, factor, out=delta)
            for blocks, own in sums:
                np.matmul(inputs[place][own].T, delta[own], out=blocks[place][:-1])
                np.matmul(self._ones(len(delta[own])), delta[own], out=blocks[place][-1])

    def _ones(self, count: int) -> Floats:
        if len(self._one) < count:
            self._one = np.ones(2 * count, self.dtype)
        return self._one[:count]

    def _regressions(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Softmax regressions as a stack: each is too small to be worth the calls."""
        stack, most = len(batches), max((len(batch) for batch in batches), default=0)
        index = np.zeros((stack, most), np.int64)
        valid = np.zeros((stack, most), self.dtype)
        for row, batch in enumerate(batches):
            index[row, : len(batch)] = batch
            valid[row, : len(batch)] = 1.0
        weights, biases = _parts(parameters, self._shapes[0])
        rows = self._gather(index.ravel()).reshape(stack, most, -1).transpose(0, 2, 1)
        values = np.matmul(weights.transpose(0, 2, 1), rows)
        values += biases[:, :, None]
        _softmax_minus_label(values, self._y[index])
        norm = np.sqrt((self._square[index] + 1.0) * np.square(values).sum(axis=1))
        if not np.isfinite(norm).all():
            _drop_overflows(norm, [rows.transpose(0, 2, 1), values.transpose(0, 2, 1)])
        limit = clips.astype(self.dtype)[:, None]
        factor = valid * (limit / np.maximum(norm, limit))
        values *= factor[:, None, :]
        weights, biases = _parts(out, self._shapes[0])
        np.matmul(rows, values.transpose(0, 2, 1), out=weights)
        np.sum(values, axis=2, out=biases)

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
        values = np.asarray(x, dtype=self.dtype)
        blocks = self._blocks(np.asarray(parameters))
        for place, block in enumerate(blocks):
            values = values @ block[:-1] + block[-1]
            if place + 1 < len(blocks):
                _activate(self.model.nonlinearity, values)
        return values

    def _blocks(self, flat: Floats) -> list[Floats]:
        """Views of flat parameters: a matrix for every layer, whose last row is the bias."""
        return [flat[start:end].reshape(rows + 1, columns) for start, end, rows, columns in self._spans]

    def _gather(self, index: Indices) -> Floats:
        if len(self._gathered) < index.size:
            self._gathered = np.empty((index.size + index.size // 4, self.model.features), self.dtype)
        rows = self._gathered[: index.size]
        np.take(self._x, index, axis=0, out=rows, mode="clip")
        return rows


def _parts(flat: Floats, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Views (weights, biases) of stacked regressions."""
    rows, columns = shape
    return flat[:, : rows * columns].reshape(len(flat), rows, columns), flat[:, rows * columns :]


def _packed(data: Dataset, x: Floats, y: Indices) -> Any:
    """The nonzero features of every record, for the kernel; None where most are not zero. Made once for a data set."""
    known = _PACKED.get(data, _PACKED)
    if known is _PACKED:
        known = _PACKED[data] = kernel.pack(x, y, _SPARSE)
    return known


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


def _square_rows(values: Floats, scratch: Floats) -> Floats:
    """The squared norm of every row: two passes that are both vectorised."""
    room = scratch[:, : values.shape[1]]
    np.multiply(values, values, out=room)
    return np.asarray(np.matmul(room, np.ones(values.shape[1], values.dtype)))


def _drop_overflows(norm: Floats, rows: list[Floats]) -> None:
    """Let records whose gradient overflows contribute zero: an infinite sum has no sensitivity."""
    bad = ~np.isfinite(norm)
    norm[bad] = 0.0
    for values in rows:
        values[bad] = 0.0


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
