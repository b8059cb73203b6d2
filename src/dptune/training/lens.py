"""Lenses: what records are looked at through, so that no direction stands out.

A :class:`Lens` brings a few directions down and scales every record to length one; a :class:`CentredLens` centres
records and brings all directions to one level. Both are computed from noised sums
(:mod:`dptune.training.whitening`), and part of the model: records go through it before the model sees them, in training
and afterwards. What becomes of a record depends on that record and the lens alone, to the last bit: numpy and BLAS are
given one record at a time, or the engine's own product, whose rows do not depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptune._typing import Array, Floats
from dptune.errors import InvalidInput
from dptune.training._layers import on_lines
from dptune.training.engines import engine_for
from dptune.training.models import Mlp

__all__ = ["LONGEST", "CentredLens", "Lens", "carried"]

LONGEST = 1.5
"""Records of tables are about one long when they are brought to a level; longer ones than this are shortened."""


@dataclass(frozen=True, eq=False, repr=False)
class Lens:
    """Takes a part of each of some directions away, and scales what is left to length one.

    Args:
        directions: One column for each direction: orthogonal, of length one.
        taken: Which part of each is taken away, from 0 to 1.

    Raises:
        InvalidInput: The arrays do not belong together, or hold something else than numbers in single precision.

    Example:
        >>> import numpy as np
        >>> from dptune.training.lens import Lens
        >>> lens = Lens(np.array([[1.0], [0.0]], np.float32), np.array([0.75], np.float32))
        >>> lens(np.array([[4.0, 1.0]], np.float32)).round(3)
        array([[0.707, 0.707]], dtype=float32)
    """

    directions: Floats
    taken: Floats

    def __post_init__(self) -> None:
        arrays = (self.directions, self.taken)
        if any(not isinstance(one, np.ndarray) or one.dtype != np.float32 for one in arrays):
            raise InvalidInput("A lens is made of arrays in single precision.")
        if self.directions.ndim != 2 or self.taken.shape != self.directions.shape[1:]:
            raise InvalidInput("A lens takes a part of each of its directions: one number for each column.")
        if not all(np.isfinite(one).all() for one in arrays) or (np.abs(self.taken - 0.5) > 0.5).any():
            raise InvalidInput("A lens takes parts between 0 and 1 of directions that are finite.")

    @property
    def features(self) -> int:
        """How many features a record has, before and after."""
        return int(self.directions.shape[0])

    @property
    def linear(self) -> tuple[Array, Array]:
        """What is taken away and what the rest is multiplied by, before lengths are changed."""
        directions = np.asarray(self.directions, np.float64)
        return np.zeros(self.features), np.eye(self.features) - (directions * self.taken) @ directions.T

    def __call__(self, x: Floats) -> Floats:
        """The rows of ``x`` as a model sees them; a row that is not finite, or is zero, becomes zero."""
        if x.ndim != 2 or x.shape[1] != self.features:
            raise InvalidInput(f"The lens takes rows of {self.features} features; got {x.shape}.")
        with np.errstate(all="ignore"):  # about no record more than about another
            rows = np.array(x, np.float32, order="C")
            if self.taken.size:
                along = _product(self.directions, rows)
                rows -= _product(np.ascontiguousarray((self.directions * self.taken).T), along)
            own = on_lines((self.features,), np.float32)
            for row in rows:
                own[:] = row  # always at the same place in memory: its alignment may decide the last bit
                length = np.sqrt(np.dot(own, own))
                row[:] = own / length if 0.0 < length < np.inf else 0.0
        return rows


@dataclass(frozen=True, eq=False, repr=False)
class CentredLens:
    """Takes a middle away, multiplies by a matrix, and shortens what is longer than ``LONGEST``.

    Args:
        middle: What is taken away from every record.
        matrix: What the rest is multiplied by, from the right.

    Raises:
        InvalidInput: The arrays do not belong together, or hold something else than numbers in single precision.

    Example:
        >>> import numpy as np
        >>> from dptune.training.lens import CentredLens
        >>> lens = CentredLens(np.array([1.0, 0.0], np.float32), 0.5 * np.eye(2, dtype=np.float32))
        >>> lens(np.array([[2.0, 1.0], [1.0, 90.0]], np.float32)).round(3).tolist()
        [[0.5, 0.5], [0.0, 1.5]]
    """

    middle: Floats
    matrix: Floats

    def __post_init__(self) -> None:
        arrays = (self.middle, self.matrix)
        if any(not isinstance(one, np.ndarray) or one.dtype != np.float32 for one in arrays):
            raise InvalidInput("A lens is made of arrays in single precision.")
        if self.middle.ndim != 1 or self.matrix.shape != 2 * self.middle.shape:
            raise InvalidInput("A centred lens has a middle, and a square matrix with a row for each of its numbers.")
        if not all(np.isfinite(one).all() for one in arrays):
            raise InvalidInput("A lens is made of finite numbers.")

    @property
    def features(self) -> int:
        """How many features a record has, before and after."""
        return int(self.middle.shape[0])

    @property
    def linear(self) -> tuple[Array, Array]:
        """What is taken away and what the rest is multiplied by, before lengths are changed."""
        return np.asarray(self.middle, np.float64), np.asarray(self.matrix, np.float64)

    def __call__(self, x: Floats) -> Floats:
        """The rows of ``x`` as a model sees them; a row that is not finite becomes zero."""
        if x.ndim != 2 or x.shape[1] != self.features:
            raise InvalidInput(f"The lens takes rows of {self.features} features; got {x.shape}.")
        with np.errstate(all="ignore"):  # about no record more than about another
            rows = _product(self.matrix, np.asarray(x, np.float32) - self.middle)
            lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))  # row by row, the same operations for each
            rows *= np.where(lengths <= LONGEST, 1.0, LONGEST / lengths).astype(np.float32)[:, None]
            rows[~np.isfinite(lengths)] = 0.0
        return rows


def carried(layer: Floats, before: Lens | CentredLens | None, after: Lens | CentredLens | None) -> Array:
    """The weights that do through one lens what these do through another, up to the lengths that lenses change.

    Args:
        layer: A layer's weights, one row for each feature, and its biases as the last row.
        before: The lens that they were trained through; None: none.
        after: The lens that records are looked at through now.

    Returns:
        Weights and biases of the same shape, in doubles.

    Example:
        >>> import numpy as np
        >>> from dptune.training.lens import CentredLens, carried
        >>> half = CentredLens(np.array([1.0], np.float32), np.array([[0.5]], np.float32))
        >>> carried(np.array([[3.0], [1.0]], np.float32), None, half).tolist()  # 3 x + 1 is 6 (x - 1) / 2 + 4
        [[6.0], [4.0]]
    """
    features, weights = len(layer) - 1, np.asarray(layer, np.float64)
    plain = np.zeros(features), np.eye(features)
    (middle, matrix), (other, back) = (plain if one is None else one.linear for one in (before, after))
    with np.errstate(all="ignore"):  # weights of a diverged run
        inner = matrix @ weights[:-1]
        found = np.linalg.lstsq(back, inner, rcond=None)[0]
        return np.vstack([found, weights[-1:] + (other - middle) @ inner])


def _product(matrix: Floats, rows: Floats) -> Floats:
    """Rows times a matrix; the bits of each row are a function of that row alone."""
    features, columns = matrix.shape
    layer = np.zeros((features + 1, max(2, columns)), np.float32)  # the last row is a bias, and a model has two outputs
    layer[:-1, :columns] = matrix
    engine = engine_for(Mlp(features, max(2, columns)))
    return np.ascontiguousarray(engine.logits(layer.reshape(-1), rows)[:, :columns])
