"""Torch models as safetensors: a state dict, and a description of how to build the module that it belongs to.

Sequences of known layers are described by their arguments and built again from the table below. Any other module needs
a factory, a function of the parameters that can be imported: the file names it, and whoever opens the file gives it.
Nothing that a file names is ever imported or called.
"""

from __future__ import annotations

import inspect
import json
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dptune._global_state import plain_torch
from dptune.errors import InvalidInput
from dptune.training.torch_models import InRange, TemperedSigmoid, in_range

__all__ = ["NotDescribed", "factory_name", "open_torch", "pack_torch"]

_KEY = "dptune"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SIMPLE = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d,
    nn.InstanceNorm2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout2d, nn.Identity,
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Softmax, nn.LogSoftmax,
    TemperedSigmoid, InRange,
)  # fmt: skip
_LAYERS: dict[str, type[nn.Module]] = {one.__name__: one for one in _SIMPLE}
_LEFT_OUT = {"device", "dtype", "inplace", "_weight", "_freeze", "padding_idx", "max_norm", "sparse"}


class NotDescribed(Exception):
    """A module that the table cannot build again; says which part of it."""


@plain_torch()
def pack_torch(model: Any, factory: Callable[[dict[str, Any]], Any] | None, params: Mapping[str, Any]) -> bytes:
    """A module, or a dictionary of tensors by name, as a safetensors file.

    Args:
        model: what was trained.
        factory: a function of the parameters that makes such a module, if the trainer has one.
        params: the parameters with which it was trained.

    Raises:
        NotDescribed: it is not a sequence of known layers, and there is no factory that can be imported.
    """
    if isinstance(model, dict):
        return _safetensors(model, {"kind": "tensors"})
    module = _unwrapped(model)
    try:
        layers = json.loads(json.dumps(_describe(module, "the module")))
        _check_same(module, _build(layers))
        described: dict[str, Any] = {"kind": "layers", "model": layers, "frozen": _frozen(module)}
    except NotDescribed as reason:
        name = None if factory is None else factory_name(factory)
        if name is None or factory is None:
            raise NotDescribed(f"{reason}, and its trainer names no factory that can be imported") from None
        ends = _range_of(module)
        _check_same(module, _within(_make(factory, dict(params)), ends))
        described = {"kind": "factory", "factory": name, "params": dict(params), "frozen": _frozen(module)}
        described |= {} if ends is None else {"range": list(ends)}
    return _safetensors(module.state_dict(), described)


def factory_name(factory: Callable[..., Any]) -> str | None:
    """``package.module:name`` of a function that any process can import; None for lambdas, scripts and closures."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is factory else None


@plain_torch()
def open_torch(content: bytes, factory: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The inverse of :func:`pack_torch`; raises some Exception for anything else, and imports nothing."""
    from safetensors.torch import load  # noqa: PLC0415 - comes with the extra 'torch'

    described, state = _description(content), load(content)
    if described["kind"] == "tensors":
        return state
    if described["kind"] == "layers":
        made = _build(described["model"])
    elif factory is None:
        raise InvalidInput(
            f"This model is made by {described['factory']!r:.200}, which is not imported because a file says so. "
            "Import it yourself and give it: open_model(factory=...)."
        )
    else:
        made = _within(_make(factory, described["params"]), described.get("range"))
    made.load_state_dict(state, strict=True, assign=True)
    frozen = set(described["frozen"])
    for name, values in made.named_parameters():
        values.requires_grad_(name not in frozen)
    return made.eval()


