"""Engine D: described feed-forward networks in one compiled pass, a few records at a time (``_kernel_net.h``).

Users' ``nn.Sequential`` are recognised and come here; what is not goes to torch. A record's gradient is computed by
the same operations wherever it stands in a batch; for secure noise it is rounded to the noise's lattice and added in
whole numbers, so sums are exact (docs/theorems/exact_sums.md). Dropout draws one mask a step, for all records.
"""

from __future__ import annotations

import functools
import hashlib
import queue
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from dptune._typing import AnyArray, Array, Floats, Indices
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.regression import range_of
from dptune.training._compiled import kernel
from dptune.training._engine import wrong_outputs
from dptune.training._formula import Formula
from dptune.training._network import Layer, Program, Shape, program
from dptune.training._prepared import targets_of
from dptune.training._shares import total_steps
from dptune.training.benchmark_data import Dataset
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import dp_hypo_cnn

__all__ = ["FusedModuleEngine", "NetworkEngine"]

_CHECKED, _CHECKED_IMAGES = 97, 33  # one more record than the largest group that the kernel takes at a time
_PART = (
    128  # records that one thread takes at a time; fixed, so that a sum does not depend on how many threads there are
)
_SEEN = 4096  # parameters that masks follow from, at least
_SIZES = frozenset({1, 2, 4, 5, 10, 11, 14, 16, 29, 31, 32, 95, 96})  # one less than sizes of a group
_STEADY: dict[tuple[bytes, bytes], bool] = {}  # what was found out in this process, for every network


class Source(Protocol):
    """Where the first weights come from and trained ones go."""

    def start(self, key: Randomness) -> Floats:
        """First parameters as one vector, in torch's order."""

    def release(self, parameters: Floats, dtype: type[np.floating[Any]]) -> Any:
        """A model with these parameters that has seen no record."""


