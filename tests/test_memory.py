"""Memory that processes share: where it lies, that it goes with its array, and that nobody can change it."""

from __future__ import annotations

import gc
import mmap
import os
import sys

import numpy as np
import pytest

from dptune import _memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory with descriptors is Linux's")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "LARGE", 4096)


def test_a_large_array_is_found_in_its_memory_and_a_small_one_is_not() -> None:
    large, little = _memory.room((64, 32), np.float32), _memory.room((3, 2), np.float32)
    large[...] = np.arange(2048).reshape(64, 32)
    found = _memory.find(large[10:20].data)
    assert found is not None
    assert found.offset == 10 * 32 * 4
    assert os.pread(found.descriptor, 4, found.offset) == np.float32(320).tobytes()
    assert _memory.find(little.data) is None
    assert _memory.find(np.zeros(4096).data) is None


def test_the_memory_goes_with_the_last_array_in_it() -> None:
    array = _memory.room((64, 32), np.float32)
    found = _memory.find(array.data)
    assert found is not None
    view = array[3:]
    del array
    gc.collect()
    assert os.fstat(found.descriptor).st_size == 8192
    del view
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.descriptor)


def test_it_has_no_name_and_is_for_its_owner_alone() -> None:
    array = _memory.room((64, 32), np.float32)
    found = _memory.find(array.data)
    assert found is not None
    assert os.fstat(found.descriptor).st_nlink == 0


def test_sealed_memory_cannot_be_cut_nor_written_by_others() -> None:
    array = _memory.room((64, 32), np.float32)
    found = _memory.find(array.data)
    assert found is not None
    _memory.sealed(found.descriptor)
    for change in (
        lambda: os.ftruncate(found.descriptor, 0),
        lambda: os.pwrite(found.descriptor, b"x", 0),
        lambda: mmap.mmap(found.descriptor, 8192),
    ):
        with pytest.raises(OSError, match="not permitted"):
            change()


def test_what_a_mapping_writes_is_its_own() -> None:
    array = _memory.room((64, 32), np.float32)
    array[...] = 1.0
    found = _memory.find(array.data)
    assert found is not None
    copy = np.frombuffer(_memory.mapped(os.dup(_memory.sealed(found.descriptor))), np.float32)
    copy[:] = 7.0
    assert (array == 1.0).all()


def test_more_memory_than_there_is_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_available", lambda: 2**20)
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: pytest.fail("this would end other processes"))
    with pytest.raises(MemoryError):
        _memory.descriptor(2**20 + 1)


def test_the_memory_that_is_left_is_less_than_all() -> None:
    assert 2**20 < _memory._available() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_blocks_cover_all_rows_once() -> None:
    found = list(_memory.blocks(10_000_000, 200))
    assert [one.start for one in found[1:]] == [one.stop for one in found[:-1]]
    assert (found[0].start, found[-1].stop) == (0, 10_000_000)
    assert all((one.stop - one.start) * 200 <= 2**23 for one in found)
    assert list(_memory.blocks(0, 8)) == []
