"""Winners drawn fast: the map from a uniform to the released output, interpolated between exact values.

The unit interval is cut into cells. Where the exact map rises through a whole cell and the attacker's mark lies outside
of what the cell can release, the output is interpolated between the exact values at the cell's ends, so it is right to
the width of the cell and the attacker decides exactly as he would on the exact output. In every other cell (a border
between pieces of the score, the mark, an infinite end) the exact map itself is used. Decisions are therefore
those of exact inversion, uniform by uniform; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dptune._typing import Array

__all__ = ["CELLS", "Interpolated"]

Draw = Callable[[Array], Array]

CELLS = 1 << 14
_SLACK = 1e-9  # far above what rounding does to the exact map, far below the width of a cell that matters


class Interpolated:
    """The two tables of one world; threads may share it, each with a :meth:`drawer` of its own.

    ``exact`` maps uniforms to places (NaN: the public default), ``piece`` to the piece of the score that they fall in
    (any number that is constant where ``exact`` rises without a jump, or where the default is released).
    """

    def __init__(self, exact: Draw, piece: Draw, mark: float, cells: int = CELLS) -> None:
        self._exact, self._cells = exact, float(cells)
        edges = np.arange(cells + 1) / cells
        ends = np.stack([edges[:-1], np.nextafter(edges[1:], 0.0)])
        low, high = exact(ends[0]), exact(ends[1])
        pieces = piece(ends[0]), piece(ends[1])
        whole = pieces[0] == pieces[1]
        default = whole & np.isnan(low) & np.isnan(high)
        with np.errstate(invalid="ignore"):
            slack = _SLACK * (1.0 + np.abs(low) + np.abs(high))
            apart = (low - slack > mark) | (high + slack < mark)
            usual = whole & np.isfinite(low) & np.isfinite(high) & (high >= low) & apart
            width = high - low
        self._low = np.where(usual, low, np.where(default, np.nan, np.inf))
        self._width = np.where(usual, width, 0.0)
        self.exactly = float(np.mean(~usual & ~default))  # the share of games that use the exact map

    def drawer(self, size: int) -> Draw:
        """A function from at most ``size`` uniforms to places; its result is overwritten by its next call."""
        places, takes, cells = np.empty(size), np.empty(size), np.empty(size, np.intp)

        def draw(v: Array) -> Array:
            place, taken, cell = places[: len(v)], takes[: len(v)], cells[: len(v)]
            np.multiply(v, self._cells, out=place)
            np.copyto(cell, place, casting="unsafe")  # exact: v < 1, and the number of cells is a power of two
            np.subtract(place, cell, out=place)
            np.take(self._width, cell, out=taken, mode="clip")
            np.multiply(place, taken, out=place)
            np.take(self._low, cell, out=taken, mode="clip")
            np.add(place, taken, out=place)
            closer = np.flatnonzero(place == np.inf)
            if len(closer):
                place[closer] = self._exact(v[closer])
            return place

        return draw
