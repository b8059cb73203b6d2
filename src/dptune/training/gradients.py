"""Histograms of oriented gradients, and small pictures beside them: public features of images, record by record.

Nothing is fitted: filters, bins and the normalisation are constants, so applying them to private records costs no
privacy. A record's features are the same bits in every batch: numpy is given one record at a time, because what it
computes of an array may round by the array's shape. A linear model on them is the strongest cheap private learner for
images like MNIST's.
"""

from __future__ import annotations

import math

import numpy as np

from dptune import _validate
from dptune._typing import Floats
from dptune.errors import InvalidInput

__all__ = [
    "centred_gradients",
    "gradients_and_brightness",
    "oriented_gradients",
    "side_and_colours",
    "two_scale_gradients",
]

_COLOURS = 3
_CELLS = 8  # about so many along an edge of an image
_PICTURE = 14  # about so many squares along an edge of the small picture
_BRIGHTNESS = np.float32(0.5)  # its length beside that of the gradients
_DIRECTIONS = 12  # of gradients at two scales: benchmarks/choose_features.py
_BLUR = 0.375  # deviation of the Gaussian before the coarse gradients, in fine cells: 1.5 pixels where an edge has 28


def oriented_gradients(x: Floats, *, side: int = 28, cell: int = 4, bins: int = 9) -> Floats:
    """Histograms of gradient directions, ``(side/cell)^2 * bins`` features of length one (441 for MNIST).

    Each pixel's gradient votes for the two nearest of ``bins`` directions over the full circle, spread over
    the neighbouring cells; every record is scaled to unit length.

    Args:
        x: Images as flat rows of ``side * side`` pixels.
        side: Pixels along an edge.
        cell: Pixels along the edge of a cell; divides ``side``.
        bins: How many directions are told apart.

    Returns:
        One row of features in [0, 1] for each image, in single precision.

    Raises:
        InvalidInput: If the rows are not images of this size, or cells do not fill them.

    Example:
        >>> import numpy as np
        >>> from dptune.training import oriented_gradients
        >>> oriented_gradients(np.zeros((3, 784), np.float32)).shape
        (3, 441)
    """
    _validate.integer("side", side, 2)
    _validate.integer("cell", cell, 1)
    _validate.integer("bins", bins, 2)
    if side % cell:
        raise InvalidInput(f"'cell' must divide 'side'; got {cell} and {side}.")
    if x.ndim != 2 or x.shape[1] != side * side:
        raise InvalidInput(
            f"'x' must hold rows of {side}x{side} pixels; got shape {x.shape}. Flatten each image to one row."
        )
    spread = _spread(side, cell)
    features = np.zeros((len(x), (side // cell) ** 2 * bins), np.float32)
    with np.errstate(all="ignore"):  # about no record more than about another
        for place, row in enumerate(x):
            features[place] = _record(row, side, bins, spread)
    return features


def _spread(side: int, cell: int) -> Floats:
    """The weight of every row of pixels for every row of cells: a triangle around the cell's centre."""
    centres = (np.arange(side // cell) + 0.5) * cell
    distance = np.abs(np.arange(side)[None, :] + 0.5 - centres[:, None])
    weights: Floats = np.maximum(0.0, 1.0 - distance / cell).astype(np.float32)
    return weights


def _record(x: Floats, side: int, bins: int, spread: Floats) -> Floats:
    """The features of one image."""
    image = x.reshape(side, side).astype(np.float32, order="C")
    down, right = np.zeros_like(image), np.zeros_like(image)
    down[1:-1] = image[2:] - image[:-2]
    right[:, 1:-1] = image[:, 2:] - image[:, :-2]
    size = np.sqrt(np.hypot(down, right))
    place = np.arctan2(down, right) * np.float32(bins / (2 * math.pi))
    gap = np.abs(place - np.arange(bins, dtype=np.float32)[:, None, None]) % np.float32(bins)
    gap = np.minimum(gap, np.float32(bins) - gap)
    votes = size * np.maximum(np.float32(0.0), 1 - gap)
    flat: Floats = np.sqrt(spread @ votes @ spread.T).reshape(-1)
    flat /= np.maximum(np.linalg.norm(flat), np.float32(1e-6))
    return flat


def centred_gradients(x: Floats) -> Floats:
    """Oriented gradients of images of any size, grey or in three colours, centred record by record.

    The size follows from the width of a row: ``side * side`` pixels, or three times as many, one colour after the
    other. Every colour has its own gradients; a record's features are reduced by their mean, so that they point in
    different directions, and scaled to unit length.

    Args:
        x: Images as flat rows.

    Returns:
        One row of features in [-1, 1] for each image, in single precision.

    Raises:
        InvalidInput: If the rows are not square images.

    Example:
        >>> import numpy as np
        >>> from dptune.training.gradients import centred_gradients
        >>> centred_gradients(np.eye(2, 784, dtype=np.float32)).shape
        (2, 441)
        >>> centred_gradients(np.zeros((1, 3072), np.float32)).shape
        (1, 1728)
    """
    side, colours = side_and_colours(x)
    cell = _fine(side)
    planes = [
        oriented_gradients(x[:, place * side * side : (place + 1) * side * side], side=side, cell=cell)
        for place in range(colours)
    ]
    features: Floats = np.concatenate(planes, axis=1)
    with np.errstate(all="ignore"):
        for place, row in enumerate(features):  # one at a time, as above
            centred = row - row.mean()
            features[place] = centred / np.maximum(np.linalg.norm(centred), np.float32(1e-6))
    return features


def gradients_and_brightness(x: Floats) -> Floats:
    """Centred oriented gradients, and beside them a small picture of the image: where it is bright.

    The picture is the mean of small squares (2 x 2 pixels where an edge has 28), for each colour; it is centred and
    scaled to half the length of the gradients, record by record.

    Args:
        x: Images as flat rows.

    Returns:
        One row of features of length one for each image, in single precision.

    Raises:
        InvalidInput: If the rows are not square images.

    Example:
        >>> import numpy as np
        >>> from dptune.training.gradients import gradients_and_brightness
        >>> gradients_and_brightness(np.eye(2, 784, dtype=np.float32)).shape
        (2, 637)
    """
    side, colours = side_and_colours(x)
    gradients = centred_gradients(x)
    square = _square(side)
    cells = side // square
    features = np.zeros((len(x), gradients.shape[1] + colours * cells * cells), np.float32)
    with np.errstate(all="ignore"):
        for place, row in enumerate(x):  # one at a time, as above
            pixels = row.astype(np.float32, order="C").reshape(colours, cells, square, cells, square)
            picture = pixels.mean(axis=(2, 4)).reshape(-1)
            picture -= picture.mean()
            picture *= _BRIGHTNESS / np.maximum(np.linalg.norm(picture), np.float32(1e-6))
            both = np.concatenate([gradients[place], picture])
            features[place] = both / np.maximum(np.linalg.norm(both), np.float32(1e-6))
    return features


def two_scale_gradients(x: Floats) -> Floats:
    """Oriented gradients in small cells, those of the blurred image in larger cells, and a small picture.

    Where an edge has 28 pixels: 12 directions in 7 x 7 cells of 4 pixels; 12 directions in 4 x 4 cells of 7 pixels
    after a Gaussian blur of 1.5 pixels; and means of 2 x 2 pixels. Each of the three is centred and scaled, to lengths
    of 1, 1 and 1/2; colours are computed for themselves and scaled together. Then the record is scaled to length one.

    Args:
        x: Images as flat rows.

    Returns:
        One row of features of length one for each image, in single precision; of zeros for an image of one shade, and
        where a pixel is not a number.

    Raises:
        InvalidInput: If the rows are not square images.

    Example:
        >>> import numpy as np
        >>> from dptune.training.gradients import two_scale_gradients
        >>> two_scale_gradients(np.eye(2, 784, dtype=np.float32)).shape
        (2, 976)
    """
    side, colours = side_and_colours(x)
    small, square = _fine(side), _square(side)
    large = next(size for size in range(min(small + 1, side), side + 1) if side % size == 0)
    fine, coarse, blur = _spread(side, small), _spread(side, large), _blur(side, _BLUR * small)
    sizes = (len(fine) ** 2 * _DIRECTIONS, len(coarse) ** 2 * _DIRECTIONS, (side // square) ** 2)
    features = np.zeros((len(x), colours * sum(sizes)), np.float32)
    with np.errstate(all="ignore"):
        for place, row in enumerate(x):  # one at a time, as above
            planes = row.astype(np.float32, order="C").reshape(colours, side, side)
            planes = planes - planes[:, :1, :1]  # so that one shade stays zero when it is blurred
            parts = [
                [_histograms(plane, fine) for plane in planes],
                [_histograms(blur @ plane @ blur.T, coarse) for plane in planes],
                [planes.reshape(colours, side // square, square, side // square, square).mean(axis=(2, 4)).reshape(-1)],
            ]
            scaled = [_scaled(np.concatenate(part)) for part in parts]
            both = np.concatenate([*scaled[:2], _BRIGHTNESS * scaled[2]])
            both /= np.maximum(np.linalg.norm(both), np.float32(1e-6))
            features[place] = both if np.isfinite(both).all() else 0.0
    return features


def _scaled(part: Floats) -> Floats:
    """Centred, and of length one."""
    centred: Floats = part - part.mean()
    centred /= np.maximum(np.linalg.norm(centred), np.float32(1e-6))
    return centred


def _histograms(plane: Floats, spread: Floats) -> Floats:
    """Votes for the two nearest directions by cell, as :func:`oriented_gradients` has them, not yet scaled."""
    down, right = np.zeros_like(plane), np.zeros_like(plane)
    down[1:-1] = plane[2:] - plane[:-2]
    right[:, 1:-1] = plane[:, 2:] - plane[:, :-2]
    size = np.sqrt(np.hypot(down, right))
    place = np.arctan2(down, right) * np.float32(_DIRECTIONS / (2 * math.pi))
    gap = np.abs(place - np.arange(_DIRECTIONS, dtype=np.float32)[:, None, None])  # up to one and a half turns
    gap = np.minimum(gap, np.abs(gap - np.float32(_DIRECTIONS)))
    votes = size * np.maximum(np.float32(0.0), 1 - gap)
    flat: Floats = np.sqrt(spread @ votes @ spread.T).reshape(-1)
    return flat


def _blur(side: int, deviation: float) -> Floats:
    """The weight of every row of pixels for every blurred row: a Gaussian; the image goes on as its edge is."""
    reach = math.ceil(2.5 * deviation)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (steps / deviation) ** 2)
    matrix = np.zeros((side, side))
    for row in range(side):
        np.add.at(matrix[row], np.clip(row + steps, 0, side - 1), weights / weights.sum())
    return np.ascontiguousarray(matrix, np.float32)


def _fine(side: int) -> int:
    """Pixels along the edge of a small cell: about eight cells along an edge of the image."""
    return next(size for size in range(max(2, side // _CELLS), side + 1) if side % size == 0)


def _square(side: int) -> int:
    """Pixels along the edge of what one number of the small picture is the mean of."""
    return next(size for size in range(max(1, round(side / _PICTURE)), side + 1) if side % size == 0)


def side_and_colours(x: Floats) -> tuple[int, int]:
    """Side and colours of the images that rows hold.

    Args:
        x: Images as flat rows, one colour after the other.

    Returns:
        Pixels along an edge, and 1 or 3.

    Raises:
        InvalidInput: If the rows are not square images.

    Example:
        >>> import numpy as np
        >>> side_and_colours(np.zeros((1, 3072), np.float32))
        (32, 3)
    """
    width = x.shape[1] if x.ndim == 2 else 0
    for colours in (1, _COLOURS):
        side = math.isqrt(width // colours)
        if side >= 2 and side * side * colours == width:
            return side, colours
    raise InvalidInput(
        f"Features of images need rows of side x side pixels, or three times as many; got shape {x.shape}. Flatten "
        "each image to one row, one colour after the other."
    )
