"""The encrypted link and its listener: strangers, silence, garbage, wrong keys, copies, cuts and claims."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.wire import Wire

pytest.importorskip("cryptography", reason="the extra 'ray' is not installed")

from dptune.executors import _link
from dptune.executors._handshake import FIRST, Cipher, Initiator, Keys
from dptune.executors._link import Link, LinkBroken, Listener, connect, padded
from dptune.executors._messages import LARGEST

HOST = "127.0.0.1"
WORKER, DRIVER = Keys.new(), Keys.new()
LIMIT = 60.0  # seconds that nothing here takes unless it hangs


class House:
    """A listener whose guests wait in a queue."""

    def __init__(self, seconds: float = 10 * LIMIT, strangers: int = 128) -> None:
        self.guests: queue.SimpleQueue[Link] = queue.SimpleQueue()
        self.left = threading.Event()
        known = {WORKER.public}.__contains__
        self.listener = Listener(HOST, DRIVER, known, self._welcome, seconds=seconds, strangers=strangers)

    def _welcome(self, link: Link) -> None:
        self.guests.put(link)
        self.left.wait(LIMIT)

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.listener.port), timeout=LIMIT)

    def close(self) -> None:
        self.left.set()
        self.listener.close()


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


def _enter(house: House) -> tuple[Link, Link]:
    ours = connect(HOST, house.listener.port, WORKER, DRIVER.public)
    return ours, house.guests.get(timeout=LIMIT)


def _ended(connection: socket.socket) -> bool:
    """Whether the other side hung up (it would be a timeout otherwise)."""
    connection.settimeout(LIMIT)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 65510, 65511, 65512, 200_000, 3_000_001])
def test_messages_arrive_whole_in_both_directions(house: House, size: int) -> None:
    worker, driver = _enter(house)
    message = bytes(i * 7 % 251 for i in range(size % 1000)) + bytes(size - size % 1000)
    for sender, receiver in ((worker, driver), (driver, worker)):
        sending = threading.Thread(target=sender.send_bytes, args=(message,))
        sending.start()
        assert receiver.recv_bytes() == message
        sending.join()
        assert receiver.idle()
    worker.close()
    with pytest.raises(EOFError):
        driver.recv_bytes()


def test_lengths_are_hidden_in_steps() -> None:
    assert {padded(n) for n in range(1, 4097)} == {4096}
    for n in (4097, 10_000, 123_456, 10**7, 10**9 + 7):
        assert n <= padded(n) <= max(n + 4096, 1.125 * n)
        assert padded(padded(n)) == padded(n)


def test_silent_strangers_delay_nobody(house: House) -> None:
    """As many as may wait, and more: a worker that comes after them is served at once, not after their deadline."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(house.connect())
        for _ in range(127):
            stack.enter_context(house.connect())
        worker, driver = _enter(house)
        worker.send_bytes(b"here")
        assert driver.recv_bytes() == b"here"
        extra = [stack.enter_context(house.connect()) for _ in range(40)]
        assert _ended(first)  # who waited longest was sent away
        again, there = _enter(house)
        there.send_bytes(b"welcome")
        assert again.recv_bytes() == b"welcome"
        assert len(extra) == 40
        driver.send_bytes(b"still there")
        assert worker.recv_bytes() == b"still there"
        worker.close()
        again.close()


@pytest.mark.parametrize("said", [b"", b"\x00", bytes(FIRST - 1)])
def test_who_says_too_little_is_sent_away_after_a_while(said: bytes) -> None:
    house = House(seconds=0.2)
    with house.connect() as stranger:
        stranger.sendall(said)
        assert _ended(stranger)
    house.close()


def test_dripping_does_not_move_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for all bytes counts, not that since the last one."""
    now = iter(range(0, 100_000, 3))
    monkeypatch.setattr(_link, "time", SimpleNamespace(monotonic=lambda: float(next(now)), sleep=time.sleep))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"ab")
        with pytest.raises(TimeoutError):
            _link._exactly(ours, 3, until=5.0)


GARBAGE = [b"GET / HTTP/1.1\r\n\r\n" * 20, b"\xff" * 500, bytes(500), b"\x80\x04\x95" + bytes(200)]


@pytest.mark.parametrize("said", GARBAGE, ids=["http", "ones", "zeros", "pickle"])
def test_garbage_is_sent_away(house: House, said: bytes) -> None:
    with house.connect() as stranger:
        stranger.sendall(said)
        assert _ended(stranger)
    worker, driver = _enter(house)
    worker.send_bytes(b"x")
    assert driver.recv_bytes() == b"x"
    worker.close()


def test_an_unknown_key_is_sent_away(house: House) -> None:
    """Also one that knows the driver's public key, as everybody who listens to Ray does."""
    with pytest.raises((EOFError, ConnectionError)):
        connect(HOST, house.listener.port, Keys.new(), DRIVER.public)
    assert house.guests.empty()


def test_a_worker_speaks_to_its_driver_alone(house: House) -> None:
    with pytest.raises((EOFError, ConnectionError)):
        connect(HOST, house.listener.port, WORKER, Keys.new().public)
    impostor = socket.create_server((HOST, 0))
    with impostor:

        def pretend() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.recv(FIRST, socket.MSG_WAITALL)
                connection.sendall(Keys.new().public + bytes(16))
                _ended(connection)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(LinkBroken):
            connect(HOST, impostor.getsockname()[1], WORKER, DRIVER.public)
        thread.join()


