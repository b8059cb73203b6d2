"""Large arrays of a run: workers map them, what one writes nobody else sees, and nothing is left behind."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import _memory
from dptune._repairs import hand_over
from dptune.accounting import Cost, Gdp
from dptune.data import Dataset
from dptune.executors import Processes, Task, Work
from dptune.executors._sharing import Memory, views
from dptune.executors.models import dumps
from dptune.executors.processes import hello
from dptune.methods.trial import Trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory with descriptors is Linux's")

SECRET = b"secret of the run, 32 bytes long"
TASK = Task(0, Trial(0, {"x": 1.0}, seed_label=("trial", 0)).to_json())


@dataclass(frozen=True)
class Looks:
    """A trainer whose score says where its records lie: 1 if all are in a private mapping of shared memory."""

    def cost(self, params: Any) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Any, data: Dataset, rng: Any) -> tuple[Any, float]:
        return {"sum": float(data.x.sum())}, float(_mapped(data.x) and _mapped(data.y))


@dataclass(frozen=True)
class Writes:
    """A trainer that writes into its records; its score is what it found in them."""

    def cost(self, params: Any) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Any, data: Dataset, rng: Any) -> tuple[Any, float]:
        found = float(data.x.max())
        data.x[...] = 7.0
        return {}, found


def _mapped(array: Any) -> bool:
    begin = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= begin < last:
            return "memfd:dptune" in line and rights == "rw-p" and begin + array.nbytes <= last
    return False


def _records(rows: int = 20_000) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset(rng.random((rows, 10), dtype=np.float32), rng.integers(0, 2, rows), 2)


def _work(trainer: Any, data: Any, folder: Path) -> Work:
    (folder / "vault").mkdir(exist_ok=True)
    return Work(trainer, data, SECRET, folder / "vault")


@pytest.mark.parametrize("shared", [False, True])
def test_workers_map_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    if shared:  # as if they had been read from a file
        monkeypatch.setattr(_memory, "LARGE", 2**16)
    data = _records()
    if shared:
        x = _memory.room(data.x.shape, data.x.dtype)
        x[...] = data.x
        data = Dataset(x, data.y, 2)
    session = Processes(2).open(_work(Looks(), data, tmp_path))
    try:
        for _ in range(2):
            session.submit(TASK)
        scores = [_result(session).score for _ in range(2)]
    finally:
        session.close()
    assert scores == [1.0, 1.0]
    left = {one.relative_to(tmp_path / "vault").parts[0] for one in (tmp_path / "vault").rglob("*")}
    assert left == {"output", "work"}
    assert not list((tmp_path / "vault" / "work").iterdir())


def _result(session: Any) -> Any:
    while (result := session.wait(1.0)) is None:
        pass
    assert result.error is None, result.error
    return result


def test_what_a_worker_writes_into_its_records_is_its_own(tmp_path: Path) -> None:
    data = _records()
    session = Processes(2).open(_work(Writes(), data, tmp_path))
    try:
        found = []
        for _ in range(2):  # both are free, so each goes to another worker
            session.submit(TASK)
        found = [_result(session).score for _ in range(2)]
    finally:
        session.close()
    assert found == [float(data.x.max())] * 2
    assert data.x.max() < 1.0


def _descriptors() -> list[str]:
    return sorted(one.name for one in Path("/proc/self/fd").iterdir())


def test_records_are_not_in_the_greeting_and_only_copies_are_kept(tmp_path: Path) -> None:
    data, memory = _records(), Memory()
    before = _descriptors()
    greeting = hello(_work(Looks(), data, tmp_path), memory)
    assert sum(map(len, greeting)) < 20_000 < data.x.nbytes
    assert len(memory.descriptors) == 1
    memory.close()
    assert _descriptors() == before


def test_other_machines_get_the_records_themselves(tmp_path: Path) -> None:
    data = _records()
    greeting = hello(_work(Looks(), data, tmp_path))
    assert sum(map(len, greeting)) > data.x.nbytes
    assert pickle.loads(greeting[0])[1] == []


def test_where_there_is_no_such_memory_records_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a limit on the size of files, which holds for this memory too."""
    monkeypatch.setattr(_memory, "descriptor", lambda size: None)
    data, memory = _records(), Memory()
    greeting = hello(_work(Looks(), data, tmp_path), memory)
    assert pickle.loads(greeting[0])[1] == []
    assert np.array_equal(pickle.loads(greeting[1])[1].x, data.x)
    assert not memory.descriptors


