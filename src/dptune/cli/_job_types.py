"""What kind of value each field of a job must have: wrong ones are refused when the job is read, each by one line.

Ranges are checked where a value is used. A field that is not named here is checked there altogether.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dptune._validate import shown
from dptune.errors import InvalidInput

__all__ = ["TYPES", "check_type"]

_Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _path(value: Any) -> bool:
    return _text(value) and all(len(part.encode()) < 256 for part in Path(value).parts)


def _whole(value: Any) -> bool:
    if isinstance(value, float):  # records = 1e6
        return value.is_integer() and abs(value) < 2.0**63
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _whole(value)


def _yes_or_no(value: Any) -> bool:
    return isinstance(value, bool)


def _list_of(test: _Test) -> _Test:
    return lambda value: isinstance(value, list | tuple) and all(map(test, value))


def _pair(value: Any) -> bool:
    return _list_of(_number)(value) and len(value) == 2


def _schema(value: Any) -> bool:
    return _path(value) or isinstance(value, Mapping)  # a table that was read: stored with the run


def _moment(value: Any) -> bool:
    return _text(value) or isinstance(value, datetime.datetime)


_A_TEXT = ("a text in quotes", _text)
_A_WHOLE = ("a whole number", _whole)
_A_NUMBER = ("a number", _number)
_A_FLAG = ("true or false", _yes_or_no)

TYPES: dict[str, dict[str, tuple[str, _Test]]] = {
    "data": {
        "name": _A_TEXT,
        "file": ("a path in quotes", _path),
        "schema": ("the path of a TOML file, in quotes", _schema),
        "loader": ("a text in quotes, 'module:name'", _text),
        "kind": ("a text in quotes: 'private', 'public' or 'synthetic'", _text),
        "validation": ("a text in quotes: 'test', 'private' or a file", _text),
        "records": _A_WHOLE,
        "classes": _A_WHOLE,
        "feature_range": ("a list of two numbers, such as [0, 1]", _pair),
        "missing": _A_NUMBER,
        "unknown_label": _A_WHOLE,
        "unit": _A_TEXT,
        "target_range": ("a list of two numbers, such as [0, 100]", _pair),
        "missing_target": _A_NUMBER,
        "task": ("a text in quotes: 'classification' or 'regression'", _text),
        "score": _A_TEXT,
        "shares": ("a list of numbers, one for each class", _list_of(_number)),
        "features": _A_TEXT,
        "unit_rows": _A_WHOLE,
    },
    "model": {
        "kind": ("a text in quotes: 'softmax', 'linear' or 'mlp'", _text),
        "hidden": ("a list of whole numbers, such as [64]", _list_of(_whole)),
        "activation": _A_TEXT,
        "optimizer": _A_TEXT,
        "schedule": _A_TEXT,
        "batch_size": _A_NUMBER,
        "steps": _A_WHOLE,
        "clip_norm": _A_NUMBER,
        "clipping": _A_TEXT,
        "whitening": _A_FLAG,
        "learning_rate": _A_NUMBER,
        "trainer": ("a text in quotes, 'module:name'", _text),
    },
    "budget": {"epsilon": _A_NUMBER, "delta": _A_NUMBER, "most_records": _A_WHOLE},
    "run": {
        "ledger": ("a path in quotes", _path),
        "dataset": _A_TEXT,
        "executor": ("a text in quotes: 'processes' or 'ray'", _text),
        "workers": _A_WHOLE,
        "address": _A_TEXT,
        "trusted": _A_FLAG,
        "seed": _A_WHOLE,
        "release_at": ("a time, or 'auto' in quotes", _moment),
        "rehearsal": ("a path in quotes", _path),
        "pickle": _A_FLAG,
    },
}
"""For each field: what it must be, in words, and whether a value is it."""


def check_type(section: str, field: str, value: Any) -> None:
    """Refuse a value of the wrong kind.

    Raises:
        InvalidInput: the field is of another kind.
    """
    known = TYPES.get(section, {}).get(field)
    if known is not None and not known[1](value):
        raise InvalidInput(f"{field!r} of [{section}] must be {known[0]}; got {shown(value)}.")
