"""Engine B: clipped gradient sums of torch modules.

A ``Sequential`` of Linear, Conv2d, pooling, dropout and elementwise layers is computed by book-keeping (one forward,
one backward, no per-record gradients of dense layers); other modules by ``vmap(grad)``, and what that cannot trace one
record at a time. In every mode a record's gradient is a function of that record, the parameters and the step: random
layers draw once a step, the same for all records, and what a module changes in itself is put back. Which mode, and
whether the module is refused, is decided on public random rows (see :mod:`_public_check`); a record on which the module
raises contributes nothing. The class is longer than most: its methods share one module, whose state is put back between
any two of them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dptune._global_state import Globals, kept, plain_torch
from dptune._typing import Array, Floats, Indices
from dptune.data import flat_rows
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import _bookkeeping
from dptune.training._module_state import ModuleState, refuse_hooks
from dptune.training._prepared import targets_of
from dptune.training._public_check import MIXES, Unchanged, draws, odd_rows, refuse_layers, rows_for, steady
from dptune.training._shares import add_share, total_steps
from dptune.training._torch_gradients import (
    clip_and_add,
    first_line,
    gradient_alone,
    gradients_by_vmap,
    silence,
    single_records,
)
from dptune.training.benchmark_data import Dataset

__all__ = ["MODES", "TorchEngine"]


MODES = ("bookkeeping", "vmap", "alone")
_TOLERANCE = 1e-3


class TorchEngine:
    """Clipped sums for a module that maps records (rows of features, images) to class scores.

    ``fresh`` is for modules of descriptions: their layers are re-initialised for every run, and they see every record
    as a row. Otherwise each run starts from the weights the module came with, and records keep their shape. The
    caller's module is copied, never changed.
    """

    together = 1

    @plain_torch()
    def __init__(self, module: nn.Module, *, double: bool = False, mode: str = "auto", fresh: bool = False) -> None:
        refuse_layers(module)
        if mode not in {"auto", *MODES}:
            raise InvalidInput(f"'mode' must be 'auto' or one of {', '.join(MODES)}; got {mode!r}.")
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        self._original = copy.deepcopy(module).to(torch.float64 if double else torch.float32)  # sees no record
        self._module = copy.deepcopy(self._original)
        self._module.train()
        self._fresh = fresh
        self._names = [name for name, p in self._module.named_parameters() if p.requires_grad]
        self._trained = [p for p in self._module.parameters() if p.requires_grad]
        self.dimension = sum(p.numel() for p in self._trained)
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._trained])
        self._random = False
        start = 0
        for p in self._trained:  # the parameters become views of one vector
            p.data = self._flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        self._weights = self._flat.clone()
        self._state = ModuleState(self._module, self._trained)
        possible = _bookkeeping.layers_of(self._module) is not None
        if mode == "bookkeeping" and not possible:
            raise InvalidInput(
                "Book-keeping needs a Sequential of Linear, Conv2d, pooling, dropout and elementwise layers."
            )
        self._modes = [m for m in MODES if m == mode or (mode == "auto" and (possible or m != "bookkeeping"))]
        self.mode: str | None = None
        self._chosen: tuple[tuple[int, ...], int] | None = None
        self._data: Dataset | None = None
        self._x, self._y = torch.empty(0), torch.empty(0)

    @plain_torch()
    def start(self, key: Randomness) -> Floats:
        """Initial parameters as one flat vector."""
        if self._fresh:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_seed(key.child("weights").secret()))
                for layer in self._module.modules():
                    reset = getattr(layer, "reset_parameters", None)
                    if reset is not None:
                        reset()
        return np.array(self._flat.numpy())

    @plain_torch()
    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index; looks at their shape and number of classes alone."""
        data = data.flat if self._fresh else data
        if data is self._data:
            return
        if data.classes == 1 and self.dtype is not np.float64:
            raise InvalidInput(
                "Targets that are numbers need an engine in double precision. Build it with double=True."
            )
        shape = (data.shape, data.classes)
        if shape != self._chosen:
            with silence():
                self._choose(*shape)
            self._chosen = shape
        self._data = data
        with np.errstate(all="ignore"):  # a record that is too large for single precision will be dropped
            self._x = torch.from_numpy(np.ascontiguousarray(data.x, dtype=self.dtype))
        self._y = torch.from_numpy(targets_of(data))

    @property
    def layer_places(self) -> list[Indices]:
        """The places of the parameters of every module that has some itself."""
        owners = [name.rpartition(".")[0] for name in self._names]
        sizes = [p.numel() for p in self._trained]
        each = np.split(np.arange(self.dimension), np.cumsum(sizes)[:-1])
        return [
            np.concatenate([own for own, name in zip(each, owners, strict=True) if name == owner])
            for owner in dict.fromkeys(owners)
        ]

    @plain_torch()
    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for row, batch in enumerate(batches):
            if len(batch) == 0:
                out[row] = 0.0
                continue
            self._set(parameters[row])
            index = torch.from_numpy(batch)
            with silence():
                out[row] = self._total(self._x[index], self._y[index], float(clips[row])).numpy()

    @plain_torch()
    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of clipped gradients, rounded to ``lattices[s]``.

        Every record is computed alone. A lattice of zero asks for a sum that is not rounded. Always True: this engine
        can.
        """
        for row, (batch, lattice) in enumerate(zip(batches, lattices, strict=True)):
            one = slice(row, row + 1)
            if lattice == 0.0:
                self.clipped_sums(parameters[one], [batch], clips[one], out[one])
                continue
            self._set(parameters[row])
            out[row] = total_steps(batch, functools.partial(self._steps, float(clips[row]), lattice)) * lattice
        return True

    def _steps(self, clip: float, lattice: float, batch: Indices) -> Array:
        """The sum of the shares of these records in lattice steps."""
        steps, index = np.zeros(self.dimension), torch.from_numpy(batch)
        with silence():
            for gradient in self._each(self._x[index], self._y[index]):
                add_share(steps, gradient.numpy(), clip, lattice)
        return steps

    @plain_torch()
    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``, one row after the other: the last bits of torch's products depend on how many
        rows there are. A row on which the module raises is NaN."""
        self._set(parameters)
        with np.errstate(all="ignore"):  # a row that is too large for single precision
            rows = torch.from_numpy(np.ascontiguousarray(flat_rows(x) if self._fresh else x, dtype=self.dtype))
        self._module.eval()
        try:
            with torch.no_grad(), silence(), kept() as before:
                blank = self._outputs_of_a_blank(tuple(rows.shape[1:]))
                outputs = blank.new_full((len(rows), *blank.shape[1:]), float("nan"))
                for place in range(len(rows)):
                    self._restore(training=False)
                    before.restore()
                    with contextlib.suppress(Exception):  # one record decides over its own verdict alone
                        outputs[place] = self._module(rows[place : place + 1])[0]
        finally:
            self._restore()
        found: Floats = outputs.numpy()
        return found

    def _outputs_of_a_blank(self, shape: tuple[int, ...]) -> Tensor:
        try:
            outputs: Tensor = self._module(torch.zeros((1, *shape), dtype=self._flat.dtype))
        except Exception as error:
            kind = f"rows of {shape[0]} features" if len(shape) == 1 else f"records of shape {shape}"
            raise InvalidInput(
                f"The module cannot take {kind} ({first_line(error)}). Reshape them in 'forward'."
            ) from error
        return outputs

    @plain_torch()
    def release(self, parameters: Floats) -> nn.Module:
        """A copy of the module as it was given, with these parameters, ready to predict.

        Of the module that has seen records nothing is taken: its buffers and attributes might hold one.
        """
        self._set(parameters)
        made = copy.deepcopy(self._original).eval()
        own = dict(made.named_parameters())
        with torch.no_grad():
            for name, trained in zip(self._names, self._trained, strict=True):
                own[name].copy_(trained)
        return made

    def _set(self, parameters: Floats) -> None:
        self._weights.copy_(torch.from_numpy(np.ascontiguousarray(parameters, dtype=self.dtype)))
        self._restore()

    def _restore(self, *, training: bool = True) -> None:
        """Undo whatever the module did to itself."""
        self._state.restore(training=training)
        self._flat.copy_(self._weights)

    def _seed(self) -> int:
        """For random layers: a function of (run, step), by way of the current parameters."""
        return _seed(hashlib.blake2b(self._flat.numpy().tobytes()).digest())

    def _choose(self, shape: tuple[int, ...], classes: int) -> None:
        """Take the first mode that works, and refuse the module if it is wrong; on public rows."""
        refuse_hooks(self._module)
        self._check_outputs(shape, classes)
        x, y = rows_for(shape, classes, self._flat.dtype)
        odd, labels = odd_rows(shape, classes, self._flat.dtype)
        name = type(self._module).__name__
        alone = functools.partial(gradient_alone, self._module, self._trained)
        try:
            self._random = draws(self._module, x, odd)
            unchanged = Unchanged(self._module)
            gradients = [self._seeded(alone, one, own) for one, own in single_records(x, y)]
            again = [self._seeded(alone, one, own) for one, own in reversed(list(single_records(x, y)))]
            for one, own in single_records(odd, labels):
                with contextlib.suppress(Exception):  # rows that the module need not take
                    self._seeded(alone, one, own)
            steady(self._module, x, training=not self._random)
            unchanged.check()
        except InvalidInput:
            raise
        except Exception as error:  # such as torch's own batch_norm, on a single record
            raise InvalidInput(
                f"{name} cannot be trained on one record at a time, which clipping needs ({first_line(error)})."
            ) from error
        finally:
            self._restore()
        norms = torch.stack(gradients).norm(dim=1)
        if not float((torch.stack(again[::-1]) - torch.stack(gradients)).norm()) <= _TOLERANCE * float(norms.sum()):
            raise InvalidInput(MIXES.format(name))  # such as draws from a generator of its own
        clip = float(norms.median()) or 1.0  # some are clipped and some are not
        expected = clip_and_add(torch.stack(gradients), clip)
        self._take_mode(x, y, clip, expected, float(norms.clamp(max=clip).sum()))

    def _check_outputs(self, shape: tuple[int, ...], classes: int) -> None:
        outputs = self.logits(np.array(self._flat.numpy()), np.zeros((1, *shape)))
        if outputs.shape != (1, classes):
            wanted = "classes. Its last layer must return one score per class."
            raise InvalidInput(
                f"The module gives outputs of shape {tuple(outputs.shape[1:])} for "
                + ("a number. Its last layer must return one." if classes == 1 else f"{classes} {wanted}")
            )

    def _take_mode(self, x: Tensor, y: Tensor, clip: float, expected: Tensor, size: float) -> None:
        reasons = []
        # Where an output is its target but for rounding, the error's sign turns on last bits: no peer may decide those.
        for mode in ["alone"] if y.is_floating_point() else self._modes:
            self.mode = mode
            try:
                got = self._seeded(self._sum, x, y, clip)
            except Exception as error:  # such as what vmap cannot trace
                reasons.append(f"{mode}: {first_line(error)}")
                continue
            if float((got - expected).norm()) <= _TOLERANCE * size:
                return
            if not self._random:
                self.mode = None
                raise InvalidInput(MIXES.format(type(self._module).__name__))
            reasons.append(f"{mode}: draws other masks than for single records")
        self.mode = None
        raise InvalidInput(f"No way of computing gradients of single records fits this module ({'; '.join(reasons)}).")

    def _seeded(self, compute: Callable[..., Tensor], *given: Any) -> Tensor:
        if not self._random:
            return compute(*given)
        with kept():
            Globals.seeded(self._seed())
            return compute(*given)

    def _total(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        """The clipped sum; a batch that holds a record on which the module raises is computed one by one."""
        if self.mode != "alone":
            with kept(), contextlib.suppress(Exception):
                return self._seeded(self._sum, x, y, clip)
        return self._one_by_one(x, y, clip)

    def _sum(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        if self.mode == "bookkeeping":
            return _bookkeeping.clipped_sum(self._module, x, y, clip)
        if self.mode == "vmap":
            return clip_and_add(gradients_by_vmap(self._module, self._names, self._trained, x, y), clip)
        return self._one_by_one(x, y, clip)

    def _one_by_one(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        total = torch.zeros_like(self._flat)
        for gradient in self._each(x, y):
            total += clip_and_add(gradient[None], clip)
        return total

    def _each(self, x: Tensor, y: Tensor) -> Iterator[Tensor]:
        """Gradients of single records, all from the same seed and state; nothing for one on which the module raises.

        Always seeded: only here may a record decide whether something is drawn.
        """
        with kept():
            start = Globals.seeded(self._seed())
            room = x.new_empty((1, *x.shape[1:]))  # some libraries round by where an array lies
            for one, label in single_records(x, y) if len(x) else ():  # torch splits nothing into one part
                self._restore()
                start.restore()
                room.copy_(one)
                try:
                    gradient = gradient_alone(self._module, self._trained, room, label)
                except Exception:
                    continue
                yield gradient
        self._restore()


def _seed(secret: bytes) -> int:
    """A seed for torch: 63 bits of a secret."""
    return int.from_bytes(secret[:8], "little") >> 1
