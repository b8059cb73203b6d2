"""Engine A: clipped gradient sums of softmax and linear regression and MLPs in numpy, by book-keeping.

The gradient of a linear layer for one record is the outer product of its input and its output's derivative,
so its norm is a product of two vector norms and the clipped sum is one weighted matrix product: per-record
gradients never exist. Several candidates of one shape are computed at once; each has its own parameters,
batch and clip norm, and nothing flows between them. Padding is of records (weight zero), never of parameters. Where
there is a compiled pass, networks go through it one after the other. Sums for secure noise are exact, in whole numbers
(see :mod:`_fixed_point`). The file is long because one engine computes all of these with the same rooms of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._places import origin
from dptune._typing import AnyArray, Floats, Indices
from dptune.data import flat_rows
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.regression import range_of
from dptune.training._compiled import kernel
from dptune.training._compiled_mlp import faster_compiled, in_kernel, suits_kernel
from dptune.training._fixed_point import FixedPoint
from dptune.training._layers import (
    activate,
    drop_overflows,
    outputs_alone,
    product,
    product_alone,
    residual,
    softmax_minus_label,
    square_rows,
    times_slope,
)
from dptune.training._prepared import complete_records, complete_rows, kept_whole, packed_records, targets_of
from dptune.training._shares import VANISHED
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Mlp, Regression

__all__ = ["NumpyEngine", "refuse_other_records"]


# How many candidates are computed at once in numpy: networks as many as stay in the caches.
_NETWORKS, _REGRESSIONS = 4, 16
_MOST_ROWS = 2**17  # of all candidates, at once
Weigh = Callable[[Floats], Floats]  # from norms of gradients to their weights


class NumpyEngine:
    """Clipped sums for an :class:`~dptune.training.models.Mlp`; ``double`` for use with secure noise."""

    def __init__(self, model: Mlp, *, double: bool = False, compiled: bool | None = None) -> None:
        self.model = model
        self.dimension = model.dimension
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        self._derivative = residual if isinstance(model, Regression) else softmax_minus_label
        # An error near zero turns its sign by the last bits of an output: no other record may decide those.
        self._product = product_alone if isinstance(model, Regression) and double else product
        possible = kernel is not None and not double and suits_kernel(model)
        wanted = faster_compiled(model) if compiled is None else compiled
        self.compiled = possible and wanted
        self._judged_compiled = kernel is not None and not double and compiled is not False
        self.together = 1 if self.compiled else _NETWORKS if model.hidden else _REGRESSIONS
        self._widths = np.array(model.widths, np.int64)
        self._shapes = list(itertools.pairwise(model.widths))
        ends = list(itertools.accumulate((rows + 1) * columns for rows, columns in self._shapes))
        self._spans = [(s, e, *shape) for s, e, shape in zip([0, *ends], ends, self._shapes, strict=False)]
        self._tanh = model.nonlinearity.kind == "tanh"
        self._gathered = np.empty((0, model.features), self.dtype)
        self._between: list[tuple[Floats, Floats]] = []
        self._zeros = np.zeros(0, self.dtype)
        self._data: Dataset | None = None
        self._whole: Dataset | None = None  # whose arrays hold the records,
        self._places: Indices | None = None  # and where in them they are
        self._gathers = False
        self._loaded = False
        self._views: list[tuple[Floats, list[list[Floats]]]] = []
        self._packed: Any = None
        self._room = np.empty(0, np.uint8)
        self._fixed: FixedPoint | None = None
        self._x = np.empty((0, model.features), self.dtype)
        self._vanished = self.dtype(VANISHED)
        self._y: AnyArray = np.empty(0, np.int64)

    def start(self, key: Randomness) -> Floats:
        """Initial parameters: uniform within 1/sqrt(inputs), as torch does; zero without hidden layers.

        A regression begins in the middle of its range.
        """
        flat = np.zeros(self.dimension, self.dtype)
        if self.model.hidden:
            rng = key.child("weights").generator()
            for block in self._blocks(flat):
                bound = 1.0 / np.sqrt(len(block) - 1)
                block[:-1] = rng.uniform(-bound, bound, block[:-1].shape)
                block[-1] = rng.uniform(-bound, bound, block[-1].shape)
        if isinstance(self.model, Regression):
            self._blocks(flat)[-1][-1] += self.dtype(0.5)
        return flat

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        data = data.flat
        refuse_other_records(self.model, data)
        if data is self._data:
            return
        self._data = data
        self._fixed = None
        self._whole, self._places = origin(data)
        self._y = targets_of(self._whole)
        self._loaded = False
        if self.dtype is np.float32:  # a secure run needs no copy in double precision
            self._load()

    def _load(self) -> None:
        if self._whole is None or self._loaded:
            return
        self._loaded = True
        self._gathers = not kept_whole(self._whole)
        if self.compiled:
            with np.errstate(all="ignore"):  # a feature too large for single precision: that record will be dropped
                self._x = self._whole.x if self._gathers else np.ascontiguousarray(self._whole.x, dtype=self.dtype)
            self._packed = None if self._gathers else packed_records(self._whole, self._x, self._y)
            self._room = np.empty(kernel.mlp_room(self._widths, self._packed is not None), np.uint8)
        elif not self._gathers:
            self._x = complete_records(self._whole, self.dtype)

    def _resolved(self, batches: Sequence[Indices]) -> Sequence[Indices]:
        """The places of these records in the arrays that hold them."""
        return batches if self._places is None else [self._places[batch] for batch in batches]

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        batches = self._resolved(batches)
        if self.compiled:
            for flat, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
                records = self._compiled_records(batch)
                weights = np.ascontiguousarray(flat, np.float32)
                kernel.mlp_sum(weights, *records, self._widths, self._tanh, clip, self._room, total)
            return
        self._load()
        sums = self._networks if self.model.hidden else self._regressions
        if not any(len(batch) for batch in batches):
            out.fill(0.0)
        elif len(batches) > 1 and sum(map(len, batches)) > _MOST_ROWS:  # as large as these, a stack gains nothing
            for row, batch in enumerate(batches):
                one = slice(row, row + 1)
                if len(batch):
                    sums(parameters[one], [batch], clips[one], out[one])
                else:
                    out[one] = 0.0
        else:
            sums(parameters, batches, clips, out)

    def _compiled_records(self, batch: Indices) -> tuple[Any, ...]:
        """Features, packed features, labels and places of a batch, for the kernel."""
        places = np.ascontiguousarray(batch, np.int64)
        if self._x.dtype == np.float32:
            return self._x, self._packed, self._y, places
        with np.errstate(all="ignore"):  # as above
            rows = self._x[places].astype(np.float32)  # a large data set in double precision has no second copy
        return rows, None, self._y[places], np.arange(len(places))

    @property
    def layer_places(self) -> list[Indices]:
        """The places of every layer's parameters."""
        return [np.arange(start, end) for start, end, _, _ in self._spans]

    @property
    def weighs(self) -> bool:
        """Whether it can weigh records by their norms: classifiers in double precision, where nothing is compiled."""
        return self.dtype is np.float64 and not isinstance(self.model, Regression)

    def weighed_sum(self, flat: Floats, batch: Indices, weigh: Weigh, out: Floats) -> None:
        """Write into ``out`` the sum of the gradients of the records of ``batch``, each times ``weigh`` of its norm."""
        self._load()
        sums = self._networks if self.model.hidden else self._regressions
        sums(flat[None], self._resolved([batch]), np.ones(1), out[None], weigh)

    def _networks(
        self,
        parameters: Floats,
        batches: Sequence[Indices],
        clips: Floats,
        out: Floats,
        weigh: Weigh | None = None,
    ) -> None:
        """Networks: products for each on its own rows, everything else for all rows at once.

        Inputs of a layer have a last column of ones, so that products include the biases.
        """
        index, sizes = np.concatenate(batches), [len(batch) for batch in batches]
        ends = list(itertools.accumulate(sizes))
        cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        weights = list(zip(self._stacked(parameters), cuts, strict=True))
        activation = self.model.nonlinearity
        rows, rooms = self._gather(index), self._hidden_rows(len(index))
        inputs, squares = [rows[:, :-2]], [rows[:, -2]]
        for place, width in enumerate(self.model.hidden):
            values, zeros = rooms[place][0], self._zeros[: len(index) * (width + 1)]
            for blocks, own in weights:
                self._product(inputs[-1][own], blocks[place], values[own, :-1])
            activate(activation, values, zeros.reshape(values.shape))
            values[:, -1] = 1.0
            inputs.append(values)
            squares.append(square_rows(values))
        top = np.empty((self.model.classes, len(index)), self.dtype)  # few classes: records last
        for blocks, own in weights:
            self._tops(inputs[-1][own], blocks[-1], top[:, own])
        self._derivative(top[None], rows[None, :, -1])
        deltas, square = [np.ascontiguousarray(top.T)], squares[-1] * (np.square(top).sum(axis=0) + self._vanished)
        for place in range(len(self.model.hidden) - 1, -1, -1):
            delta = rooms[place][1]
            delta[:, -1] = 0.0
            for blocks, own in weights:
                back = blocks[place + 1][:-1].T
                self._product(deltas[-1][own, : len(back)], back, delta[own, :-1])
            times_slope(activation, delta, inputs[place + 1])
            square += squares[place] * (square_rows(delta) + self._vanished)
            deltas.append(delta)
        norm = np.sqrt(square, out=square)
        if not np.isfinite(norm).all():
            drop_overflows(norm, [*inputs, *deltas])
        limit = np.repeat(clips.astype(self.dtype), sizes) if np.ptp(clips) else self.dtype(clips[0])
        factor = (limit / np.maximum(norm, limit) if weigh is None else weigh(norm))[:, None]
        sums = list(zip(self._stacked(out), cuts, strict=True))
        for place, delta in enumerate(reversed(deltas)):
            np.multiply(delta, factor, out=delta)
            for blocks, own in sums:
                product(inputs[place][own].T, delta[own, : blocks[place].shape[1]], blocks[place])

    def _regressions(
        self,
        parameters: Floats,
        batches: Sequence[Indices],
        clips: Floats,
        out: Floats,
        weigh: Weigh | None = None,
    ) -> None:
        """Softmax regressions as a stack: each is too small to be worth the calls."""
        stack, most = len(batches), max(len(batch) for batch in batches)
        index = np.zeros((stack, most), np.int64)
        valid = np.zeros((stack, most), self.dtype)
        for row, batch in enumerate(batches):
            index[row, : len(batch)] = batch
            valid[row, : len(batch)] = 1.0
        shape = (stack, self.model.features + 1, self.model.classes)
        columns = self._gather(index.ravel()).reshape(stack, most, -1).transpose(0, 2, 1)
        rows, squares, labels = columns[:, :-2], columns[:, -2], columns[:, -1]
        values = np.empty((stack, self.model.classes, most), self.dtype)
        self._tops(rows.transpose(0, 2, 1), parameters.reshape(shape), values)
        self._derivative(values, labels)
        norm = np.sqrt(squares * (np.square(values).sum(axis=1) + self._vanished))
        if not np.isfinite(norm).all():
            drop_overflows(norm, [rows.transpose(0, 2, 1), values.transpose(0, 2, 1)])
        limit = clips.astype(self.dtype)[:, None]
        factor = valid * (limit / np.maximum(norm, limit) if weigh is None else weigh(norm))
        values *= factor[:, None, :]
        np.matmul(rows, values.transpose(0, 2, 1), out=out.reshape(shape))

    def _tops(self, rows: Floats, weights: Floats, out: Floats) -> None:
        """Outputs of the last layer, records last."""
        if self._product is product_alone:
            product_alone(rows, weights, np.swapaxes(out, -1, -2))
        else:
            turned = weights.transpose(0, 2, 1) if weights.ndim == 3 else np.ascontiguousarray(weights.T)
            np.matmul(turned, np.swapaxes(rows, -1, -2), out=out)

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of shares of norm at most ``clips[s]``.

        Every record's share is a function of that record and the parameters. Large sums are multiples of
        ``lattices[s]``. Always True: this engine can.
        """
        if self._fixed is None:
            self._fixed = FixedPoint(self.model)
            if self._whole is not None:
                self._fixed.bind(self._whole)
        self._fixed.sums(parameters, self._resolved(batches), clips, lattices, out)
        return True

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs of one candidate on the rows of ``x``; the bits of each are a function of that row alone."""
        with np.errstate(all="ignore"):  # a diverged model predicts badly but predicts
            rows = flat_rows(np.ascontiguousarray(x, dtype=self.dtype))
            flat = np.ascontiguousarray(parameters, dtype=self.dtype)
            if rows.ndim != 2 or rows.shape[1] != self.model.features:
                raise InvalidInput(f"The model takes rows of {self.model.features} features; got {rows.shape}.")
            if not self._judged_compiled:
                return outputs_alone(self._blocks(flat), self.model.nonlinearity, rows)
            outputs = np.empty((len(rows), self.model.classes), np.float32)
            kernel.mlp_forward(flat, rows, self._widths, *in_kernel(self.model.nonlinearity), outputs)
            return outputs

    def _stacked(self, flat: Floats) -> list[list[Floats]]:
        """The blocks of all candidates; a run's arrays stay the same, so the views of the last two are kept."""
        for known, views in self._views:
            if known is flat:
                return views
        views = [self._blocks(row) for row in flat]
        self._views = [*self._views[-1:], (flat, views)]
        return views

    def _blocks(self, flat: Floats) -> list[Floats]:
        """Views of flat parameters: a matrix for every layer, whose last row is the bias."""
        return [flat[start:end].reshape(rows + 1, columns) for start, end, rows, columns in self._spans]

    def _gather(self, index: Indices) -> Floats:
        if len(self._gathered) < index.size:
            self._gathered = np.empty((index.size + index.size // 4, self.model.features + 3), self.dtype)
        rows = self._gathered[: index.size]
        if self._gathers:
            assert self._whole is not None
            complete_rows(self._whole, index, rows)
        else:
            np.take(self._x, index, axis=0, out=rows, mode="clip")
        return rows

    def _hidden_rows(self, count: int) -> list[tuple[Floats, Floats]]:
        """Room for outputs and derivatives of every hidden layer (and a last column), kept from step to step."""
        widths = [width + 1 for width in self.model.hidden]
        if not self._between or len(self._between[0][0]) < count:
            most = count + count // 4
            shapes = [(most, width) for width in widths]
            # Zeros: the last column is activated with the others before it is set to one.
            self._between = [(np.zeros(shape, self.dtype), np.zeros(shape, self.dtype)) for shape in shapes]
            self._zeros = np.zeros(most * max(widths), self.dtype)
        return [(values[:count], deltas[:count]) for values, deltas in self._between]


def refuse_other_records(model: Mlp, data: Dataset) -> None:
    """Refuse records that the model does not fit; looks at their shape and kind of targets alone.

    Args:
        model: The description of the model.
        data: The records.

    Raises:
        InvalidInput: If features, classes or the declared range are others.
    """
    if data.features != model.features:
        raise InvalidInput(
            f"The model takes {model.features} features but the data has {data.features}. "
            "Build the model with features=data.x.shape[1]."
        )
    if data.classes != model.classes:
        raise InvalidInput(_other_targets(model, data))
    if isinstance(model, Regression) and (ends := range_of(data)) != model.target_range:
        raise InvalidInput(f"The model predicts in {model.target_range} but targets are declared in {ends}.")


def _other_targets(model: Mlp, data: Dataset) -> str:
    """What is said of records whose targets are of another kind or number than the model's."""
    if model.classes == 1 or data.classes == 1:
        own, given = ("real numbers" if one.classes == 1 else "classes" for one in (model, data))
        return f"The model predicts {own} but the targets of the data are {given}. Use Mlp or Regression."
    return f"The model has {model.classes} classes but the data has {data.classes}."
