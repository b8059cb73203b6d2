"""The public plan of one secure sum: every number that clients must agree on before they send anything.

Its digest is bound into every key, ciphertext and signature, so two clients that were shown different plans
refuse each other. A plan holds no private value and must never gain one.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.federated.errors import ProtocolError
from dptune.federated.graph import Topology, neighbours, topology

__all__ = ["SumPlan"]

_LAYOUT = struct.Struct(">4s16sHIBdH32s32s")
_MAGIC = b"dps2"
NO_ROSTER = bytes(32)


@dataclass(frozen=True)
class SumPlan:
    """One sum of vectors over a ring."""

    session: bytes
    """Sixteen random bytes that name this sum; clients take part in a session once."""
    clients: int
    length: int
    bits: int
    """The ring is the integers modulo 2^bits, 32 or 64."""
    dropout: float
    colluding: int
    subject: bytes
    """Digest of what is being summed (for a vote: candidates, votes, noise)."""
    roster: bytes = NO_ROSTER
    """Digest of the roster that vouches for keys, or zeros in open mode."""

    def __post_init__(self) -> None:
        for name, value, size in (
            ("session", self.session, 16),
            ("subject", self.subject, 32),
            ("roster", self.roster, 32),
        ):
            if len(value) != size:
                raise InvalidInput(f"'{name}' must be {size} bytes; got {len(value)}.")
        _validate.integer("length", self.length, 1, 1_000_000)
        if self.bits not in (32, 64):
            raise InvalidInput(f"'bits' must be 32 or 64; got {self.bits!r}.")
        _ = self.shape

    @cached_property
    def shape(self) -> Topology:
        """Graph degree and thresholds, recomputed by every party and never sent."""
        return topology(self.clients, self.dropout, self.colluding)

    @cached_property
    def digest(self) -> bytes:
        """Thirty-two bytes that stand for the whole plan."""
        return hashlib.sha256(b"dptune sum 2" + self.to_bytes()).digest()

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Return a client's neighbours in the public graph."""
        seed = hashlib.sha256(b"dptune graph 2" + self.digest).digest()
        return neighbours(seed, self.shape, client)

    def to_bytes(self) -> bytes:
        """Encode; equal plans have equal bytes."""
        return _LAYOUT.pack(
            _MAGIC,
            self.session,
            self.clients,
            self.length,
            self.bits,
            self.dropout,
            self.colluding,
            self.subject,
            self.roster,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> SumPlan:
        """Decode and check."""
        if len(data) != _LAYOUT.size or data[:4] != _MAGIC:
            raise ProtocolError(
                "This is not a plan that this version of dptune understands. Use one version on all sides."
            )
        _, *fields = _LAYOUT.unpack(data)
        try:
            return cls(*fields)
        except InvalidInput as bad:
            raise ProtocolError(f"The server's plan is not acceptable: {bad}") from bad


PLAN_BYTES = _LAYOUT.size
