"""Clipped sums over units of several rows, for every engine: a unit's rows are summed, then clipped as a whole.

The sum of a unit's gradients is computed explicitly, because products of norms do not give the norm of a sum. An engine
is asked for it as for a batch that holds the rows of this unit and nothing else; what it returns is scaled down to the
clip norm here, whatever it is. So one unit moves a sum by at most the clip norm, and its share is a function of its own
rows (docs/theorems/exact_sums.md, section on units).

Rows of one unit may nearly cancel each other, and then rounding counts for more than usual: what is left after the
cancellation may be as small as the clip norm while the rows' own gradients are not. So engines compute in double
precision here, and no row's gradient is longer than 1024 clip norms (64 in exact sums) before it is added: what other
units can do to a share by rounding is below 2^-30 of the clip norm (but for a network that stands at a kink of relu,
as in any sum that is not exact). The fused kernel computes in single precision inside; it takes one unit at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._engine import CLIP_NORMS, Engine, SumsOnLattice
from dptune.training._layers import on_lines
from dptune.training._shares import add_share, total_steps
from dptune.units import UnitDataset

__all__ = ["EXACT_ROW", "ROW", "UnitSums", "row_bound"]

ROW = 2.0**10  # the longest gradient of one row, in clip norms
EXACT_ROW = 2.0**6  # the same in exact sums, whose steps are a fixed part of it
_NUMBERS = 2**19  # of explicit gradients at a time
_SINGLE = (
    "Units of several rows need an engine in double precision: their gradients are summed before they are clipped, and "
    "may cancel. Build it with double=True."
)


class UnitSums:
    """An engine whose records are the units of a :class:`~dptune.units.UnitDataset`.

    Args:
        engine: What computes sums over rows, in double precision.
        single: Whether a deriving class has a use for engines in single precision; units have none.

    Raises:
        InvalidInput: If the engine computes in single precision.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset, UnitDataset
        >>> from dptune.training import engine_for, softmax
        >>> from dptune.training.unit_sums import UnitSums
        >>> rows = Dataset(np.array([[3.0], [3.0], [-3.0]]), np.array([1, 1, 0]), classes=2)
        >>> engine = UnitSums(engine_for(softmax(1, 2), double=True))
        >>> engine.bind(UnitDataset(rows, ["ann", "ann", "bob"], unit_rows=5))
        >>> out = np.empty((1, 4))
        >>> engine.clipped_sums(np.zeros((1, 4)), [np.array([0])], np.array([1.0]), out)  # both rows of ann
        >>> round(float(np.linalg.norm(out)), 6)
        1.0
    """

    together = 1

    def __init__(self, engine: Engine, *, single: bool = False) -> None:
        if engine.dtype is not np.float64 and not single:
            raise InvalidInput(_SINGLE)
        self.engine = engine
        self.dimension = engine.dimension
        self.dtype: type[np.floating[Any]] = engine.dtype
        self._at_once, self._starts = 1, np.zeros(1, np.int64)

    def start(self, key: Randomness) -> Floats:
        """Initial parameters as one flat vector."""
        return self.engine.start(key)

    def bind(self, data: Dataset | UnitDataset) -> None:
        """Take the units that later calls refer to by index."""
        if not isinstance(data, UnitDataset):
            raise InvalidInput(f"Sums over units need a UnitDataset; got {type(data).__name__}.")
        if self.dtype is not np.float64:
            raise InvalidInput(_SINGLE)
        self.engine.bind(data.rows)
        self._starts = data.starts
        self._take_at_once(data.unit_rows * data.features)

    def _take_at_once(self, numbers: int) -> None:
        """How many units of so many numbers the engine is asked for at a time."""
        if self.engine.together > 1:  # it takes candidates at once, and so it takes units at once; others one by one
            self._at_once = max(1, _NUMBERS // max(self.dimension, numbers))

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        return self.engine.logits(parameters, x)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over the units of ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for flat, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
            total.fill(0.0)
            for some in self._parts(batch):
                same, rows, bounds, found = self._asked(flat, some, row_bound(clip, ROW))
                self.engine.clipped_sums(same, rows, bounds, found)
                np.add(total, _clipped(found, clip).sum(axis=0), out=total)

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum of the units' clipped gradients, each rounded to ``lattices[s]``.

        A unit's gradient comes from the engine's own exact sum over its rows. False if the engine has none.
        """
        if not isinstance(self.engine, SumsOnLattice):
            return False
        for row, (batch, clip, lattice) in enumerate(zip(batches, clips.tolist(), lattices, strict=True)):
            one = slice(row, row + 1)
            if lattice == 0.0:
                self.clipped_sums(parameters[one], [batch], clips[one], out[one])
                continue
            steps = functools.partial(self._steps, self.engine, parameters[row], clip, lattice)
            out[row] = total_steps(batch, steps) * lattice
        return True

    def _steps(self, engine: SumsOnLattice, flat: Floats, clip: float, lattice: float, batch: Indices) -> Array:
        """The sum of the shares of these units in lattice steps; each is clipped and rounded in the same memory."""
        steps, own = np.zeros(self.dimension), on_lines((self.dimension,), np.float64)
        for some in self._parts(batch):
            same, rows, bounds, found = self._asked(flat, some, row_bound(clip, EXACT_ROW))
            if not engine.lattice_sums(same, rows, bounds, [0.0] * len(rows), found):
                raise InvalidInput("The engine has no exact sums here; train without secure noise.")
            for gradient in found:
                own[:] = gradient
                add_share(steps, own, clip, lattice)
        return steps

    def _parts(self, batch: Indices) -> list[Indices]:
        """The batch in parts that the engine takes at once."""
        return [batch[first : first + self._at_once] for first in range(0, len(batch), self._at_once)]

    def _asked(self, flat: Floats, units: Indices, bound: float) -> tuple[Floats, list[Indices], Floats, Floats]:
        """What the engine is asked for: the same parameters for each unit, its rows, their bound, and room."""
        rows = [np.arange(self._starts[unit], self._starts[unit + 1]) for unit in units]
        same = flat[None] if len(rows) == 1 else np.repeat(flat[None], len(rows), axis=0)
        return same, rows, np.full(len(rows), bound), np.empty((len(rows), self.dimension))


def row_bound(clip: float, norms: float) -> float:
    """How long the gradient of one row may be: far beyond what clipping leaves of its unit."""
    return max(clip, min(norms * clip, CLIP_NORMS[1]))


def _clipped(gradients: Floats, clip: float) -> Floats:
    """Each scaled down to norm ``clip``, in place; one that is not finite becomes zero."""
    top = np.abs(gradients).max(axis=1, initial=0.0)
    gradients[~np.isfinite(top)] = 0.0
    norm = np.sqrt(np.einsum("ud,ud->u", gradients, gradients))  # far from where squares of doubles vanish or overflow
    gradients *= (clip / np.maximum(norm, clip))[:, None]
    return gradients
