"""The handshake of a link against the published test vector of its standard, and against whoever holds other keys."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the extra 'ray' is not installed")

from dptune.executors._handshake import FIRST, SECOND, BadHandshake, Initiator, Keys, Responder

# Noise_IK_25519_ChaChaPoly_SHA256 of the vectors that Noise libraries share (cacophony.txt).
PROLOGUE = b"John Galt"
INITIATOR = Keys(bytes.fromhex("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"))
INITIATOR_ONCE = Keys(bytes.fromhex("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"))
RESPONDER = Keys(bytes.fromhex("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893"))
RESPONDER_ONCE = Keys(bytes.fromhex("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"))
HASH = "0b0f68fb0c27e03ce9b97565995ed4838cc0581b762ef72b062f6a546419fad7"
FIRST_MESSAGE = (
    "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
    "718da798efbcd91528520204f904b9bd6c7413dccdc214d951e15253e39987f1"
    "8146e8cd0873654207148333479d4d16c289f0294b29960a72f48e0b7bba2e89083169825e59642148d492020664ccf7"
)
SECOND_MESSAGE = (
    "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
    "5361e70b2ed446e6c9ec387d1d6b3b840f194e373979d241b203c4acafccf5"
)
AFTERWARDS = [
    (b"F. A. Hayek", "050e9f3c8fac16b68dbce8f8c4bfbf6617c897f9ada4aa29aa19c8"),
    (b"Carl Menger", "344233a6cabb7141d80f3da2fedc311d9646bbb0f505afe403a667"),
    (b"Jean-Baptiste Say", "62cdeeb172ad7ade7aa7d9e069da5790f12331bfa00177787a1d0810c67dc3b2b4"),
    (b"Eugen B\xf6hm von Bawerk", "029bead1b40992327044d409d9a1f3ad8f36c3c452775d557e18bbeb2e8dfcead32d514024"),
]


def test_the_published_vector() -> None:
    caller = Initiator(INITIATOR, RESPONDER.public, PROLOGUE, INITIATOR_ONCE)
    called = Responder(RESPONDER, PROLOGUE, RESPONDER_ONCE)
    first = caller.first(b"Ludwig von Mises")
    assert first.hex() == FIRST_MESSAGE
    assert called.first(first) == b"Ludwig von Mises"
    assert called.caller == INITIATOR.public
    sends, receives, second = called.second(b"Murray Rothbard")
    assert second.hex() == SECOND_MESSAGE
    speaks, hears, payload = caller.second(second)
    assert payload == b"Murray Rothbard"
    assert caller._state.hash.hex() == called._state.hash.hex() == HASH
    for number, (text, sealed) in enumerate(AFTERWARDS):
        out, back = (speaks, receives) if number % 2 == 0 else (sends, hears)
        assert out.seal(text).hex() == sealed
        assert back.open(bytes.fromhex(sealed)) == text


def test_messages_without_payload_have_fixed_sizes() -> None:
    own, other = Keys.new(), Keys.new()
    caller, called = Initiator(own, other.public, b""), Responder(other, b"")
    first = caller.first()
    called.first(first)
    assert (len(first), len(called.second()[2])) == (FIRST, SECOND)


def test_other_keys_and_other_words_are_refused() -> None:
    own, other = Keys.new(), Keys.new()
    first = Initiator(own, other.public, b"one").first()
    for responder in (Responder(Keys.new(), b"one"), Responder(other, b"two")):
        with pytest.raises(BadHandshake):
            responder.first(first)
    for place in range(len(first)):  # any bit counts; the last one of a curve point is not used by the curve
        changed = bytearray(first)
        changed[place] ^= 1
        with pytest.raises(BadHandshake):
            Responder(other, b"one").first(bytes(changed))
    with pytest.raises(BadHandshake):
        Responder(other, b"one").first(bytes(len(first)))  # a point of low order agrees on a known secret


def test_an_answer_needs_the_key_that_was_called() -> None:
    """Whoever answers without it cannot be understood, also with the initiator's public key at hand."""
    own, other = Keys.new(), Keys.new()
    caller = Initiator(own, other.public, b"")
    caller.first()
    stranger = Responder(Keys.new(), b"")
    stranger._theirs, stranger.caller = caller._once.public, own.public
    stranger._state.mix_key(b"guess")
    with pytest.raises(BadHandshake):
        caller.second(stranger.second()[2])


def test_records_cannot_be_repeated_moved_or_sent_back() -> None:
    own, other = Keys.new(), Keys.new()
    caller, called = Initiator(own, other.public, b""), Responder(other, b"")
    called.first(caller.first())
    sends, receives, second = called.second()
    speaks, hears, _ = caller.second(second)
    one, two = speaks.seal(b"one"), speaks.seal(b"two")
    with pytest.raises(BadHandshake):
        hears.open(one)  # its own words
    assert receives.open(one) == b"one"
    with pytest.raises(BadHandshake):
        receives.open(one)
    assert sends.seal(b"one") != one
    with pytest.raises(BadHandshake):  # after a failure nothing fits any more
        receives.open(two)
