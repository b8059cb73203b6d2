"""How commands speak: tables for people, one JSON object for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

__all__ = ["number", "print_json", "print_rows"]


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
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index == 1 else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
