"""Levelled scattering of photographs: directions in which images of any kind stand out are brought down.

Scattering has a few directions with most of its length: what all images have in common. DP-SGD spends its clip norm on
them. Whitening (:mod:`dptune.training.whitening`) would find them in the private records, for a part of the budget and
for few features only. Here they are those of synthetic images, which are made of overlapping ellipses and follow from
constants ("dead leaves": Lee, Mumford and Huang, 2001). No private record and no photograph has a part in them, so they
cost no privacy. Records are computed alone, as in :mod:`dptune.training.scattering`; ``docs/features.md`` has the
formulas.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from threadpoolctl import threadpool_limits

from dptune import _memory
from dptune._typing import Floats
from dptune.training.lens import Lens
from dptune.training.scattering import rooted_scattering

__all__ = ["leaves", "levelled_scattering", "levelling"]

_IMAGES = 1000
_LEAVES = 60  # in one image, each in front of those before it; the first one fills the image
_RADII = (1 / 16, 3 / 4)  # of an edge; the share of those above r falls with the square of r
_STRETCH = 0.8  # logarithm: an ellipse is at most 2.2 times as long, and as much narrower
_TINT = 0.2  # how far a colour may be from the leaf's brightness, which is between 0 and 1
_MARGIN = 0.25  # of an edge: centres are up to so far outside of the image
_SEED = 0
_LEVEL = 8.0  # directions are never brought below this many times the mean


def leaves(count: int, side: int, colours: int = 1) -> Floats:
    """Synthetic images, the same ones each time: ellipses of many sizes that cover one another.

    Args:
        count: How many.
        side: Pixels along an edge.
        colours: How many colours.

    Returns:
        Rows of pixels between 0 and 1, one colour after the other.

    Example:
        >>> from dptune.training.levelled import leaves
        >>> leaves(2, 8, 3).shape
        (2, 192)
    """
    words = np.random.Philox(_SEED).random_raw(count * _LEAVES * (6 + colours))
    drawn = ((words >> np.uint64(11)) * 2.0**-53).reshape(count, _LEAVES, -1)
    near, far = (1 / radius**2 for radius in _RADII)
    radii = side / np.sqrt(near - (near - far) * drawn[..., 0])
    radii[:, 0] = 10 * side
    centres = side * ((1 + 2 * _MARGIN) * drawn[..., 1:3] - _MARGIN)
    shades = np.clip(drawn[..., 3:4] + _TINT * (2 * drawn[..., 6:] - 1), 0.0, 1.0)
    turned, longer = math.pi * drawn[..., 4], np.exp(_STRETCH * (2 * drawn[..., 5] - 1))
    down, right = np.mgrid[:side, :side] + 0.5
    made = np.zeros((count, colours, side, side), np.float32)
    for image, leaf in np.ndindex(count, _LEAVES):
        x, y = right - centres[image, leaf, 0], down - centres[image, leaf, 1]
        cosine, sine = math.cos(turned[image, leaf]), math.sin(turned[image, leaf])
        along, across = (cosine * x + sine * y) * longer[image, leaf], (cosine * y - sine * x) / longer[image, leaf]
        covered = along**2 + across**2 <= radii[image, leaf] ** 2
        made[image][:, covered] = shades[image, leaf, :, None]
    return made.reshape(count, -1)


def levelling(features: Floats, level: float = _LEVEL) -> Lens:
    """A lens that brings directions in which records stand out down to a level.

    Args:
        features: Features of public records, one record in each row: the lens is a function of them.
        level: How often the mean square along a direction that of all directions may be.

    Returns:
        The lens.

    Example:
        >>> import numpy as np
        >>> from dptune.training.levelled import levelling
        >>> levelling(np.array([[4.0, 0.0], [0.0, 0.25]], np.float32) / 4, 0.5).taken.round(2)
        array([0.29], dtype=float32)
    """
    rows = np.asarray(features, np.float64)
    values, vectors = np.linalg.eigh(rows @ rows.T / len(rows))
    lowest = level / rows.shape[1]
    above = values > lowest
    directions = rows.T @ (vectors[:, above] / np.sqrt(len(rows) * values[above]))
    taken = 1 - np.sqrt(lowest / values[above])
    return Lens(np.ascontiguousarray(directions, np.float32), taken.astype(np.float32))


@functools.lru_cache(maxsize=8)
def _lens(side: int, colours: int) -> Lens:
    """Levels scattering by synthetic images: a function of public sizes alone."""
    with threadpool_limits(1):  # the same bits, however many threads a process has: a run may be resumed elsewhere
        return levelling(rooted_scattering(leaves(_IMAGES, side, colours), side, colours))


def levelled_scattering(x: Floats, side: int, colours: int = 1) -> Floats:
    """Roots of mirrored scattering, levelled: what images of any kind have in common is brought down.

    For photographs. The directions are those of synthetic images (:func:`leaves`): public constants.

    Args:
        x: Images, one in each row, one colour after the other.
        side: Pixels along an edge.
        colours: How many colours there are.

    Returns:
        As many numbers as :func:`~dptune.training.scattering.mirrored_scattering` has, of length one for each image, in
        single precision; zeros for a record that has no numbers or shows nothing.

    Raises:
        InvalidInput: If the rows are not images of this size.

    Example:
        >>> import numpy as np
        >>> from dptune.training.levelled import levelled_scattering
        >>> levelled_scattering(np.eye(2, 64, dtype=np.float32), 8).shape
        (2, 162)
    """
    made = rooted_scattering(x, side, colours)
    lens = _lens(side, colours)
    for part in _memory.blocks(len(made), 4 * made.shape[1]):
        made[part] = lens(made[part])
    return made
