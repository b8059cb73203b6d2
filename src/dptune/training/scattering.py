"""Scattering features of images: two scales, eight angles, orders 0 to 2, computed record by record.

A frozen transform with two layers: convolve with Morlet wavelets, take the modulus, smooth (Mallat, 2012; the setting
is that of Tramer and Boneh, 2021). Nothing is fitted, so applying it to private records costs no privacy. Each image is
computed alone in arrays whose shapes depend on the public size of images only, so its features are the same bits in
every batch. Filters are built in frequency and kept; ``docs/features.md`` has the formulas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import _memory
from dptune._typing import Floats
from dptune.errors import InvalidInput

__all__ = ["CHANNELS", "mirrored_scattering", "rooted_scattering", "scattering", "scattering_plane"]

CHANNELS = 81  # 1 of order 0, 2 x 8 of order 1, 8 x 8 of order 2
_ANGLES = 8
_CELL = 4  # pixels along an edge of what one output looks at: two scales
_WIDTH = 0.8  # deviation of the finest wavelet's window, in pixels
_PITCH = 0.75 * math.pi  # its frequency
_SLANT = 0.5  # windows are twice as long across as along
_LEAST = 8  # pixels along an edge
_ALIASES = range(-2, 3)  # shifts of a full turn that are added up; further ones are below 1e-20
_GROUPS = ((0, 1), (1, 9), (9, 17), (17, CHANNELS))  # order 0, order 1 fine and coarse, order 2
_TURNED = [-angle % _ANGLES for angle in range(_ANGLES)]  # each angle in a mirror
_MIRROR = np.array(  # each channel in a mirror
    [
        0,
        *(1 + angle for angle in _TURNED),
        *(1 + _ANGLES + angle for angle in _TURNED),
        *(1 + 2 * _ANGLES + _ANGLES * first + second for first in _TURNED for second in _TURNED),
    ]
)
_EMPTY = 1e-4  # a group whose length is below this part of it, centring aside, has no direction
_SHOWN = 0.5  # a record all of whose groups are shorter than this shows nothing
Complexes = NDArray[np.complex64]


@dataclass(frozen=True)
class _Bank:
    """Filters for images of one size, all of them public constants.

    ``fine`` and ``coarse`` are wavelets in frequency, by angle; ``coarse`` is cut into the four parts that fall on one
    another where only every second pixel is kept. ``full`` and ``half`` smooth and sample one edge of a map.
    """

    side: int
    padded: int
    fine: Floats
    coarse: Floats
    full: Floats
    half: Floats


@functools.lru_cache(maxsize=8)
def _bank(side: int) -> _Bank:
    cells = math.ceil(side / _CELL)
    padded = _CELL * (cells + 2)
    fine, coarse = (np.stack([_wavelet(padded, scale, angle) for angle in range(_ANGLES)]) for scale in (0, 1))
    gain = _gain(np.concatenate([fine, coarse]), _window(padded, 1, 0, 0.0, 1.0))
    cut = coarse.reshape(_ANGLES, 2, padded // 2, 2, padded // 2).transpose(0, 1, 3, 2, 4)
    cut = cut.reshape(_ANGLES, 4, padded // 2, padded // 2) / 4  # an inverse transform of a quarter of the points
    full, half = (_smoother(cells, padded, step) for step in (1, 2))
    return _Bank(
        side, padded, *(np.ascontiguousarray(one, np.float32) for one in (gain * fine, gain * cut, full, half))
    )


def _window(padded: int, scale: int, angle: int, pitch: float, slant: float) -> NDArray[np.float64]:
    """A Gaussian window's spectrum around a frequency, with the shifts by full turns that sampling adds."""
    turn = 2 * math.pi
    line = turn * np.fft.fftfreq(padded)
    shifted = (line[:, None] + turn * np.array(list(_ALIASES))).reshape(-1)
    down, right = shifted[:, None], shifted[None, :]
    cosine, sine = math.cos(math.pi * angle / _ANGLES), math.sin(math.pi * angle / _ANGLES)
    along, across = cosine * right + sine * down - pitch / 2**scale, cosine * down - sine * right
    width = _WIDTH * 2**scale
    tall = np.exp(-0.5 * width**2 * (along**2 + (across / slant) ** 2))
    turns = len(_ALIASES)
    summed: NDArray[np.float64] = tall.reshape(padded, turns, padded, turns).sum(axis=(1, 3))
    return summed


