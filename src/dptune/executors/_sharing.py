"""How large arrays get to workers of this machine: they are mapped, not sent.

What is pickled for a worker leaves large arrays out. They are in anonymous memory (:mod:`dptune._memory`): where
records were read into it, there and nowhere else; others are copied into it once. Workers inherit the descriptors and
map the memory; what a trainer writes into its arrays is its own. Nothing of this has a name, so nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dptune import _memory

__all__ = ["Memory", "Piece", "views"]

_LEAST = 2**16  # bytes; smaller arrays are sent
_LINE = 64  # arrays begin at lines of the cache


class Piece(NamedTuple):
    """Where a worker finds the content of one array."""

    descriptor: int
    offset: int
    size: int


@dataclass
class Memory:
    """The large arrays of one session."""

    descriptors: list[int] = field(default_factory=list)
    """What workers must inherit."""
    _taken: list[Any] = field(default_factory=list)
    _own: int | None = None  # the copies

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array's content is to be in the pickle; if not, it is here."""
        if not hasattr(os, "memfd_create") or buffer.raw().nbytes < _LEAST:
            return True
        self._taken.append(buffer)
        return False

    def settle(self) -> list[Piece] | None:
        """See that everything taken is in memory that workers can map; None where there is no such memory.

        Raises:
            MemoryError: there is not enough memory.
        """
        raws = [buffer.raw() for buffer in self._taken]
        found = [_memory.find(raw) for raw in raws]
        sizes = [
            0 if known is not None else -(-raw.nbytes // _LINE) * _LINE for raw, known in zip(raws, found, strict=True)
        ]
        if sum(sizes):
            self._own = _memory.descriptor(sum(sizes))
            if self._own is None:
                self._taken.clear()
                return None
        pieces, end = [], 0
        for buffer, raw, known, size in zip(self._taken, raws, found, sizes, strict=True):
            if known is None:
                assert self._own is not None
                _copy(buffer, raw, self._own, end)
                known = _memory.Found(self._own, end)  # noqa: PLW2901
                end += size
            pieces.append(Piece(known.descriptor, known.offset, raw.nbytes))
        self._taken.clear()
        self.descriptors = sorted({_memory.sealed(piece.descriptor) for piece in pieces})
        return pieces

    def close(self) -> None:
        """Let go of the copies; the rest belongs to the arrays that are in it."""
        self._taken.clear()
        self.descriptors = []
        if self._own is not None:
            with contextlib.suppress(OSError):
                os.close(self._own)
            self._own = None


def _copy(buffer: pickle.PickleBuffer, raw: memoryview, descriptor: int, offset: int) -> None:
    """Write an array's content into the memory; a file's mapping is read and let go bit by bit."""
    source = memoryview(buffer).obj
    for part in _memory.blocks(raw.nbytes, 1):
        begin = part.start
        while begin < part.stop:
            begin += os.pwrite(descriptor, raw[begin : part.stop], offset + begin)
        if isinstance(source, np.ndarray):
            _memory.let_go(source)


def views(pieces: list[Piece]) -> list[memoryview]:
    """In a worker: the content of the arrays. Descriptors are closed, so that no child of this process has them."""
    areas = {one: memoryview(_memory.mapped(one)) for one in sorted({piece.descriptor for piece in pieces})}
    return [areas[one.descriptor][one.offset : one.offset + one.size] for one in pieces]
