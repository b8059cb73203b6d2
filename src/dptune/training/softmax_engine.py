"""Engine E: softmax regressions over wide records, in one compiled pass (``_kernel_softmax.h``).

A record is read from memory once for each step: its outputs, its norm and its part of the sum are computed while it is
in the caches, and nothing is copied. The matrix library reads a batch four times, after it was gathered. Clipping rules
that are a formula are followed here, in single precision: a record's share is computed by the same operations wherever
it stands in a batch. Exact sums for secure noise and sums over units of several rows are the numpy engine's.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dptune._places import origin
from dptune._typing import AnyArray, Array, Floats, Indices
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._compiled import kernel
from dptune.training._formula import Formula, formula_of
from dptune.training._prepared import kept_whole, targets_of
from dptune.training.benchmark_data import Dataset
from dptune.training.clipping import Clipping, Flat
from dptune.training.models import Mlp, Regression
from dptune.training.numpy_engine import NumpyEngine, refuse_other_records

__all__ = ["SoftmaxEngine", "suits"]

_WIDE = 1024  # features beyond which one pass is faster than the matrix library and the kernel for MLPs
_MOST_FEATURES, _MOST_CLASSES = 65535, 16
_PART = 512  # records that one thread takes at a time; fixed, so that a sum does not depend on the number of threads
_CHECKED = 33  # records of the check below: two full blocks of the kernel and one that is not
_DRAWS, _TURNS = 3, 4  # how often they are drawn, and how far they move
_VECTOR = 16  # the most columns that are computed at once


def suits(model: object, rule: Clipping) -> bool:
    """Whether this engine is the fastest for a model in single precision.

    Args:
        model: A description of a model.
        rule: The clipping rule.

    Returns:
        True for softmax regressions of up to sixteen classes whose records are wide, or whose rule others would have to
        compute in double precision.
    """
    formula = formula_of(rule, 1.0, 1.0)
    if formula is None or formula.by_layer or not _possible(model):
        return False
    return isinstance(model, Mlp) and (model.features > _WIDE or not isinstance(rule, Flat))


def _possible(model: object) -> bool:
    if kernel is None or not isinstance(model, Mlp) or isinstance(model, Regression) or model.hidden:
        return False
    return 1 < model.classes <= _MOST_CLASSES and model.features <= _MOST_FEATURES


class SoftmaxEngine:
    """Clipped sums for a softmax regression in single precision.

    Args:
        model: The regression.
        threads: How many threads share a batch. The sum is the same for any number of them, bit for bit.

    Raises:
        InvalidInput: If there are no compiled kernels, or the model is another.
    """

    together = 1
    dtype: type[np.floating[Any]] = np.float32

    def __init__(self, model: Mlp, *, threads: int = 1) -> None:
        if not _possible(model):
            raise InvalidInput(
                f"This engine trains softmax regressions of at most {_MOST_CLASSES} classes and {_MOST_FEATURES} "
                "features, where kernels are compiled. Use engine='numpy'."
            )
        self.model, self.dimension = model, model.dimension
        self._plain = NumpyEngine(model)  # first parameters and outputs
        self._pool = None if threads == 1 else ThreadPoolExecutor(threads)
        self._rooms: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._data: Dataset | None = None
        self._places: Indices | None = None
        self._x, self._y = np.empty((0, model.features), np.float32), np.empty(0, np.int64)

    @property
    def layer_places(self) -> list[Indices]:
        """The places of every layer's parameters: there is one layer."""
        return [np.arange(self.dimension)]

    def start(self, key: Randomness) -> Floats:
        """Initial parameters: zeros."""
        return self._plain.start(key)

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``; the bits of each are a function of that row alone."""
        return self._plain.logits(parameters, x)

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        data = data.flat
        refuse_other_records(self.model, data)
        if data is self._data:
            return
        self._data = data
        whole, self._places = origin(data)
        self._y = np.ascontiguousarray(targets_of(whole), dtype=np.int64)
        self._x = whole.x
        if kept_whole(whole):
            with np.errstate(all="ignore"):  # a record that is too large for single precision will be dropped
                self._x = np.ascontiguousarray(whole.x, dtype=np.float32)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for flat, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
            total[:], _ = self._sums(flat, batch, Formula(clip, 0.0, clip))

    def formula_sum(self, flat: Floats, batch: Indices, formula: Formula, unit: float) -> tuple[Floats, Array]:
        """The sum over a batch of gradients times the formula's factors, and the norm of every gradient.

        Raises:
            InvalidInput: If an exact sum is asked for: this engine has none.
        """
        if unit != 0.0 or formula.by_layer:
            raise InvalidInput("This engine has neither exact sums nor clipping per layer. Use engine='numpy'.")
        if formula.top == formula.floor or _steady(_like(self.model.features), self.model.classes):
            return self._sums(flat, batch, formula)
        total, norms = np.zeros(self.dimension), np.empty(len(batch))
        for place in range(len(batch)):
            share, norms[place : place + 1] = self._sums(flat, batch[place : place + 1], formula)
            total += share
        return total, norms

    def _sums(self, flat: Floats, batch: Indices, formula: Formula) -> tuple[Floats, Array]:
        places = np.ascontiguousarray(batch if self._places is None else self._places[batch], dtype=np.int64)
        add = functools.partial(self._part, np.ascontiguousarray(flat, np.float32), formula)
        parts = [places[first : first + _PART] for first in range(0, len(places), _PART)] or [places]
        several: Iterable[tuple[Floats, Array]] = map(add, parts) if self._pool is None else self._pool.map(add, parts)
        total, lengths = np.zeros(self.dimension), []  # doubles: one record more shifts where every part ends
        for part, norms in several:  # in this order, whichever was ready first
            total += part
            lengths.append(norms)
        return total, np.concatenate(lengths)

    def _part(self, flat: Floats, formula: Formula, places: Indices) -> tuple[Floats, Array]:
        """The sum over some records and their norms; threads may call it at once."""
        x, y = self._x, self._y
        if x.dtype != np.float32 or not x.flags.c_contiguous:  # a large data set of another kind has no second copy
            with np.errstate(all="ignore"):  # as above
                x, y, places = np.ascontiguousarray(x[places], np.float32), y[places], np.arange(len(places))
        out, norms, room = np.empty(self.dimension), np.empty(len(places)), self._room()
        shape, rule = (self.model.features, self.model.classes), (formula.top, formula.stability, formula.floor)
        kernel.softmax_sum(flat, x, y, places, *shape, rule, room, out, norms)
        self._rooms.put(room)
        return out, norms

    def _room(self) -> AnyArray:
        """Memory to work in: one that nobody uses now, or a new one."""
        try:
            found: AnyArray = self._rooms.get_nowait()
        except queue.Empty:
            return np.empty(kernel.softmax_room(self.model.features, self.model.classes), np.uint8)
        return found


def _like(features: int) -> int:
    """A width with the same loops: whole panels of columns, and the columns behind them."""
    return features if features <= _WIDE else _WIDE + features % _VECTOR


@functools.cache
def _steady(features: int, classes: int) -> bool:
    """Whether this build gives a record the same bits in every place of a block.

    The source does the same operations for every place, but a compiler may fuse a product and a sum in one copy of a
    loop and not in another. What it chose does not depend on data, so random records show it: norms are made of
    outputs, derivatives and squares, and each record's is compared with its own alone, in many places.
    """
    rng = np.random.default_rng(0)
    engine, rule = SoftmaxEngine(Mlp(features, classes)), Formula(1.0, 0.5, 0.5)
    engine._y = np.arange(_CHECKED) % classes  # no data set holds such records
    for _ in range(_DRAWS):
        engine._x = rng.normal(size=(_CHECKED, features)).astype(np.float32)
        flat = rng.uniform(-0.3, 0.3, engine.dimension).astype(np.float32)
        alone = np.array([engine._sums(flat, np.array([place]), rule)[1][0] for place in range(_CHECKED)])
        for turn in range(_TURNS):
            order = np.roll(np.arange(_CHECKED), turn)
            if not np.array_equal(engine._sums(flat, order, rule)[1], alone[order]):
                return False
    return True
