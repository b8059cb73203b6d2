"""The keyed hashes of records, word by word in whole numbers: those in older files stay comparable."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from dptune.ledgers.samples import hashes_of

_ALL = 2**64 - 1


def _by_hand(columns: list[Any], key: bytes) -> list[int]:
    """A linear form of the 32-bit words of a record, modulo 2^64, then SplitMix64's finaliser."""
    found = []
    for place in range(len(columns[0])):
        words: list[int] = []
        for column in columns:
            content = np.ascontiguousarray(column[place : place + 1]).tobytes()
            content += bytes(-len(content) % 4) if content else bytes(4)
            words += [int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content), 4)]
        stream = hashlib.shake_256(b"dptune overlap" + key).digest(8 * (len(words) + 1))
        factors = [int.from_bytes(stream[i : i + 8], "little") | 1 for i in range(0, len(stream), 8)]
        value = (sum(a * b for a, b in zip(words, factors, strict=False)) + factors[-1]) & _ALL
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = ((value ^ (value >> shift)) * factor) & _ALL
        found.append(value ^ (value >> 31))
    return found


_RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "columns",
    [
        [_RNG.random((30, 5), dtype=np.float32), _RNG.integers(0, 2, 30)],
        [_RNG.integers(0, 9, (7, 3)).astype(np.uint8), np.arange(7) % 2 == 0],
        [np.asfortranarray(_RNG.random((9, 3)))],
        [_RNG.random((4, 2, 3)), np.zeros((4, 0))],
        [np.array([b"abcde", b"f"])],
    ],
    ids=["numbers", "bytes", "columns", "images", "words"],
)
def test_hashes_are_those_that_were_always_computed(columns: list[Any]) -> None:
    found = np.concatenate(list(hashes_of(columns, b"a key")))
    assert found.dtype == np.uint64
    assert found.tolist() == _by_hand(columns, b"a key")
