"""Clipped gradient sums of softmax regressions and MLPs in whole numbers (docs/theorems/exact_sums.md).

Inputs, weights, activations and derivatives are rounded to whole numbers of about twenty bits, times a power of two
that belongs to the record (or, for weights, to the layer). Products and sums of them stay below 2^53, so a matrix
product in double precision is exact in whatever order it adds; what is not a product or a sum is an elementwise
operation that IEEE 754 defines to the last bit, or a look into a table (:mod:`_tables`). A record's share is therefore
bit for bit a function of that record and the parameters, its norm is at most the clip norm, and the sum of the shares
is exact.
Nothing here may call a function whose last bits are the library's choice (exp, tanh, a sum of fractions) on records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dptune._typing import AnyArray, Array, Floats, Indices
from dptune.errors import InvalidInput
from dptune.training._layers import residual
from dptune.training._prepared import kept_whole, targets_of
from dptune.training._shares import wrapped
from dptune.training._tables import BITS, EXP_BITS, BoundedActivation, Exponents, softmax_minus_label
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Mlp, Regression

__all__ = ["FixedPoint"]

_EXACT = 53  # all whole numbers up to 2^53 are doubles
_SHARE_BITS = 41  # a coordinate of a record's share is at most 2^41 steps,
_RECORDS = 2 ** (_EXACT - _SHARE_BITS)  # so this many shares can be added in one product
_MANY_RECORDS = 2 ** (62 - _SHARE_BITS)  # and this many in 64-bit integers, with room for rounding
_LARGE = 64  # values beyond 2^64 are cut off; derivatives below 2^-64 count as zero
_WIDEST = 18  # at most 2^18 - 1 inputs or outputs of a layer
_BELOW_ONE = 1.0 - 2.0**-40  # covers the rounding of a norm and of what is divided by it
_PREPARED = 256  # rows of the data at a time, inside the caches


class _Block(NamedTuple):
    """Whole numbers (stack, unit, record) that stand for ``values * 2^unit``; one power for a record or a layer."""

    values: Array
    unit: Exponents


class FixedPoint:
    """Exact clipped sums of one model; :meth:`bind` takes the records."""

    def __init__(self, model: Mlp) -> None:
        width = max(model.widths).bit_length()  # a sum has at most 2^width terms, the bias included
        if width > _WIDEST:
            raise InvalidInput(
                f"Exact sums need layers narrower than {2**_WIDEST}; this model has one of {max(model.widths)}. "
                "Use fewer features, or fast noise."
            )
        self._model = model
        self._act = None if model.nonlinearity.kind == "relu" else BoundedActivation.of(model.nonlinearity)
        self._shapes = list(itertools.pairwise(model.widths))
        self._bits = min(BITS, (_EXACT - width) // 2)
        self._weight_bits = _EXACT - width - self._bits
        self._exp_bits = min(EXP_BITS, _EXACT - width)  # the exponentials of all classes add up to at most 2^53
        if self._act is not None and self._act.exponent > self._bits:
            raise InvalidInput(
                f"Exact sums with layers of {max(model.widths)} need activations of at most 2^{self._bits}; this one "
                f"reaches 2^{self._act.exponent}. Use a smaller offset or scale."
            )
        self._x = np.empty((0, model.features + 1), np.float32)
        self._unit, self._square = np.empty(0, np.int32), np.empty(0)
        self._y: AnyArray = np.empty(0, np.int64)
        self._data: Dataset | None = None
        self._all = True
        self._rows, self._wide = np.empty(0, np.float32), np.empty(0)

    def bind(self, data: Dataset) -> None:
        """Take the records. They are rounded now, or, where there are many, when they are drawn."""
        self._data, self._y = data, targets_of(data)
        self._all = kept_whole(data)
        if not self._all:
            return
        records, features = data.x.shape
        self._x = np.empty((records, features + 1), np.float32)  # whole numbers up to 2^20 are exact in it
        self._unit, self._square = np.empty(records, np.int32), np.empty(records)
        for first in range(0, records, _PREPARED):
            part = slice(first, first + _PREPARED)
            self._prepare(data.x[part], self._x[part], self._unit[part], self._square[part])

    def _prepare(self, features: Floats, rows: Floats, units: Exponents, squares: Array) -> None:
        """Round records, each to its own power of two, with an input of one for the bias behind them."""
        x = np.ones(rows.shape)
        x[:, :-1] = features
        np.clip(x, -(2.0**_LARGE), 2.0**_LARGE, out=x)
        unit = np.frexp(np.maximum(x.max(axis=1), -x.min(axis=1)))[1] - self._bits
        x *= np.ldexp(1.0, -unit)[:, None]
        np.rint(x, out=x)
        rows[:], units[:] = x, unit
        squares[:] = np.einsum("nd,nd->n", x, x)

    def sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> None:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``.

        Batches above 4096 records are rounded to ``lattices[s]`` in the end, and taken modulo 2^53 of it: their sum may
        need more bits.
        """
        stack, most = len(batches), max((len(batch) for batch in batches), default=0)
        if most == 0:
            out.fill(0.0)
            return
        index = np.zeros((stack, most), np.int64)
        valid = np.zeros((stack, most))
        for row, batch in enumerate(batches):
            index[row, : len(batch)] = batch
            valid[row, : len(batch)] = 1.0
        step = np.frexp(clips)[1] - _SHARE_BITS  # shares are multiples of 2^step
        weights = [_public(layer, self._weight_bits) for layer in self._layers(parameters)]
        if most <= _RECORDS:
            self._add(weights, index, valid, clips, step, out)
            out *= np.ldexp(1.0, step)[:, None]
            return
        total: AnyArray = np.zeros(out.shape, np.int64)
        part = np.empty(out.shape)
        for first in range(0, most, _RECORDS):
            some = slice(first, first + _RECORDS)
            self._add(weights, index[:, some], valid[:, some], clips, step, part)
            if first and first % _MANY_RECORDS == 0:
                total = total.astype(object)  # integers of any length from here on: slow, but so is such a batch
            total += part.astype(np.int64)
        for row, (batch, lattice) in enumerate(zip(batches, lattices, strict=True)):
            # a short batch is treated as it would be alone
            _to_lattice(total[row], int(step[row]), lattice if len(batch) > _RECORDS else 0.0, out[row])

    def _add(
        self, weights: list[_Block], index: Indices, valid: Array, clips: Floats, step: Exponents, out: Floats
    ) -> None:
        """Write into ``out`` sums of at most 4096 shares a row, counted in steps. Records come last everywhere."""
        inputs, square, last = self._forward(weights, index)
        deltas = self._backward(weights, inputs, last)
        squares = [square, *(_square(block.values) for block in inputs[1:])]
        norm = np.zeros(index.shape)
        for block, square, delta in zip(inputs, squares, deltas, strict=True):
            norm += np.ldexp(square * _square(delta.values), 2 * (block.unit + delta.unit))
        limit = clips.astype(np.float64)[:, None]
        factor = valid * _BELOW_ONE * (limit / np.maximum(np.sqrt(norm), limit))
        for view, block, delta in zip(self._layers(out), inputs, deltas, strict=True):
            scaled = delta.values
            scaled *= np.ldexp(factor, block.unit + delta.unit - step[:, None])[:, None]
            np.trunc(scaled, out=scaled)  # towards zero: the norm does not grow
            np.matmul(block.values, scaled.transpose(0, 2, 1), out=view)

    def _forward(self, weights: list[_Block], index: Indices) -> tuple[list[_Block], Array, _Block]:
        """The inputs of every layer, the first ones' square norms, and the loss's derivatives by the outputs."""
        first, first_square = self._gather(index)
        inputs = [first]
        for weight in weights:
            raw = np.matmul(weight.values.transpose(0, 2, 1), inputs[-1].values)
            unit = inputs[-1].unit + weight.unit
            if len(inputs) < len(weights):
                inputs.append(self._activate(raw, unit))
        raw *= np.ldexp(1.0, unit)[:, None]
        if isinstance(self._model, Regression):
            residual(raw, self._y[index])  # differences and limits of doubles: IEEE 754 defines their last bits
        else:
            softmax_minus_label(raw, self._y[index], self._exp_bits)
        return inputs, first_square, _round(raw, np.zeros_like(unit), 1.0, self._bits)

    def _backward(self, weights: list[_Block], inputs: list[_Block], last: _Block) -> list[_Block]:
        """The loss's derivatives by the outputs of every layer."""
        deltas = [last]
        for weight, hidden in zip(weights[:0:-1], inputs[:0:-1], strict=True):
            raw = np.matmul(weight.values[:, :-1], deltas[-1].values)
            unit, steepness = deltas[-1].unit + weight.unit, 1.0
            if self._act is None:
                raw *= hidden.values[:, :-1] > 0.0
            else:
                raw *= self._act.slope(hidden.values[:, :-1], self._bits)
                unit, steepness = unit + 2 * hidden.unit, self._act.steepness
            deltas.append(_round(raw, unit, steepness, self._bits))
        return deltas[::-1]

    def _activate(self, raw: Array, raw_unit: Exponents) -> _Block:
        """The activations of ``raw * 2^raw_unit``, with the bias's input of one behind them."""
        stack, width, records = raw.shape
        hidden = np.empty((stack, width + 1, records))
        if self._act is not None:
            self._act.apply(raw, raw_unit, self._bits, hidden[:, :-1])
            hidden[:, -1] = self._act.one(self._bits)
            return _Block(hidden, np.full_like(raw_unit, self._act.exponent - self._bits))
        np.maximum(raw, 0.0, out=raw)
        top = raw.max(axis=1)
        exponent = np.where(top > 0.0, np.frexp(top)[1] + raw_unit, 1)
        np.clip(exponent, 1, _LARGE, out=exponent)
        unit = exponent - self._bits
        np.multiply(raw, np.ldexp(1.0, raw_unit - unit)[:, None], out=hidden[:, :-1])
        np.rint(hidden[:, :-1], out=hidden[:, :-1])
        if exponent.max() == _LARGE:
            np.minimum(hidden[:, :-1], 2.0**self._bits, out=hidden[:, :-1])
        hidden[:, -1] = np.rint(np.ldexp(1.0, -unit))
        return _Block(hidden, unit)

    def _layers(self, flat: Floats) -> list[Floats]:
        """Views of stacked flat parameters, the biases as a last row."""
        views, start = [], 0
        for rows, columns in self._shapes:
            end = start + (rows + 1) * columns
            views.append(flat[:, start:end].reshape(len(flat), rows + 1, columns))
            start = end
        return views

    def _gather(self, index: Indices) -> tuple[_Block, Array]:
        """The inputs (stack, feature, record) of the records at ``index``, and their square norms.

        Later calls reuse the memory.
        """
        width = self._model.features + 1
        if self._rows.size < index.size * width:
            self._rows = np.empty(index.size * width * 5 // 4, np.float32)
            self._wide = np.empty(self._rows.size)
        rows = self._rows[: index.size * width].reshape(index.size, width)
        wide = self._wide[: index.size * width].reshape(*index.shape, width)
        unit, square = self._gather_rows(index.ravel(), rows)
        np.copyto(wide, rows.reshape(wide.shape))
        return _Block(wide.transpose(0, 2, 1), unit.reshape(index.shape)), square.reshape(index.shape)

    def _gather_rows(self, places: Indices, rows: Floats) -> tuple[Exponents, Array]:
        """Write the rounded records into ``rows``; their powers of two and their square norms."""
        if self._all or self._data is None:
            np.take(self._x, places, axis=0, out=rows, mode="clip")
            return self._unit[places], self._square[places]
        unit, square = np.empty(len(places), np.int32), np.empty(len(places))
        for first in range(0, len(places), _PREPARED):
            part = slice(first, first + _PREPARED)
            self._prepare(self._data.x[places[part]], rows[part], unit[part], square[part])
        return unit, square


def _public(layer: Floats, bits: int) -> _Block:
    """One layer of every candidate in whole numbers; diverged candidates become zero."""
    values = layer.astype(np.float64)
    top = np.maximum(values.max(axis=(1, 2)), -values.min(axis=(1, 2)))
    if not np.isfinite(top).all():
        values[~np.isfinite(top)] = 0.0
        top[~np.isfinite(top)] = 0.0
    exponent = np.clip(np.frexp(top)[1], -_LARGE, _LARGE)
    if exponent.max() == _LARGE:
        np.clip(values, -(2.0**_LARGE), 2.0**_LARGE, out=values)
    values *= np.ldexp(1.0, bits - exponent)[:, None, None]
    return _Block(np.rint(values, out=values), (exponent - bits)[:, None])


def _round(raw: Array, raw_unit: Exponents, factor: float, bits: int) -> _Block:
    """``raw * factor * 2^raw_unit`` in whole numbers, each record with its own unit; in place."""
    top = np.maximum(raw.max(axis=1), -raw.min(axis=1)) * factor
    exponent = np.where(top > 0.0, np.frexp(top)[1] + raw_unit, 0)
    np.clip(exponent, -_LARGE, _LARGE, out=exponent)
    unit = exponent - bits
    raw *= np.ldexp(factor, raw_unit - unit)[:, None]
    np.rint(raw, out=raw)
    if exponent.max() == _LARGE:
        np.clip(raw, -(2.0**bits), 2.0**bits, out=raw)
    return _Block(raw, unit)


def _square(values: Array) -> Array:
    """Square norms (stack, record): whole numbers up to 2^53, exact in any order."""
    square: Array = np.einsum("skn,skn->sn", values, values)
    return square


def _to_lattice(total: AnyArray, step: int, lattice: float, out: Floats) -> None:
    """Round ``total * 2^step`` to the nearest multiples of ``lattice``: a power of two above 2^step, or 0 for none."""
    if lattice == 0.0:
        out[:] = np.ldexp(total.astype(np.float64), step)
        return
    shift = math.frexp(lattice)[1] - 1 - step
    out[:] = np.ldexp(wrapped((total + (1 << (shift - 1))) >> shift), step + shift)
