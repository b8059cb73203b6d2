"""How far a long training is, for those who watch a rehearsal.

A sealed run tells nothing: where a training is depends on when it began, and that on how many there were. So nobody
listens there, and nothing is written. In a rehearsal a worker keeps its step in a small file of the vault, which the
driver reads while it waits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["VARIABLE", "listener", "read_steps", "written_to"]

VARIABLE = "DPTUNE_REHEARSED_STEPS"
"""The environment variable that names the folder, in workers of a rehearsal alone."""

_SECONDS = 0.2
_LISTENERS: list[Callable[[int, int], None]] = []


def listener() -> Callable[[int, int], None] | None:
    """Who is to be told of steps that are done, and of how many; None where nobody is.

    Returns:
        A function of both numbers, or None.

    Example:
        >>> listener() is None
        True
    """
    return _LISTENERS[-1] if _LISTENERS else None


@contextlib.contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Keep the step of trainings within this block in a file, a few times a second; it is removed at the end.

    Args:
        path: The file.

    Example:
        >>> with written_to(Path("3")):
        ...     listener()(17, 200)
        ...     read_steps(Path())
        (17, 200)
        >>> read_steps(Path()) is None
        True
    """
    last = -_SECONDS

    def tell(done: int, steps: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS:
            last = now
            with contextlib.suppress(OSError):
                path.write_text(f"{done} {steps}", encoding="ascii")

    _LISTENERS.append(tell)
    try:
        yield
    finally:
        _LISTENERS.pop()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def read_steps(folder: Path) -> tuple[int, int] | None:
    """How many steps all trainings under way have done, and of how many.

    Args:
        folder: Where workers keep their files.

    Returns:
        Both, or None if no training is under way that tells them.

    Example:
        >>> read_steps(Path("nowhere")) is None
        True
    """
    done = steps = 0
    with contextlib.suppress(OSError):
        for path in folder.glob("[0-9-]*"):
            with contextlib.suppress(OSError, ValueError):  # it ended, or is being written
                own, whole = map(int, path.read_text(encoding="ascii").split())
                done, steps = done + own, steps + whole
    return (done, steps) if steps else None
