"""One codec between typed values and JSON, strict both ways: unknown, missing and mistyped fields are refused.

A value is written by the parameters of its constructor and read by calling it, so whatever a class checks of a new
value it checks of a stored one, too. Values that are told apart by a tag (costs, laws of runs, spaces, plans) register
once, with :func:`register_tagged`; nothing else in the project takes JSON apart, and no class has a parser of its own.
cattrs does the walking and is loaded when the first value is converted, not before. The file is long because all that
takes JSON apart is here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dptune.errors import InvalidInput

if typing.TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "added_later",
    "from_json",
    "register_bare",
    "register_tagged",
    "register_text",
    "stored_as",
    "to_json",
    "to_values",
]

T = TypeVar("T")
Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

_FAMILIES: dict[type, tuple[Write, Read]] = {}
_NAME = "dptune name"
_LATER = "dptune later"


def stored_as(parameter: str) -> Any:
    """The metadata of a dataclass's field that the constructor, and so JSON, calls by another name."""
    return {_NAME: parameter}


def added_later() -> Any:
    """The metadata of a dataclass's field that files of earlier versions do not have: it is left out where it is the
    default, and its absence means the default."""
    return {_LATER: True}


def register_tagged(
    base: Any, key: str, known: Mapping[str, type], stated: Mapping[str, object] = types.MappingProxyType({})
) -> None:
    """Make the codec know frozen dataclasses that are told apart by a tag in their JSON.

    Args:
        base: the common class, or the union of the classes.
        key: the JSON key of the tag.
        known: the classes by tag; classes that are added later are known, too.
        stated: attributes that are written even where they follow from the fields, with what they are in files that
            do not say them. One that is read must be what the value itself says.
    """

    def write(value: Any) -> Any:
        tags = [tag for tag, kind in known.items() if kind is type(value)]
        if not tags:
            raise TypeError(f"{type(value).__name__} has no {key!r} of its own")
        said = {name: _converter().unstructure(getattr(value, name)) for name in stated}
        return {key: tags[0], **said, **_write_fields(value, leave_out=stated)}

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get(key), str) or data[key] not in known:
            raise TypeError(f"expected an object whose {key!r} is one of {', '.join(sorted(known))}; got {data!r:.80}")
        kind, given = known[data[key]], {**stated, **data}
        taken = {one.name for one in _entries(kind)}
        made = _read_fields({name: given[name] for name in given if name in taken or name not in {key, *stated}}, kind)
        for name in stated:
            if (says := _converter().unstructure(getattr(made, name))) != given[name]:
                raise TypeError(f"it says {given[name]!r}, but its fields are about {says!r}")
        return made

    for one in typing.get_args(base) or (base,):
        _FAMILIES[one] = (write, read)


def register_text(base: type, read: Callable[[object], Any]) -> None:
    """Make the codec know a class whose values are written as the text that ``str`` gives.

    Args:
        base: the class.
        read: makes an equal value from the text, or raises :class:`~dptune.errors.InvalidInput`.
    """
    _FAMILIES[base] = (str, read)


def register_bare(base: type) -> None:
    """Make the codec know a frozen dataclass with one field, as which it is written.

    Args:
        base: the class.
    """

    def write(value: Any) -> Any:
        (only,) = _write_fields(value).values()
        return only

    def read(data: Any) -> Any:
        return _read_fields({_entries(base)[0].name: data}, base)

    _FAMILIES[base] = (write, read)


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


def from_json(data: object, kind: type[T], what: str) -> T:
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
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidInput(f"This is not {what}: {error}.") from None


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON would make them, so that stored and fresh values compare equal."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


# Families: classes whose values are told apart by a tag, or are written as something else than an object.


def _family_of(kind: Any) -> tuple[Write, Read] | None:
    """The functions of a class's family; for a union, those that all its members share."""
    if _is_union(kind):
        found = [_family_of(part) for part in typing.get_args(kind)]
        same = found[0] is not None and all(one is not None and one[1] is found[0][1] for one in found)
        return found[0] if same else None
    if not isinstance(kind, type):
        return None
    return next((_FAMILIES[base] for base in kind.__mro__ if base in _FAMILIES), None)


def _known(kind: Any) -> tuple[Write, Read]:
    found = _family_of(kind)
    if found is None:
        raise TypeError(f"{kind!r} is not a registered family")
    return found


def _read_family(value: Any, kind: Any) -> Any:
    made = _known(kind)[1](value)
    if not isinstance(made, kind):
        raise TypeError(f"expected {getattr(kind, '__name__', kind)}; got {type(made).__name__}")
    return made


