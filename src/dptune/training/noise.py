"""The Gaussian noise of DP-SGD: a function of a run's randomness and the step alone.

Everything random in a training (which records are drawn, the noise, the initial weights) is expanded from its
:class:`~dptune.randomness.Randomness`, so that a training that was cut off draws the same noise again. Whoever holds
the secret and the model can remove the noise: it is never printed, logged or released.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dptune._typing import Array, Floats
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._compiled import kernel

__all__ = ["FastNoise", "Noise", "NoiseStack", "SecureNoise", "generator_of"]


# Small models share one draw among several steps: fewer calls, still a function of (run, step).
_BLOCK = 8192
# Secure noise lives on a lattice of about this fraction of its standard deviation (a power of two).
_LATTICE_BITS = 20
_HALF_ROUND = 2.0**52
# Share of the clip norm kept for rounding inside an engine: a share is longer than it should be by less than 2^-14 of
# the clip norm, in the kernel's single precision (docs/theorems/exact_sums.md).
_ROUNDING = 2.0**-13


def generator_of(secure: bool) -> str:
    """The name of the generator that :class:`SecureNoise` or :class:`FastNoise` uses on this machine.

    A sealed run notes it: a trial that was cut off is trained again from its key, and must not draw other noise.
    """
    if secure:
        return "shake-256, numpy, labelled" if kernel is None else "shake-256, compiled, labelled"
    single = "philox-4x64-10, numpy, labelled" if kernel is None else "philox-4x32-10, compiled, labelled"
    return f"{single}; sums in doubles: {generator_of(True)}"


class Noise(Protocol):
    """Gaussian noise for one run; an engine calls :meth:`add` once a step."""

    def add(self, total: Floats, scale: float, step: int, unit: float = 1.0) -> None:
        """Add independent noise of deviation ``scale`` to every coordinate of ``total``, then multiply by ``unit``."""

    def margin(self, dimension: int, scale: float, clip: float) -> float:
        """How much ``clip`` must shrink so that rounding cannot exceed the stated sensitivity."""


class FastNoise:
    """Single-precision Gaussian noise: Box-Muller on a counter-based generator (Philox).

    The compiled kernel uses the 32-bit variant of the generator, numpy the 64-bit one: both are functions of
    (run, step), with different values (see :func:`generator_of`).

    The radius uses 40 random bits, so the law is cut at 7.4 standard deviations. Floating-point sums of this
    kind do not resist attacks on the low bits of the result; :class:`SecureNoise` does. Sums in doubles would show the
    difference of one record in them, so they get that one.
    """

    def __init__(self, key: Randomness, dimension: int, *, compiled: bool | None = None) -> None:
        secret = key.child("noise").secret()
        self._key = np.frombuffer(secret, dtype=np.uint64)[:2].copy()
        self._secret = secret[:16]
        self.compiled = kernel is not None if compiled is None else compiled
        self._dimension = dimension
        self._per_block = 1 if self.compiled else max(1, _BLOCK // max(1, dimension))
        self._philox = np.random.Philox(key=self._key)
        self._place: Any = self._philox.state
        self._block = -1
        pairs = (self._per_block * dimension + 1) // 2
        self._radius = np.empty(pairs, np.float32)
        self._angle = np.empty(pairs, np.float32)
        self._normals = np.empty((2, pairs), np.float32)
        self._scaled = np.empty(dimension, np.float32)

    @property
    def layout(self) -> tuple[int, int, int]:
        """Steps in a block of numpy's numbers, numbers in a step, pairs in a block."""
        return self._per_block, self._dimension, self._radius.size

    def sample(self, step: int) -> NDArray[np.float32]:
        """Standard normals of the given step; the array is reused by later calls."""
        block, place = divmod(step, self._per_block)
        if block != self._block:
            self._fill(block)
            self._block = block
        start = place * self._dimension
        flat: NDArray[np.float32] = self._normals.reshape(-1)[start : start + self._dimension]
        return flat

    def _fill(self, block: int) -> None:
        if self.compiled:
            kernel.normals(self._secret, block, self._normals)
        else:
            _box_muller(self.words(block), self._radius, self._angle, self._normals)

    def words(self, block: int) -> NDArray[np.uint32]:
        """Random bits of numpy's generator, two words for each pair of normals."""
        self._place["state"]["counter"] = np.array([0, 0, 0, block], np.uint64)
        self._philox.state = self._place  # much faster than a new generator
        return np.asarray(self._philox.random_raw(self._radius.size)).view(np.uint32)

    def add(self, total: Floats, scale: float, step: int, unit: float = 1.0) -> None:
        if self.compiled and total.dtype == np.float32 and scale > 0.0:
            kernel.add_normals(self._secret, step, scale, unit, total)
            return
        if scale > 0.0:
            np.multiply(self.sample(step), np.float32(scale), out=self._scaled)
            np.add(total, self._scaled, out=total)
        total *= total.dtype.type(unit)

    def margin(self, dimension: int, scale: float, clip: float) -> float:
        return 0.0


