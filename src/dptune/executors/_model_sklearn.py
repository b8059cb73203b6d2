"""Estimators of scikit-learn as ``.skops``: a description of objects and their arrays, opened without running code.

Only types that skops trusts by itself are stored and opened, and no random generator: its state would tell the noise
that it drew. The names in a file are numbered anew, because skops
writes where in memory things were, and dates are left out: the same estimator gives the same bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import zipfile
from typing import Any, Protocol, runtime_checkable

from dptune.errors import InvalidInput

__all__ = ["NotTrusted", "is_estimator", "open_sklearn", "pack_sklearn"]

_SCHEMA = "schema.json"
_GENERATORS = ("RandomStateNode", "RandomGeneratorNode")  # as skops calls them


class NotTrusted(Exception):
    """An estimator with parts that skops does not trust; says which."""


@runtime_checkable
class _Estimator(Protocol):
    """What every estimator of scikit-learn has."""

    def fit(self, x: Any, y: Any, /) -> Any: ...

    def get_params(self, deep: bool = True) -> Any: ...


def is_estimator(model: object) -> bool:
    """Whether a model is an estimator of scikit-learn, or one made like those."""
    return isinstance(model, _Estimator) and not isinstance(model, type)


def _skops() -> Any:
    if importlib.util.find_spec("skops") is None:
        raise InvalidInput(
            "The package skops, which keeps scikit-learn models, is not installed. Run: pip install 'dptune[sklearn]'."
        )
    return importlib.import_module("skops.io")


def pack_sklearn(model: object) -> bytes:
    """The content of a ``.skops`` file; raises :class:`NotTrusted` if opening it would need trust."""
    skops = _skops()
    content = _numbered(skops.dumps(model))
    unknown = skops.get_untrusted_types(data=content)
    if unknown:
        raise NotTrusted(_untrusted(unknown[0]))
    return content


def _untrusted(kind: str) -> str:
    """Why skops asks for trust, where it is known."""
    if kind == "sklearn.tree._tree.Tree":
        return (
            f"it holds a {kind}, which skops does not open by itself: the indices of its nodes are not checked, so a "
            "planted file could read outside of its arrays; trees and forests cannot be released safely"
        )
    return f"it holds a {kind}, which skops does not open by itself"


def open_sklearn(content: bytes) -> Any:
    """The estimator again; raises some Exception for anything that needs trust."""
    return _skops().loads(content, trusted=[])


def _numbered(content: bytes) -> bytes:
    """The same file with names that do not tell where in memory its parts were, and without dates."""
    numbers: dict[Any, int] = {}
    files: dict[str, str] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(one) for one in value]
        if not isinstance(value, dict):
            return value
        if value.get("__loader__") in _GENERATORS or str(value.get("__module__", "")).startswith("numpy.random"):
            raise NotTrusted("it keeps a random generator, whose state gives away the noise that it drew")
        found: dict[str, Any] = {}
        for name, one in value.items():
            if name == "__id__":
                found[name] = numbers.setdefault(one, len(numbers) + 1)
            elif name == "file" and isinstance(one, str):
                found[name] = files.setdefault(one, f"{len(files) + 1}.{one.rpartition('.')[2]}")
            else:
                found[name] = walk(one)
        return found

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as made:
        schema = json.dumps(walk(json.loads(given.read(_SCHEMA))), indent=1)
        for before, after in files.items():
            made.writestr(zipfile.ZipInfo(after), given.read(before))
        made.writestr(zipfile.ZipInfo(_SCHEMA), schema)
    return buffer.getvalue()
