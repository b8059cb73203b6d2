"""Gradients of described networks for one record, in double precision and in torch's order: numpy, written to be read.

Nothing is shared with the engine but the description. Values have torch's shapes, (features,) or (channels, h, w).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import erf, expit

from dptune.training._network import Convolution, Dense, Drop, Layer, Normal, Pointwise, Pool, Reshape

Back = Callable[[Any], tuple[Any, list[Any]]]  # derivatives by outputs to those by inputs, and gradients


def gradient(layers: tuple[Layer, ...], shape: tuple[int, ...], flat: Any, x: Any, label: Any, masks: Any = ()) -> Any:
    """One record's gradient of the cross-entropy; ``masks`` are those of dropout, one for each of its layers.

    A label that is a fraction is a number to predict, and the loss half the squared error, straight beyond 1.
    """
    values, tape = _forward(layers, shape, flat, x, iter(masks))
    if isinstance(label, float):
        d = np.clip(values - label, -1.0, 1.0)
    else:
        d = np.exp(values.reshape(-1) - values.max())
        d /= d.sum()
        d[label] -= 1.0
        d = d.reshape(values.shape)
    found: list[Any] = []
    for back in reversed(tape):
        d, own = back(d)
        found = [*own, *found]
    return np.concatenate([one.reshape(-1) for one in found])


def outputs(layers: tuple[Layer, ...], shape: tuple[int, ...], flat: Any, x: Any) -> Any:
    """The network's scores for one record, with dropout left out."""
    kept = tuple(layer for layer in layers if not isinstance(layer, Drop))
    return _forward(kept, shape, flat, x, iter(()))[0].reshape(-1)


def clipped_sum(layers: tuple[Layer, ...], shape: tuple[int, ...], flat: Any, data: Any, clip: float) -> Any:
    """The sum over all records of gradients scaled down to norm ``clip``."""
    total = np.zeros(len(flat))
    for x, y in zip(data.x, data.y, strict=True):
        own = gradient(layers, shape, flat, x, int(y))
        total += own * min(1.0, clip / np.linalg.norm(own))
    return total


def _forward(
    layers: tuple[Layer, ...], shape: tuple[int, ...], flat: Any, x: Any, masks: Iterator[Any]
) -> tuple[Any, list[Back]]:
    values, tape, place = np.asarray(x, np.float64).reshape(shape), [], 0
    flat = np.asarray(flat, np.float64)

    def take(*sizes: int) -> Any:
        nonlocal place
        size = int(np.prod(sizes))
        place += size
        return flat[place - size : place].reshape(sizes)

    for layer in layers:
        if isinstance(layer, Drop):
            mask = next(masks)
            values, back = values * mask, _scaled(mask)
        else:
            values, back = _STEPS[type(layer)](layer, values, take)
        tape.append(back)
    assert place == len(flat)
    return values, tape


def _scaled(mask: Any) -> Back:
    return lambda d: (d * mask, [])


def _dense(layer: Dense, x: Any, take: Any) -> tuple[Any, Back]:
    weight = take(layer.outputs, layer.inputs)
    bias = take(layer.outputs) if layer.bias else 0.0
    return weight @ x + bias, lambda d: (weight.T @ d, [np.outer(d, x), *([d] if layer.bias else [])])


def _taps(kernel: Any, stride: Any, sides: Any) -> list[Any]:
    """For every place of a window the slices of the input that it meets."""
    spans = [
        [slice(k, k + (side - 1) * step + 1, step) for k in range(size)]
        for size, step, side in zip(kernel, stride, sides, strict=True)
    ]
    return list(itertools.product(*spans))


def _sides(x: Any, layer: Any) -> tuple[int, ...]:
    return tuple(
        (side + 2 * p - k) // s + 1
        for side, k, s, p in zip(x.shape[1:], layer.kernel, layer.stride, layer.padding, strict=True)
    )


def _padded(x: Any, padding: Any, value: float) -> Any:
    return np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=value)


def _cut(x: Any, padding: Any, shape: Any) -> Any:
    return x[:, padding[0] : padding[0] + shape[1], padding[1] : padding[1] + shape[2]]


def _convolution(layer: Convolution, x: Any, take: Any) -> tuple[Any, Back]:
    weight = take(layer.outputs, layer.inputs, *layer.kernel)
    bias = take(layer.outputs) if layer.bias else np.zeros(layer.outputs)
    wide, sides = _padded(x, layer.padding, 0.0), _sides(x, layer)
    taps = list(zip(np.ndindex(*layer.kernel), _taps(layer.kernel, layer.stride, sides), strict=True))
    y = bias[:, None, None] + sum(np.tensordot(weight[:, :, *k], wide[:, *at], 1) for k, at in taps)

    def back(d: Any) -> tuple[Any, list[Any]]:
        own, dx = np.zeros_like(weight), np.zeros_like(wide)
        for k, at in taps:
            own[:, :, *k] = np.tensordot(d, wide[:, *at], ((1, 2), (1, 2)))
            dx[:, *at] += np.tensordot(weight[:, :, *k].T, d, 1)
        return _cut(dx, layer.padding, x.shape), [own, *([d.sum((1, 2))] if layer.bias else [])]

    return y, back