def _sent(value: Any) -> Any:
    """A value as it arrives in a worker."""
    memory = Memory()
    content = dumps(value, memory.take)
    pieces = memory.settle() or []
    copies = {one: os.dup(one) for one in memory.descriptors}
    found = pickle.loads(content, buffers=views([one._replace(descriptor=copies[one.descriptor]) for one in pieces]))
    memory.close()
    return found


def _arrays() -> Iterator[Any]:
    rng = np.random.default_rng(1)
    big = rng.random((500, 300))
    yield big
    yield np.asfortranarray(big)
    yield big[:, ::2]
    yield big.astype("S10")
    yield np.zeros((0, 3))
    yield np.arange(3)
    yield np.array(["a", None, 3.0], dtype=object)
    yield rng.integers(0, 9, 300_000, dtype=np.int8)


@pytest.mark.parametrize("array", list(_arrays()), ids=lambda one: f"{one.dtype}-{one.shape}")
def test_every_array_arrives_as_it_was(array: Any) -> None:
    found = _sent((array, "text", [array]))
    assert found[1] == "text"
    assert found[2][0] is found[0]
    assert found[0].dtype == array.dtype
    assert np.array_equal(found[0], array)
    found[0][:1] = found[0][:1]  # and can be written


def test_a_file_that_is_mapped_arrives(tmp_path: Path) -> None:
    values = np.random.default_rng(2).random((5000, 40))
    np.save(tmp_path / "x.npy", values)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = _sent((mapped, Dataset(mapped, np.zeros(5000, np.int64), 2)))
    assert type(found[0]) is np.ndarray
    assert np.array_equal(found[0], values)
    assert np.array_equal(found[1].x, values)
    assert np.array_equal(np.asarray(mapped), values)


def test_a_mapping_with_changes_of_its_own_keeps_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5000, 40)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[...] = 3.0
    assert (_sent(mapped) == 3.0).all()
    assert (np.asarray(mapped) == 3.0).all()


def test_tensors_arrive() -> None:
    torch = pytest.importorskip("torch")
    big = torch.arange(100_000, dtype=torch.float32).reshape(100, 1000)
    for tensor in (big, big.T, big.to(torch.bfloat16), big[:0], torch.tensor(3), big.requires_grad_(True)):
        found = _sent((tensor,))[0]
        assert found.dtype == tensor.dtype
        assert found.shape == tensor.shape
        assert found.requires_grad == tensor.requires_grad
        assert torch.equal(found, tensor)


def test_repairs_in_place_are_those_of_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_BLOCK", 64)  # a few rows at a time
    for kind in (np.float32, np.float64):
        x: Any = np.random.default_rng(3).normal(size=(40, 3)).astype(kind)
        x[[3, 17, 20], [0, 1, 2]] = np.nan, np.inf, -np.inf
        wanted = np.clip(np.where(np.isnan(x), 0.5, x), -1.0, 1.0)
        given = x.copy()
        found = Dataset(x, np.zeros(40, np.int64), 2, feature_range=(-1.0, 1.0), missing=0.5)
        assert np.array_equal(found.x, wanted)
        assert np.array_equal(x, given, equal_nan=True)
        handed = Dataset(hand_over(x), np.zeros(40, np.int64), 2, feature_range=(-1.0, 1.0), missing=0.5)
        assert handed.x is x
        assert np.array_equal(x, wanted)
