"""Which methods and plans exist: a class is kept by its name where it is defined, and found by it everywhere.

Installed packages offer methods by entry points, which are loaded when their name is asked for.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from dptune.errors import InvalidInput

if TYPE_CHECKING:
    from dptune.methods.plan import Method, Plan

__all__ = ["ENTRY_POINTS", "known_methods", "method_named", "plan_named", "register_method", "register_plan"]

ENTRY_POINTS = "dptune.methods"
"""The group of entry points by which an installed package offers methods: ``name = "package.module:Class"``."""

_METHODS: dict[str, type[Method]] = {}
_PLANS: dict[str, type[Plan]] = {}


def register_method(cls: type[Method]) -> None:
    """Keep a method by its name; every class with a ``name`` of its own does this where it is defined."""
    _register(_METHODS, cls.name, cls)


def register_plan(cls: type[Plan]) -> None:
    """Keep a type of plan by its method's name; every class with a ``method`` of its own does this."""
    _register(_PLANS, cls.method, cls)


def _register(known: dict[str, Any], name: str, cls: type) -> None:
    """Refuse a name that is taken: two methods of one name would read each other's plans."""
    other = known.get(name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidInput(
            f"{cls.__qualname__} calls itself {name!r}, as {other.__qualname__} of {other.__module__} does; give it "
            "another name."
        )
    known[name] = cls


def known_methods() -> tuple[str, ...]:
    """The names of all methods that are loaded.

    Returns:
        The names, sorted.

    Example:
        >>> import dptune.methods
        >>> "random-stopping" in known_methods()
        True
    """
    return tuple(sorted(_METHODS))


def method_named(name: str) -> type[Method]:
    """The method of this name: one that is loaded, or one that an installed package offers by an entry point.

    Args:
        name: as in ``known_methods()``, or the name of an entry point of the group ``dptune.methods``.

    Returns:
        The class.

    Raises:
        InvalidInput: there is no such method, or its package cannot be imported.

    Example:
        >>> import dptune.methods
        >>> method_named("noisy-best").__name__
        'NoisyBest'
    """
    if name not in _METHODS:
        _load_offered(name)
    if name not in _METHODS:
        raise InvalidInput(f"Unknown method {name!r}; known: {', '.join(known_methods())}.")
    return _METHODS[name]


def _load_offered(name: str) -> None:
    """Import what an installed package offers under this name, if any does."""
    for offered in metadata.entry_points(group=ENTRY_POINTS, name=name):
        try:
            offered.load()
        except Exception as error:
            raise InvalidInput(
                f"The method {name!r} is offered by {offered.value!r}, which cannot be imported ({error}); mend or "
                "remove that package."
            ) from None


def plan_named(method: str) -> type[Plan]:
    """The type of a stored plan.

    Args:
        method: the name of its method.

    Returns:
        The class.

    Raises:
        InvalidInput: there is no such method, or its package cannot be imported.

    Example:
        >>> import dptune.methods
        >>> plan_named("subset").__name__
        'SubsetPlan'
    """
    if method not in _PLANS:
        _load_offered(method)
    if method not in _PLANS:
        raise InvalidInput(
            f"Unknown method {method!r} in the plan; known: {', '.join(known_methods())}. Import the module of a "
            "method of your own first."
        )
    return _PLANS[method]
