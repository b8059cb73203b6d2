"""Engine D: described feed-forward networks in one compiled pass, a few records at a time (``_kernel_net.h``).

Users' ``nn.Sequential`` are recognised and come here; what is not goes to torch. A record's gradient is computed by
the same operations wherever it stands in a batch; for secure noise it is rounded to the noise's lattice and added in
whole numbers, so sums are exact (docs/theorems/exact_sums.md). Dropout draws one mask a step, for all records.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dptune._typing import AnyArray, Array, Floats, Indices
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.regression import range_of
from dptune.training._compiled import kernel
from dptune.training._engine import wrong_outputs
from dptune.training._formula import Formula
from dptune.training._network import Layer, Shape, program
from dptune.training._network_pass import Pass
from dptune.training._prepared import targets_of
from dptune.training._shares import total_steps
from dptune.training.benchmark_data import Dataset
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import dp_hypo_cnn

__all__ = ["FusedModuleEngine", "NetworkEngine"]


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
        self._pass: Pass | None = None if shape is None else Pass(program(layers, shape), threads=threads)
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

    def _for(self, shape: Shape) -> Pass:
        """What computes on records of a shape."""
        found = self._pass
        if self._shape is None and (found is None or found.shape != shape):
            found = Pass(program(self._layers, shape), shape, threads=self._threads)
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
    def _bound(self) -> Pass:
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
