"""What a torch module must be before it is shown a record, found out on public random rows.

Whether a module is refused must not depend on private records, so none is looked at. A module is refused if it mixes
records, keeps something from call to call, or draws from a generator that cannot be set back for every record: the
sum's sensitivity would then exceed the clip norm.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dptune.errors import InvalidInput

__all__ = ["MIXES", "draws", "rows_for", "steady"]

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
_TOLERANCE = 1e-3


def rows_for(features: int, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Random rows in [0, 1), which are valid indices, too, and random labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((_ROWS, features), generator=generator, dtype=dtype)
    y = torch.randint(classes, (_ROWS,), generator=generator)
    y[0], y[-1] = 0, classes - 1
    return x, y


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types here
    """Notes whether any operation draws random numbers."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws(module: nn.Module, x: Tensor) -> bool:
    """Whether a training module draws from torch's generator; refuses one that draws from another or keeps state."""
    watch = _Watch()  # type: ignore[no-untyped-call] # as above
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        module(x[:1])  # what is only made by the first call may stay
        before, states = _attributes(module), _generators()
        with watch:
            for one in torch.split(x[1:], 1):
                module(one)
    for library, old, new in zip(("Python", "numpy"), states, _generators(), strict=True):
        if old != new:
            raise InvalidInput(_OTHER_GENERATOR.format(type(module).__name__, library))
    after = _attributes(module)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            raise InvalidInput(_KEEPS.format(type(module).__name__, name))
    return watch.seen


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
    """Numbers, words and tensors that a module and its parts hold."""
    found = {}
    for path, part in module.named_modules():
        held = dict(part.named_buffers(recurse=False)) | dict(part.named_parameters(recurse=False))
        for name, value in (vars(part) | held).items():
            place = f"{path}.{name}".lstrip(".")
            if isinstance(value, Tensor):
                found[place] = hashlib.blake2b(value.detach().cpu().numpy().tobytes()).hexdigest()
            elif value is None or isinstance(value, bool | int | float | str):
                found[place] = repr(value)
    return found