def _box_muller(
    words: NDArray[np.uint32], radius: NDArray[np.float32], angle: NDArray[np.float32], normals: NDArray[np.float32]
) -> None:
    """Turn random words (..., 2 pairs), which are used up, into normals (..., 2, pairs)."""
    pairs = radius.shape[-1]
    high, low = words[..., :pairs], words[..., pairs:]
    cosine, sine = normals[..., 0, :], normals[..., 1, :]
    np.copyto(radius, high, casting="unsafe")
    # Of larger ones single precision holds no more bits. (A search in two dimensions would take ten times as long.)
    small = np.unravel_index(np.flatnonzero(high < 2**24), high.shape)
    few = radius[small] + (low[small] & np.uint32(255)) * np.float32(2.0**-8)
    radius[small] = few + np.float32(2.0**-9)
    radius *= np.float32(2.0**-32)
    np.log(radius, out=radius)
    radius *= np.float32(-2.0)
    np.sqrt(radius, out=radius)
    low >>= np.uint32(8)
    np.copyto(angle, low.view(np.int32), casting="unsafe")  # 24 bits: signed numbers are cast faster
    angle *= np.float32(2.0 * math.pi / 2.0**24)
    np.cos(angle, out=cosine)
    np.sin(angle, out=sine)
    cosine *= radius
    sine *= radius


class NoiseStack:
    """The noises of several runs of one model: each adds what it would add alone, in fewer calls where numpy draws."""

    def __init__(self, noises: Sequence[Noise], scales: Sequence[float], units: Sequence[float]) -> None:
        self._noises, self._scales, self._units = list(noises), list(scales), list(units)
        self._scale_column = np.array(scales, np.float32)[:, None]
        self._unit_column = np.array(units)[:, None]
        drawn = [noise for noise in noises if isinstance(noise, FastNoise) and not noise.compiled]
        together = len(drawn) == len(self._noises) > 1 and all(scale > 0.0 for scale in scales)
        self._drawn = drawn if together else []
        self._block = -1
        if self._drawn:
            self._per_block, self._dimension, pairs = self._drawn[0].layout
            self._words = np.empty((len(drawn), 2 * pairs), np.uint32)
            self._radius, self._angle = np.empty((2, len(drawn), pairs), np.float32)
            self._normals = np.empty((len(drawn), 2, pairs), np.float32)
            self._scaled = np.empty((len(drawn), self._dimension), np.float32)

    def add(self, totals: Floats, step: int) -> None:
        """Add to every row of ``totals`` the noise of its run, then multiply it by its unit."""
        if not self._drawn:
            for noise, row, scale, unit in zip(self._noises, totals, self._scales, self._units, strict=True):
                noise.add(row, scale, step, unit)
            return
        block, place = divmod(step, self._per_block)
        if block != self._block:
            for own, one in zip(self._words, self._drawn, strict=True):
                own[:] = one.words(block)
            _box_muller(self._words, self._radius, self._angle, self._normals)
            self._block = block
        start = place * self._dimension
        normals = self._normals.reshape(len(totals), -1)[:, start : start + self._dimension]
        np.multiply(normals, self._scale_column, out=self._scaled)
        np.add(totals, self._scaled, out=totals)
        totals *= self._unit_column.astype(totals.dtype)


