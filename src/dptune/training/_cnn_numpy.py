"""The small MNIST network of DP-HyPO in plain numpy, for installs without a compiler (see :mod:`fused_engine`).

A few records at a time, so that everything stays in the caches, in buffers that are made once. Images are split
into four planes (even and odd rows and columns); the patches of the first convolution are then whole planes shifted
by a few places, one copy for all records. Channels come last, so pooling compares an array with itself shifted.
Places beyond 13x13 hold leftovers of those shifts: no derivative ever reaches them. Biases are a last row of the
weights, met by an input of one. Parameters are in the order of the compiled kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dptune._typing import Floats, Indices
from dptune.training._shares import VANISHED

__all__ = ["CnnPass"]


_RECORDS = 8
_SIDE = 16  # of a plane
_PLACES = _SIDE * _SIDE
_USED = 13 * _SIDE  # places of the first convolution that a derivative can reach
_CUTS = (1040, 9264, 25680)  # ends of the first three layers, weights and biases


def _view(array: Floats, shape: tuple[int, ...], strides: tuple[int, ...]) -> Floats:
    """A view with strides in elements."""
    return as_strided(array, shape, tuple(stride * array.itemsize for stride in strides))


class CnnPass:
    """Buffers and views for :meth:`clipped_sum` and :meth:`logits`; one for each engine, not shared by threads."""

    def __init__(self, dtype: type[np.floating[Any]], records: int = _RECORDS) -> None:
        n, all_places = records, records * _PLACES
        self._dtype, self._records = dtype, records
        self._image = np.zeros((n, 32, 32), dtype)
        self._planes = np.zeros((2, 2, all_places + 64), dtype)
        self._patches1 = np.ones((65, all_places), dtype)
        odd = self._planes.shape[2]
        # (row shift, row parity, column shift, column parity, place)
        self._shifted = _view(self._planes, (4, 2, 4, 2, all_places), (_SIDE, 2 * odd, 1, odd, 1))
        self._a1, self._h1, self._p1, self._d1, self._dh1, self._dp1 = (
            np.zeros((all_places, 16), dtype) for _ in range(6)
        )
        self._zero = np.zeros((all_places, 16), dtype)  # comparing with an array is faster than with a number
        self._mask1 = np.empty((all_places, 16), bool)
        self._patches2 = np.ones((n, 25, 257), dtype)
        patch = (n, 5, 5, 4, 64)
        self._into2 = _view(self._patches2, patch, (25 * 257, 5 * 257, 257, 64, 1))
        row = _SIDE * 16
        self._from1 = _view(self._p1, patch, (_PLACES * 16, 2 * row, 32, row, 1))
        self._back2 = np.empty((n * 25, 256), dtype)
        # Patches with even and those with odd x overlap no others of their kind: added as blocks of four columns.
        back = self._back2.reshape(patch)
        self._folds = [
            (
                _view(self._dp1[ky * _SIDE + 2 * s :], (n, 5, 3 - s, 64), (_PLACES * 16, 2 * row, 64, 1)),
                back[:, :, s::2, ky],
            )
            for ky in range(4)
            for s in (0, 1)
        ]
        self._a2, self._d2 = np.zeros((n, 5, 5, 32), dtype), np.zeros((n, 5, 5, 32), dtype)
        self._h2, self._dh2 = np.zeros((n, 5, 4, 32), dtype), np.zeros((n, 5, 4, 32), dtype)
        self._flat, self._hidden = np.ones((n, 513), dtype), np.ones((n, 33), dtype)
        self._p2 = _view(self._flat, (n, 4, 4, 32), (513, 128, 32, 1))
        self._g1, self._g2 = np.empty((n, 65, 16), dtype), np.empty((n, 257, 32), dtype)

    def clipped_sum(self, p: Floats, x: Floats, y: Indices, index: Indices, clip: float, out: Floats) -> None:
        """Write into ``out`` the sum over the records at ``index`` of gradients clipped to norm ``clip``."""
        layers = _layers(p)
        parts = _layers(out)
        out.fill(0.0)
        for first in range(0, len(index), self._records):
            chunk = index[first : first + self._records]
            logits = self._forward(layers, x[chunk])
            labels = np.zeros(self._records, np.int64)
            labels[: len(chunk)] = y[chunk]
            d4 = _softmax_minus_label(logits, labels)
            d3 = self._backward(layers, d4)
            rows = [
                self._g1.reshape(self._records, -1),
                self._g2.reshape(self._records, -1),
                self._flat,
                self._hidden,
                d3,
                d4,
            ]
            g1, g2, in3, in4, out3, out4 = (np.einsum("ri,ri->r", row, row) for row in rows)
            vanished = self._dtype(VANISHED)
            norm = np.sqrt(g1 + g2 + in3 * (out3 + vanished) + in4 * (out4 + vanished))
            bad = ~np.isfinite(norm)
            bad[len(chunk) :] = True
            factor = clip / np.maximum(norm, clip)
            if bad.any():  # an overflowing record contributes nothing, and the rest of a last chunk is empty
                factor[bad] = 0.0
                for row in rows:
                    row[bad] = 0.0
            parts[0] += (factor @ rows[0]).reshape(65, 16)
            parts[1] += (factor @ rows[1]).reshape(257, 32)
            parts[2] += self._flat.T @ (d3 * factor[:, None])
            parts[3] += self._hidden.T @ (d4 * factor[:, None])
            self._flat[:, 512] = self._hidden[:, 32] = 1.0

    def gradient(self, p: Floats, x: Floats, y: int, out: Floats) -> None:
        """Write into ``out`` the gradient of one record; for a pass over single records."""
        layers = _layers(p)
        parts = _layers(out)
        d4 = _softmax_minus_label(self._forward(layers, x[None]), np.array([y]))
        d3 = self._backward(layers, d4)
        parts[0][:], parts[1][:] = self._g1[0], self._g2[0]
        np.multiply(self._flat.T, d3, out=parts[2])
        np.multiply(self._hidden.T, d4, out=parts[3])

    def logits(self, p: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        layers = _layers(p)
        outputs = np.empty((len(x), 10), self._dtype)
        for first in range(0, len(x), self._records):
            chunk = x[first : first + self._records]
            outputs[first : first + self._records] = self._forward(layers, chunk)[: len(chunk)]
        return outputs

    def _forward(self, layers: list[Floats], x: Floats) -> Floats:
        inside = self._image[:, 3:31, 3:31]
        inside[: len(x)] = x.reshape(-1, 28, 28)
        inside[len(x) :] = 0.0
        for row in (0, 1):
            for column in (0, 1):
                plane = self._planes[row, column, : self._records * _PLACES]
                plane.reshape(self._records, _SIDE, _SIDE)[:] = self._image[:, row::2, column::2]
        np.copyto(self._patches1[:64].reshape(self._shifted.shape), self._shifted)
        np.matmul(self._patches1.T, layers[0], out=self._a1)
        np.maximum(self._a1[:-1], self._a1[1:], out=self._h1[:-1])
        np.maximum(self._h1[:-_SIDE], self._h1[_SIDE:], out=self._p1[:-_SIDE])
        np.maximum(self._p1, self._zero, out=self._p1)
        np.copyto(self._into2, self._from1)
        np.matmul(self._patches2.reshape(-1, 257), layers[1], out=self._a2.reshape(-1, 32))
        np.maximum(self._a2[:, :, :-1], self._a2[:, :, 1:], out=self._h2)
        np.maximum(self._h2[:, :-1], self._h2[:, 1:], out=self._p2)
        np.maximum(self._p2, 0.0, out=self._p2)
        np.maximum(self._flat @ layers[2], 0.0, out=self._hidden[:, :32])
        return np.asarray(self._hidden @ layers[3])

    def _backward(self, layers: list[Floats], d4: Floats) -> Floats:
        """Fill the convolutions' gradients; returns the derivative of the hidden layer."""
        d3 = d4 @ layers[3][:32].T
        d3 *= self._hidden[:, :32] > 0.0
        dp2 = (d3 @ layers[2][:512].T).reshape(self._records, 4, 4, 32)
        dp2 *= self._p2 > 0.0
        # Each derivative goes to the first largest place of its window: the upper or lower pair, then left or right.
        upper = dp2 * (self._h2[:, :-1] >= self._h2[:, 1:])
        self._dh2[:, :-1] = upper
        self._dh2[:, -1] = 0.0
        self._dh2[:, 1:] += dp2 - upper
        left = self._dh2 * (self._a2[:, :, :-1] >= self._a2[:, :, 1:])
        self._d2[:, :, :-1] = left
        self._d2[:, :, -1] = 0.0
        self._d2[:, :, 1:] += self._dh2 - left
        d2 = self._d2.reshape(self._records, 25, 32)
        np.matmul(self._patches2.transpose(0, 2, 1), d2, out=self._g2)
        np.matmul(d2.reshape(-1, 32), layers[1][:256].T, out=self._back2)
        dp1, dh1, d1, mask = self._dp1, self._dh1, self._d1, self._mask1
        dp1.fill(0.0)
        for to, part in self._folds:
            np.add(to, part, out=to)
        np.greater(self._p1, self._zero, out=mask)
        np.multiply(dp1, mask, out=dp1)
        np.greater_equal(self._h1[:-_SIDE], self._h1[_SIDE:], out=mask[:-_SIDE])
        np.multiply(dp1, mask, out=dh1)
        np.subtract(dp1, dh1, out=dp1)
        np.add(dh1[_SIDE:], dp1[:-_SIDE], out=dh1[_SIDE:])
        np.greater_equal(self._a1[:-1], self._a1[1:], out=mask[:-1])
        np.multiply(dh1, mask, out=d1)
        np.subtract(dh1, d1, out=dh1)
        np.add(d1[1:], dh1[:-1], out=d1[1:])
        patches = self._patches1.reshape(65, self._records, _PLACES).transpose(1, 0, 2)[:, :, :_USED]
        np.matmul(patches, d1.reshape(self._records, _PLACES, 16)[:, :_USED], out=self._g1)
        return np.asarray(d3)


def _layers(p: Floats) -> list[Floats]:
    """Views of the four layers, weights above biases."""
    a, b, c = _CUTS
    return [p[:a].reshape(65, 16), p[a:b].reshape(257, 32), p[b:c].reshape(513, 32), p[c:].reshape(33, 10)]


def _softmax_minus_label(logits: Floats, labels: Indices) -> Floats:
    values: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    values /= values.sum(axis=1, keepdims=True)
    values[np.arange(len(values)), labels] -= 1.0
    return values
