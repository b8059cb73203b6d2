"""How many threads numerical libraries use: one, where results must be equal on every machine, or sums are short.

Libraries read these settings when they are loaded. Beside short sums, as accounting has, idle threads that wait for
more work use as much processor time as the one that works.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["ALONE", "loading_with_one_thread", "one_thread", "threads_alone"]

ALONE = "DPTUNE_FINAL_THREADS"
"""The environment variable that says how many threads a training may use that is alone, as the final one is."""

_NAMES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def one_thread() -> dict[str, str]:
    """Settings under which numerical libraries use one thread: equal results on every machine, no oversubscription."""
    return dict.fromkeys(_NAMES, "1")


def threads_alone() -> int:
    """How many threads a training may use while no other one runs: a public figure; one where nothing is said."""
    said = os.environ.get(ALONE, "").strip()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(said), usable)) if said.isascii() and said.isdigit() and len(said) < 6 else 1


@contextlib.contextmanager
def loading_with_one_thread() -> Iterator[None]:
    """Libraries that are first loaded inside use one thread, unless the user's environment says otherwise.

    The environment is as before afterwards, so that processes started later are not affected.
    """
    added = {name: value for name, value in one_thread().items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