def _wavelet(padded: int, scale: int, angle: int) -> NDArray[np.float64]:
    """A Morlet wavelet's spectrum: a window around a frequency, less one around zero, so that its mean is zero."""
    high, low = (_window(padded, scale, angle, pitch, _SLANT) for pitch in (_PITCH, 0.0))
    wavelet: NDArray[np.float64] = high - low * (high[0, 0] / low[0, 0])
    return wavelet


def _gain(wavelets: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """The factor with which wavelets and low pass together enlarge nothing, at no frequency (Littlewood-Paley)."""
    energy = (wavelets**2).sum(axis=0)
    both = (energy + np.roll(energy[::-1, ::-1], 1, axis=(0, 1))) / 2
    room = 1 - low**2
    return math.sqrt(float(np.min(room[both > 1e-9] / both[both > 1e-9])))


def _smoother(cells: int, padded: int, step: int) -> NDArray[np.float64]:
    """Weights of every ``step``-th padded pixel for every cell: a Gaussian around the cell's centre, of sum one."""
    centres = _CELL * (np.arange(cells) + 1) + (_CELL - 1) / 2
    gap = np.arange(0, padded, step)[None, :] - centres[:, None]
    weights = np.exp(-0.5 * (gap / (2 * _WIDTH)) ** 2)
    scaled: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return scaled


def scattering_plane(image: Floats) -> Floats:
    """The 81 channels of one grey image, not yet normalised.

    Args:
        image: A square of at least 8 pixels along an edge.

    Returns:
        An array of 81 channels, each with a number for every cell of 4 x 4 pixels: order 0; order 1, fine then coarse,
        by angle; order 2, by angle of the fine wavelet and then of the coarse one.

    Raises:
        InvalidInput: If the image is no such square.

    Example:
        >>> import numpy as np
        >>> from dptune.training.scattering import scattering_plane
        >>> scattering_plane(np.ones((28, 28), np.float32)).shape
        (81, 7, 7)
    """
    if image.ndim != 2 or image.shape[0] != image.shape[1] or len(image) < _LEAST:
        raise InvalidInput(f"Scattering takes square images of at least {_LEAST} pixels; got shape {image.shape}.")
    from scipy import fft  # noqa: PLC0415 - loads when it is needed

    bank = _bank(len(image))
    after = bank.padded - bank.side - _CELL
    padded = np.pad(np.ascontiguousarray(image, np.float32), (_CELL, after), mode="reflect")
    spectrum = fft.fft2(padded)
    fine = np.abs(fft.ifft2(spectrum * bank.fine))
    coarse = np.abs(fft.ifft2(_kept(spectrum[None], bank)[0]))
    second = np.abs(fft.ifft2(_kept(fft.fft2(fine), bank))).reshape(_ANGLES * _ANGLES, *coarse.shape[1:])
    halves = np.concatenate([coarse, second])
    found: Floats = np.concatenate(
        [bank.full @ np.concatenate([padded[None], fine]) @ bank.full.T, bank.half @ halves @ bank.half.T]
    )
    return found


def _kept(spectra: Any, bank: _Bank) -> Complexes:
    """Spectra times the coarse wavelets, of every second pixel: the parts that fall on one another are added up."""
    half = bank.padded // 2
    parts = spectra.reshape(-1, 2, half, 2, half).transpose(1, 3, 0, 2, 4).reshape(4, -1, 1, half, half)
    total: Complexes = parts[0] * bank.coarse[:, 0]
    for place in range(1, 4):
        total += parts[place] * bank.coarse[:, place]
    return total


def _normalised(channels: Floats) -> Floats:
    """Each group of channels centred and of length one, over all colours; then all of it of length one.

    Zeros for a record that has no such numbers.
    """
    made = np.zeros_like(channels)
    for first, last in _GROUPS:
        group = channels[:, first:last] - channels[:, first:last].mean()
        least = np.float32(_EMPTY) * (1 + np.linalg.norm(channels[:, first:last]))
        made[:, first:last] = group / np.maximum(np.linalg.norm(group), least)
    flat: Floats = made.reshape(-1) / np.float32(math.sqrt(len(_GROUPS)))
    return flat if np.isfinite(flat).all() else np.zeros_like(flat)


def _rooted(channels: Floats) -> Floats:
    """The same of the roots of orders 1 and 2; a group that is as good as empty before the roots is no longer after.

    Zeros also for a record whose groups are all as good as empty.
    """
    roots = np.concatenate([channels[:, :1], np.sqrt(np.maximum(channels[:, 1:], 0))], axis=1)
    before, after = (_normalised(one).reshape(channels.shape) for one in (channels, roots))
    longest = np.float32(0.0)
    for first, last in _GROUPS:
        length = np.float32(math.sqrt(len(_GROUPS))) * np.linalg.norm(before[:, first:last])
        after[:, first:last] *= np.minimum(length, np.float32(1.0))
        longest = np.maximum(longest, length)
    flat: Floats = after.reshape(-1)
    return flat if longest >= _SHOWN else np.zeros_like(flat)


def _folded(channels: Floats) -> Floats:
    """What an image and its mirror image have in common: their mean, of which the left half says everything.

    Lengths are those of the whole mean: a column that stands for two is enlarged by the root of two.
    """
    cells = channels.shape[-1]
    left = (cells + 1) // 2
    mean = (channels[..., :left] + channels[:, _MIRROR, :, ::-1][..., :left]) / 2
    mean[..., : cells // 2] *= np.float32(math.sqrt(2))
    folded: Floats = mean
    return folded


def scattering(x: Floats, side: int, colours: int = 1) -> Floats:
    """Scattering features of images as flat rows, normalised record by record.

    Args:
        x: Images, one in each row, one colour after the other.
        side: Pixels along an edge.
        colours: How many colours there are.

    Returns:
        ``colours * 81 * cells * cells`` numbers of length at most one for each image, in single precision; a record
        that has none (because a pixel is not a number) becomes zeros.

    Raises:
        InvalidInput: If the rows are not images of this size.

    Example:
        >>> import numpy as np
        >>> from dptune.training.scattering import scattering
        >>> scattering(np.eye(2, 784, dtype=np.float32), 28).shape
        (2, 3969)
    """
    return _rows(x, side, colours, _normalised, math.ceil(side / _CELL))


def mirrored_scattering(x: Floats, side: int, colours: int = 1) -> Floats:
    """Scattering features of what an image and its mirror image have in common: half as many numbers.

    For photographs, where left and right mean the same: a model need not learn it, and has half as many weights for
    noise to hit. Not for letters and digits. Angles are turned and cells exchanged as a mirror does; an image and its
    mirror image have the same features but for the pixels that are left out between the scales.

    Args:
        x: Images, one in each row, one colour after the other.
        side: Pixels along an edge.
        colours: How many colours there are.

    Returns:
        ``colours * 81 * cells * half`` numbers of length at most one for each image, where half of the cells along an
        edge are kept (rounded up), in single precision; zeros as in :func:`scattering`.

    Raises:
        InvalidInput: If the rows are not images of this size.

    Example:
        >>> import numpy as np
        >>> from dptune.training.scattering import mirrored_scattering
        >>> mirrored_scattering(np.eye(2, 3072, dtype=np.float32), 32, 3).shape
        (2, 7776)
    """
    return _rows(x, side, colours, lambda channels: _normalised(_folded(channels)), _half(side))


def rooted_scattering(x: Floats, side: int, colours: int = 1) -> Floats:
    """Mirrored scattering with the roots of orders 1 and 2: faint edges count beside strong ones.

    Args:
        x: Images, one in each row, one colour after the other.
        side: Pixels along an edge.
        colours: How many colours there are.

    Returns:
        As many numbers as :func:`mirrored_scattering` has, of length at most one for each image.

    Raises:
        InvalidInput: If the rows are not images of this size.

    Example:
        >>> import numpy as np
        >>> from dptune.training.scattering import rooted_scattering
        >>> rooted_scattering(np.eye(2, 784, dtype=np.float32), 28).shape
        (2, 2268)
    """
    return _rows(x, side, colours, lambda channels: _rooted(_folded(channels)), _half(side))


def _half(side: int) -> int:
    """Cells along an edge that say everything about an image and its mirror image."""
    return (math.ceil(side / _CELL) + 1) // 2


def _rows(x: Floats, side: int, colours: int, finish: Callable[[Floats], Floats], across: int) -> Floats:
    """Features of every row, one record at a time; ``across`` is how many cells of a row are kept."""
    if x.ndim != 2 or x.shape[1] != side * side * colours:
        raise InvalidInput(f"'x' must hold rows of {colours} x {side} x {side} pixels; got shape {x.shape}.")
    made = _memory.room((len(x), colours * CHANNELS * math.ceil(side / _CELL) * across), np.dtype(np.float32))
    with np.errstate(all="ignore"):  # about no record more than about another
        for place, row in enumerate(x):
            planes = row.reshape(colours, side, side)
            made[place] = finish(np.stack([scattering_plane(plane) for plane in planes]))
    return made
