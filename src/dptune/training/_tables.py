"""Activations and the softmax by interpolation in tables: the same bits for the same argument, wherever it stands.

Exact sums need functions whose last bits are not the library's choice (docs/theorems/exact_sums.md). The tables
themselves are made by numpy's tanh and exp, once, from constants: no record is involved.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dptune._typing import Array, Indices
from dptune.errors import InvalidInput
from dptune.training.models import Activation

__all__ = ["BITS", "EXP_BITS", "BoundedActivation", "Exponents", "exponentials", "softmax_minus_label"]

Exponents = NDArray[np.int32]

BITS = 20
"""Bits of inputs, activations and derivatives."""

EXP_BITS = 40
"""Bits of exponentials, at most."""

_EXP_REACH, _EXP_CELLS = 32, 1024


class BoundedActivation:
    """A tempered sigmoid by interpolation in a table: the same bits for the same argument, wherever it stands."""

    reach, cells = 32, 256  # the sigmoid's argument lies in [-32, 32]; cells of a unit

    def __init__(self, activation: Activation) -> None:
        scale, temperature, offset = activation.scale, activation.temperature, activation.offset
        if max(scale, temperature, 1.0 / scale, 1.0 / temperature, abs(offset)) > 2.0**BITS:
            raise InvalidInput(
                f"Exact sums need an activation with scale and temperature between 2^-{BITS} and 2^{BITS} and an "
                f"offset of at most 2^{BITS}; got {scale:g}, {temperature:g} and {offset:g}."
            )
        self._scale, self._temperature, self._offset = scale, temperature, offset
        part, exponent = math.frexp(max(1.0, abs(offset), abs(scale - offset)))
        self.exponent = exponent - 1 if part == 0.5 else exponent  # activations are at most 2^exponent
        self.steepness = temperature / scale

    @classmethod
    @functools.cache
    def of(cls, activation: Activation) -> BoundedActivation:
        """One table for every engine."""
        return cls(activation)

    @functools.cached_property
    def _table(self) -> tuple[Array, Array]:
        """Values at the cells' left ends, and how much they rise inside; without the power of two."""
        y = np.arange(-self.reach * self.cells, self.reach * self.cells + 2) / self.cells
        values = 0.5 * self._scale * np.tanh(0.5 * y) + (0.5 * self._scale - self._offset)
        return values[:-1], np.diff(values)

    def one(self, bits: int) -> float:
        """The number that stands for an input of one."""
        return math.ldexp(1.0, bits - self.exponent)

    def apply(self, raw: Array, raw_unit: Exponents, bits: int, out: Array) -> None:
        """Write the activations of ``raw * 2^raw_unit`` into ``out``; ``raw`` is overwritten."""
        values, rises = self._table
        middle = float(self.reach * self.cells)
        raw *= np.ldexp(self._temperature * self.cells, raw_unit)[:, None]
        np.clip(raw, -middle, middle, out=raw)
        raw += middle
        cell = np.floor(raw)
        raw -= cell
        place = cell.astype(np.intp)
        raw *= rises[place]
        raw += values[place]
        raw *= self.one(bits)
        np.rint(raw, out=out)

    def slope(self, hidden: Array, bits: int) -> Array:
        """The derivative from the activation, up to the factors ``steepness`` and twice the power of two."""
        one = self.one(bits)
        slope: Array = (hidden + self._offset * one) * ((self._scale - self._offset) * one - hidden)
        return slope


@functools.cache
def exponentials(bits: int) -> tuple[Array, Array]:
    """Values of exp at the cells' left ends up to 2^bits, and how much they rise inside."""
    values = 2.0**bits * np.exp(np.arange(-_EXP_REACH * _EXP_CELLS, 2) / _EXP_CELLS)
    return values[:-1], np.diff(values)


def softmax_minus_label(logits: Array, labels: Indices, bits: int) -> None:
    """Turn logits (stack, class, record) into the derivative of the cross-entropy, in place."""
    stack, classes, records = logits.shape
    values, rises = exponentials(bits)
    logits -= logits.max(axis=1, keepdims=True)
    logits *= _EXP_CELLS
    logits += _EXP_REACH * _EXP_CELLS
    np.maximum(logits, 0.0, out=logits)
    cell = np.floor(logits)
    logits -= cell
    place = cell.astype(np.intp)
    logits *= rises[place]
    logits += values[place]
    np.rint(logits, out=logits)  # whole numbers up to 2^bits, so the sum is exact
    logits /= logits.sum(axis=1, keepdims=True)
    rows = np.arange(stack)[:, None] * classes + labels
    rows *= records
    rows += np.arange(records)
    logits.reshape(-1)[rows.ravel()] -= 1.0
