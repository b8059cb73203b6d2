"""The compiled kernels, if the install could build them; None otherwise."""

from __future__ import annotations

from typing import Any

from dptune._compiled import compiled

__all__ = ["kernel"]

kernel: Any = compiled("dptune.training._kernel")
