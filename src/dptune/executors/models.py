"""Trained models as bytes, packed where they were trained and opened by whoever uses them.

Four kinds of files. Three are data, and opening them runs no code of theirs: ``.npz`` (built-in models, arrays, plain
values), ``.safetensors`` (torch) and ``.skops`` (scikit-learn). The fourth is ``.pickle``, which runs code when it is
opened; it is made and opened only where the user asked for it by name. The process that drives a run moves these bytes,
stores and releases them, and never opens them.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle as pickles
import sys
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.randomness import is_generator

__all__ = ["KINDS", "dumps", "kind_of", "open_model", "pack_model"]

KINDS = ("npz", "safetensors", "skops", "pickle")
"""The kinds of files that a model may be; the last one runs code when it is opened."""

_ZIP = b"PK\x03\x04"  # a pickle never begins like this
_LENGTH = 8  # bytes, before the header of a safetensors file


def dumps(value: Any, take: Callable[[pickles.PickleBuffer], bool] | None = None, *, generators: bool = True) -> bytes:
    """Pickle by value what is defined in a script or notebook (cloudpickle), by reference everything else.

    Torch writes where in memory its numbers are, which tells what a worker did before: not here. ``take`` is shown the
    content of arrays, and returns False for what it takes: that is left out of the pickle. Without ``generators``, one
    that the pickle would hold, however deep, is refused: the pickler itself walks attributes, slots and closures.

    Raises:
        InvalidInput: the value holds a random generator, and must not.
    """
    name = "cloudpickle" if importlib.util.find_spec("cloudpickle") else "joblib.externals.cloudpickle"
    cloudpickle, torch = importlib.import_module(name), sys.modules.get("torch")
    if torch is None and take is None and generators:
        return bytes(cloudpickle.dumps(value))

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,name-defined] # untyped
        def reducer_override(self, one: Any) -> Any:
            if not generators and is_generator(one):
                raise InvalidInput(
                    f"A model of type {type(value).__name__} keeps a random generator ({type(one).__name__}), whose "
                    "state gives away the noise that it drew. Remove it before 'fit' returns."
                )
            if torch is not None and _is_plain_tensor(one):
                return _reduced(one) if take is None else _beside(one)
            if take is not None and type(one) is np.memmap:  # it would be copied
                return np.asarray(one).__reduce_ex__(pickles.HIGHEST_PROTOCOL)
            return super().reducer_override(one)

    buffer = io.BytesIO()
    Pickler(buffer, protocol=pickles.HIGHEST_PROTOCOL, buffer_callback=take).dump(value)
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


def _beside(tensor: Any) -> tuple[Any, ...]:
    """A tensor as an array of its bytes, which need not be in the pickle."""
    torch = sys.modules["torch"]
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return _tensor_over, (flat.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def _tensor_over(content: Any, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """The inverse of :func:`_beside`, for pickles: a tensor that lies where its bytes do."""
    torch = importlib.import_module("torch")
    flat = torch.from_numpy(content).view(dtype) if content.size else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).requires_grad_(requires_grad)


def pack_model(
    model: Any,
    *,
    pickle: bool = False,
    factory: Callable[[dict[str, Any]], Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> bytes:
    """A model as bytes: the same model gives the same bytes, with no time and no address in them.

    Args:
        model: what a trainer's ``fit`` returned.
        pickle: whether a model of any other kind may become a pickle.
        factory: a function of the parameters that makes such a torch module, if the trainer has one.
        params: the parameters that ``factory`` was given.

    Returns:
        A file of one of the :data:`KINDS`.

    Raises:
        InvalidInput: the model is of none of the kinds that open safely, and pickles were not asked for; or it keeps a
            random generator.

    Example:
        >>> import numpy as np
        >>> kind_of(pack_model({"weights": np.zeros(3)})), kind_of(pack_model([1, 2]))
        ('npz', 'npz')
        >>> kind_of(pack_model({1, 2}, pickle=True))
        'pickle'
    """
    try:
        return _pack(model, factory, params or {})
    except InvalidInput:
        if not pickle:
            raise
    return dumps(model, generators=False)


def _pack(model: Any, factory: Callable[[dict[str, Any]], Any] | None, params: Mapping[str, Any]) -> bytes:
    from dptune.executors import _model_sklearn, _model_values  # noqa: PLC0415 - training loads when it is needed

    try:
        if is_module(model) or _tensors(model):
            return _torch().pack_torch(model, factory, params)  # type: ignore[no-any-return] # imported by name
        if _model_sklearn.is_estimator(model):
            return _model_sklearn.pack_sklearn(model)
        return _model_values.pack_values(model)
    except (_model_values.NotPlain, _model_sklearn.NotTrusted) as error:
        raise _refused(model, str(error)) from None
    except Exception as error:
        if isinstance(error, InvalidInput):
            raise
        raise _refused(model, str(error) if type(error).__name__ == "NotDescribed" else type(error).__name__) from None


def _refused(model: Any, reason: str) -> InvalidInput:
    """What is said of a model that no safe file can hold; the reason names types, never numbers."""
    return InvalidInput(
        f"A model of type {type(model).__name__} cannot be stored in a file that is safe to open ({reason}). Return "
        "arrays by name, a built-in model, a torch Sequential or a scikit-learn estimator, name a factory for another "
        "torch module, or ask for a pickle by name (pickle=True, --pickle)."
    )


def _tensors(model: Any) -> bool:
    """Whether a model is a state dict: tensors by name."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, dict) or not model:
        return False
    return all(type(name) is str and isinstance(one, torch.Tensor) for name, one in model.items())


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("safetensors") is None:
        raise InvalidInput("Torch models need torch and safetensors. Run: pip install 'dptune[torch]'.")
    return importlib.import_module("dptune.executors._model_torch")


def kind_of(content: bytes) -> str:
    """Which of the :data:`KINDS` packed bytes are; what is none of the safe ones counts as a pickle.

    Nothing is opened. Each kind is opened by its own reader, which refuses the others, so a file that pretends to be
    another kind is refused and runs nothing.

    Example:
        >>> kind_of(pack_model({"half": 0.5}))
        'npz'
    """
    if content.startswith(_ZIP):
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                return "skops" if "schema.json" in archive.namelist() else "npz"
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            return "npz"
    length = int.from_bytes(content[:_LENGTH], "little")
    if content[_LENGTH : _LENGTH + 1] == b"{" and 2 <= length <= len(content) - _LENGTH:
        return "safetensors"
    return "pickle"


def open_model(
    content: bytes,
    *,
    kind: str | None = None,
    pickle: bool = False,
    factory: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """The model again.

    Args:
        content: what :func:`pack_model` returned.
        kind: which of the :data:`KINDS` it must be; by default, what it looks like.
        pickle: whether a pickle may be opened, which runs code: only those of people you trust.
        factory: makes the torch module, where the file names a factory; what a file names is not imported.

    Raises:
        InvalidInput: it is a pickle and those were not asked for, or it needs a factory.
        Exception: the bytes are not such a file.
    """
    from dptune.executors import _model_sklearn, _model_values  # noqa: PLC0415 - training loads when it is needed

    match kind or kind_of(content):
        case "npz":
            return _model_values.open_values(content)
        case "safetensors":
            return _torch().open_torch(content, factory)
        case "skops":
            return _model_sklearn.open_sklearn(content)
    if not pickle:
        raise InvalidInput(
            "This model is a pickle, which runs code when it is opened. If you trust whoever made it, ask for that by "
            "name: open_model(pickle=True)."
        )
    return pickles.loads(content)
