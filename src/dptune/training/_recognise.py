"""Torch modules as descriptions of networks: which ``nn.Sequential`` the compiled engine can train.

Every attribute that changes what a layer computes is looked at. What is not understood to the last attribute is not
described, with the reason; such a module is left to torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from dptune._typing import Floats
from dptune.randomness import Randomness
from dptune.training._bookkeeping import TemperedSigmoid
from dptune.training._module_state import refuse_hooks
from dptune.training._network import Convolution, Dense, Drop, Layer, Normal, Pair, Pointwise, Pool, Reshape, Shape

__all__ = ["ModuleSource", "NotDescribed", "describe", "record_shape"]

_SELU = (1.6732632423543772, 1.0507009873554805)


class NotDescribed(Exception):
    """The module is more than a description holds; the text says why."""


def describe(module: nn.Module) -> tuple[Layer, ...]:
    """The layers of a module.

    Args:
        module: Any module.

    Returns:
        Its description.

    Raises:
        NotDescribed: With the reason, if there is none.
        InvalidInput: If it has hooks, which may mix records.
    """
    refuse_hooks(module)
    layers = _flat(module)
    parameters = [p for layer in layers for p in layer.parameters(recurse=False)]
    if len({id(layer) for layer in layers if list(layer.parameters())}) != sum(
        1 for x in layers if list(x.parameters())
    ):
        raise NotDescribed("a layer with weights is used twice")
    if len({id(p) for p in parameters}) != len(parameters):
        raise NotDescribed("two layers share their weights")
    if not all(p.requires_grad for p in parameters):
        raise NotDescribed("some weights are frozen")
    if [id(p) for p in module.parameters()] != [id(p) for p in parameters]:
        raise NotDescribed("there are parameters outside of its layers")
    return tuple(one for layer in layers for one in _described(layer))


def record_shape(layers: tuple[Layer, ...]) -> Shape | None:
    """The shape of the records that a description takes, where its first layers say it."""
    for layer in layers:
        if isinstance(layer, Dense):
            return (layer.inputs,)
        if isinstance(layer, Normal) and layer.shape is not None:
            return layer.shape
        if isinstance(layer, Reshape) and layer.shape is not None:
            return (math.prod(layer.shape),)
        if not isinstance(layer, Pointwise) and not (isinstance(layer, Drop) and not layer.channels):
            return None
    return None


class ModuleSource:
    """Where the first weights come from and trained ones go: a module that sees no record.

    ``fresh`` draws new weights for every run; otherwise each begins with those the module came with.
    """

    def __init__(self, module: nn.Module, *, fresh: bool = False) -> None:
        self._original, self._fresh = copy.deepcopy(module).to(torch.float32), fresh

    def start(self, key: Randomness) -> Floats:
        """First parameters as one vector, in the order of ``parameters()``."""
        module = self._original
        if self._fresh:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int.from_bytes(key.child("weights").secret()[:8], "little") >> 1)
                for layer in module.modules():
                    if isinstance(layer, nn.Linear | nn.Conv2d | nn.GroupNorm | nn.LayerNorm):
                        layer.reset_parameters()
        return np.array(torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy())

    def release(self, parameters: Floats, dtype: type[np.floating[Any]]) -> nn.Module:
        """A copy of the module with these parameters, ready to predict."""
        made = copy.deepcopy(self._original).eval().to(torch.float64 if dtype is np.float64 else torch.float32)
        flat = torch.from_numpy(np.array(parameters, dtype=dtype))
        start = 0
        with torch.no_grad():
            for own in made.parameters():
                own.copy_(flat[start : start + own.numel()].view_as(own))
                start += own.numel()
        return made


def _flat(module: nn.Module) -> list[nn.Module]:
    """The layers of a sequence and of those inside of it, in order."""
    if type(module) is nn.Sequential:
        _plain(module, set(), children=True)
        return [layer for child in module for layer in _flat(child)]
    return [module]


def _plain(layer: nn.Module, known: set[str], *, children: bool = False) -> None:
    """Refuse a layer that somebody changed: other parameters than its own, buffers, parts, a forward of its own."""
    own = {name for name, p in layer._parameters.items() if p is not None}
    if own - known or layer._buffers or (layer._modules and not children) or "forward" in vars(layer):
        raise NotDescribed(f"{type(layer).__name__} was changed")


def _described(layer: nn.Module) -> tuple[Layer, ...]:
    reader = _READERS.get(type(layer))
    if reader is None:
        raise NotDescribed(f"{type(layer).__name__} is not among the layers it knows")
    _plain(layer, {"weight", "bias"})
    return reader(layer)


def _pair(value: Any) -> Pair:
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or not all(isinstance(one, int) and one >= 0 for one in both):
        raise NotDescribed(f"{value!r} is not a pair of whole numbers")
    return both[0], both[1]


def _dense(layer: Any) -> tuple[Layer, ...]:
    outputs, inputs = layer.weight.shape
    return (Dense(inputs, outputs, layer.bias is not None),)


def _convolution(layer: Any) -> tuple[Layer, ...]:
    if layer.groups != 1 or _pair(layer.dilation) != (1, 1) or layer.padding_mode != "zeros":
        raise NotDescribed("Conv2d has groups, a dilation or a padding mode")
    outputs, inputs, *kernel = layer.weight.shape
    size, stride = _pair(kernel), _pair(layer.stride)
    if layer.padding == "same":
        if stride != (1, 1) or size[0] % 2 == 0 or size[1] % 2 == 0:
            raise NotDescribed("Conv2d has a padding of 'same' that differs from side to side")
        padding = ((size[0] - 1) // 2, (size[1] - 1) // 2)
    else:
        padding = (0, 0) if layer.padding == "valid" else _pair(layer.padding)
    return (Convolution(inputs, outputs, size, stride, padding, layer.bias is not None),)


def _max_pool(layer: Any) -> tuple[Layer, ...]:
    if layer.ceil_mode or layer.return_indices or _pair(layer.dilation) != (1, 1):
        raise NotDescribed("MaxPool2d has ceil_mode, return_indices or a dilation")
    return (Pool("max", _pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding)),)


def _average_pool(layer: Any) -> tuple[Layer, ...]:
    if layer.ceil_mode or layer.divisor_override is not None:
        raise NotDescribed("AvgPool2d has ceil_mode or divisor_override")
    windows = _pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding)
    return (Pool("average", *windows, margin=bool(layer.count_include_pad)),)


def _adaptive(layer: Any) -> tuple[Layer, ...]:
    given = layer.output_size
    sides = (given, given) if isinstance(given, int) else tuple(given)
    if len(sides) != 2 or not all(side is None or (isinstance(side, int) and side > 0) for side in sides):
        raise NotDescribed(f"AdaptiveAvgPool2d has the sides {given!r}")
    return (Pool("average", None, sides=(sides[0], sides[1])),)


def _group_norm(layer: Any) -> tuple[Layer, ...]:
    return (Normal(layer.num_groups, float(layer.eps), layer.weight is not None, layer.bias is not None),)


def _layer_norm(layer: Any) -> tuple[Layer, ...]:
    shape = tuple(int(side) for side in layer.normalized_shape)
    return (Normal(1, float(layer.eps), layer.weight is not None, layer.bias is not None, shape),)


def _dropout(layer: Any) -> tuple[Layer, ...]:
    rate = float(layer.p)
    if not 0.0 <= rate <= 1.0:
        raise NotDescribed(f"the rate of dropout is {rate}")
    return (Drop(rate, type(layer) is nn.Dropout2d),)


def _flatten(layer: Any) -> tuple[Layer, ...]:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise NotDescribed("Flatten is not over all values of a record")
    return (Reshape(),)


def _unflatten(layer: Any) -> tuple[Layer, ...]:
    sizes = layer.unflattened_size
    if layer.dim not in {1, -1} or not all(isinstance(side, int) and side > 0 for side in sizes):
        raise NotDescribed("Unflatten is not over all values of a record, by plain sizes")
    return (Reshape(tuple(sizes)),)


def _gelu(layer: Any) -> tuple[Layer, ...]:
    if layer.approximate not in {"none", "tanh"}:
        raise NotDescribed(f"GELU is approximated by {layer.approximate!r}")
    return (Pointwise("gelu" if layer.approximate == "none" else "gelu_tanh"),)


def _tempered(layer: Any) -> tuple[Layer, ...]:
    numbers = (float(layer.scale), float(layer.temperature), float(layer.offset))
    if not all(map(math.isfinite, numbers)) or numbers[0] == 0.0:
        raise NotDescribed(f"the sigmoid's constants are {numbers}")
    return (Pointwise("sigmoid", numbers),)


def _elu(layer: Any) -> tuple[Layer, ...]:
    alpha = float(layer.alpha)
    if not 0.0 < alpha < math.inf:
        raise NotDescribed(f"ELU has an alpha of {alpha}")
    return (Pointwise("elu", (alpha, 1.0)),)


def _always(*layers: Layer) -> Callable[[Any], tuple[Layer, ...]]:
    return lambda _: layers


_READERS: dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]] = {
    nn.Linear: _dense,
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
    nn.Flatten: _flatten,
    nn.Unflatten: _unflatten,
    nn.GELU: _gelu,
    nn.ELU: _elu,
    TemperedSigmoid: _tempered,
    nn.SELU: _always(Pointwise("elu", _SELU)),
    nn.ReLU: _always(Pointwise("relu")),
    nn.Tanh: _always(Pointwise("tanh")),
    nn.Sigmoid: _always(Pointwise("sigmoid", (1.0, 1.0, 0.0))),
    nn.SiLU: _always(Pointwise("silu")),
    nn.Identity: _always(),
}
