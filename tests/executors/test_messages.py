"""What crosses between driver and workers is data: exact for what is meant, refused for everything else."""

from __future__ import annotations

import json
import math
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.errors import InvalidInput
from dptune.executors import Result, Task
from dptune.executors._messages import (
    BadMessage,
    pack,
    pack_ready,
    pack_result,
    pack_tasks,
    unpack_ready,
    unpack_result,
    unpack_tasks,
)
from dptune.executors.models import kind_of, open_model, pack_model


@given(
    st.integers(-2, 2**40),
    st.floats(allow_nan=False),
    st.none() | st.binary(),
    st.none() | st.text(),
    st.text(),
)
def test_a_result_arrives_as_it_was(
    index: int, score: float, model: bytes | None, error: str | None, output: str
) -> None:
    sent = Result(index, score, model, error, output=output)
    got = unpack_result(pack_result(sent))
    assert got == sent
    assert math.copysign(1.0, got.score) == math.copysign(1.0, score)


def test_a_score_that_is_no_number_is_a_failure() -> None:
    assert unpack_result(pack_result(Result(0, math.nan))).score == -math.inf


def test_half_a_character_in_an_error_can_be_stored() -> None:
    got = unpack_result(pack_result(Result(0, -math.inf, error="bad \udc80", output="\ud800")))
    assert (got.error, got.output) == ("bad \\udc80", "\\ud800")
    assert unpack_ready(pack_ready("No module\n\x1b[31m named \udc80")) == "No module [31m named \\udc80"
    assert unpack_ready(pack_ready(None)) is None


def test_tasks_arrive_as_they_were() -> None:
    tasks = (Task(3, '{"a": 1}', b"\x00model"), Task(1, "{}"), Task(2, "{}", b""))
    assert unpack_tasks(pack_tasks(tasks)) == tasks


class Trap:
    """Opening this pickle leaves a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def _head(fields: Any, sizes: Any = None) -> bytes:
    head = json.dumps({"fields": fields, "sizes": {"output": 0} if sizes is None else sizes}).encode()
    return struct.pack(">I", len(head)) + head


BAD = [
    b"",
    b"\x00\x00",
    b"\xff" * 64,
    struct.pack(">I", 2) + b"{}",
    struct.pack(">I", 2) + b"[]",
    struct.pack(">I", 4) + b"null",
    struct.pack(">I", 200_000) + b"[" * 200_000,
    _head([]),
    _head({"index": 0, "score": 0.5}, []),
    _head({"index": 0, "score": 0.5}, {}),
    _head({"index": 0, "score": 0.5}, {"output": 1}),
    _head({"index": 0, "score": 0.5}, {"output": -1}),
    _head({"index": 0, "score": 0.5}, {"output": 0.0}),
    _head({"index": 0, "score": 0.5}, {"output": 0, "more": 0}),
    _head({"index": 0, "score": 0.5}, {"output": 2**62}),
    _head({"index": 0, "score": 0.5}) + b"x",
    _head({"index": 0, "score": 0.5, "died": True}),
    _head({"index": 0}),
    _head({"index": True, "score": 0.5}),
    _head({"index": 1.0, "score": 0.5}),
    _head({"index": [0], "score": 0.5}),
    _head({"index": 0, "score": True}),
    _head({"index": 0, "score": "0.5"}),
    _head({"index": 0, "score": [0.5]}),
    _head({"index": 0, "score": 10**400}),
    _head({"index": 0, "score": math.nan}),
    _head({"index": 0, "score": math.inf}),
]


@pytest.mark.parametrize("message", BAD, ids=range(len(BAD)))
def test_anything_else_is_refused(message: bytes) -> None:
    with pytest.raises(BadMessage):
        unpack_result(message)
    with pytest.raises(BadMessage):
        unpack_ready(message)


def test_a_damaged_result_is_refused_or_has_the_right_types() -> None:
    rng = random.Random(5)
    whole = pack_result(Result(7, 0.25, b"model" * 20, "error", output="out"))
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            got = unpack_result(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])]))
        except BadMessage:
            continue
        assert isinstance(got.index, int)
        assert isinstance(got.score, float)
        assert got.died is False


def test_the_driver_opens_no_pickle(tmp_path: Path) -> None:
    """Neither one in place of a message, nor one that is a model."""
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    for unpacked in (unpack_result, unpack_ready):
        with pytest.raises(BadMessage):
            unpacked(trap)
    assert unpack_result(pack_result(Result(0, 1.0, trap))).model == trap
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists()  # the control


def test_models_are_arrays_where_they_can_be() -> None:
    arrays = {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros((), np.float32), "ü x": np.array(["a", "bc"])}
    packed = pack_model(arrays)
    assert kind_of(packed) == "npz"
    assert packed == pack_model(arrays)
    again = open_model(packed)
    assert list(again) == list(arrays)
    for name, value in arrays.items():
        assert again[name].dtype == value.dtype
        assert again[name].shape == value.shape
        assert (again[name] == value).all()
    others: list[Any] = [{1: np.zeros(2)}, {"o": np.array([{}], object)}, {"m": np.ma.array([1.0])}, {1, 2}]
    for other in others:
        with pytest.raises(InvalidInput, match="cannot be stored in a file that is safe to open"):
            pack_model(other)
        packed = pack_model(other, pickle=True)
        assert kind_of(packed) == "pickle"
        with pytest.raises(InvalidInput, match="runs code when it is opened"):
            open_model(packed)
        assert type(open_model(packed, pickle=True)) is type(other)


def test_arrays_that_are_objects_are_not_opened() -> None:
    """An .npz with a pickle in it, as only somebody hostile would send."""
    import io  # noqa: PLC0415

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, o=np.array([{}], object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        open_model(buffer.getvalue())


def test_parts_need_not_be_small() -> None:
    big = bytes(3_000_000)
    assert unpack_result(pack_result(Result(0, 1.0, big))).model == big
    with pytest.raises(BadMessage):
        unpack_ready(pack({"ready": "yes"}, {}))
