"""Packages whose public names load on first use, so that nobody waits for what was not asked for.

A package hands its table of names here; a type checker reads the same names in the package's ``TYPE_CHECKING`` block.
What is loaded is chosen by the package that asks: nothing here knows a name of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["load_on_use", "on_call"]


class _Package(ModuleType):
    """A package that imports a name's home when the name is first asked for."""

    _homes: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        homes = self.__dict__["_homes"]
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            self.__dict__[name] = value
            return value
        inside = f"{self.__name__}.{name}"
        if not name.startswith("_"):
            try:
                return importlib.import_module(inside)
            except ModuleNotFoundError as error:
                if error.name != inside:  # the module is there, something that it needs is not
                    raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a module binds it in its package. A public name wins over a module that is called the same.
        if not (isinstance(value, ModuleType) and name in self.__dict__["_homes"]):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that is sent to a worker may hold the package; it travels by name, as every module does.
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__["_homes"]})


def on_call(module: str, *names: str) -> list[Callable[..., Any]]:
    """Functions of a module that is imported when one of them is called: for files whose help must come at once.

    Args:
        module: where the functions are.
        names: what they are called there.

    Returns:
        A function for each name, in their order.

    Example:
        >>> (square_root,) = on_call("math", "sqrt")
        >>> square_root(9.0)
        3.0
    """

    def late(name: str) -> Callable[..., Any]:
        def called(*given: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), name)(*given, **options)

        return called

    return [late(name) for name in names]


def load_on_use(package: str, names: Mapping[str, Sequence[str]]) -> None:
    """Let a package load its public names when they are first asked for.

    Args:
        package: the package's own ``__name__``.
        names: the modules that hold its names, each with the names that it holds.

    Modules inside of the package load on use too, so that ``import dptune`` is enough for ``dptune.sealed.resume``.
    """
    module = sys.modules[package]
    module.__dict__["_homes"] = {name: home for home, held in names.items() for name in held}
    module.__class__ = _Package