def test_a_copy_of_an_old_conversation_gets_nothing(house: House) -> None:
    """The first message of IK may be repeated by a listener; it gets an answer that it cannot use, and no word more."""
    wire = Wire(house.listener.port)
    worker = connect(HOST, wire.port, WORKER, DRIVER.public)
    driver = house.guests.get(timeout=LIMIT)
    worker.send_bytes(b"a score")
    assert driver.recv_bytes() == b"a score"
    worker.close()
    driver.hang_up()
    wire.close()
    with house.connect() as copy:
        copy.sendall(bytes(wire.sent))
        copy.settimeout(LIMIT)
        heard = bytearray()
        with contextlib.suppress(ConnectionError):
            while part := copy.recv(4096):
                heard += part
    assert len(heard) <= 48
    assert house.guests.empty()


def test_the_wire_shows_no_word(house: House) -> None:
    wire = Wire(house.listener.port)
    worker = connect(HOST, wire.port, WORKER, DRIVER.public)
    driver = house.guests.get(timeout=LIMIT)
    for number in range(20):
        worker.send_bytes(b"a very private score, number %d" % number)
        driver.send_bytes(b"a very private record, number %d" % number)
        driver.recv_bytes()
        worker.recv_bytes()
    worker.close()
    driver.hang_up()
    wire.close()
    for side in (bytes(wire.sent), bytes(wire.got)):
        assert b"private" not in side
        assert WORKER.public not in side  # not even who it is
        assert len(side) > 20 * 4096


@pytest.mark.parametrize("place", [0, 1, 2, 500, 4000])
def test_a_changed_byte_breaks_the_link(house: House, place: int) -> None:
    state = {"left": FIRST + 2 + 4096 + 16 + place}  # after the handshake and the first record

    def change(part: bytes) -> bytes:
        left = state["left"]
        state["left"] -= len(part)
        if 0 <= left < len(part):
            part = part[:left] + bytes([part[left] ^ 1]) + part[left + 1 :]
        return part

    wire = Wire(house.listener.port, change)
    worker = connect(HOST, wire.port, WORKER, DRIVER.public)
    driver = house.guests.get(timeout=LIMIT)
    worker.send_bytes(b"one")
    worker.close()
    with pytest.raises((LinkBroken, EOFError)):
        driver.recv_bytes()
    driver.hang_up()
    wire.close()


def _pair() -> tuple[Link, socket.socket, Cipher]:
    """A link, and the other end with the cipher of a worker that does what it likes."""
    ours, theirs = socket.socketpair()
    key = bytes(32)
    return Link(ours, Cipher(key), Cipher(key)), theirs, Cipher(key)


def _record(content: bytes, cipher: Cipher) -> bytes:
    sealed = cipher.seal(content)
    return len(sealed).to_bytes(2, "big") + sealed


CLAIMS: list[tuple[bytes, Any]] = [
    ((2**64 - 1).to_bytes(8, "big") + bytes(4088), LinkBroken),
    (LARGEST.to_bytes(8, "big") + bytes(4088), LinkBroken),
    ((2**30).to_bytes(8, "big") + bytes(4088), EOFError),  # costs what was sent, not what was claimed
    ((3).to_bytes(8, "big") + bytes(9000), LinkBroken),
    (b"abc", LinkBroken),
]


@pytest.mark.parametrize(("content", "error"), CLAIMS, ids=["2^64", "too long", "cut", "too much", "too little"])
def test_false_lengths(content: bytes, error: type[Exception]) -> None:
    link, other, cipher = _pair()
    other.sendall(_record(content, cipher))
    other.close()
    with pytest.raises(error):
        link.recv_bytes()
    link.close()


@pytest.mark.parametrize("sent", [b"\x00", b"\x00\x00", b"\x00\x10" + bytes(16), b"\xff\xff" + bytes(100)])
def test_records_that_are_none(sent: bytes) -> None:
    link, other, _ = _pair()
    other.sendall(sent)
    other.close()
    with pytest.raises((LinkBroken, EOFError)):
        link.recv_bytes()
    link.close()


def test_a_message_that_was_cut_is_no_message() -> None:
    link, other, cipher = _pair()
    stream = (100_000).to_bytes(8, "big") + bytes(padded(100_008) - 8)
    other.sendall(_record(stream[:65519], cipher))
    other.close()
    with pytest.raises(EOFError):
        link.recv_bytes()
    link.close()


def test_a_door_that_closes_sends_everybody_away(house: House) -> None:
    worker, _ = _enter(house)
    with house.connect() as stranger:
        house.close()
        assert _ended(stranger)
        with pytest.raises(EOFError):
            worker.recv_bytes()
    worker.close()


class Turns:
    """A lock that the thread at the door gets only after the one that closes it had its turn."""

    def __init__(self, last: threading.Thread) -> None:
        self.lock, self.last, self.waits, self.had = threading.Lock(), last, threading.Event(), threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread() is self.last:
            self.waits.set()
            assert self.had.wait(LIMIT)
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        self.had.set()


def test_who_comes_in_while_the_door_closes_is_sent_away_too(house: House) -> None:
    turns: Any = Turns(house.listener._accepting)
    house.listener._lock = turns
    with house.connect() as stranger:
        assert turns.waits.wait(LIMIT)  # let in, and not yet on the list of those who wait
        house.close()
        assert _ended(stranger)


def test_the_first_message_alone_is_not_enough(house: House) -> None:
    """Whoever sends a right first message and then nothing has a deadline too; nobody is announced."""
    quick = House(seconds=0.3)
    with quick.connect() as stranger:
        stranger.sendall(Initiator(WORKER, DRIVER.public, b"dptune link 1").first())
        assert _ended(stranger)
    assert quick.guests.empty()
    quick.close()
