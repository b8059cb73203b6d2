"""Durable files: what is written here is on the disk, or not there at all, when the call returns.

Used by the vault, the release and the ledger; a crash at any moment leaves either the old state or the new one. What
is made here belongs to its owner alone, whatever the umask says.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dptune.errors import Corrupt, DptuneError

__all__ = [
    "connect",
    "locked",
    "make_folders",
    "plain",
    "private_folder",
    "remove_tree",
    "storage_errors",
    "sync_folder",
    "sync_tree",
    "write_durable",
    "write_once",
]


def plain(text: str) -> str:
    """The same text where every file and database takes it: half a surrogate pair is spelled out.

    Texts of trainers may hold anything, and a charged run must not stop over one.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, 0o600)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def write_durable(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one, never a part."""
    temporary = path.with_name(path.name + ".part")
    _write(temporary, content)
    temporary.replace(path)
    sync_folder(path.parent)


def write_once(path: Path, content: bytes) -> bytes:
    """Write a file unless it is there; returns what it holds. Of several processes, the first one's content stays."""
    if not path.is_file():
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        _write(temporary, content)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            temporary.unlink()
        sync_folder(path.parent)
    return path.read_bytes()


def private_folder(path: Path) -> Path:
    """A folder that only its owner may open."""
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)  # whatever the umask
    return path


def make_folders(path: Path) -> bool:
    """Make a folder and those above it that are missing, for the owner alone; True if it was not there before.

    A folder that is there keeps its mode: it is its owner's.
    """
    if path.is_dir():
        return False
    if path.parent != path:
        make_folders(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process was faster, or it is a file
        if path.is_dir():
            return False
        raise
    path.chmod(0o700)
    return True


def remove_tree(path: Path) -> None:
    """Remove a folder if it is there."""
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Exclusive work in a folder; yields False if another process has it, or if it was removed meanwhile.

    The folder itself is locked, so there is no lock file that could be removed or be left behind. The lock goes with
    the process, however it ends.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield _still_there(folder, descriptor)
    finally:
        os.close(descriptor)


def _still_there(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
        raise Corrupt(f"{what} cannot be read ({text}). Restore it from a backup.") from None
    except UnicodeDecodeError:  # sqlite3 raises it where its own message quotes damaged bytes
        raise Corrupt(
            f"{what} cannot be read (it holds no text where there should be one). Restore it from a backup."
        ) from None
    except OSError as error:
        raise DptuneError(
            f"{what} could not be read or written ({error.strerror or error}). Nothing was lost; free some space or "
            "check the path and permissions, then try again."
        ) from None


def connect(path: Path, journal: str = "WAL") -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, with explicit transactions.

    A new file is for its owner alone; SQLite gives its journals the mode of the file.
    """
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    connection = sqlite3.connect(path, timeout=60.0, isolation_level=None)
    try:
        connection.execute("PRAGMA busy_timeout=60000")
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection
