"""Memory that the processes of this machine can share: large arrays that have no name in any file system.

Records are read into such memory, and workers map it instead of getting copies. It is anonymous (``memfd``): nothing is
written to a disk, no folder shows its size, and it is gone when the last process that maps it ends, also after a crash.
Where the system has no such memory, arrays are ordinary ones and workers get copies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import mmap
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import AnyArray

__all__ = ["LARGE", "MANY", "Found", "blocks", "descriptor", "find", "let_go", "mapped", "room", "sealed"]

LARGE = 2**24
"""Arrays of at least so many bytes are worth memory of their own."""

MANY = 2**28
"""Of records of at least so many bytes, no worker makes a copy: what is needed of them is gathered for each batch."""

_BLOCK = 2**23  # bytes that are worked on at once
_SHRINK, _GROW, _FUTURE_WRITE = 0x2, 0x4, 0x10  # seals of Linux
_ROOMS: dict[int, tuple[int, int]] = {}  # address: its size and its descriptor


@dataclass(frozen=True)
class Found:
    """Where in shared memory some bytes are."""

    descriptor: int
    offset: int


def descriptor(size: int) -> int | None:
    """A new piece of anonymous memory, all zeros, for this process alone; None where there is no such thing.

    Raises:
        MemoryError: there is not enough memory.
    """
    if not hasattr(os, "memfd_create"):
        return None
    if size > _available():  # asking for it would not fail: it would end other processes
        raise MemoryError
    try:
        made = os.memfd_create("dptune", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:  # forbidden here
        return None
    try:
        os.posix_fallocate(made, 0, size)  # now, not by a signal in the middle of a run
    except OSError as error:
        os.close(made)
        if error.errno == errno.ENOMEM:
            raise MemoryError from None
        return None  # files may not be so large here, and to the system this is one
    return made


def _available() -> int:
    """The bytes of memory that are free or can be freed."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def room(shape: tuple[int, ...], dtype: Any) -> AnyArray:
    """An array to be filled; a large one lies in memory that workers can map."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    made = descriptor(size) if size >= LARGE else None
    if made is None:
        return np.empty(shape, kind)
    area = mmap.mmap(made, size)
    flat = np.frombuffer(area, np.uint8)
    _ROOMS[flat.ctypes.data] = (size, made)
    weakref.finalize(area, _forget, flat.ctypes.data, made)
    array: AnyArray = flat.view(kind).reshape(shape)
    return array


def _forget(address: int, made: int) -> None:
    _ROOMS.pop(address, None)
    with contextlib.suppress(OSError):
        os.close(made)


def find(view: memoryview) -> Found | None:
    """Where some bytes lie, if they are in a :func:`room`."""
    begin = np.frombuffer(view, np.uint8).ctypes.data if view.nbytes else 0
    for address, (size, made) in _ROOMS.items():
        if address <= begin and begin + view.nbytes <= address + size:
            return Found(made, begin - address)
    return None


def sealed(made: int) -> int:
    """The same memory, whose size nobody can change any more, and to which no other process can write."""
    for seals in (_SHRINK | _GROW, _FUTURE_WRITE):  # the second is younger than the first
        with contextlib.suppress(OSError):
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
    return made


def mapped(made: int) -> mmap.mmap:
    """The memory behind a descriptor. What is written to it is this process's own copy of that page, unseen by others;
    the descriptor is closed."""
    try:
        return mmap.mmap(made, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(made)


def blocks(count: int, row_bytes: int) -> Iterator[slice]:
    """Slices that cover ``count`` rows, a few megabytes each: what is made of them is small beside the records."""
    rows = max(1, _BLOCK // max(1, row_bytes))
    for first in range(0, count, rows):
        yield slice(first, min(first + rows, count))


def let_go(array: AnyArray) -> None:
    """Give back the memory that reading a file's mapping took; the file's pages come again when they are asked for."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        if isinstance(base, np.memmap) and base.mode != "r":  # its pages may differ from the file's
            return
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if isinstance(base, mmap.mmap) and isinstance(array.base, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