def _pool(layer: Pool, x: Any, take: Any) -> tuple[Any, Back]:
    if layer.kernel is None:
        sides = [own or side for own, side in zip(layer.sides, x.shape[1:], strict=True)]
        size = (x.shape[1] // sides[0], x.shape[2] // sides[1])
        layer = Pool(layer.kind, size, size)
    largest = layer.kind == "max"
    wide = _padded(x, layer.padding, -np.inf if largest else 0.0)
    taps = _taps(layer.kernel, layer.stride, _sides(x, layer))
    seen = np.stack([wide[:, *at] for at in taps])
    inside = _padded(np.ones(x.shape), layer.padding, float(layer.margin))
    if largest:
        shares = (seen.argmax(0)[None] == np.arange(len(taps))[:, None, None, None]).astype(float)
        y = seen.max(0)
    else:
        shares = np.stack([np.ones_like(inside)[:, *at] for at in taps]) / sum(inside[:, *at] for at in taps)
        y = (seen * shares).sum(0)

    def back(d: Any) -> tuple[Any, list[Any]]:
        dx = np.zeros(wide.shape)
        for at, share in zip(taps, shares, strict=True):
            dx[:, *at] += d * share
        return _cut(dx, layer.padding, x.shape), []

    return y, back


def _pointwise(layer: Pointwise, x: Any, take: Any) -> tuple[Any, Back]:
    y, slope = _function(layer, x)
    return y, lambda d: (d * slope, [])


def _function(layer: Pointwise, x: Any) -> tuple[Any, Any]:  # noqa: PLR0911 - a table of functions
    root = np.sqrt(2.0 / np.pi)
    if layer.kind == "relu":
        return np.maximum(x, 0.0), (x > 0.0).astype(float)
    if layer.kind == "tanh":
        return np.tanh(x), 1.0 / np.cosh(x) ** 2
    if layer.kind == "sigmoid":
        scale, temperature, offset = layer.constants or (1.0, 1.0, 0.0)
        s = expit(temperature * x)
        return scale * s - offset, scale * temperature * s * (1.0 - s)
    if layer.kind == "silu":
        s = expit(x)
        return x * s, s * (1.0 + x * (1.0 - s))
    if layer.kind == "gelu":
        half = 0.5 * (1.0 + erf(x / np.sqrt(2.0)))
        return x * half, half + x * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    if layer.kind == "gelu_tanh":
        t = np.tanh(root * (x + 0.044715 * x**3))
        return 0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 0.134145 * x * x)
    alpha, factor = layer.constants or (1.0, 1.0)
    below = alpha * np.expm1(np.minimum(x, 0.0))
    return factor * np.where(x > 0.0, x, below), factor * np.where(x > 0.0, 1.0, below + alpha)


def _normal(layer: Normal, x: Any, take: Any) -> tuple[Any, Back]:
    sizes = x.shape if layer.shape is not None else (x.shape[0], *[1] * (x.ndim - 1))
    weight = take(*sizes) if layer.affine else np.ones(sizes)
    bias = take(*sizes) if layer.affine and layer.bias else 0.0
    rows = x.reshape(layer.groups, -1)
    spread = np.sqrt(rows.var(1, keepdims=True) + layer.eps)
    v = ((rows - rows.mean(1, keepdims=True)) / spread).reshape(x.shape)

    def back(d: Any) -> tuple[Any, list[Any]]:
        e, own = (d * weight).reshape(rows.shape), v.reshape(rows.shape)
        dx = (e - e.mean(1, keepdims=True) - own * (e * own).mean(1, keepdims=True)) / spread
        axes = () if layer.shape is not None else tuple(range(1, x.ndim))
        parts = [(d * v).sum(axes), *([d.sum(axes)] if layer.bias else [])] if layer.affine else []
        return dx.reshape(x.shape), parts

    return v * weight + bias, back


def _reshape(layer: Reshape, x: Any, take: Any) -> tuple[Any, Back]:
    return x.reshape(-1 if layer.shape is None else layer.shape), lambda d: (d.reshape(x.shape), [])


_STEPS: dict[type, Callable[[Any, Any, Any], tuple[Any, Back]]] = {
    Dense: _dense,
    Convolution: _convolution,
    Pool: _pool,
    Pointwise: _pointwise,
    Normal: _normal,
    Reshape: _reshape,
}
