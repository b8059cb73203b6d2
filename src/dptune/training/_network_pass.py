"""Calls of the kernel for described networks: parts of a batch, threads, masks, and the memory that it works in.

Whether a build of the kernel gives a record the same bits in every place of a group is found out here, on random
records.
"""

from __future__ import annotations

import functools
import hashlib
import queue
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dptune._typing import AnyArray, Array, Floats, Indices
from dptune.training._compiled import kernel
from dptune.training._formula import Formula
from dptune.training._network import Program, Shape

__all__ = ["Pass"]

_CHECKED, _CHECKED_IMAGES = 97, 33  # one more record than the largest group that the kernel takes at a time
_PART = (
    128  # records that one thread takes at a time; fixed, so that a sum does not depend on how many threads there are
)
_SEEN = 4096  # parameters that masks follow from, at least
_SIZES = frozenset({1, 2, 4, 5, 10, 11, 14, 16, 29, 31, 32, 95, 96})  # one less than sizes of a group
_STEADY: dict[tuple[bytes, bytes], bool] = {}  # what was found out in this process, for every network


class Pass:
    """Calls of the kernel for one program, with the memory that it works in."""

    def __init__(self, made: Program, shape: Shape = (), *, threads: int = 1) -> None:
        self.program, self.shape = made, shape
        self._order = made.order.astype(np.int32)
        self._single = np.empty(len(made.order), np.float32)
        self._rooms: dict[bool, queue.SimpleQueue[Any]] = {False: queue.SimpleQueue(), True: queue.SimpleQueue()}
        self._pool = None if threads == 1 else ThreadPoolExecutor(threads)

    @property
    def steady(self) -> bool:
        """Whether this build gives a record the same bits in every place of a group (see :mod:`fused_engine`)."""
        known = (self.program.fields.tobytes(), self.program.constants.tobytes())
        if known not in _STEADY:
            _STEADY[known] = self._found_steady()
        return _STEADY[known]

    def _found_steady(self) -> bool:
        rng, made = np.random.default_rng(0), self.program
        count = _CHECKED if made.fields[0, 0] == 0 else _CHECKED_IMAGES  # dense layers first: larger groups
        flat = rng.uniform(-0.3, 0.3, len(made.order)).astype(np.float32)
        x = rng.normal(size=(count, made.features)).astype(np.float32)
        y: AnyArray = rng.integers(0, made.classes, count)
        if made.classes == 1:  # the softmax of one output has no derivative
            y = rng.random(count)
        whole = Formula(1.0, 0.0, 1.0)
        outputs, alone = (np.empty((count, made.classes), np.float32) for _ in range(2))
        self.outputs(flat, x, outputs)
        shares = np.zeros(len(flat))
        for place in range(count):
            one = slice(place, place + 1)
            self.outputs(flat, x[one], alone[one])
            shares += self.sums(flat, x, y, np.arange(place, place + 1), whole, 2.0**40)[0]
            if place in _SIZES and not np.array_equal(
                shares, self.sums(flat, x, y, np.arange(place + 1), whole, 2.0**40)[0]
            ):
                return False
        return bool(np.array_equal(outputs, alone))

    def sums(
        self,
        flat: Floats,
        x: Floats,
        y: AnyArray,
        batch: Indices,
        formula: Formula,
        unit: float,
        room: Floats | None = None,
    ) -> tuple[Any, Array]:
        """The clipped sum over a batch, in torch's order, and the norm of every gradient.

        The sum is exact and in units of ``1 / unit`` if that is not zero. Targets ``y`` that are no labels are those of
        a squared error.
        """
        places = np.ascontiguousarray(batch, dtype=np.int64)
        add = functools.partial(self._part, self._parameters(flat), self._masks(flat), x, y, formula, unit)
        if len(places) <= _PART:
            return add(places, room)
        parts = [places[first : first + _PART] for first in range(0, len(places), _PART)]
        several: Iterable[Any] = map(add, parts) if self._pool is None else self._pool.map(add, parts)
        total, lengths = np.zeros(len(self.program.order)), []  # doubles: one record more shifts where every part ends
        for part, norms in several:  # in this order, whichever was ready first
            total += part
            lengths.append(norms)
        return total, np.concatenate(lengths)

    def _part(
        self,
        parameters: Floats,
        masks: Floats,
        x: Floats,
        y: AnyArray,
        formula: Formula,
        unit: float,
        places: Indices,
        out: Floats | None = None,
    ) -> tuple[Any, Array]:
        """The sum over some records and their norms; threads may call it at once."""
        made, exact, squared = self.program, unit != 0.0, y.dtype == np.float64
        kind, norms = np.float64 if exact else np.float32, np.empty(len(places))
        if out is None or out.dtype != kind or not out.flags.c_contiguous:
            out = np.empty(len(made.order), kind)
        room, rule = self._room(exact), (formula.top, formula.stability, formula.floor, formula.by_layer)
        given = (made.fields, made.constants, self._order, parameters, masks, x, y, places)
        kernel.net_sum(*given, rule, unit, squared, room, out, norms)
        self._rooms[exact].put(room)
        return out, norms

    def outputs(self, flat: Floats, rows: Floats, out: Floats) -> None:
        """The network's outputs for every row; nothing is dropped."""
        made, room = self.program, self._room(False)
        kernel.net_forward(made.fields, made.constants, self._order, self._parameters(flat), rows, room, out)
        self._rooms[False].put(room)

    def _parameters(self, flat: Floats) -> Floats:
        """Parameters in single precision; they may be in room that the next call uses again."""
        if flat.dtype == np.float32 and flat.flags.c_contiguous:
            return flat
        with np.errstate(all="ignore"):  # parameters of a diverging run
            np.copyto(self._single, flat, casting="same_kind")
        return self._single

    def _room(self, exact: bool) -> Any:
        """Memory to work in: one that nobody uses now, or a new one."""
        try:
            return self._rooms[exact].get_nowait()
        except queue.Empty:
            return np.zeros(kernel.net_room(self.program.fields, self.program.constants, exact), np.uint8)

    def _masks(self, flat: Floats) -> Floats:
        """Dropout's masks of this step: a function of the run and the step, by way of the parameters."""
        masks = np.empty(self.program.mask_values, np.float32)
        if not len(masks):
            return masks
        some = np.ascontiguousarray(flat[:: max(1, len(flat) // _SEEN)])  # there is noise on every parameter
        digest = hashlib.blake2b(some.tobytes()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:16], "little"))
        for mask in self.program.masks:
            drawn = rng.random((1 if mask.whole else mask.places, mask.channels)) >= mask.rate
            scaled = np.broadcast_to(
                drawn / (1.0 - mask.rate if mask.rate < 1.0 else 1.0), (mask.places, mask.channels)
            )
            masks[mask.start : mask.start + scaled.size] = scaled.reshape(-1)
        return masks
