"""One-time signatures from a hash function alone: LM-OTS with SHA-256, n = 32, w = 8 (RFC 8554, section 4).

A run's charge holds the public key before anything is trained; the release carries the one signature that its key
ever makes. So anybody with the ledger can tell whether a release is what the run released, and the ledger need not
be written when a run ends, which would tell how long it took. A key must never sign two different messages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["SCHEME", "Signer", "verifies"]

SCHEME = "LM-OTS SHA-256 W8 (RFC 8554)"

_CHAINS = 34  # 32 for the digest of the message, 2 for its checksum
_STEPS = 255
_TYPE = (4).to_bytes(4, "big")  # LMOTS_SHA256_N32_W8
_PUBLIC, _MESSAGE, _RANDOMIZER = b"\x80\x80", b"\x81\x81", b"\xff\xfd"
_LENGTH = 4 + 32 + 32 * _CHAINS


def _hash(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _walk(name: bytes, chain: int, start: int, end: int, value: bytes) -> bytes:
    """The value after steps ``start`` to ``end`` of one chain."""
    place = name + chain.to_bytes(2, "big")
    for step in range(start, end):
        value = hashlib.sha256(place + bytes((step,)) + value).digest()
    return value


def _digits(name: bytes, randomizer: bytes, message: bytes) -> bytes:
    """How far each chain is walked: the digest of the message, and the checksum that keeps anybody from walking on."""
    digest = _hash(name, _MESSAGE, randomizer, message)
    return digest + sum(_STEPS - digit for digit in digest).to_bytes(2, "big")


@dataclass(frozen=True, repr=False)
class Signer:
    """A private key, from a secret of 32 bytes and a public identifier of 16."""

    secret: bytes
    identifier: bytes
    number: int = 0  # of the key under this identifier; a run has one

    @property
    def _name(self) -> bytes:
        return self.identifier + self.number.to_bytes(4, "big")

    def _start(self, chain: int) -> bytes:
        return _hash(self._name, chain.to_bytes(2, "big"), b"\xff", self.secret)

    @property
    def public(self) -> str:
        """The public key, as hexadecimal text: type, identifier, number and the hash of the ends of all chains."""
        ends = [_walk(self._name, chain, 0, _STEPS, self._start(chain)) for chain in range(_CHAINS)]
        return (_TYPE + self._name + _hash(self._name, _PUBLIC, *ends)).hex()

    def sign(self, message: bytes) -> str:
        """The signature of a message, as hexadecimal text; the same message always gets the same one."""
        randomizer = _hash(self._name, _RANDOMIZER, b"\xff", self.secret)
        digits = _digits(self._name, randomizer, message)
        parts = [_walk(self._name, chain, 0, digit, self._start(chain)) for chain, digit in enumerate(digits)]
        return (_TYPE + randomizer + b"".join(parts)).hex()


def verifies(public: str, message: bytes, signature: str) -> bool:
    """Whether a signature of this message was made by the key with this public half."""
    try:
        key, given = bytes.fromhex(public), bytes.fromhex(signature)
    except (TypeError, ValueError):
        return False
    if len(key) != 4 + 20 + 32 or len(given) != _LENGTH or key[:4] != _TYPE or given[:4] != _TYPE:
        return False
    name, randomizer = key[4:24], given[4:36]
    parts = [given[36 + 32 * chain : 68 + 32 * chain] for chain in range(_CHAINS)]
    digits = _digits(name, randomizer, message)
    ends = [_walk(name, chain, digit, _STEPS, parts[chain]) for chain, digit in enumerate(digits)]
    return _hash(name, _PUBLIC, *ends) == key[24:]
