"""An encrypted link between the driver and a worker on another machine, and the listener to which workers come in.

Messages are padded, cut into records and encrypted under keys of this connection alone (``_noise``). Whoever connects
has a thread of its own and a deadline to prove that it holds a known key: a stranger can neither delay nor stop the
others, however many of them there are. ``docs/sealed_runs.md`` says what this defends and what it does not.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from dptune.executors._handshake import FIRST, SECOND, TAG, BadHandshake, Cipher, Initiator, Keys, Responder
from dptune.executors._messages import LARGEST

__all__ = ["Link", "LinkBroken", "Listener", "accept", "connect", "padded"]

_PROLOGUE = b"dptune link 1"
_RECORD = 65535 - TAG  # the standard's longest message
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">Q")
_SMALLEST = 4096
_PATIENCE = 10.0  # seconds to prove who one is
_STRANGERS = 128  # that may try at the same time


class LinkBroken(OSError):
    """What arrived was not sent by the other side in this order: the link cannot be used any more."""


def padded(length: int) -> int:
    """How long a message of this length is made: at least 4096 bytes, then steps of an eighth to a sixteenth."""
    step = max(_SMALLEST, 1 << max(0, length.bit_length() - 4))
    return max(1, -(-length // step)) * step


class Link:
    """Messages over one connection, encrypted. One thread may send while another receives."""

    def __init__(self, connection: socket.socket, sending: Cipher, receiving: Cipher) -> None:
        self._socket, self._sending, self._receiving = connection, sending, receiving

    def send_bytes(self, message: bytes) -> None:
        """Send one message."""
        length = _LENGTH.size + len(message)
        stream = memoryview(b"".join([_LENGTH.pack(len(message)), message, bytes(padded(length) - length)]))
        for start in range(0, len(stream), _RECORD):
            sealed = self._sending.seal(stream[start : start + _RECORD])
            self._socket.sendall(_COUNT.pack(len(sealed)) + sealed)

    def recv_bytes(self) -> bytes:
        """The next message, whole or not at all. EOFError: the other side is gone; LinkBroken: this is not from it."""
        content = bytearray(self._open_record())
        if len(content) < _LENGTH.size:
            raise LinkBroken("The message has no length.")
        length = _LENGTH.size + _LENGTH.unpack_from(content)[0]
        if length > LARGEST:
            raise LinkBroken("The message is too long.")
        total = padded(length)
        while len(content) < total:  # grows with what arrives, not with what is claimed
            content += self._open_record()
        if len(content) != total:
            raise LinkBroken("The message is longer than its length says.")
        return bytes(memoryview(content)[_LENGTH.size : length])

    def _open_record(self) -> bytes:
        size = _COUNT.unpack(_exactly(self._socket, _COUNT.size))[0]
        if size <= TAG:
            raise LinkBroken("The record is empty.")
        try:
            return self._receiving.open(_exactly(self._socket, size))
        except BadHandshake as error:
            raise LinkBroken(str(error)) from None

    def idle(self) -> bool:
        """Whether the other side waits to be spoken to: it neither closed the connection nor said anything unasked."""
        try:
            return not select.select([self._socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def hang_up(self) -> None:
        """End the conversation, also for a thread that waits on it; that thread then closes the link."""
        _hang_up(self._socket)

    def close(self) -> None:
        """End the conversation and free the connection: for the thread that uses it."""
        _hang_up(self._socket)
        self._socket.close()


def _hang_up(connection: socket.socket) -> None:
    """Wake whoever waits on a connection. Not closed here: its number could be another file's at the next moment."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _exactly(connection: socket.socket, size: int, until: float | None = None) -> bytes:
    """So many bytes, before a deadline of the monotonic clock if there is one."""
    content = bytearray()
    while len(content) < size:
        if until is not None:
            connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
        if until is not None and time.monotonic() > until:
            raise TimeoutError
    return bytes(content)


