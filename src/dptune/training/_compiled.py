"""The compiled kernels, if the install could build them; None otherwise."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["kernel"]

kernel: Any
try:
    kernel = importlib.import_module("dptune.training._kernel")
except ImportError:  # there was no C compiler; everything works without, more slowly
    kernel = None