class SecureNoise:
    """Gaussian noise on a lattice, from a cryptographic stream (SHAKE-256 keyed by run and step).

    The clipped sum is rounded to multiples of g (a power of two, about 2^-20 of the noise), and noise rounded
    to the same lattice is added. Rounding commutes with lattice shifts, so this is the ideal Gaussian
    mechanism followed by rounding: the set of possible outputs is the same lattice for all data. Rounding the
    sum may move two neighbours apart by at most g sqrt(dimension), which :meth:`margin` takes off the clip
    norm. What remains is the sampler's own distance from a Gaussian: 53-bit Box-Muller, cut at 8.5
    deviations.

    The compiled kernel does the same in one pass; its last bits before rounding, and so one noise in a billion, are
    others (see :func:`generator_of`).
    """

    def __init__(self, key: Randomness, dimension: int, *, compiled: bool | None = None) -> None:
        self._key = key.child("secure noise")
        self._dimension = dimension
        self.compiled = kernel is not None if compiled is None else compiled

    def _stream(self, step: int) -> bytes:
        """Two 64-bit words for every pair of normals: all radii, then all angles."""
        return hashlib.shake_256(self._key.child(step).secret()).digest(16 * ((self._dimension + 1) // 2))

    def sample(self, step: int) -> Array:
        """Standard normals of the given step in double precision, as numpy computes them."""
        pairs = (self._dimension + 1) // 2
        bits = np.frombuffer(self._stream(step), dtype=np.uint64) >> np.uint64(11)
        radius = bits[:pairs].astype(np.float64)
        radius += 0.5
        radius *= 2.0**-53
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle = bits[pairs:] * (2.0 * math.pi * 2.0**-53)
        normals = np.concatenate([np.cos(angle) * radius, np.sin(angle) * radius])
        return normals[: self._dimension]

    @staticmethod
    def lattice(scale: float) -> float:
        """The spacing of the lattice for noise of deviation ``scale``; 0 without noise."""
        if scale == 0.0:
            return 0.0
        return math.ldexp(1.0, math.floor(math.log2(scale)) - _LATTICE_BITS)

    def add(self, total: Floats, scale: float, step: int, unit: float = 1.0) -> None:
        if total.dtype != np.float64:
            raise InvalidInput("Secure noise needs sums in double precision. Build the engine with double=True.")
        if scale == 0.0:
            total *= unit
            return
        lattice = self.lattice(scale)
        if self.compiled and total.flags.c_contiguous and total.size == self._dimension:
            kernel.add_secure(self._stream(step), scale / lattice, 1.0 / lattice, lattice * unit, total)
            return
        noise = self.sample(step)
        noise *= scale / lattice
        np.rint(noise, out=noise)
        np.multiply(total, 1.0 / lattice, out=total)
        np.rint(total, out=total)
        np.add(total, noise, out=total)
        # Modulo 2^53 steps, as the sum is (docs/theorems/exact_sums.md): no number of records is too large.
        if total.size and (total.max() >= _HALF_ROUND or total.min() < -_HALF_ROUND):
            total[total >= _HALF_ROUND] -= 2.0 * _HALF_ROUND
            total[total < -_HALF_ROUND] += 2.0 * _HALF_ROUND
        np.multiply(total, lattice * unit, out=total)

    @classmethod
    def margin_of(cls, dimension: int, scale: float, clip: float) -> float:
        """What :meth:`margin` returns."""
        return 0.0 if scale == 0.0 else cls.lattice(scale) * math.sqrt(dimension) + clip * _ROUNDING

    def margin(self, dimension: int, scale: float, clip: float) -> float:
        return self.margin_of(dimension, scale, clip)