def _settle(connection: socket.socket) -> None:
    """From here on the other side may think as long as it likes; a machine that vanished is noticed."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def connect(host: str, port: int, own: Keys, driver: bytes, seconds: float = _PATIENCE) -> Link:
    """The worker's side: a link to the driver that holds the key ``driver``, and to nobody else.

    Raises:
        ConnectionError, TimeoutError: nobody is there.
        EOFError: somebody is there and hung up, for now perhaps.
        LinkBroken: somebody else is there.
    """
    until = time.monotonic() + seconds
    connection = socket.create_connection((host, port), timeout=seconds)
    try:
        hello = Initiator(own, driver, _PROLOGUE)
        connection.sendall(hello.first())
        try:
            sending, receiving, _ = hello.second(_exactly(connection, SECOND, until))
        except BadHandshake as error:
            raise LinkBroken(str(error)) from None
        _settle(connection)
        link = Link(connection, sending, receiving)
        link.send_bytes(b"")  # only whoever holds the key can: the driver waits for it before it says anything
        return link
    except BaseException:
        connection.close()
        raise


def accept(connection: socket.socket, own: Keys, known: Callable[[bytes], bool], seconds: float = _PATIENCE) -> Link:
    """The driver's side: a link to a worker whose key is known. Raises for everybody else, in ``seconds`` at most."""
    until = time.monotonic() + seconds
    hello = Responder(own, _PROLOGUE)
    hello.first(_exactly(connection, FIRST, until))
    if not known(hello.caller):
        raise BadHandshake("The caller's key is not known here.")
    sending, receiving, message = hello.second()
    connection.sendall(message)
    # A copy of an old first message gets this far: nothing is said before a record under the new key has arrived.
    size = _COUNT.unpack(_exactly(connection, _COUNT.size, until))[0]
    if size != padded(_LENGTH.size) + TAG or any(receiving.open(_exactly(connection, size, until))):
        raise BadHandshake("This is not the first record of a worker.")
    _settle(connection)
    return Link(connection, sending, receiving)


class Listener:
    """Listens for workers. Each connection has a thread, and until it has proved its key a deadline.

    When too many strangers wait, the one that has waited longest is sent away: a worker needs milliseconds.
    """

    def __init__(
        self,
        host: str,
        own: Keys,
        known: Callable[[bytes], bool],
        welcome: Callable[[Link], None],
        *,
        seconds: float = _PATIENCE,
        strangers: int = _STRANGERS,
    ) -> None:
        self._own, self._known, self._welcome = own, known, welcome
        self._seconds, self._most = seconds, strangers
        self._strangers: deque[socket.socket] = deque()
        self._links: set[Link] = set()
        self._lock, self._closing = threading.Lock(), False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=strangers)
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.5)
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # the end, or this process has too many open files for the moment
                time.sleep(0.05)
                continue
            with self._lock:
                closing = self._closing  # whoever comes in while the door closes is not among those it sends away
                self._strangers.append(connection)
                late = self._strangers.popleft() if len(self._strangers) > self._most else None
            if closing:
                self._forget(connection)
                break
            if late is not None:
                _hang_up(late)
            try:
                threading.Thread(target=self._meet, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads
                self._forget(connection)
        self._listener.close()

    def _forget(self, connection: socket.socket) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._strangers.remove(connection)
        connection.close()

    def _meet(self, connection: socket.socket) -> None:
        try:
            link = accept(connection, self._own, self._known, self._seconds)
        except Exception:  # whatever a stranger may cause: it is sent away
            self._forget(connection)
            return
        with self._lock:
            admitted = connection in self._strangers and not self._closing
            if admitted:
                self._strangers.remove(connection)
                self._links.add(link)
        try:
            if admitted:
                self._welcome(link)
        finally:
            link.close()
            with self._lock:
                self._links.discard(link)

    def close(self) -> None:
        """Let nobody in any more and send everybody away."""
        with self._lock:
            self._closing = True
            strangers, links = list(self._strangers), list(self._links)
        _hang_up(self._listener)
        for one in strangers:
            _hang_up(one)
        for link in links:
            link.hang_up()
        self._accepting.join()  # it closes the listener; it wakes up by itself twice a second
