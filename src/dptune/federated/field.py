"""Shamir's secret sharing of 32-byte secrets in a prime field.

Any ``threshold`` shares give the secret back, fewer say nothing about it. Shares must never be reused for
another polynomial, and the evaluation point of a holder is its index plus one, so that zero (the secret) is
never handed out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence

from dptune.federated.errors import ProtocolError

__all__ = ["PRIME", "SHARE_BYTES", "Random", "join", "new_secret", "split"]

PRIME = 2**256 - 189
"""The largest prime below 2^256: almost every 32-byte string is an element."""

SHARE_BYTES = 32

Random = Callable[[int], bytes]
"""Returns that many uniform bytes; the operating system's generator unless a test fixes it."""


def _element(random: Random) -> int:
    while True:
        value = int.from_bytes(random(SHARE_BYTES), "big")
        if value < PRIME:
            return value


def new_secret(random: Random = os.urandom) -> bytes:
    """Return a uniform 32-byte secret that is an element of the field."""
    return _element(random).to_bytes(SHARE_BYTES, "big")


def split(secret: bytes, holders: Sequence[int], threshold: int, random: Random = os.urandom) -> dict[int, bytes]:
    """Return one share for each holder, any ``threshold`` of which determine the secret."""
    constant = int.from_bytes(secret, "big")
    if len(secret) != SHARE_BYTES or constant >= PRIME:
        raise ProtocolError("A secret to be shared must be 32 bytes below the field's prime.")
    if not 1 <= threshold <= len(holders) or len(set(holders)) != len(holders) or min(holders) < 0:
        raise ProtocolError(
            f"A secret cannot be shared among {len(holders)} distinct holders with threshold {threshold}: "
            "the threshold must lie between 1 and their number."
        )
    high_to_low = [_element(random) for _ in range(threshold - 1)]
    shares = {}
    for holder in holders:
        x, value = holder + 1, 0
        for coefficient in high_to_low:
            value = (value + coefficient) * x  # x is small: one reduction at the end is cheaper than one a step
        shares[holder] = ((value + constant) % PRIME).to_bytes(SHARE_BYTES, "big")
    return shares


def _lagrange_at_zero(points: Sequence[int]) -> list[int]:
    """Weights of interpolation at zero, with one modular inversion for all of them."""
    denominators = [x * math.prod(other - x for other in points if other != x) % PRIME for x in points]
    running, prefix = 1, []
    for value in denominators:
        prefix.append(running)
        running = running * value % PRIME
    inverse = pow(running, -1, PRIME) * math.prod(points) % PRIME
    weights = [0] * len(points)
    for i in reversed(range(len(points))):
        weights[i] = inverse * prefix[i] % PRIME
        inverse = inverse * denominators[i] % PRIME
    return weights


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from at least ``threshold`` shares, keyed by holder (the first ones are used)."""
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares cannot open a secret whose threshold is {threshold}.")
    chosen = sorted(shares)[:threshold]
    weights = _lagrange_at_zero([holder + 1 for holder in chosen])
    total = 0
    for holder, weight in zip(chosen, weights, strict=True):
        share = shares[holder]
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise ProtocolError(f"The share held by client {holder} is not an element of the field.")
        total += value * weight
    return (total % PRIME).to_bytes(SHARE_BYTES, "big")