class NetworkEngine:
    """Clipped sums for a described network.

    The kernel always computes in single precision; with ``double`` its sums are exact.

    Args:
        layers: The description.
        source: Where the first weights come from.
        shape: The shape of a record, if the description says it; else it is that of the records to come.
        double: For use with secure noise and units of several rows.
        threads: How many threads share a batch. The sum is the same for any number of them, bit for bit.

    Raises:
        InvalidInput: If there are no compiled kernels, or a layer does not fit the one before it.
    """

    together = 1
    mode = "compiled"

    def __init__(
        self,
        layers: tuple[Layer, ...],
        source: Source,
        shape: Shape | None = None,
        *,
        double: bool = False,
        threads: int = 1,
    ) -> None:
        if kernel is None:
            raise InvalidInput("The kernels are not compiled. Reinstall with a C compiler, or use engine='torch'.")
        self._layers, self._source, self._shape, self._threads = layers, source, shape, threads
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        self.dimension = len(source.start(Randomness.rehearsal(0)))
        self._pass: _Pass | None = None if shape is None else _Pass(program(layers, shape), threads=threads)
        self._data: Dataset | None = None
        self._x = np.empty((0, 0), np.float32)
        self._y: AnyArray = np.empty(0, np.int64)  # labels, or targets as shares of their range

    def start(self, key: Randomness) -> Floats:
        """Initial parameters as one flat vector."""
        return np.asarray(self._source.start(key), self.dtype)

    def release(self, parameters: Floats) -> Any:
        """The model with these parameters; it has seen no record."""
        return self._source.release(parameters, self.dtype)

    @property
    def layer_places(self) -> list[Indices]:
        """The places of every layer's parameters."""
        made = self._bound.program
        return np.split(made.order, np.cumsum(made.sizes)[:-1])

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index; looks at their shape and kind of targets alone."""
        if data is self._data:
            return
        used = self._for(data.x.shape[1:])
        if used.program.classes != data.classes:
            raise InvalidInput(wrong_outputs(used.program.classes, data))
        self._data, self._pass = data, used
        with np.errstate(all="ignore"):  # a record that is too large for single precision will be dropped
            self._x = np.ascontiguousarray(data.x, dtype=np.float32).reshape(len(data.x), used.program.features)
        self._y = np.ascontiguousarray(targets_of(data), dtype=np.int64 if range_of(data) is None else np.float64)

    def _for(self, shape: Shape) -> _Pass:
        """What computes on records of a shape."""
        found = self._pass
        if self._shape is None and (found is None or found.shape != shape):
            found = _Pass(program(self._layers, shape), shape, threads=self._threads)
        assert found is not None  # one of the two shapes is known
        if int(np.prod(shape)) != found.program.features:
            raise InvalidInput(
                f"The module cannot take rows of {int(np.prod(shape))} features: its first layer takes "
                f"{found.program.features}. Give records of that shape."
            )
        return found

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for flat, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
            found, _ = self.formula_sum(flat, batch, Formula(clip, 0.0, clip), 0.0, total)
            if found is not total:
                total[:] = found

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of clipped gradients, rounded to ``lattices[s]``.

        Lattices are powers of two; zero asks for a sum that is not rounded. Where a build of the kernel rounds a
        record differently in different places of a group, records are computed one at a time.
        """
        for row, (batch, lattice) in enumerate(zip(batches, lattices, strict=True)):
            one = slice(row, row + 1)
            if lattice == 0.0:
                self.clipped_sums(parameters[one], [batch], clips[one], out[one])
                continue
            add = functools.partial(self._steps, parameters[row], float(clips[row]), lattice, out[row])
            np.multiply(total_steps(batch, add), lattice, out=out[row])
        return True

    def _steps(self, flat: Floats, clip: float, lattice: float, room: Floats, batch: Indices) -> Array:
        """The sum of the shares of these records in lattice steps; it may be in ``room``."""
        steps: Any = self.formula_sum(flat, batch, Formula(clip, 0.0, clip), 1.0 / lattice, room)[0]
        return np.asarray(steps, np.float64)

    def formula_sum(
        self, flat: Floats, batch: Indices, formula: Formula, unit: float, room: Floats | None = None
    ) -> tuple[Floats, Array]:
        """The sum over a batch of gradients times the formula's factors, and the norm of every gradient.

        With a ``unit`` every share is rounded to multiples of ``1 / unit`` and the sum, exact, counts them. Where last
        bits count (exact sums, numbers, rules that lengthen gradients) and a build of the kernel rounds a record
        differently in different places of a group, records are computed one at a time. The sum is written to ``room``
        if that is given and of its type.
        """
        used, numbers = self._bound, self._y.dtype == np.float64
        plain = unit == 0.0 and not numbers and formula.top == formula.floor and not formula.by_layer
        if plain or used.steady:
            return used.sums(flat, self._x, self._y, batch, formula, unit, room)
        total = np.zeros(self.dimension)
        norms = np.zeros(len(batch))
        for place in range(len(batch)):
            one = slice(place, place + 1)
            share, norms[one] = used.sums(flat, self._x, self._y, batch[one], formula, unit)
            total += share
        return total, norms

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``; the bits of each are a function of that row alone."""
        used = self._for(x.shape[1:])
        with np.errstate(all="ignore"):  # a row that is too large for single precision
            rows = np.ascontiguousarray(x, dtype=np.float32).reshape(len(x), used.program.features)
        together = max(1, len(rows)) if used.steady else 1
        outputs = np.empty((len(rows), used.program.classes), np.float32)
        for first in range(0, len(rows), together):
            some = slice(first, first + together)
            used.outputs(parameters, rows[some], outputs[some])
        return outputs

    @property
    def _bound(self) -> _Pass:
        if self._pass is None:
            raise InvalidInput("The engine has no records yet. Call 'bind' first.")
        return self._pass


class FusedModuleEngine(FusedEngine):
    """A user's own module that is the network of DP-HyPO, which has a kernel of its own: it is several times faster."""

    mode = "compiled"

    def __init__(self, source: Source, *, double: bool = False) -> None:
        super().__init__(dp_hypo_cnn(), double=double)
        self._source = source

    def start(self, key: Randomness) -> Floats:
        """Initial parameters: those that the module came with."""
        return np.asarray(self._source.start(key), self.dtype)

    def release(self, parameters: Floats) -> Any:
        """The module with these parameters; it has seen no record."""
        return self._source.release(parameters, self.dtype)


class _Pass:
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
        total: Any = None
        lengths = []
        for part, norms in several:  # in this order, whichever was ready first
            total = part if total is None else np.add(total, part, out=total)
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
