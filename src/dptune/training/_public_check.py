"""What a torch module must be before it is shown a record, found out on public random rows.

Whether a module is refused must not depend on private records, so none is looked at. A module is refused if it mixes
records, keeps something from call to call, or draws from a generator that cannot be set back for every record: the
sum's sensitivity would then exceed the clip norm.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dptune._global_state import kept
from dptune.errors import InvalidInput
from dptune.training._module_state import refuse_hooks

__all__ = ["MIXES", "Unchanged", "draws", "odd_rows", "refuse_layers", "rows_for", "steady"]

MIXES = (
    "{} gives other results for a batch than for its records one at a time: some layer mixes records or "
    "changes between calls, so clipping would bound nothing. Such a module cannot be trained privately."
)
_KEEPS = (
    "{} changes {!r} when it is called, so what it computes for one record depends on the records before it. "
    "Compute it from the record and the parameters alone."
)
_OTHER_GENERATOR = (
    "{} draws from a generator of {}, which cannot be set back for every record: a record's gradient would depend on "
    "the records before it. Draw with torch."
)
_ROWS = 8
_DEPTH = 6
_SIZES = (0.0, 1e-6, 1.0, 300.0, 1e6)
_TOLERANCE = 1e-3


def refuse_layers(module: nn.Module) -> None:
    """Refuse what is not a module, has a hook, a layer that looks at the whole batch, or nothing to train."""
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"A model must be a description (Mlp, Cnn) or a torch module; got {type(module).__name__}.")
    refuse_hooks(module)
    for name, layer in module.named_modules():
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        tracking = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        if batch or tracking:
            raise InvalidInput(
                f"Layer '{name}' is {type(layer).__name__}: its output for one record depends on the others "
                "in the batch, so clipping one record's gradient would not bound its influence. "
                "Use GroupNorm or LayerNorm."
            )
    for name, one in (*module.named_parameters(), *module.named_buffers()):
        if one.device.type != "cpu":
            raise InvalidInput(
                f"'{name}' of the module is on the device {one.device}, not in this machine's memory, where dptune "
                "trains. Make the module on the CPU: module.to('cpu')."
            )
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInput("The module has no trainable parameters. Set requires_grad on those to train.")


def rows_for(shape: tuple[int, ...], classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Random records in [0, 1), which are valid indices, too, and random labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((_ROWS, *shape), generator=generator, dtype=dtype)
    if classes == 1:  # numbers, as shares of their range
        return x, torch.rand((_ROWS,), generator=generator, dtype=dtype)
    y = torch.randint(classes, (_ROWS,), generator=generator)
    y[0], y[-1] = 0, classes - 1
    return x, y


def odd_rows(shape: tuple[int, ...], classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Records of both signs, tiny and large, with every label: a module may raise on them, but keep nothing."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([size for size in _SIZES for _ in range(3)], dtype=dtype)
    x = torch.randn((len(sizes), *shape), generator=generator, dtype=dtype)
    x[1::3], x[2::3] = x[1::3].abs(), -x[2::3].abs()  # mixed signs, all positive, all negative
    x = (x * sizes.view(-1, *[1] * len(shape))).repeat(-(-classes // len(sizes)), *[1] * len(shape))
    return x, torch.linspace(0.0, 1.0, len(x), dtype=dtype) if classes == 1 else torch.arange(len(x)) % classes


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types here
    """Notes whether any operation draws random numbers."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws(module: nn.Module, x: Tensor, odd: Tensor) -> bool:
    """Whether a training module draws from torch's generator; refuses one that draws from another or keeps state.

    It must take the rows ``x``, and may raise on ``odd`` ones.
    """
    watch = _Watch()  # type: ignore[no-untyped-call] # as above
    with kept(), torch.no_grad():
        module(x[:1])  # what is only made by the first call may stay
        unchanged, states = Unchanged(module), _generators()
        with watch:
            for one in torch.split(x[1:], 1):
                module(one)
            for one in torch.split(odd, 1):
                with contextlib.suppress(Exception):
                    module(one)
        drawn = _generators()
    for library, old, new in zip(("Python", "numpy"), states, drawn, strict=True):
        if old != new:
            raise InvalidInput(_OTHER_GENERATOR.format(type(module).__name__, library))
    unchanged.check()
    return watch.seen


class Unchanged:
    """What a module holds now, to be compared with what it holds later."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._before = module, _attributes(module)

    def check(self) -> None:
        """Refuse the module if an attribute, a buffer or a parameter has changed."""
        after = _attributes(self._module)
        for name in sorted(self._before.keys() | after.keys()):
            if self._before.get(name) != after.get(name):
                raise InvalidInput(_KEEPS.format(type(self._module).__name__, name))


def steady(module: nn.Module, x: Tensor, *, training: bool) -> None:
    """Refuse a module whose outputs for a batch are not those for its records."""
    module.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        alone = torch.cat([module(one) for one in torch.split(x, 1)])
        same = torch.allclose(module(x), alone, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
    if not same:
        raise InvalidInput(MIXES.format(type(module).__name__))


def _generators() -> Sequence[str]:
    return repr(random.getstate()), repr([np.asarray(part).tolist() for part in np.random.get_state(legacy=True)])  # noqa: NPY002 - compared, not used


def _attributes(module: nn.Module) -> dict[str, str]:
    """Numbers, words, tensors and containers of them that a module and its parts hold."""
    found = {}
    for path, part in module.named_modules():
        held = dict(part.named_buffers(recurse=False)) | dict(part.named_parameters(recurse=False))
        for name, value in (vars(part) | held).items():
            if name not in {"training", "_parameters", "_buffers", "_modules"}:
                found[f"{path}.{name}".lstrip(".")] = _content(value, 0)
    return found


def _content(value: Any, depth: int) -> str:
    """A word that changes with the content; of objects of unknown kinds only with the kind."""
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        return hashlib.blake2b(array.tobytes()).hexdigest()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if depth < _DEPTH and isinstance(value, dict):
        return repr([(_content(k, depth + 1), _content(v, depth + 1)) for k, v in value.items()])
    if depth < _DEPTH and isinstance(value, list | tuple | collections.deque):
        return repr([_content(one, depth + 1) for one in value])
    if depth < _DEPTH and isinstance(value, set | frozenset):
        return repr(sorted(_content(one, depth + 1) for one in value))
    return type(value).__name__
