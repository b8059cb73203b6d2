"""A relay between a worker and its driver that keeps every byte, as somebody who listens on the path would."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

HOST = "127.0.0.1"


class Wire:
    """A relay that keeps every byte, and may change what the worker sends."""

    def __init__(self, port: int, change: Callable[[bytes], bytes] = lambda part: part) -> None:
        self.sent, self.got, self._port, self._change = bytearray(), bytearray(), port, change
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection((HOST, self._port))
        back = threading.Thread(target=self._pump, args=(far, near, self.got, lambda part: part))
        back.start()
        self._pump(near, far, self.sent, self._change)
        back.join()
        near.close()
        far.close()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, kept: bytearray, change: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                kept += part
                sink.sendall(change(part))
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(60.0)
