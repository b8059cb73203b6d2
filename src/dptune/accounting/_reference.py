"""dp-accounting's Renyi accountant, the reference for curves of sampled mechanisms, without what it does not need.

The package's ``__init__`` also imports its loss distributions, and with them scipy.signal and scipy.stats: over half a
second, more than most prices take. The Renyi accountant itself imports neither. So its modules are imported on their
own, from the package's folder, as the package's own import would load them: the same files, the same numbers. They are
kept here and not in ``sys.modules``, where somebody else's ``import dp_accounting`` must find the whole package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
from types import ModuleType

__all__ = ["renyi_accounting"]

_PACKAGE = "dp_accounting"


@functools.lru_cache(maxsize=1)
def renyi_accounting() -> tuple[ModuleType, ModuleType]:
    """dp-accounting's modules ``dp_event`` and ``rdp``.

    The whole package is imported where it is loaded already, where another thread might import it at the same time, or
    where its parts cannot be loaded on their own (another version): slower, and nothing else.
    """
    if _PACKAGE not in sys.modules and threading.active_count() == 1 and (found := _alone()) is not None:
        return found
    return importlib.import_module(f"{_PACKAGE}.dp_event"), importlib.import_module(f"{_PACKAGE}.rdp")


def _alone() -> tuple[ModuleType, ModuleType] | None:
    """The two modules under a package whose ``__init__`` did not run; nothing of it stays in ``sys.modules``."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        return None
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        found = importlib.import_module(f"{_PACKAGE}.dp_event"), importlib.import_module(f"{_PACKAGE}.rdp")
        return found if hasattr(found[1], "RdpAccountant") else None
    except (ImportError, AttributeError):
        return None
    finally:
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]
