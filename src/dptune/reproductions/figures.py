"""Drawing a reproduced figure to a file; needs matplotlib, from the extra ``report``."""

from __future__ import annotations

from pathlib import Path

from dptune.errors import InvalidInput
from dptune.reproductions.table import Table

__all__ = ["draw"]


def draw(table: Table, path: Path) -> None:
    """Draw the table's curves; the ending of the path says the format, for example ``.svg`` or ``.png``."""
    if table.plot is None:
        raise InvalidInput("This experiment is a table without curves; leave out --figure.")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput("A figure needs matplotlib. Run: pip install 'dptune[report]'.") from error
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    for name, (x, y) in table.plot.series.items():
        axes.plot(x, y, marker="o", markersize=3, label=name)
    if table.plot.log_x:
        axes.set_xscale("log")
    axes.set_xlabel(table.plot.x)
    axes.set_ylabel(table.plot.y)
    axes.set_title(table.title, fontsize=9, wrap=True)
    axes.legend(fontsize=8)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"The figure cannot be written to {path}: {error}.") from None
