"""How commands speak: tables for people, one JSON object for machines."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

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
    """A readable table on standard output; one that is too wide goes on below, its first columns repeated."""
    from rich.console import Console  # noqa: PLC0415 - slow import, and machines read no tables
    from rich.table import Table  # noqa: PLC0415 - the same

    console = Console(markup=False, emoji=False)  # names may hold brackets
    names, cells = list(columns), [list(row) for row in rows]
    whole = [_whole([row[index] for row in [names, *cells]]) or 1 for index in range(len(names))]
    longest = [max(len(row[index]) for row in [names, *cells]) for index in range(len(names))]
    parts, fixed = [list(range(len(names)))], list[int | None](_shared(whole, longest, console.width))
    if sum(width + 3 for width in whole) + 1 > console.width:
        words = [[word for row in [names, *cells] for word in row[index].split()] for index in range(len(names))]
        widths = [min(_LONGEST_WHOLE + 1, max(map(len, each), default=1)) for each in words]
        parts, fixed = _side_by_side(cells, widths, console.width), list[int | None](widths)
    for part, places in enumerate(parts):
        table = Table(title=None if part else title, title_justify="left", title_style="bold")
        for index in places:
            side: Literal["left", "right"] = "right" if index == 1 else "left"
            table.add_column(names[index], justify=side, overflow="fold", width=fixed[index])
        for row in cells:
            table.add_row(*(row[index] for index in places))
        console.print(table)


def _whole(cells: Iterable[str]) -> int | None:
    """The longest word of a column that stays whole; longer ones are folded."""
    return max((len(word) for cell in cells for word in cell.split() if len(word) <= _LONGEST_WHOLE), default=None)


def _shared(least: Sequence[int], most: Sequence[int], width: int) -> list[int]:
    """How wide columns are: what they need at least, then what makes the shortest whole, the rest to the longest."""
    left, found = width - 1 - sum(one + 3 for one in least), list(least)
    for index in sorted(range(len(least)), key=lambda place: most[place] - least[place]):
        more = min(max(0, left), max(0, most[index] - least[index]))
        found[index] += more
        left -= more
    return found


def _side_by_side(cells: Sequence[Sequence[str]], needed: Sequence[int], width: int) -> list[list[int]]:
    """Which columns stand together: parts that all begin with the first columns up to one of figures, at most three."""
    count = len(needed)
    figures = [
        any("." in row[index] and not row[index].strip("-+.0123456789e") for row in cells) for index in range(count)
    ]
    keys = list(range(min(3, max(1, next((index for index in range(count) if figures[index]), 1)))))
    room = width - 1 - sum(needed[index] + 3 for index in keys)
    parts, left = [list(keys)], room
    for index in range(len(keys), count):
        if needed[index] + 3 > left and len(parts[-1]) > len(keys):
            parts.append(list(keys))
            left = room
        parts[-1].append(index)
        left -= needed[index] + 3
    return parts


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
