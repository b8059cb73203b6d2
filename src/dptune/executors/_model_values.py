"""Models that are numbers: built-in models, and plain values (numbers, texts, arrays, lists and dictionaries of them).

A dictionary of arrays by name is an ordinary ``.npz``. Anything else that belongs here is an ``.npz`` whose member
``model.json`` says what its arrays mean. Opening one builds these kinds of values and nothing else.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dptune._typing import AnyArray
from dptune.training.lens import CentredLens, Lens
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, MaxPool, Mlp, Regression
from dptune.training.trained_model import Trained, TrainedModel
from dptune.training.trained_regression import TrainedRegression, trained

__all__ = ["NotPlain", "open_values", "pack_values"]

_TAKEN = ("file", "allow_pickle")  # names that numpy's own arguments have
_DESCRIPTION = "model.json"
_DEEPEST = 50
_LAYERS: dict[str, type[Conv] | type[MaxPool] | type[GlobalMean]] = {
    "conv": Conv,
    "max_pool": MaxPool,
    "global_mean": GlobalMean,
}


class NotPlain(Exception):
    """A value that is none of these."""


def pack_values(model: Any) -> bytes:
    """The content of an ``.npz``; raises :class:`NotPlain` for any other kind of model."""
    if type(model) is dict and model and all(_is_array(name, value) for name, value in model.items()):
        return _npz(model)
    arrays: list[AnyArray] = []
    built_in = type(model) is TrainedModel or type(model) is TrainedRegression
    described = _describe_trained(model, arrays) if built_in else _describe(model, arrays, 0)
    content = io.BytesIO(_npz({f"array_{place}": one for place, one in enumerate(arrays)}))
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:  # a fixed date: no file says when it was made
        text = json.dumps({"version": 1, "model": described}, allow_nan=False, indent=1)
        archive.writestr(zipfile.ZipInfo(_DESCRIPTION), text)
    return content.getvalue()


def open_values(content: bytes) -> Any:
    """The inverse of :func:`pack_values`; raises some Exception for anything else, and runs no code of the file's."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        if _DESCRIPTION not in arrays.files:
            return dict(arrays)
        described = json.loads(bytes(arrays[_DESCRIPTION]))
        if described["version"] != 1:
            raise NotPlain("a newer dptune made it")
        return _restore(described["model"], arrays)


def _npz(arrays: Mapping[str, AnyArray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _is_array(name: Any, value: Any) -> bool:
    """Whether an .npz gives back the very same name and array."""
    named = isinstance(name, str) and name.isprintable() and name not in _TAKEN and not name.endswith(".json")
    return named and type(value) is np.ndarray and not value.dtype.hasobject


# Plain values: JSON where it has them, otherwise an object with one key that says what it is.


def _describe(value: Any, arrays: list[AnyArray], depth: int) -> Any:
    if depth > _DEEPEST:
        raise NotPlain("values nested too deeply")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [_describe(one, arrays, depth + 1) for one in value]
    if type(value) is tuple:
        return {"tuple": [_describe(one, arrays, depth + 1) for one in value]}
    if type(value) is dict and all(type(name) is str for name in value):
        return {"dict": {name: _describe(one, arrays, depth + 1) for name, one in value.items()}}
    if isinstance(value, np.generic) or type(value) is np.ndarray:
        array = np.asarray(value)
        if not array.dtype.hasobject:
            arrays.append(array)
            return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}
    raise NotPlain(type(value).__name__)


def _restore(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_restore(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    makers: dict[str, Callable[[], Any]] = {
        "float": lambda: float(inner),
        "tuple": lambda: tuple(_restore(one, arrays) for one in inner),
        "dict": lambda: {str(name): _restore(one, arrays) for name, one in inner.items()},
        "array": lambda: _array(inner, arrays),
        "scalar": lambda: _array(inner, arrays)[()],
        "trained": lambda: _restore_trained(inner, arrays),
    }
    if kind not in makers:
        raise NotPlain(f"unknown kind {kind!r:.40}")
    return makers[kind]()


def _array(place: Any, arrays: Mapping[str, Any]) -> AnyArray:
    """One of the file's arrays; a member that is something else comes as bytes."""
    found = arrays[f"array_{int(place)}"]
    if not isinstance(found, np.ndarray):
        raise NotPlain("a member that is not an array")
    return found


# Built-in models.


def _describe_trained(model: Trained[Any], arrays: list[AnyArray]) -> Any:
    arrays.append(np.asarray(model.parameters))
    own: dict[str, Any] = {} if model.prepared == "none" else {"prepared": model.prepared}
    if (lens := model.lens) is not None:
        arrays.extend(getattr(lens, one.name) for one in fields(lens))
        own["centred_lens" if isinstance(lens, CentredLens) else "lens"] = [1, 2]
    return {"trained": {**_describe_model(model.description), "engine": model.engine, "parameters": 0, **own}}


def _describe_model(model: Mlp | Cnn) -> dict[str, Any]:
    shared = {"classes": model.classes, "activation": vars(model.nonlinearity)}
    if isinstance(model, Regression):
        del shared["classes"]
        own = {"hidden": list(model.hidden), "target_range": list(model.target_range)}
        return {"kind": "regression", "features": model.features, **own, **shared}
    if isinstance(model, Mlp):
        return {"kind": "mlp", "features": model.features, "hidden": list(model.hidden), **shared}
    names = {kind: name for name, kind in _LAYERS.items()}
    layers = [{"kind": names[type(layer)], **vars(layer)} for layer in model.layers]
    return {"kind": "cnn", "image": list(model.image), "layers": layers, "dense": list(model.dense), **shared}


def _restore_trained(stored: Mapping[str, Any], arrays: Mapping[str, Any]) -> Trained[Any]:
    """A built-in model; its description is checked as if a user had written it."""
    parameters = _array(stored["parameters"], arrays)
    prepared = str(stored.get("prepared", "none"))
    lens: Lens | CentredLens | None = None
    for name, kind in (("lens", Lens), ("centred_lens", CentredLens)):
        if name in stored:
            lens = kind(*(_array(place, arrays) for place in stored[name]))
    made = trained(_restore_model(stored), parameters, str(stored["engine"]), prepared, lens)
    made.check()
    return made


def _restore_model(stored: Mapping[str, Any]) -> Mlp | Cnn:
    activation = Activation(**stored["activation"])
    if stored["kind"] == "regression":
        low, high = stored["target_range"]
        return Regression(stored["features"], tuple(stored["hidden"]), activation, target_range=(low, high))
    if stored["kind"] == "mlp":
        return Mlp(stored["features"], stored["classes"], tuple(stored["hidden"]), activation)
    layers = tuple(_LAYERS[one["kind"]](**{k: v for k, v in one.items() if k != "kind"}) for one in stored["layers"])
    return Cnn(tuple(stored["image"]), stored["classes"], layers, tuple(stored["dense"]), activation)
