"""Trained models as bytes, packed where they were trained and opened by whoever uses them.

Arrays by name become an ``.npz``, which is data and nothing else; any other model is a pickle, which runs code when it
is opened. The process that drives a run moves these bytes, stores and releases them, and never opens them.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle
import sys
from typing import Any

import numpy as np

__all__ = ["dumps", "is_arrays", "open_model", "pack_model"]

_ZIP = b"PK\x03\x04"  # a pickle never begins like this
_TAKEN = ("file", "allow_pickle")  # names that numpy's own arguments have


def dumps(value: Any) -> bytes:
    """Pickle by value what is defined in a script or notebook (cloudpickle), by reference everything else.

    Torch writes where in memory its numbers are, which tells what a worker did before: not here.
    """
    name = "cloudpickle" if importlib.util.find_spec("cloudpickle") else "joblib.externals.cloudpickle"
    cloudpickle, torch = importlib.import_module(name), sys.modules.get("torch")
    if torch is None:
        return bytes(cloudpickle.dumps(value))

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,name-defined] # untyped
        def reducer_override(self, one: Any) -> Any:
            return _reduced(one) if _is_plain_tensor(one) else super().reducer_override(one)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def _is_plain_tensor(value: Any) -> bool:
    """Whether a value is a tensor in this machine's memory, and nothing more (parameters hold one)."""
    torch = sys.modules["torch"]
    if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
        return False
    return not value.is_quantized and value.grad_fn is None and not vars(value)


def _reduced(tensor: Any) -> tuple[Any, ...]:
    """A tensor as its numbers and nothing else."""
    torch = sys.modules["torch"]
    content = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return _tensor, (content, tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def _tensor(content: bytes, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """The inverse of :func:`_reduced`, for pickles."""
    torch = importlib.import_module("torch")
    flat = torch.frombuffer(bytearray(content), dtype=dtype).clone() if content else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).requires_grad_(requires_grad)


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
