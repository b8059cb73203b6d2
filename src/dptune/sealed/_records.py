"""Which records a run was charged for, so that it is not continued with others.

The mark is a hash of the records' content under a key that follows from the run's secret. It is kept in the vault,
checked when a run is resumed, and means nothing once the secret is destroyed. Only what has one plain content is
marked: arrays, numbers, texts, and tuples, lists, dictionaries and dataclasses of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.sealed.vault import Vault

__all__ = ["check_records", "mark_of"]

_FACT = "records"


class _Unknown(Exception):
    """Something whose content nobody here can tell."""


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """The content of a value, each piece after its kind and size: no two contents have the same pieces."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSUmM":
        yield f"array {value.dtype.str} {value.shape} ".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, str | bytes | int | float | bool | np.generic | None):
        content = repr(value).encode("utf-8", "backslashreplace")
        yield b"%s %d " % (type(value).__name__.encode(), len(content))
        yield content
    elif isinstance(value, tuple | list):
        yield b"%s %d " % (type(value).__name__.encode(), len(value))
        for one in value:
            yield from _pieces(one)
    elif isinstance(value, dict):
        yield from _pieces([part for item in value.items() for part in item])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _pieces([type(value).__qualname__, *(getattr(value, f.name) for f in dataclasses.fields(value))])
    else:
        raise _Unknown


def mark_of(data: Any, randomness: Randomness) -> str | None:
    """The mark of some records, or None where they have no plain content."""
    state = hashlib.blake2b(key=randomness.child("vault", "records").secret(), digest_size=32)
    try:
        for piece in _pieces(data):
            state.update(piece)
    except (_Unknown, RecursionError):
        return None
    return state.hexdigest()


def check_records(vault: Vault, data: Any) -> None:
    """Refuse records that are not those with which the run began: nobody paid for them."""
    stored = vault.facts().get(_FACT)
    if stored is not None and mark_of(data, vault.randomness()) != stored:
        raise InvalidInput(
            f"These are not the records with which the run in {vault.path.parent} began, and its charge is for those. "
            "Continue it with the same records, or start another run."
        )
