"""What a torch module holds, and how it is put back before every record; hooks, which are refused.

A module of a user's own may write to its attributes, buffers or parameters when it sees some record, and the next
record would be computed by another function. So all of it is set back to what it was before the first record.
"""

from __future__ import annotations

import copy
import types
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_modules

from dptune.errors import InvalidInput

__all__ = ["ModuleState", "refuse_hooks"]

_FIXED = (bool, int, float, complex, str, bytes, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_REGISTRIES = ("_parameters", "_buffers", "_modules")


class ModuleState:
    """The state of a module at one moment; values of trained parameters are left to the caller."""

    def __init__(self, module: nn.Module, trained: list[nn.Parameter]) -> None:
        self._parts = list(module.modules())
        self._trained = [(p, p.data) for p in trained]
        own = {id(p) for p in trained}
        held = [*module.parameters(), *module.buffers()]
        self._others = [(t, t.data, t.data.clone(), t.requires_grad) for t in held if id(t) not in own]
        self._registries = [{name: dict(vars(part)[name]) for name in _REGISTRIES} for part in self._parts]
        self._plain: list[dict[str, Any]] = []
        self._empty: list[Any] = []
        deep: list[dict[str, Any]] = []
        for part in self._parts:
            plain, own_deep = self._sorted(vars(part))
            self._plain.append(plain)
            deep.append(own_deep)
        self._memo = {id(one): one for one in (*self._parts, *held)}  # a copy refers to these, not to copies of them
        self._deep = copy.deepcopy(deep, dict(self._memo)) if any(deep) else None
        self._flags = {training: self._training(module, training) for training in (False, True)}

    def _sorted(self, attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What can be put back as it is, and what must be copied because it can change inside."""
        plain, deep = {}, {}
        for name, value in attributes.items():
            if isinstance(value, dict | list | set) and not value:
                self._empty.append(value)
            if name in _REGISTRIES or _fixed(value) or (isinstance(value, dict | list | set) and not value):
                plain[name] = value
            else:
                deep[name] = value
        return plain, deep

    def _training(self, module: nn.Module, training: bool) -> list[bool]:
        module.train(training)
        return [part.training for part in self._parts]

    def restore(self, *, training: bool) -> None:
        """Put everything back but the values of trained parameters."""
        deep = None if self._deep is None else copy.deepcopy(self._deep, dict(self._memo))
        for value in self._empty:
            value.clear()
        for place, part in enumerate(self._parts):
            attributes = vars(part)
            attributes.clear()
            attributes.update(self._plain[place])
            if deep is not None:
                attributes.update(deep[place])
            for name, entries in self._registries[place].items():
                attributes[name].clear()
                attributes[name].update(entries)
            attributes["training"] = self._flags[training][place]
        for p, view in self._trained:
            if p.data_ptr() != view.data_ptr() or p.shape != view.shape:
                p.data = view
            p.grad = None
            p.requires_grad_(True)
        for tensor, storage, values, wanted in self._others:
            storage.copy_(values)
            tensor.data = storage
            tensor.requires_grad_(wanted)


def _fixed(value: Any) -> bool:
    return value is None or isinstance(value, _FIXED)


def refuse_hooks(module: nn.Module) -> None:
    """Refuse hooks of a module's parts and parameters and of all modules: they see, and may mix, whole batches."""
    found = [
        f"Layer '{name}' ({type(part).__name__})"
        for name, part in module.named_modules()
        if any(getattr(part, kind, None) for kind in _HOOKS)
    ]
    found += [f"Parameter '{name}'" for name, p in module.named_parameters() if p._backward_hooks]
    found += ["Torch, for all modules," for kind in _HOOKS if getattr(torch_modules, f"_global{kind}", None)]
    if found:
        raise InvalidInput(
            f"{found[0]} has a hook, which is called with whole batches and may mix their records. Remove it, or write "
            "what it does into the module (torch.nn.utils.parametrizations for norms of weights)."
        )
