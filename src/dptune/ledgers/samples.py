"""Samples of keyed hashes of records, and of the lines of a CSV file, by which :mod:`overlap` compares data sets.

Which records are sampled is chosen by the hashes themselves, so the same ones are chosen from two data sets. What is
stored cannot be compared with records that somebody guesses without the ledger's key.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dptune.data import Dataset
from dptune.ledgers._chain import ledger_key
from dptune.units import UnitDataset

__all__ = ["MOST", "Sample", "hashes_of", "sample_of", "sample_of_lines"]

MOST = 2**14
"""The most hashes of one data set."""

_WORDS = 2**20  # of records, hashed at once
_PLAIN = "biufcSU"  # kinds of arrays whose bytes are their values
_BLOCK = 2**22  # bytes of a file that are split at once
_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """Keyed hashes of the records whose own level is at least ``level``; half of all reach a level and not the next.

    Args:
        level: from which level on records are in the sample.
        hashes: each record's keyed hash, with its level.
        of: what was hashed: "records" as they were encoded, or "lines" of a file.

    Example:
        >>> Sample(0, {b"8 bytes.": 3}).level
        0
    """

    level: int
    hashes: dict[bytes, int]
    of: str = "records"


def sample_of(data: Any, ledger: Path) -> Sample | None:
    """A sample of keyed hashes of the records.

    Args:
        data: the records, as a trainer takes them.
        ledger: the ledger, whose key is used.

    Returns:
        The sample, or None for records whose content cannot be told: only arrays, data sets of arrays, and lists of
        plain values are compared.

    Example:
        >>> from dptune.ledgers import Ledger
        >>> path = Ledger.create("hospital.ledger").path
        >>> len(sample_of(np.arange(12.0).reshape(4, 3), path).hashes)
        4
    """
    key = ledger_key(ledger)
    columns = _columns(data)
    if columns is None or not len(columns[0]):
        return None
    return _sampled(hashes_of(columns, key), key, "records")


def sample_of_lines(path: Path, ledger: Path, *, header: bool) -> Sample | None:
    """A sample of keyed hashes of the lines of a CSV file, without the space around them.

    Args:
        path: the file.
        ledger: the ledger, whose key is used.
        header: whether the first line has the names of columns: it is no record.

    Returns:
        The sample, or None for a file without a line.

    Raises:
        OSError: the file cannot be read.

    Example:
        >>> from dptune.ledgers import Ledger
        >>> ledger = Ledger.create("hospital.ledger").path
        >>> _ = Path("icu.csv").write_text("age,ill\\n50,no\\n60,yes\\n")
        >>> len(sample_of_lines(Path("icu.csv"), ledger, header=True).hashes)
        2
    """
    key = ledger_key(ledger)

    def hashes() -> Iterator[_Hashes]:
        for lines in _lines(path, header):
            # Twice 32 bits of the line, which the keyed form then mixes: quick, and enough to tell lines apart.
            yield from hashes_of([np.fromiter(map(sum_, lines), np.uint32) for sum_ in (zlib.crc32, zlib.adler32)], key)

    found = _sampled(hashes(), key, "lines")
    return found if found.hashes else None


def _lines(path: Path, header: bool) -> Iterator[list[bytes]]:
    """The lines of a file that are not blank, some at a time."""
    with path.open("rb") as stream:
        if header:
            stream.readline()
        held: list[bytes] = []
        while block := stream.read(_BLOCK):
            held.append(block)
            if b"\n" not in block:
                continue
            *whole, rest = b"".join(held).split(b"\n")
            held = [rest]
            if kept := [*filter(None, map(bytes.strip, whole))]:
                yield kept
        if last := b"".join(held).strip():
            yield [last]


def _sampled(hashes: Iterator[_Hashes], key: bytes, of: str) -> Sample:
    """The hashes that reach a level which not too many reach."""
    found, level = np.empty(0, np.uint64), 0
    for some in hashes:  # those below a level that too many reach need not be kept
        found = np.unique(np.concatenate([found, some[some <= _below(level)]]))
        while np.count_nonzero(found <= _below(level)) > MOST:
            level += 1
        found = found[found <= _below(level)]
    kept = [int(one) for one in found]
    return Sample(level, {_closed(one, key): 64 - one.bit_length() for one in kept}, of)


def _below(level: int) -> np.uint64:
    """The largest hash of a level: one with so many zeros in front."""
    return np.uint64(2 ** (64 - level) - 1)


def _columns(data: Any) -> list[npt.NDArray[Any]] | None:
    """The records as arrays with one row for each, side by side; of units, their rows."""
    if isinstance(data, UnitDataset):
        data = data.rows
    if isinstance(data, Dataset):
        return [data.x, data.y]
    columns = list(data) if isinstance(data, tuple) else [data]
    if columns and all(isinstance(one, np.ndarray) and one.ndim and one.dtype.kind in _PLAIN for one in columns):
        return columns if len({len(one) for one in columns}) == 1 else None
    if isinstance(data, list) and all(isinstance(one, str | bytes | int | float | tuple) for one in data):
        texts = (repr(one).encode("utf-8", "backslashreplace") for one in data)
        digests = [hashlib.blake2b(text, digest_size=16).digest() for text in texts]
        return [np.frombuffer(b"".join(digests), np.uint32).reshape(len(digests), 4)]
    return None


def hashes_of(columns: Sequence[npt.NDArray[Any]], key: bytes) -> Iterator[_Hashes]:
    """One 64-bit keyed hash for each record: a random linear form of its words, then mixed."""
    width = sum(_row_words(column) for column in columns)
    stream = hashlib.shake_256(b"dptune overlap" + key).digest(8 * (width + 1))
    factors = np.frombuffer(stream, np.uint64) | np.uint64(1)
    rows = max(1, _WORDS // width)
    ends = np.cumsum([_row_words(column) for column in columns])
    own = list(zip(columns, np.split(factors[:-1], ends[:-1]), strict=True))
    for start in range(0, len(columns[0]), rows):
        sums = [_words(column[start : start + rows]) @ mine for column, mine in own]  # modulo 2^64
        yield _mixed(sum(sums, factors[-1:]))


def _row_words(column: npt.NDArray[Any]) -> int:
    size = column.dtype.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    return max(1, -(-size // 4))


def _words(rows: npt.NDArray[Any]) -> _Hashes:
    """The bytes of every row, as words of 32 bits."""
    width = _row_words(rows)
    content = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8).reshape(len(rows), -1)
    if content.shape[1] == 4 * width:
        return content.view(np.uint32).astype(np.uint64)
    padded = np.zeros((len(rows), 4 * width), np.uint8)
    padded[:, : content.shape[1]] = content
    return padded.view(np.uint32).astype(np.uint64)


def _mixed(values: _Hashes) -> _Hashes:
    """The finaliser of SplitMix64: a bijection after which the front bits depend on all."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _closed(value: int, key: bytes) -> bytes:
    """What is stored: without the key it cannot be compared with records that somebody guesses."""
    return hashlib.blake2b(value.to_bytes(8, "big"), key=key, digest_size=8, person=b"dptune overlap").digest()