@functools.lru_cache(maxsize=1)
def _converter() -> Converter:
    from cattrs import Converter  # noqa: PLC0415 - loaded when it is needed

    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    for plain in (str, bool, int, float):
        converter.register_structure_hook(plain, _primitive)
    converter.register_structure_hook_func(dataclasses.is_dataclass, _read_fields)
    converter.register_unstructure_hook_func(dataclasses.is_dataclass, _write_fields)
    converter.register_structure_hook_func(_is_sequence, _sequence)
    converter.register_structure_hook_func(_is_scalar_union, _scalar)
    # Families come last: the hook that was registered last is asked first.
    converter.register_structure_hook_func(lambda kind: _family_of(kind) is not None, _read_family)
    converter.register_unstructure_hook_factory(lambda kind: _family_of(kind) is not None, lambda kind: _known(kind)[0])
    return converter


# Frozen dataclasses, by the parameters of their constructors.


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One parameter of a constructor: its name (that of JSON), the attribute that holds it, its type and its form."""

    name: str
    attribute: str
    hint: Any
    form: Any
    later: bool = False
    default: Any = None


@functools.cache
def _entries(kind: Any) -> tuple[_Entry, ...]:
    hints = typing.get_type_hints(kind)
    fields = {one.metadata.get(_NAME, one.name): one for one in dataclasses.fields(kind)}
    return tuple(_entry(one, fields[one.name], hints) for one in inspect.signature(kind).parameters.values())


def _entry(given: inspect.Parameter, field: dataclasses.Field[Any], hints: Mapping[str, Any]) -> _Entry:
    later = bool(field.metadata.get(_LATER))
    return _Entry(given.name, field.name, hints[field.name], given.kind, later, field.default if later else None)


def _write_fields(value: Any, leave_out: Mapping[str, object] = types.MappingProxyType({})) -> dict[str, Any]:
    kind: Any = type(value)
    entries = [one for one in _entries(kind) if one.name not in leave_out]
    said = [one for one in entries if not one.later or getattr(value, one.attribute) != one.default]
    return {one.name: _converter().unstructure(getattr(value, one.attribute)) for one in said}


def _read_fields(value: Any, kind: Any) -> Any:
    """Exactly the parameters of the constructor, none filled in silently."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object with the fields of {kind.__name__}; got {value!r:.80}")
    entries = _entries(kind)
    names = {one.name for one in entries}
    if unknown := sorted(set(value) - names):
        raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
    if missing := sorted(names - set(value) - {one.name for one in entries if one.later}):
        raise TypeError(f"the field {missing[0]!r} of {kind.__name__} is missing")
    several: list[Any] = []
    named: dict[str, Any] = {}
    for one in (one for one in entries if one.name in value):
        found = _converter().structure(value[one.name], one.hint)
        if one.form is inspect.Parameter.VAR_POSITIONAL:
            several = list(found)
        elif one.form is inspect.Parameter.VAR_KEYWORD:
            named |= _by_name(found)
        else:
            named[one.name] = found
    return kind(*several, **named)


def _by_name(pairs: Any) -> dict[str, Any]:
    """Pairs of a name and a value, as arguments by name."""
    named = dict(pairs)
    if len(named) < len(pairs):
        raise TypeError("a name stands twice")
    return named


# Plain types.


def _primitive(value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}; got {value!r:.80}")
    return value


def _is_sequence(kind: Any) -> bool:
    return typing.get_origin(kind) in (tuple, list)


def _sequence(value: Any, kind: Any) -> Any:
    """A list, or a tuple of any or of a fixed length, from a list: never from a text or an object."""
    parts, origin = typing.get_args(kind), typing.get_origin(kind)
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected a list; got {value!r:.80}")
    fixed = origin is tuple and parts[-1] is not Ellipsis
    if fixed and len(value) != len(parts):
        raise TypeError(f"expected a list of {len(parts)}; got {value!r:.80}")
    kinds = parts if fixed else [parts[0]] * len(value)
    return origin(_converter().structure(item, part) for item, part in zip(value, kinds, strict=True))


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _is_scalar_union(kind: Any) -> bool:
    return _is_union(kind) and set(typing.get_args(kind)) <= {str, int, float, bool, types.NoneType}


def _scalar(value: Any, kind: Any) -> Any:
    """One of several plain types, as it is."""
    parts = typing.get_args(kind)
    if float in parts and int not in parts and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) not in parts:
        raise TypeError(f"expected {kind}; got {value!r:.80}")
    return value
