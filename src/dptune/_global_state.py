"""The global state of a process that one record's computation could leave behind for the next.

The generators of Python, numpy and (where it is imported) torch, with torch's default type and gradient mode. Code of
others runs once for each record; whatever it draws, seeds or switches must be gone before the next record.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Globals", "kept"]


@dataclass(frozen=True)
class Globals:
    """A moment's state, which can be put back any number of times."""

    python: Any
    numpy: Any
    torch: tuple[Any, Any, bool] | None

    @classmethod
    def now(cls) -> Globals:
        """The present state; torch's only if somebody has imported it."""
        torch = sys.modules.get("torch")
        own = None if torch is None else (torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled())
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


@contextlib.contextmanager
def kept() -> Iterator[Globals]:
    """Whatever happens inside, the state afterwards is the one before."""
    state = Globals.now()
    try:
        yield state
    finally:
        state.restore()
