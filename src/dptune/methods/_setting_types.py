"""Whether a method's settings are of the kinds that its fields declare: job files hold whatever people wrote."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from dptune._validate import shown
from dptune.errors import InvalidInput
from dptune.methods.plan import Method

__all__ = ["check_settings"]

_WORDS = {float: "a number", int: "a whole number", str: "a text in quotes", bool: "true or false"}


def check_settings(kind: type[Method], given: Mapping[str, Any]) -> None:
    """Refuse settings of the wrong kind.

    Args:
        kind: the method's class, whose fields declare what they are.
        given: the settings, laws and pairs read.

    Raises:
        InvalidInput: a setting is of another kind; the line says which, and what it must be.
    """
    hints = typing.get_type_hints(kind)
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            raise InvalidInput(f"{name!r} of [method] must be {_said(hints[name])}; got {shown(value)}.")


def _parts(hint: Any) -> tuple[Any, ...]:
    """The kinds that a field may be."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(_is(value, one) for one in _parts(hint))


def _is(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin in (float, int):
        return isinstance(value, int | float) and not isinstance(value, bool)  # 20.0 is whole; ranges come later
    if origin is tuple:
        inner = [one for one in typing.get_args(hint) if one is not Ellipsis]
        fixed = Ellipsis not in typing.get_args(hint)
        return (
            isinstance(value, tuple)
            and not (fixed and inner and len(inner) != len(value))
            and all(_fits(one, inner[min(place, len(inner) - 1)]) for place, one in enumerate(value) if inner)
        )
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    return isinstance(value, origin) if isinstance(origin, type) and not _protocol(origin) else True


def _protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _said(hint: Any) -> str:
    words = []
    for one in _parts(hint):
        origin = typing.get_origin(one) or one
        if origin is types.NoneType:
            continue
        if origin is typing.Literal:
            words.append(" or ".join(map(repr, typing.get_args(one))))
        elif origin is tuple:
            words.append("a list, such as [0.5, 2]")
        elif origin in (dict, Mapping):
            words.append("a table, {name = value}")
        else:
            words.append(_WORDS.get(origin) or f"a {origin.__name__} (docs/tune.md)")
    return " or ".join(words)
