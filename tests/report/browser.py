"""A browser for tests: Chromium without a window, driven over a pipe by its own protocol. No driver is installed.

Everything that it asks the network for, and everything on its console, is written down.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The program, if it is installed."""
    return next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)


class Browser:
    """One page in a running Chromium.

    Args:
        send: the end of a pipe to which commands are written.
        receive: the end from which answers and events are read.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._number = b"", 0
        self.requests: list[str] = []
        self.console: list[str] = []
        self._session: str | None = None
        self._loaded = False
        made = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._receive, 1 << 20)
            if not more:
                raise EOFError("The browser is gone.")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        kind, values = message.get("method"), message.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.console.append(json.dumps(values)[:500])
        elif kind == "Log.entryAdded":
            self.console.append(values["entry"]["text"])
        elif kind == "Page.loadEventFired":
            self._loaded = True

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._send, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(self, page: Path, width: int = 1000, dark: bool = False) -> None:
        """Show a file at a width."""
        self.requests.clear()
        self.console.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.media("screen", dark)
        self._loaded = False
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not self._loaded:
            self._note(self._message())

    def media(self, kind: str, dark: bool = False) -> None:
        """What the page is shown on."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=scheme)

    def value(self, expression: str) -> Any:
        """What an expression comes to on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])

    def screenshot(self, whole: bool = True) -> bytes:
        """The page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A running Chromium; skips the test where none is installed."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol wants its pipes as descriptors 3 and 4.
        script = f'exec 3<&{to_read} 4>&{from_write}; exec "$0" "$@"'
        command = ["bash", "-c", script, program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(from_write)
        try:
            found = Browser(to_write, from_read)
            yield found
            found._session = None
            with contextlib.suppress(EOFError, OSError):
                found.call("Browser.close")
        finally:
            os.close(to_write)
            os.close(from_read)
            process.kill()
            process.wait()
