"""The handshake and the ciphers of a link: Noise_IK_25519_ChaChaPoly_SHA256 (Noise Protocol Framework, revision 34).

The initiator (a worker) knows the responder's (the driver's) public key; its own goes along encrypted, and the
responder decides whether it knows it. Both add a key for this connection alone. Curve, cipher, hash and key derivation
are those of ``cryptography``; here is the order in which the standard mixes them, held by its published test vectors.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["FIRST", "SECOND", "TAG", "BadHandshake", "Cipher", "Initiator", "Keys", "Responder"]

_NAME: Final = b"Noise_IK_25519_ChaChaPoly_SHA256"  # as long as its hash, so it is the first state
_KEY: Final = 32
TAG: Final = 16
FIRST: Final = _KEY + (_KEY + TAG) + TAG  # bytes of the first message: two keys, no payload
SECOND: Final = _KEY + TAG


class BadHandshake(Exception):
    """The other side does not hold the key that it should."""


@dataclass(frozen=True)
class Keys:
    """An X25519 key of one side."""

    secret: bytes

    @classmethod
    def new(cls) -> Keys:
        """Draw one from the operating system."""
        return cls(os.urandom(_KEY))

    @property
    def public(self) -> bytes:
        """What the other side may know."""
        return X25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The secret shared with the holder of another key."""
        try:
            return X25519PrivateKey.from_private_bytes(self.secret).exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise BadHandshake("This is not a usable key.") from None


class Cipher:
    """One direction of a link: every message has the next number, so none can be left out, repeated or moved."""

    def __init__(self, key: bytes) -> None:
        self._cipher, self._number = ChaCha20Poly1305(key), 0

    def _nonce(self) -> bytes:
        number, self._number = self._number, self._number + 1
        return bytes(4) + number.to_bytes(8, "little")

    def seal(self, content: bytes | memoryview, context: bytes = b"") -> bytes:
        """Encrypt the next message."""
        return self._cipher.encrypt(self._nonce(), content, context)

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Decrypt the next message."""
        try:
            return self._cipher.decrypt(self._nonce(), sealed, context)
        except InvalidTag:
            raise BadHandshake("The record is not encrypted under the key of this link.") from None


class _State:
    """The standard's symmetric state: a hash of all that was said, and a chain of keys."""

    def __init__(self, prologue: bytes, responder: bytes) -> None:
        self.hash = self._chain = _NAME
        self._cipher: Cipher | None = None
        self.mix_hash(prologue)
        self.mix_hash(responder)

    def mix_hash(self, said: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + said).digest()

    def _derive(self, secret: bytes) -> tuple[bytes, bytes]:
        both = HKDF(hashes.SHA256(), 2 * _KEY, salt=self._chain, info=b"").derive(secret)
        return both[:_KEY], both[_KEY:]

    def mix_key(self, secret: bytes) -> None:
        self._chain, key = self._derive(secret)
        self._cipher = Cipher(key)

    def seal(self, content: bytes) -> bytes:
        assert self._cipher is not None  # every pattern here agrees on a key first
        sealed = self._cipher.seal(content, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        assert self._cipher is not None
        content = self._cipher.open(sealed, self.hash)
        self.mix_hash(sealed)
        return content

    def split(self) -> tuple[Cipher, Cipher]:
        first, second = self._derive(b"")
        return Cipher(first), Cipher(second)


class Initiator:
    """The side that knows whom it calls."""

    def __init__(self, own: Keys, responder: bytes, prologue: bytes, once: Keys | None = None) -> None:
        self._own, self._responder, self._once = own, responder, once or Keys.new()
        self._state = _State(prologue, responder)

    def first(self, payload: bytes = b"") -> bytes:
        """The first message: e, es, s, ss."""
        state, once = self._state, self._once.public
        state.mix_hash(once)
        state.mix_key(self._once.agree(self._responder))
        own = state.seal(self._own.public)
        state.mix_key(self._own.agree(self._responder))
        return once + own + state.seal(payload)

    def second(self, message: bytes) -> tuple[Cipher, Cipher, bytes]:
        """Read the answer; ciphers to send and to receive with, and its payload."""
        state, theirs = self._state, message[:_KEY]
        state.mix_hash(theirs)
        state.mix_key(self._once.agree(theirs))
        state.mix_key(self._own.agree(theirs))
        payload = state.open(message[_KEY:])
        sending, receiving = state.split()
        return sending, receiving, payload


class Responder:
    """The side that is called."""

    def __init__(self, own: Keys, prologue: bytes, once: Keys | None = None) -> None:
        self._own, self._once = own, once or Keys.new()
        self._state = _State(prologue, own.public)
        self._theirs = self.caller = b""

    def first(self, message: bytes) -> bytes:
        """Read the first message; afterwards ``caller`` is the initiator's public key. Returns the payload."""
        state, rest = self._state, _KEY + _KEY + TAG
        self._theirs = message[:_KEY]
        state.mix_hash(self._theirs)
        state.mix_key(self._own.agree(self._theirs))
        self.caller = state.open(message[_KEY:rest])
        state.mix_key(self._own.agree(self.caller))
        return state.open(message[rest:])

    def second(self, payload: bytes = b"") -> tuple[Cipher, Cipher, bytes]:
        """The answer: e, ee, se. Ciphers to send and to receive with, and the message."""
        state, once = self._state, self._once.public
        state.mix_hash(once)
        state.mix_key(self._once.agree(self._theirs))
        state.mix_key(self._once.agree(self.caller))
        message = once + state.seal(payload)
        receiving, sending = state.split()
        return sending, receiving, message
