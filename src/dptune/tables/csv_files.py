"""CSV files, record by record: rows are split before fields, so that no cell reaches into another row.

A record is a line. Quotes hold inside of one line only; a quote that is never closed is a character like any other.
A line with too few or too many fields is the missing record. The header is public and may be refused; of the lines
after it nothing is refused, and nothing is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from dptune.errors import InvalidInput
from dptune.tables._batches import Batch, check_names, wanted_names
from dptune.tables.schema import CsvFormat, Schema

__all__ = ["csv_batches", "csv_names"]

_BLOCK = 1 << 17  # the cells of a block stay in the processor's caches
_LONGEST_HEADER = 1 << 20
_DELIMITERS = (",", ";", "\t", "|")
_PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zip": "zip", ".zst": "zstandard", ".7z": "7z"}
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip or Excel",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PAR1": "Parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def csv_names(path: Path, form: CsvFormat) -> list[str]:
    """The names in the header."""
    with _opened(path) as stream:
        return _header(path, stream, form)


def csv_batches(path: Path, schema: Schema, *, labelled: bool) -> Iterator[Batch]:
    """The rows of a file, in blocks of a few hundred."""
    form = schema.csv
    with _opened(path) as stream:
        if form.header:
            names = _header(path, stream, form)
            _check_delimiter(path, names, schema)
            check_names(names, schema, str(path), labelled)
        else:  # not even the first bytes are public
            names = [column.name for column in schema.columns]
        wanted = [(name, names.index(name)) for name in wanted_names(schema, labelled)]
        for block in _blocks(stream):
            rows, malformed = _rows(block.decode(form.encoding, "backslashreplace"), form.delimiter, len(names))
            if rows:
                cells = list(zip(*rows, strict=True))
                yield Batch(len(rows), {name: cells[place] for name, place in wanted}, malformed)


def _opened(path: Path) -> IO[bytes]:
    packed = _PACKED.get(path.suffix.lower())
    if packed:
        raise InvalidInput(f"{path} is packed ({packed}); unpack it first.")
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"The table {path} cannot be read ({error.strerror}).") from None


def _header(path: Path, stream: IO[bytes], form: CsvFormat) -> list[str]:
    if not form.header:
        raise InvalidInput(f"{path} has no header, says the schema; write the schema's columns in the file's order.")
    line = stream.readline(_LONGEST_HEADER)
    for magic, what in _MAGIC.items():
        if line.startswith(magic):
            raise InvalidInput(f"{path} is not CSV text but {what}; unpack or convert it first.")
    if not line.strip():
        raise InvalidInput(f"{path} is empty, or its first line is; the first line must hold the names of the columns.")
    if b"\0" in line or len(line) >= _LONGEST_HEADER or b"\r" in line.rstrip(b"\r\n"):
        raise InvalidInput(f"The first line of {path} is not the header of a CSV file: it has no end, or is not text.")
    text = line.decode(form.encoding, "replace").removeprefix("\ufeff").rstrip("\r\n")
    return [field.strip() for field in _fields(text, form.delimiter)]


def _check_delimiter(path: Path, names: list[str], schema: Schema) -> None:
    """A header that the schema's delimiter leaves in one piece, and another would take apart."""
    known = {column.name for column in schema.columns}
    used = schema.csv.delimiter
    if known & set(names):
        return
    for other in _DELIMITERS:
        found = {field.strip() for field in _fields(used.join(names), other)}
        if other != used and len(known & found) > 1:
            raise InvalidInput(
                f"The header of {path} has none of the schema's columns when it is split at {used!r}, but has at "
                f"{other!r}: write delimiter = {other!r} into the schema's section [csv]."
            )


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, a few hundred at a time."""
    held: list[bytes] = []
    while data := stream.read(_BLOCK):
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            held.append(data)
            continue
        yield b"".join((*held, data[:cut]))
        held = [data[cut:]]
    if rest := b"".join(held):
        yield rest


def _rows(text: str, delimiter: str, width: int) -> tuple[list[tuple[str | None, ...] | list[str]], int]:
    """The rows of whole lines, each with as many cells as there are columns; a blank line is no record."""
    missing = (None,) * width
    lines = [line for line in text.split("\n") if line.strip(" \r")]
    if '"' in text:
        found = [_fields(line, delimiter) if '"' in line else line.split(delimiter) for line in lines]
    else:
        found = [line.split(delimiter) for line in lines]
    malformed = sum(len(row) != width for row in found)
    if not malformed:
        return [*found], 0
    return [row if len(row) == width else missing for row in found], malformed


@lru_cache
def _quoted(delimiter: str) -> re.Pattern[str]:
    """A field in quotes up to the delimiter or the end of the line; a doubled quote stands for one."""
    end = re.escape(delimiter)
    return re.compile(rf' *+"([^"]*+(?:""[^"]*+)*+)"[ \r]*+(?={end}|\Z)')


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line. A quote that does not enclose a whole field is a character like any other."""
    pattern, fields, place = _quoted(delimiter), [], 0
    while True:
        if found := pattern.match(line, place):
            fields.append(found[1].replace('""', '"'))
            end = found.end()
        else:
            end = line.find(delimiter, place)
            end = len(line) if end < 0 else end
            fields.append(line[place:end])
        if end >= len(line):
            return fields
        place = end + 1
