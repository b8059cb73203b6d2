"""Engine B: clipped gradient sums of torch modules.

A ``Sequential`` of Linear, Conv2d, pooling and elementwise layers is computed by book-keeping (one forward,
one backward, no per-record gradients of dense layers); other modules by ``vmap(grad)``, and what that cannot
trace by Opacus. On the first records the engine compares its sum with gradients taken one record at a time
and refuses the module on a mismatch: a wrong norm would be a wrong privacy statement.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from dptune.errors import InvalidInput
from dptune.training import _bookkeeping
from dptune.training._shares import add_share, total_steps
from dptune.training.datasets import Dataset
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, Mlp
from dptune.training.noise import RunKey

__all__ = ["TemperedSigmoid", "TorchEngine", "build"]

Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

MODES = ("bookkeeping", "vmap", "opacus")
_CHECKED_RECORDS = 8
_TOLERANCE = 1e-3
_PREDICT_ROWS = 2048
_MIXES = (
    "{} gives other results for a batch than for its records one at a time: some layer mixes records or "
    "changes between calls, so clipping would bound nothing. Such a module cannot be trained privately."
)


class TemperedSigmoid(nn.Module):
    """``scale * sigmoid(temperature * x) - offset``."""

    def __init__(self, scale: float, temperature: float, offset: float) -> None:
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.temperature * x) - self.offset


def _nonlinear(activation: Activation) -> nn.Module:
    if activation.kind == "relu":
        return nn.ReLU()
    if activation.kind == "tanh":
        return nn.Tanh()
    return TemperedSigmoid(activation.scale, activation.temperature, activation.offset)


def build(model: Mlp | Cnn) -> nn.Sequential:
    """The torch module of a description; it takes flat rows."""
    layers: list[nn.Module] = []
    if isinstance(model, Cnn):
        layers.append(nn.Unflatten(1, model.image))
        channels = model.image[0]
        for layer in model.layers:
            if isinstance(layer, Conv):
                layers.append(nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride, layer.padding))
                layers.append(_nonlinear(model.nonlinearity))
                channels = layer.channels
            elif isinstance(layer, GlobalMean):
                layers.append(nn.AdaptiveAvgPool2d(1))
            else:
                layers.append(nn.MaxPool2d(layer.size, layer.stride))
        layers.append(nn.Flatten())
        widths = (model.flat, *model.dense)
    else:
        widths = (model.features, *model.hidden)
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), _nonlinear(model.nonlinearity)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], model.classes))


class TorchEngine:
    """Clipped sums for a module that maps rows of features to class scores.

    ``fresh`` re-initialises the layers for every run (descriptions); otherwise each run starts from the
    weights the module came with. The caller's module is copied, never changed.
    """

    together = 1

    def __init__(self, module: nn.Module, *, double: bool = False, mode: str = "auto", fresh: bool = False) -> None:
        _refuse(module)
        if mode not in {"auto", *MODES}:
            raise InvalidInput(f"'mode' must be 'auto' or one of {', '.join(MODES)}; got {mode!r}.")
        self.dtype: type[np.floating[Any]] = np.float64 if double else np.float32
        self._module = copy.deepcopy(module).to(torch.float64 if double else torch.float32)
        self._module.train()
        self._fresh = fresh
        self._names = [name for name, p in self._module.named_parameters() if p.requires_grad]
        self._trained = [p for p in self._module.parameters() if p.requires_grad]
        self.dimension = sum(p.numel() for p in self._trained)
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._trained])
        self._random = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self._module.modules())
        start = 0
        for p in self._trained:  # the parameters become views of one vector
            p.data = self._flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        possible = _bookkeeping.layers_of(self._module) is not None
        if mode == "bookkeeping" and not possible:
            raise InvalidInput("book-keeping needs a Sequential of Linear, Conv2d, pooling and elementwise layers.")
        self._modes = [m for m in MODES if m == mode or (mode == "auto" and (possible or m != "bookkeeping"))]
        self.mode: str | None = None
        self._sampled: Any = None
        self._data: Dataset | None = None
        self._x, self._y = torch.empty(0), torch.empty(0)

    def start(self, key: RunKey) -> Floats:
        """Initial parameters as one flat vector."""
        if self._fresh:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_seed(key.child("weights").secret))
                for layer in self._module.modules():
                    reset = getattr(layer, "reset_parameters", None)
                    if reset is not None:
                        reset()
        return np.array(self._flat.numpy())

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""
        if data is not self._data:
            self._data = data
            with np.errstate(over="ignore"):  # a record that is too large for single precision will be dropped
                self._x = torch.from_numpy(np.ascontiguousarray(data.x, dtype=self.dtype))
            self._y = torch.from_numpy(data.y)
            outputs = self.logits(np.array(self._flat.numpy()), np.zeros((1, data.x.shape[1])))
            if outputs.shape != (1, data.classes):
                raise InvalidInput(
                    f"the module gives outputs of shape {tuple(outputs.shape[1:])} for {data.classes} "
                    "classes. Its last layer must return one score per class."
                )

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""
        for row, batch in enumerate(batches):
            if len(batch) == 0:
                out[row] = 0.0
                continue
            self._flat.copy_(torch.from_numpy(np.ascontiguousarray(parameters[row])))
            index = torch.from_numpy(batch)
            x, y = self._x[index], self._y[index]
            if self.mode is None:
                self._choose(x[:_CHECKED_RECORDS], y[:_CHECKED_RECORDS], float(clips[row]))
            out[row] = self._seeded(self._sum, x, y, float(clips[row])).numpy()

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """The same with every record computed alone, rounded to multiples of ``lattices[s]`` (zero for a sum that is
        not rounded) and summed exactly."""
        for row, (batch, lattice) in enumerate(zip(batches, lattices, strict=True)):
            one = slice(row, row + 1)
            if self.mode is None or lattice == 0.0:  # the first call also compares with gradients of single records
                self.clipped_sums(parameters[one], [batch], clips[one], out[one])
            if lattice == 0.0:
                continue
            self._flat.copy_(torch.from_numpy(np.ascontiguousarray(parameters[row])))
            out[row] = total_steps(batch, functools.partial(self._steps, float(clips[row]), lattice)) * lattice
        return True

    def _steps(self, clip: float, lattice: float, batch: Indices) -> NDArray[np.float64]:
        """The sum of the shares of these records in lattice steps."""
        steps = np.zeros(self.dimension)
        for place in batch.tolist():
            gradient = self._seeded(self._alone, self._x[place : place + 1], self._y[place : place + 1])
            add_share(steps, gradient.numpy(), clip, lattice)
        return steps

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        self._flat.copy_(torch.from_numpy(np.ascontiguousarray(parameters, dtype=self.dtype)))
        rows = torch.from_numpy(np.ascontiguousarray(x, dtype=self.dtype))
        self._module.eval()
        with torch.no_grad():
            try:
                parts = [self._module(part) for part in torch.split(rows, _PREDICT_ROWS)]
            except (RuntimeError, TypeError, ValueError) as error:
                raise InvalidInput(
                    f"the module cannot take rows of {rows.shape[1]} features: {str(error).splitlines()[0]}"
                ) from error
        self._module.train()
        outputs: Floats = torch.cat(parts).numpy()
        return outputs

    def release(self, parameters: Floats) -> nn.Module:
        """A copy of the module with the given parameters, ready to predict."""
        self._flat.copy_(torch.from_numpy(np.ascontiguousarray(parameters, dtype=self.dtype)))
        return copy.deepcopy(self._module).eval()

    def _seeded(self, compute: Callable[..., Tensor], *given: Any) -> Tensor:
        """Dropout draws from a seed that is a function of (run, step): the current parameters."""
        if not self._random:
            return compute(*given)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_seed(hashlib.blake2b(self._flat.numpy().tobytes()).digest()))
            return compute(*given)

    def _choose(self, x: Tensor, y: Tensor, clip: float) -> None:
        """Take the first mode that works, and refuse if it is wrong."""
        training = not self._random  # dropout would draw other masks for single records
        self._module.train(training)
        try:
            expected = self._one_by_one(x, y, clip)
            with torch.no_grad():
                alone = torch.cat([self._module(one) for one in torch.split(x, 1)])
                same = torch.allclose(self._module(x), alone, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        except (RuntimeError, TypeError, ValueError) as error:  # such as torch's own batch_norm, on a single record
            raise InvalidInput(
                f"{type(self._module).__name__} cannot be trained on one record at a time, which clipping needs: "
                f"{str(error).splitlines()[0]}"
            ) from error
        if not same:
            raise InvalidInput(_MIXES.format(type(self._module).__name__))
        reasons = []
        for mode in self._modes:
            self.mode = mode
            try:
                got = self._sum(x, y, clip)
            except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
                reasons.append(f"{mode}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
                self.mode = None
                continue
            distance = float((got - expected).norm())
            if not distance <= _TOLERANCE * max(float(expected.norm()), 1e-6 * clip):
                self.mode = None
                raise InvalidInput(_MIXES.format(type(self._module).__name__))
            self._module.train()
            return
        raise InvalidInput("no per-record gradients for this module: " + "; ".join(reasons))

    def _sum(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        if self.mode == "bookkeeping":
            return _bookkeeping.clipped_sum(self._module, x, y, clip)
        gradients = self._vmap(x, y) if self.mode == "vmap" else self._opacus(x, y)
        return clip_and_add(gradients, clip)

    def _vmap(self, x: Tensor, y: Tensor) -> Tensor:
        trained = {n: p.detach() for n, p in zip(self._names, self._trained, strict=True)}
        rest = {n: p.detach() for n, p in self._module.named_parameters() if n not in trained}
        rest |= dict(self._module.named_buffers())

        def loss(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(self._module, {**weights, **rest}, (one.unsqueeze(0),))
            return cross_entropy(logits, label.unsqueeze(0))

        every = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(trained, x, y)
        return torch.cat([every[name].reshape(len(x), -1) for name in self._names], dim=1)

    def _opacus(self, x: Tensor, y: Tensor) -> Tensor:
        if self._sampled is None:
            opacus = importlib.import_module("opacus.grad_sample")
            self._sampled = opacus.GradSampleModule(self._module, loss_reduction="sum")
        self._sampled.zero_grad()
        for p in self._trained:
            p.grad_sample = None  # type: ignore[attr-defined] # Opacus adds this attribute
        cross_entropy(self._sampled(x), y, reduction="sum").backward()  # type: ignore[no-untyped-call]
        parts = [p.grad_sample.reshape(len(x), -1) for p in self._trained]  # type: ignore[attr-defined]
        self._sampled.zero_grad()
        return torch.cat(parts, dim=1)

    def _one_by_one(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        total = torch.zeros_like(self._flat)
        for one, label in zip(torch.split(x, 1), torch.split(y, 1), strict=True):
            total += clip_and_add(self._alone(one, label)[None], clip)
        return total

    def _alone(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of one record."""
        parts = torch.autograd.grad(cross_entropy(self._module(x), y), self._trained, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for p, g in zip(self._trained, parts, strict=True)]
        return torch.cat([g.reshape(-1) for g in filled])


def clip_and_add(gradients: Tensor, clip: float) -> Tensor:
    """Sum of the rows, each scaled down to norm ``clip``; rows that overflow contribute zero."""
    norm = gradients.norm(dim=1)
    fine = torch.isfinite(norm)
    if not bool(fine.all()):
        gradients, norm = gradients[fine], norm[fine]
    total: Tensor = (clip / norm.clamp(min=clip)) @ gradients
    return total


def _seed(secret: bytes) -> int:
    return int.from_bytes(secret[:8], "little") >> 1


def _refuse(module: nn.Module) -> None:
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"expected a model description or a torch module; got {type(module).__name__}.")
    for name, layer in module.named_modules():
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        tracking = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        if batch or tracking:
            raise InvalidInput(
                f"layer '{name}' is {type(layer).__name__}: its output for one record depends on the others "
                "in the batch, so clipping one record's gradient would not bound its influence. "
                "Use GroupNorm or LayerNorm."
            )
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInput("the module has no trainable parameters.")
