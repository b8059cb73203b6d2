"""The parts of a layer that engine A computes in numpy, for many records at once and in place.

How they are called matters as much as what they compute: two arrays are compared faster than an array and a number,
and the matrix library multiplies small matrices as they lie, larger ones only after it has copied them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dptune._typing import Floats
from dptune.training.models import Activation

__all__ = [
    "activate",
    "drop_overflows",
    "on_lines",
    "outputs_alone",
    "product",
    "product_alone",
    "residual",
    "softmax_minus_label",
    "square_rows",
    "times_slope",
]


# Bytes of a cache line.
_LINE = 64
# OpenBLAS multiplies without copies up to this many multiplications; a product of a few times as many gains by parts.
_SMALL, _PARTS = 1_000_000, 3


def on_lines(shape: tuple[int, ...], dtype: type[np.floating[Any]]) -> Floats:
    """An empty array that begins on a cache line: vectors that cross lines take twice as long to load."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(dtype).reshape(shape)


def product(left: Floats, right: Floats, out: Floats) -> None:
    """The matrix product, in parts that are small where a few are enough."""
    rows, inner = left.shape
    parts = -(-rows * inner * right.shape[1] // _SMALL)
    if parts <= _PARTS and right.flags.f_contiguous:  # a transpose: slow to read as it lies
        right = np.ascontiguousarray(right)
    if not 1 < parts <= _PARTS:
        np.matmul(left, right, out=out)
        return
    size = -(-rows // parts)
    for first in range(0, rows, size):
        part = slice(first, first + size)
        np.matmul(left[part], right, out=out[part])


def product_alone(left: Floats, right: Floats, out: Floats) -> None:
    """The matrix product, or a stack of them, by sums of one feature after the other.

    The bits of a row are a function of that row and of ``right``, whatever other rows there are.
    """
    out.fill(0.0)
    part = np.empty_like(out)
    for place in range(left.shape[-1]):
        np.multiply(left[..., place, None], right[..., place, None, :], out=part)
        np.add(out, part, out=out)


def activate(activation: Activation, values: Floats, zeros: Floats | float = 0.0) -> None:
    """Apply the activation; ``zeros`` may be an array of zeros of the same shape, which is faster."""
    if activation.kind == "relu":
        np.maximum(values, zeros, out=values)
    elif activation.kind == "tanh":
        np.tanh(values, out=values)
    else:  # scale * sigmoid(t x) - offset = scale/2 * tanh(t x / 2) + scale/2 - offset
        values *= 0.5 * activation.temperature
        np.tanh(values, out=values)
        values *= 0.5 * activation.scale
        values += 0.5 * activation.scale - activation.offset


def times_slope(activation: Activation, delta: Floats, output: Floats) -> None:
    """Multiply ``delta`` by the activation's derivative, given the activation's output."""
    if activation.kind == "relu":
        delta *= output > 0.0
    elif activation.kind == "tanh":
        delta *= 1.0 - output * output
    else:
        sigmoid = (output + activation.offset) * (1.0 / activation.scale)
        delta *= (activation.scale * activation.temperature) * sigmoid * (1.0 - sigmoid)


def outputs_alone(blocks: list[Floats], activation: Activation, x: Floats) -> Floats:
    """Outputs on the rows of ``x``, one row after the other in the same memory: a product of many rows rounds by their
    number, and some libraries round by where an array lies."""
    rooms = [on_lines((len(block) - 1,), x.dtype.type) for block in blocks]
    rooms.append(on_lines((blocks[-1].shape[1],), x.dtype.type))
    weights = [on_lines((len(block) - 1, block.shape[1]), x.dtype.type) for block in blocks]
    for own, block in zip(weights, blocks, strict=True):
        own[:] = block[:-1]
    outputs = np.empty((len(x), len(rooms[-1])), x.dtype)
    for place, row in enumerate(x):
        rooms[0][:] = row
        for layer, (own, block) in enumerate(zip(weights, blocks, strict=True)):
            np.dot(rooms[layer], own, out=rooms[layer + 1])
            rooms[layer + 1] += block[-1]
            if layer + 1 < len(blocks):
                activate(activation, rooms[layer + 1])
        outputs[place] = rooms[-1]
    return outputs


def square_rows(values: Floats) -> Floats:
    """The squared norm of every row."""
    if hasattr(np, "vecdot"):  # since numpy 2.0
        return np.asarray(np.vecdot(values, values))
    return np.asarray(np.einsum("ru,ru->r", values, values))


def drop_overflows(norm: Floats, rows: list[Floats]) -> None:
    """Let records whose gradient overflows contribute zero: an infinite sum has no sensitivity."""
    bad = ~np.isfinite(norm)
    norm[bad] = 0.0
    for values in rows:
        values[bad] = 0.0


def residual(outputs: Floats, targets: Floats) -> None:
    """Turn outputs (stack, one, record) into the derivative of the loss of a regression, in place.

    The loss is half the squared error up to an error of 1, the whole range, and a straight line beyond it.
    """
    outputs -= targets[:, None, :]
    np.clip(outputs, -1.0, 1.0, out=outputs)


def softmax_minus_label(logits: Floats, labels: Floats) -> None:
    """Turn logits (stack, class, record) into the derivative of the cross-entropy, in place.

    Labels are whole numbers, in any type that holds them.
    """
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits -= labels[:, None, :] == np.arange(logits.shape[1], dtype=labels.dtype)[:, None]
