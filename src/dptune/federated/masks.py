"""Masks: a 32-byte key becomes a vector of uniform ring elements by ChaCha20.

The key stream is what the cipher makes of zeros; the authenticated form is called, and its tag dropped, because
``cryptography`` sets it up in a quarter of the time.

A key must serve one vector only, since the nonce is fixed: every caller derives its keys (HKDF, or SHA-256 of a fresh
seed) with the plan's digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dptune._typing import Indices
from dptune.federated.errors import MissingExtra

try:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("cryptography", "flower") from missing

__all__ = ["Ring", "stream", "to_ring", "to_signed"]

Ring = npt.NDArray[np.unsignedinteger[Any]]
"""A vector of integers modulo 2^32 or 2^64."""

_NONCE = bytes(12)
_UNSIGNED: dict[int, np.dtype[np.unsignedinteger[Any]]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SIGNED: dict[int, np.dtype[np.signedinteger[Any]]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}


def stream(key: bytes, length: int, bits: int) -> Ring:
    """Return ``length`` uniform elements of the ring, determined by the key."""
    width = _UNSIGNED[bits]
    keystream = ChaCha20Poly1305(key).encrypt(_NONCE, bytes(length * width.itemsize), None)
    return np.frombuffer(keystream, dtype=width, count=length)


def to_ring(values: Indices, bits: int) -> Ring:
    """Reduce whole numbers modulo 2^bits."""
    return values.astype(np.int64).astype(_UNSIGNED[bits])


def to_signed(values: Ring, bits: int) -> Indices:
    """Read ring elements as whole numbers around zero."""
    return values.astype(_UNSIGNED[bits]).view(_SIGNED[bits]).astype(np.int64)
