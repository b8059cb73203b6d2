"""Optional compiled modules: everything works without them, more slowly."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["compiled"]


def compiled(name: str) -> Any:
    """The extension module of this name, or None if the install could not build it (there was no C compiler)."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
