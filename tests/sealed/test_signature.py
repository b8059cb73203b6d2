"""One-time signatures: a published test vector, and that nothing else passes."""

from __future__ import annotations

import hashlib

from dptune.sealed._signature import Signer, verifies

SIGNER = Signer(bytes.fromhex("020b" * 16), bytes.fromhex("010a" * 8), 12)
MESSAGE = bytes.fromhex("0a0b0c0d")


def test_the_vector_of_the_reference_implementation() -> None:
    """LMOTS_SHA256_N32_W8 by cisco/hash-sigs, as other implementations of RFC 8554 test it."""
    assert SIGNER.public[48:] == "51f5845f2b0d9f2614d1e4af250e397d889e5634803d71b3e4f956ae06e63b2b"
    digest = hashlib.sha256(bytes.fromhex(SIGNER.sign(MESSAGE))).hexdigest()
    assert digest == "8a35f5d72b77851fab44c62714b1fb483d4ebb58d85fe0f08ee678febce10928"


def test_only_the_message_that_was_signed_passes() -> None:
    public, signature = SIGNER.public, SIGNER.sign(MESSAGE)
    assert verifies(public, MESSAGE, signature)
    assert not verifies(public, MESSAGE + b"\0", signature)
    assert not verifies(Signer(bytes(32), SIGNER.identifier, 12).public, MESSAGE, signature)
    for place in (0, 10, 100, len(signature) - 1):  # type, randomizer, a chain, the checksum
        digit = "0" if signature[place] != "0" else "1"
        assert not verifies(public, MESSAGE, signature[:place] + digit + signature[place + 1 :])
    for nonsense in ("", "zz", signature[:-2], signature + "00"):
        assert not verifies(public, MESSAGE, nonsense)
        assert not verifies(nonsense, MESSAGE, signature)


def test_the_private_half_is_not_shown() -> None:
    assert SIGNER.secret.hex() not in repr(SIGNER)
    assert "020b" not in repr(SIGNER)