def _description(content: bytes) -> dict[str, Any]:
    """What the file says about itself, from its header."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    described: dict[str, Any] = json.loads(header["__metadata__"][_KEY])
    return described


def _safetensors(tensors: Mapping[str, Any], described: dict[str, Any]) -> bytes:
    from safetensors.torch import save  # noqa: PLC0415 - comes with the extra 'torch'

    # Copies: views would share memory, and nothing of where they were may be written.
    plain = {name: one.detach().cpu().contiguous().clone() for name, one in sorted(tensors.items())}
    return save(plain, metadata={_KEY: json.dumps(described, sort_keys=True)})


def _unwrapped(model: Any) -> nn.Module:
    """The module itself, without what Opacus puts around it for training."""
    if not isinstance(model, nn.Module):
        raise NotDescribed(type(model).__name__)
    inner = dict(model.named_children()).get("_module")
    return _unwrapped(inner) if inner is not None and type(model).__module__.startswith("opacus.") else model


def _range_of(module: nn.Module) -> tuple[float, float] | None:
    """The range of the numbers that a trained module was put into, which its factory does not know of."""
    last = module[-1] if type(module) is nn.Sequential and len(module) == 2 else None
    return (last.low, last.high) if type(last) is InRange else None


def _within(module: nn.Module, ends: Any) -> nn.Module:
    return module if ends is None else in_range(module, (float(ends[0]), float(ends[1])))


def _frozen(module: nn.Module) -> list[str]:
    return [name for name, values in module.named_parameters() if not values.requires_grad]


def _describe(module: nn.Module, where: str) -> Any:
    """The layers of a module by their arguments."""
    if _has_hooks(module):
        raise NotDescribed(f"{where} ({type(module).__name__}) has hooks")
    if type(module) is nn.Sequential:
        return {"Sequential": [[name, _describe(part, f"layer {name}")] for name, part in module.named_children()]}
    kind = type(module)
    if _LAYERS.get(kind.__name__) is not kind:
        raise NotDescribed(f"{where} is a {kind.__name__}, which is not among the layers that a file can describe")
    return {kind.__name__: _arguments(module, where)}


def _has_hooks(module: nn.Module) -> bool:
    """Hooks are code, which a file cannot hold; those of Opacus are for training alone."""
    hooks = [hook for kind in _HOOKS for hook in getattr(module, kind, {}).values()]
    return any(not str(getattr(getattr(one, "func", one), "__module__", "")).startswith("opacus.") for one in hooks)


def _arguments(module: nn.Module, where: str) -> dict[str, Any]:
    """What the layer was made with, read off its attributes of the same names."""
    found = {}
    for name in inspect.signature(type(module).__init__).parameters:
        if name in _LEFT_OUT or name == "self" or not hasattr(module, name):
            continue
        value = getattr(module, name)
        if name == "bias":
            value = value is not None and value is not False
        if not _is_json(value):
            raise NotDescribed(f"{where} ({type(module).__name__}) has an argument {name!r} that JSON cannot hold")
        found[name] = value
    return found


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_json(one) for one in value)
    return value is None or type(value) in (bool, int, float, str)


def _build(described: Any) -> nn.Module:
    """The module without its numbers: no memory is taken and nothing is drawn, whatever sizes a file claims."""
    with torch.device("meta"):
        return _built(described)


def _built(described: Any) -> nn.Module:
    ((kind, inner),) = described.items()
    if kind == "Sequential":
        made = nn.Sequential()
        for name, part in inner:
            made.add_module(str(name), _built(part))
        return made
    arguments = {name: _tuples(one) for name, one in inner.items()}
    if not all(_is_json(value) for value in arguments.values()) or _LEFT_OUT & set(arguments):
        raise NotDescribed(f"{kind!r:.40} has arguments that no file of dptune has")
    return _LAYERS[kind](**arguments)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def _make(factory: Callable[[dict[str, Any]], Any], params: dict[str, Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        made = factory(params)
    if not isinstance(made, nn.Module):
        raise NotDescribed(f"the factory made a {type(made).__name__}")
    return made


def _check_same(module: nn.Module, again: nn.Module) -> None:
    """What is built again must have the same parameters and buffers, and print the same layers."""
    ours, theirs = module.state_dict(), again.state_dict()
    shapes = [{name: tuple(one.shape) for name, one in state.items()} for state in (ours, theirs)]
    shared = len({id(p) for p in module.parameters()}) != len(list(module.named_parameters(remove_duplicate=False)))
    kept = {name for name, _ in module.named_buffers()} <= set(ours)
    if shapes[0] != shapes[1] or shared or not kept:
        raise NotDescribed("the module shares parameters, or has others than the one that would be built again")
    if str(module).replace(", inplace=True", "") != str(again).replace(", inplace=True", ""):
        raise NotDescribed("the module is not the one that would be built again")
