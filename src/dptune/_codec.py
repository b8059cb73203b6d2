"""One codec between typed values and JSON, strict both ways: unknown, missing and mistyped fields are refused.

Frozen dataclasses are read and written field by field. Families of values that are told apart by a tag (costs, laws of
runs, spaces, plans) register once, with :func:`register_family`; nothing else in the project takes JSON apart.
cattrs does the walking and is loaded when the first value is converted, not before.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dptune.errors import InvalidInput

if typing.TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["from_json", "register_family", "register_tagged", "to_json", "to_values"]

T = TypeVar("T")
Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

_FAMILIES: dict[type, tuple[Write, Read]] = {}


def register_family(base: type, write: Write, read: Read) -> None:
    """Make the codec know values of ``base`` and of everything derived from it.

    Args:
        base: the common class; fields that are declared as this class are converted by these functions.
        write: turns a value into plain JSON values.
        read: the inverse; raises :class:`~dptune.errors.InvalidInput` for what it cannot read.
    """
    _FAMILIES[base] = (write, read)


def register_tagged(base: type, key: str, known: Mapping[str, type]) -> None:
    """Make the codec know frozen dataclasses that are told apart by a tag in their JSON.

    Args:
        base: the common class.
        key: the JSON key of the tag, which must also be a class attribute that holds it.
        known: the classes by tag; classes that are added later are known, too.
    """

    def write(value: Any) -> Any:
        return {key: getattr(value, key), **_write_fields(value.__class__)(value)}

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get(key) not in known:
            names = ", ".join(sorted(known))
            raise InvalidInput(f"Expected an object whose {key!r} is one of {names}; got {str(data)[:80]}.")
        fields = {name: value for name, value in data.items() if name != key}
        return _read_fields(known[data[key]])(fields, known[data[key]])

    register_family(base, write, read)


def to_values(value: Any) -> Any:
    """A typed value as plain JSON values (dictionaries, lists, texts, numbers).

    Example:
        >>> from dptune import Budget
        >>> to_values(Budget(1.0, 1e-5))
        {'epsilon': 1.0, 'delta': 1e-05, 'neighbours': 'one record added or removed'}
    """
    return _plain(_converter().unstructure(value))


def to_json(value: Any) -> str:
    """A typed value as text, with sorted keys."""
    return json.dumps(to_values(value), sort_keys=True)


def from_json(data: str | Mapping[str, Any] | list[Any], kind: type[T], what: str) -> T:
    """A typed value from JSON text or from parsed values.

    Args:
        data: what was stored.
        kind: the class that it must describe.
        what: how errors call it, for example "a plan".

    Raises:
        InvalidInput: the text is not JSON, or a field is unknown, missing, or of another type.

    Example:
        >>> from dptune import Budget
        >>> from_json(to_json(Budget(1.0, 1e-5)), Budget, "a budget")
        Budget(epsilon=1.0, delta=1e-05)
    """
    try:
        parsed = json.loads(data) if isinstance(data, str) else data
        return _converter().structure(parsed, kind)
    except InvalidInput:
        raise
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidInput(f"This is not {what}: {error}.") from None


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON would make them, so that stored and fresh values compare equal."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _family_of(kind: Any) -> tuple[Write, Read] | None:
    """The functions of a class's family; for a union, those that all its members share."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        found = [_family_of(part) for part in typing.get_args(kind)]
        same = found[0] is not None and all(one is not None and one[1] is found[0][1] for one in found)
        return found[0] if same else None
    if not isinstance(kind, type):
        return None
    return next((_FAMILIES[base] for base in kind.__mro__ if base in _FAMILIES), None)


@functools.lru_cache(maxsize=1)
def _converter() -> Converter:
    from cattrs import Converter  # noqa: PLC0415 - loaded when it is needed

    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    for plain in (str, bool, int, float):
        converter.register_structure_hook(plain, _primitive)
    converter.register_structure_hook_factory(dataclasses.is_dataclass, _read_fields)
    converter.register_unstructure_hook_factory(dataclasses.is_dataclass, _write_fields)
    converter.register_structure_hook_func(_is_scalar_union, _scalar)
    # Families come last: the hook that was registered last is asked first.
    converter.register_structure_hook_func(lambda kind: _family_of(kind) is not None, _read_family)
    converter.register_unstructure_hook_factory(lambda kind: _family_of(kind) is not None, lambda kind: _known(kind)[0])
    return converter


@functools.cache
def _read_fields(kind: type) -> Callable[[Any, Any], Any]:
    from cattrs.gen import make_dict_structure_fn  # noqa: PLC0415 - loaded when it is needed

    made: Callable[[Any, Any], Any] = make_dict_structure_fn(kind, _converter())
    return functools.partial(_fields, made)


@functools.cache
def _write_fields(kind: type) -> Callable[[Any], Any]:
    from cattrs.gen import make_dict_unstructure_fn  # noqa: PLC0415 - loaded when it is needed

    return make_dict_unstructure_fn(kind, _converter())


def _known(kind: Any) -> tuple[Write, Read]:
    found = _family_of(kind)
    if found is None:
        raise TypeError(f"{kind!r} is not a registered family")
    return found


def _read_family(value: Any, kind: Any) -> Any:
    made = _known(kind)[1](value)
    if not isinstance(made, kind):
        raise InvalidInput(f"Expected {getattr(kind, '__name__', kind)}; got {type(made).__name__}.")
    return made


def _fields(made: Callable[[Any, Any], Any], value: Any, kind: Any) -> Any:
    """Exactly the declared fields, none filled in silently."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object with the fields of {kind.__name__}; got {value!r}")
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    if unknown := sorted(set(value) - names):
        raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
    if missing := sorted(names - set(value)):
        raise TypeError(f"the field {missing[0]!r} of {kind.__name__} is missing")
    return made(value, kind)


def _primitive(value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}; got {value!r}")
    return value


def _is_scalar_union(kind: Any) -> bool:
    parts = typing.get_args(kind)
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return union and all(part in (str, int, float, bool, types.NoneType) for part in parts)


def _scalar(value: Any, kind: Any) -> Any:
    """One of several plain types, as it is."""
    parts = typing.get_args(kind)
    if float in parts and int not in parts and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) not in parts:
        raise TypeError(f"expected {kind}; got {value!r}")
    return value
