"""The global state of a process that one record's computation could leave behind for the next.

The generators of Python, numpy and (where it is imported) torch, with torch's default type and device and its gradient
mode. Code of others runs once for each record; whatever it draws, seeds or switches must be gone before the next one.
What a caller has set before is not followed either: dptune computes under torch's own defaults (:func:`plain_torch`).
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Globals", "kept", "plain_torch"]


@dataclass(frozen=True)
class Globals:
    """A moment's state, which can be put back any number of times."""

    python: Any
    numpy: Any
    torch: tuple[Any, Any, bool, Any] | None

    @classmethod
    def now(cls) -> Globals:
        """The present state; torch's only if somebody has imported it."""
        torch = sys.modules.get("torch")
        own = None if torch is None else (torch.get_rng_state(), *_defaults(torch))
        return cls(random.getstate(), np.random.get_state(), own)  # noqa: NPY002 - what users draw from

    @classmethod
    def seeded(cls, seed: int) -> Globals:
        """The present state with every generator seeded; leaves the generators as they are then."""
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - as above
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.manual_seed(seed)
        return cls.now()

    def restore(self) -> None:
        """Put it back."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002 - as above
        if self.torch is not None:
            torch = sys.modules["torch"]
            torch.set_rng_state(self.torch[0])
            torch.set_default_dtype(self.torch[1])
            torch.set_grad_enabled(self.torch[2])
            _set_device(torch, self.torch[3])


def _defaults(torch: Any) -> tuple[Any, bool, Any]:
    return torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device()


def _set_device(torch: Any, device: Any) -> None:
    if torch.get_default_device() != device:
        torch.set_default_device(None if device.type == "cpu" else device)


@contextlib.contextmanager
def kept() -> Iterator[Globals]:
    """Whatever happens inside, the state afterwards is the one before."""
    state = Globals.now()
    try:
        yield state
    finally:
        state.restore()


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Torch's own defaults, whatever somebody has set: single precision, this machine's memory, gradients, no autocast,
    no search for anomalies.

    So a run is the same whatever a notebook did before it, and the same here as in a worker, which starts anew. The
    caller's defaults come back afterwards. Torch is not loaded for it. Also a decorator: ``@plain_torch()``.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    dtype, grad, device = _defaults(torch)
    precision, filling = torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")
    with contextlib.ExitStack() as stack:
        stack.callback(_set_device, torch, device)
        stack.callback(torch.set_default_dtype, dtype)
        stack.callback(torch.set_grad_enabled, grad)
        stack.callback(torch.set_float32_matmul_precision, precision)
        stack.callback(torch.set_anomaly_enabled, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        torch.set_anomaly_enabled(False)  # it raises where a record's gradient is not a number
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        _set_device(torch, torch.device("cpu"))
        if torch.get_default_device().type != "cpu":  # inside of somebody's "with torch.device(...)"
            stack.enter_context(torch.device("cpu"))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if filling:
            stack.enter_context(torch.autocast("cpu", enabled=False))
        torch.set_grad_enabled(True)
        yield
