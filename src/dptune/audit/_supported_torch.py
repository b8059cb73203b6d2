"""The layers of torch as modules to audit: every class of ``torch.nn`` that maps a batch to as many rows.

Which layers there are is asked of torch itself; only arguments that a class demands are listed here. Whether the
engine trains a module is the engine's to say: what it refuses on public rows is left out, what it takes must hold.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dptune.audit._supported_custom import CUSTOM

__all__ = ["FEATURES", "FORMS", "layers", "module", "places", "random_layers"]

FEATURES = 32
_SHAPES = {"flat": (FEATURES,), "sequence": (4, 8), "image": (2, 4, 4), "volume": (2, 2, 2, 4)}

Shape = tuple[int, ...]
# Arguments of classes that demand some, or whose defaults leave something out, from the shape of one record.
_ARGUMENTS: dict[str, Callable[[Shape], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "ChannelShuffle": lambda s: ((2,), {}),
    "CircularPad1d": lambda s: ((1,), {}),
    "CircularPad2d": lambda s: ((1,), {}),
    "GroupNorm": lambda s: ((2, s[0]), {}),
    "GRU": lambda s: ((s[-1], 4), {"num_layers": 2, "batch_first": True, "dropout": 0.5}),
    "LSTM": lambda s: ((s[-1], 4), {"num_layers": 2, "batch_first": True, "dropout": 0.5}),
    "RNN": lambda s: ((s[-1], 4), {"num_layers": 2, "batch_first": True, "dropout": 0.5}),
    "LayerNorm": lambda s: ((s[-1],), {}),
    "RMSNorm": lambda s: ((s[-1],), {}),
    "Linear": lambda s: ((s[-1], 6), {}),
    "LocalResponseNorm": lambda s: ((2,), {}),
    "MultiheadAttention": lambda s: ((s[-1], 2), {"dropout": 0.5, "batch_first": True}),
    "PixelShuffle": lambda s: ((1,), {}),
    "PixelUnshuffle": lambda s: ((2,), {}),
    "Softmax": lambda s: ((1,), {}),
    "Softmin": lambda s: ((1,), {}),
    "LogSoftmax": lambda s: ((1,), {}),
    "Threshold": lambda s: ((0.1, 0.0), {}),
    "TransformerEncoderLayer": lambda s: ((s[-1], 2, 8), {"batch_first": True, "dropout": 0.5}),
    "Unflatten": lambda s: ((1, (s[0], 1)), {}),
    "Unfold": lambda s: ((2,), {}),
    "Upsample": lambda s: ((), {"scale_factor": 2}),
    "UpsamplingNearest2d": lambda s: ((), {"scale_factor": 2}),
    "UpsamplingBilinear2d": lambda s: ((), {"scale_factor": 2}),
    "FractionalMaxPool2d": lambda s: ((2,), {"output_size": 3}),
    "FractionalMaxPool3d": lambda s: ((2,), {"output_size": 1}),
    **{f"Conv{d}d": lambda s: ((s[0], 3, 2), {"padding": 1}) for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d": lambda s: ((s[0], 3, 2), {}) for d in (1, 2, 3)},
    **{f"InstanceNorm{d}d": lambda s: ((s[0],), {"affine": True}) for d in (1, 2, 3)},
    **{f"{kind}Pool{d}d": lambda s: ((2,), {}) for kind in ("Max", "Avg") for d in (1, 2, 3)},
    **{f"LPPool{d}d": lambda s: ((2, 2), {}) for d in (1, 2, 3)},
    **{f"Adaptive{kind}Pool{d}d": lambda s: ((1,), {}) for kind in ("Max", "Avg") for d in (1, 2, 3)},
    **{f"{kind}Pad{d}d": lambda s: ((1,), {}) for kind in ("Reflection", "Replication", "Zero") for d in (1, 2, 3)},
}


class _First(nn.Module):
    """A layer that answers with a tuple, or attends to its own input, as one that maps a tensor to a tensor."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        found: Tensor = out[0] if isinstance(out, tuple) else out
        return found


class _Custom(nn.Module):
    """The same layers behind a forward of their own, which no engine can look into."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found


FORMS: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    "sequential": lambda body: body,
    "nested": lambda body: nn.Sequential(body[:2], body[2:]),
    "custom": _Custom,
}


def _layer(name: str, shape: Shape) -> nn.Module:
    if name in CUSTOM:
        return CUSTOM[name](shape)
    positional, named = _ARGUMENTS[name](shape) if name in _ARGUMENTS else ((), {})
    kind: Any = getattr(nn, name)
    made: nn.Module = kind(*positional, **named)
    return _First(made) if isinstance(made, nn.RNNBase | nn.MultiheadAttention) else made


def _body(name: str, place: str, classes: int) -> nn.Sequential:
    """Dense, the layer in its place, dense."""
    shape = _SHAPES[place]
    front: list[nn.Module] = [nn.Linear(FEATURES, FEATURES)]
    if len(shape) > 1:
        front.append(nn.Unflatten(1, shape))
    first = nn.Sequential(*front, _layer(name, shape), nn.Flatten())
    with torch.no_grad():
        out = first(torch.zeros(3, FEATURES))
    if out.shape[0] != 3 or not out.is_floating_point():
        raise ValueError("Does not keep rows apart.")
    return nn.Sequential(*first, nn.Linear(math.prod(out.shape[1:]), classes))


@functools.cache
def places(name: str) -> tuple[str, ...]:
    """Where a layer can stand: between dense layers, or over sequences, images or volumes."""
    found = []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in _SHAPES:
            try:
                _body(name, place, 2)
            except Exception:  # whatever says that it does not fit
                continue
            found.append(place)
    return tuple(found)


@functools.cache
def layers() -> tuple[str, ...]:
    """Names of all layers that can stand somewhere."""
    known = [name for name, kind in inspect.getmembers(nn, inspect.isclass) if issubclass(kind, nn.Module)]
    return tuple(name for name in [*known, *CUSTOM] if not name.startswith("Lazy") and places(name))


@functools.cache
def random_layers() -> tuple[str, ...]:
    """Those whose outputs, while they train, follow torch's generator."""
    return tuple(name for name in layers() if any(_draws(name, place) for place in places(name)))


def _draws(name: str, place: str) -> bool:
    body = module(name, place, "sequential", 2, 0)
    rows = torch.linspace(-1.0, 1.0, 3 * FEATURES).reshape(3, FEATURES)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            seen.append(copy.deepcopy(body)(rows))
    return not torch.equal(*seen)


def module(name: str, place: str, form: str, classes: int, seed: int) -> nn.Module:
    """A module with the layer in it; its weights are a function of the seed."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return FORMS[form](_body(name, place, classes))
