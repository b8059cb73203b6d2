"""``dptune reproduce``: a published figure or table, computed again on this machine.

Every experiment returns a table with the paper's claims and a verdict for each; ``reproductions/catalogue.py`` names
them. This file only asks, prints and draws.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptune.cli._output import print_json, print_rows, wrapped
from dptune.errors import InvalidInput
from dptune.reproductions.catalogue import EXPERIMENTS, Experiment
from dptune.reproductions.needed import require

if TYPE_CHECKING:
    from dptune.reproductions.table import Table

__all__ = ["FIGURES", "reproduce"]

FIGURES = {name: one for name, one in EXPERIMENTS.items() if one.run is not None}
"""The experiments that can be run."""


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def reproduce(
    figure: Annotated[str | None, typer.Argument(help="One of those that --list names.")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="Name every experiment, and say which are ready.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of at most three minutes.")] = False,
    drawn: Annotated[Path | None, typer.Option("--figure", help="Draw the curves to this file, .svg or .png.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep what was trained in this folder, not in the user's cache.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Compute a published figure again, beside the paper's claim."""
    if listed:
        _list(as_json)
        return
    one = _named(figure)
    require(one.needs, quick)
    began, worked = time.monotonic(), _processor()
    from dptune.reproductions.kept import keep_in  # noqa: PLC0415 - only who computes waits for it

    with keep_in(out):
        table = one.run(quick, _progress)  # type: ignore[misc]  # a figure that can be run
    taken = time.monotonic() - began, _processor() - worked
    if as_json:
        print_json(_described(one, table, quick, taken))
    else:
        _print(one, table, quick, taken)
    if drawn is not None:  # last: what took long to compute is not lost to a folder that does not exist
        from dptune.reproductions.figures import draw  # noqa: PLC0415 - only who draws waits for it

        draw(table, drawn)


def _processor() -> float:
    """Processor seconds of this process and of those it waited for."""
    return sum(os.times()[:4])


def _print(one: Experiment, table: Table, quick: bool, taken: tuple[float, float]) -> None:
    print(wrapped(f"{one.paper}: {one.what}" + (" (quick version)" if quick else "")))
    cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in table.rows]
    print_rows(table.title, table.columns, cells)
    for line in (*table.notes, *map(str, table.verdicts)):
        print(wrapped(line))
    if one.missing:
        print(wrapped(f"Not in it: {one.missing}."))
    print(f"{taken[0]:.0f} s, {taken[1]:.0f} s of processor time.", flush=True)


def _named(figure: str | None) -> Experiment:
    """The experiment of this name, if it can be run."""
    if figure is None:
        raise InvalidInput("Name an experiment, or see them all: dptune reproduce --list.")
    if figure in EXPERIMENTS and figure not in FIGURES:
        raise InvalidInput(f"'{figure}' {EXPERIMENTS[figure].state}. See dptune reproduce --list.")
    if figure not in FIGURES:
        raise InvalidInput(f"'figure' must be one of {', '.join(FIGURES)}; got {figure!r}.")
    return FIGURES[figure]


def _described(one: Experiment, table: Table, quick: bool, taken: tuple[float, float]) -> dict[str, object]:
    judged = [{"claim": v.claim, "verdict": v.outcome, "why": v.why} for v in table.verdicts]
    return {
        "name": one.name,
        "paper": one.paper,
        "quick": quick,
        "seconds": round(taken[0], 1),
        "processor_seconds": round(taken[1], 1),
        "title": table.title,
        "rows": list(table.as_dicts()),
        "notes": list(table.notes),
        "verdicts": judged,
        "not_in_it": one.missing,
    }


def _list(as_json: bool) -> None:
    if as_json:
        every = [
            {"name": e.name, "paper": e.paper, "what": e.what, "ready": e.run is not None, "needs": e.needs,
             "missing": e.missing}
            for e in EXPERIMENTS.values()
        ]  # fmt: skip
        print_json({"experiments": every})
        return
    rows = []
    for one in EXPERIMENTS.values():
        needs = f" [needs {one.needs}]" if one.needs else ""
        left = f" ({one.missing})" if one.missing else ""
        rows.append([one.name, "no" if one.run is None else "yes", f"{one.paper}: {one.what}{needs}{left}"])
    print_rows("experiments", ["name", "ready", "what it is, what it needs, what is missing"], rows)
