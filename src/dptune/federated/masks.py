"""Masks: a 32-byte key becomes a vector of uniform ring elements by ChaCha20.

A key must serve one vector only, since the nonce is fixed: every caller derives its keys by HKDF with the
plan's digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dptune.federated.errors import MissingExtra

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("cryptography", "flower") from missing

__all__ = ["Ring", "stream", "to_ring", "to_signed"]

Ring = npt.NDArray[np.unsignedinteger[Any]]
"""A vector of integers modulo 2^32 or 2^64."""

_UNSIGNED: dict[int, np.dtype[np.unsignedinteger[Any]]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SIGNED: dict[int, np.dtype[np.signedinteger[Any]]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}


def stream(key: bytes, length: int, bits: int) -> Ring:
    """Return ``length`` uniform elements of the ring, determined by the key."""
    width = _UNSIGNED[bits]
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(length * width.itemsize)), dtype=width)


def to_ring(values: npt.NDArray[np.int64], bits: int) -> Ring:
    """Reduce whole numbers modulo 2^bits."""
    return values.astype(np.int64).astype(_UNSIGNED[bits])


def to_signed(values: Ring, bits: int) -> npt.NDArray[np.int64]:
    """Read ring elements as whole numbers around zero."""
    return values.astype(_UNSIGNED[bits]).view(_SIGNED[bits]).astype(np.int64)
