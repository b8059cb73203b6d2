"""Durable files: what is written here is on the disk, or not there at all, when the call returns.

Used by the vault and the release; a crash at any moment leaves either the old state or the new one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dptune.errors import Corrupt, DptuneError

__all__ = ["connect", "private_folder", "remove_tree", "storage_errors", "sync_folder", "sync_tree", "write_durable"]


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Make a folder, and everything below it, durable."""
    for folder, _, names in os.walk(path):
        for name in names:
            with (Path(folder) / name).open("rb") as stream:
                os.fsync(stream.fileno())
        sync_folder(Path(folder))


def write_durable(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that a crash leaves the old content or the new one, never a part."""
    temporary = path.with_name(path.name + ".part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def private_folder(path: Path) -> Path:
    """A folder that only its owner may open."""
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)  # whatever the umask
    return path


def remove_tree(path: Path) -> None:
    """Remove a folder if it is there."""
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into one clear line."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if text.startswith("Could not decode"):  # SQLite's own words quote what is stored
            text = "a text in it is damaged"
        if "full" in text or "disk I/O" in text or "readonly" in text or "unable to open" in text:
            raise DptuneError(
                f"{what} could not be written ({text}). Nothing was lost; free some space or check the permissions, "
                "then try again."
            ) from None
        if "locked" in text:
            raise DptuneError(f"{what} is busy ({text}). Another process holds it; try again.") from None
        raise Corrupt(f"{what} cannot be read ({text}). Restore it from a backup; nothing was charged.") from None
    except OSError as error:
        raise DptuneError(
            f"{what} could not be read or written ({error.strerror or error}). Nothing was lost; free some space or "
            "check the path and permissions, then try again."
        ) from None


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, with explicit transactions."""
    connection = sqlite3.connect(path, timeout=60.0, isolation_level=None)
    try:
        connection.execute("PRAGMA busy_timeout=60000")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
