"""Trained models as bytes, packed where they were trained and opened by whoever uses them.

Arrays by name become an ``.npz``, which is data and nothing else; any other model is a pickle, which runs code when it
is opened. The process that drives a run moves these bytes, stores and releases them, and never opens them.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle
from typing import Any

import numpy as np

__all__ = ["dumps", "is_arrays", "open_model", "pack_model"]

_ZIP = b"PK\x03\x04"  # a pickle never begins like this
_TAKEN = ("file", "allow_pickle")  # names that numpy's own arguments have


def dumps(value: Any) -> bytes:
    """Pickle by value what is defined in a script or notebook (cloudpickle), by reference everything else."""
    name = "cloudpickle" if importlib.util.find_spec("cloudpickle") else "joblib.externals.cloudpickle"
    return bytes(importlib.import_module(name).dumps(value))


def _plain(name: Any, value: Any) -> bool:
    """Whether an .npz gives back the very same name and array."""
    named = isinstance(name, str) and name.isprintable() and name not in _TAKEN
    return named and type(value) is np.ndarray and not value.dtype.hasobject


def pack_model(model: Any) -> bytes:
    """A model as bytes: the same model gives the same bytes, with no time in them.

    Args:
        model: what a trainer's ``fit`` returned.

    Returns:
        An ``.npz`` if the model is a dictionary of arrays by name, a pickle otherwise.

    Example:
        >>> is_arrays(pack_model({"weights": np.zeros(3)})), is_arrays(pack_model([1, 2]))
        (True, False)
    """
    if type(model) is dict and model and all(_plain(name, value) for name, value in model.items()):
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **model)
        return buffer.getvalue()
    return dumps(model)


def is_arrays(content: bytes) -> bool:
    """Whether packed bytes are arrays by name, so that opening them runs no code."""
    return content.startswith(_ZIP)


def open_model(content: bytes) -> Any:
    """The model again. Bytes that are not arrays are a pickle: open only those of people you trust."""
    if is_arrays(content):
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    return pickle.loads(content)
