"""How commands speak: tables for people, one JSON object for machines."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from dptune.errors import InvalidInput

__all__ = ["check_figure", "number", "print_json", "print_rows", "tell", "to_the_custodian", "wrapped"]

_LONGEST_WHOLE = 12  # characters of a word that a table never breaks


def _plain(value: object) -> object:
    """JSON has no infinity: a bound that does not exist is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_json(data: Mapping[str, object]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False))


def number(value: float | None, digits: int = 4) -> str:
    """A figure for a table; upper and lower bounds are printed with enough digits to compare."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if math.isfinite(value) else "none"


def print_rows(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A readable table on standard output."""
    from rich.console import Console  # noqa: PLC0415 - slow import, and machines read no tables
    from rich.table import Table  # noqa: PLC0415 - the same

    table = Table(title=title, title_justify="left", title_style="bold")
    cells = [list(row) for row in rows]
    for index, column in enumerate(columns):
        words = [word for row in cells for word in row[index].split() if len(word) <= _LONGEST_WHOLE]
        whole = max(map(len, words), default=None)  # shorter words stay whole, longer ones are folded
        table.add_column(column, justify="right" if index == 1 else "left", overflow="fold", min_width=whole)
    for row in cells:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table)  # names may hold brackets


def wrapped(text: str) -> str:
    """Sentences in lines that fit the terminal; where they had line breaks, those stay."""
    width = shutil.get_terminal_size().columns
    lines = [textwrap.fill(one, width, break_long_words=False, break_on_hyphens=False) for one in text.split("\n")]
    return "\n".join(lines)


def check_figure(place: Path | None) -> None:
    """Refuse the name of a figure that is none, before anything is computed for it."""
    if place is not None and place.suffix != ".svg":
        raise InvalidInput(f"A figure is an SVG file; got {str(place)!r}. Call it something.svg.")


def tell(line: str) -> None:
    """One line for the person at the screen; standard output is for what was released."""
    print(f"dptune: {line}", file=sys.stderr)


@contextlib.contextmanager
def to_the_custodian() -> Iterator[None]:
    """Warnings of dptune as one line each, on standard error alone: they may depend on records."""
    from dptune.ledgers import OverlapWarning  # noqa: PLC0415 - commands that run nothing need no ledger

    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, OverlapWarning):
            tell(f"warning: {message}")
        else:
            shown(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", OverlapWarning)
        warnings.showwarning = show
        yield
