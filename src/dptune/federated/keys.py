"""Keys of one vote: X25519 agreement, HKDF, sealed shares, and the Ed25519 roster that vouches for keys.

Everything is a call into ``cryptography``; there is no cipher, curve or hash of our own. Derived keys are
bound to the digest of the plan, so that clients that were shown different plans cannot understand one
another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from dptune.errors import InvalidInput
from dptune.federated.errors import MissingExtra, ProtocolError
from dptune.federated.field import Random

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("cryptography", "flower") from missing

__all__ = ["Agreement", "Identity", "KeyPair", "PairKeys", "Roster", "open_sealed", "seal"]

_NONCE = bytes(12)  # each derived key encrypts one message


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key for one vote."""

    secret: bytes
    public: bytes

    @classmethod
    def new(cls, random: Random = os.urandom) -> KeyPair:
        """Draw a key."""
        secret = random(32)
        return cls(secret, X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())


@dataclass(frozen=True)
class PairKeys:
    """What two neighbours derive from one agreement: independent keys, so showing one says nothing of the others."""

    outward: bytes
    """Seals what the owner sends to the neighbour."""
    inward: bytes
    """Opens what the neighbour sends."""
    mask: bytes
    """Expands to the mask that one of the two adds and the other subtracts."""


class Agreement:
    """Derives keys with many peers from one secret, loaded once: loading costs as much as agreeing."""

    def __init__(self, secret: bytes, index: int, salt: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self._index, self._salt = index, salt

    @property
    def public(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes_raw()

    def with_peer(self, peer: int, public: bytes) -> PairKeys:
        """The keys that only this client and the peer can derive, for this salt and these two indices."""
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as bad:
            raise ProtocolError("A public key is not a usable X25519 key; the message was tampered with.") from bad
        low, high = sorted((self._index, peer))
        purpose = b"dptune pair 2" + low.to_bytes(2, "big") + high.to_bytes(2, "big")
        keys = HKDF(hashes.SHA256(), 96, self._salt, purpose).derive(shared)
        upward, downward, mask = keys[:32], keys[32:64], keys[64:]
        outward, inward = (upward, downward) if self._index == low else (downward, upward)
        return PairKeys(outward, inward, mask)


def seal(key: bytes, content: bytes, bound_to: bytes) -> bytes:
    """Encrypt and authenticate; the key must be used once."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, content, bound_to)


def open_sealed(key: bytes, sealed: bytes, bound_to: bytes) -> bytes | None:
    """Decrypt, or return None if the key is another or a byte was altered."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, bound_to)
    except InvalidTag:
        return None


class Identity:
    """A client's long-lived Ed25519 key, which signs the keys it uses in each vote.

    Args:
        secret: 32 bytes that only this client knows; see :meth:`new_secret`.

    Example:
        >>> from dptune.federated import Identity
        >>> identity = Identity(bytes(32))  # in earnest: Identity(Identity.new_secret())
        >>> len(identity.public), len(identity.sign(b"a message"))
        (32, 64)
    """

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def new(cls) -> Identity:
        """Draw an identity that lives as long as this object."""
        return cls(cls.new_secret())

    @staticmethod
    def new_secret() -> bytes:
        """Draw the secret of an identity; keep it where the client keeps its other keys."""
        return os.urandom(32)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)


@dataclass(frozen=True)
class Roster:
    """The public keys of all clients that may take part; a client's index is its place in sorted order.

    Args:
        members: Distinct Ed25519 public keys, in any order.

    Raises:
        InvalidInput: If a key is repeated or has not 32 bytes.

    Example:
        >>> from dptune.federated import Identity, Roster
        >>> identities = [Identity(bytes([number]) * 32) for number in range(3)]
        >>> roster = Roster.of(identity.public for identity in identities)
        >>> sorted(roster.index(identity.public) for identity in identities)
        [0, 1, 2]
    """

    members: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if any(len(key) != 32 for key in self.members) or len(set(self.members)) != len(self.members):
            raise InvalidInput("A roster lists distinct 32-byte Ed25519 public keys; check it for repeated entries.")
        object.__setattr__(self, "members", tuple(sorted(self.members)))

    @classmethod
    def of(cls, members: Iterable[bytes]) -> Roster:
        """Build a roster from public keys in any order."""
        return cls(tuple(members))

    @property
    def digest(self) -> bytes:
        """What the plan is bound to."""
        return hashlib.sha256(b"dptune roster 1" + b"".join(self.members)).digest()

    def index(self, public: bytes) -> int:
        """Return a member's index."""
        if public not in self.members:
            raise ProtocolError("This identity is not on the roster; ask the vote's organiser to add it.")
        return self.members.index(public)

    def check(self, index: int, message: bytes, signature: bytes) -> None:
        """Refuse a message that a member did not sign.

        Args:
            index: Which member.
            message: What was signed.
            signature: The signature.

        Raises:
            ProtocolError: If the signature is not the member's.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.members[index]).verify(signature, message)
        except InvalidSignature as bad:
            raise ProtocolError(
                f"The keys shown for client {index} are not signed by the roster's member: a foreign key. "
                "Nothing is sent."
            ) from bad
