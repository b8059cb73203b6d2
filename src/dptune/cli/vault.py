"""``dptune vault``: what a curator may see of a sealed run. Every reading is logged with its reason."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._commands import HELP
from dptune.cli._output import print_json
from dptune.sealed import Reading, read_vault
from dptune.sealed.reading import HEADING, trial_line

__all__ = ["vault"]

vault = typer.Typer(
    context_settings=HELP,
    no_args_is_help=True,
    help="What a curator may see of a sealed run: scores, errors, timings. Every reading is logged.",
)


@vault.callback()
def _about() -> None:
    """What a curator may see of a sealed run: scores, errors, timings. Every reading is logged."""


@vault.command()
def show(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    reason: Annotated[str, typer.Option(help="Why you read it: it is written into the vault's log.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """List trials, scores, errors and timings of a run, for its curator alone.

    Nothing of this may be released or acted upon: it is not covered by the run's statement.
    """
    found = read_vault(run, reason)
    if as_json:
        print_json(_described(found))
        return
    print("NOT TO BE RELEASED OR ACTED UPON: nothing below is covered by the run's")
    print("statement. This reading is logged.")
    print(HEADING)
    for number in sorted(found.params, key=lambda one: (one < 0, one)):
        print(_line(found, number))
    for number, text in sorted(found.errors.items()):
        print(f"\ntrial {number} failed:\n{text.rstrip()}")
    if found.notes:
        print(f"\nabout the records: {json.dumps(found.notes)}")
    print("\nread so far:")
    for time, reader, what, why in found.reads:
        print(f"  {_time(time)}  {reader}: {what}. Reason: {why}")


def _line(found: Reading, number: int) -> str:
    score = found.scores.get(number)
    shown = "under way" if score is None else f"{score:.4f}" if math.isfinite(score) else "failed"
    seconds = found.finished[number] - found.started[number] if number in found.finished else None
    deaths = f"  (its process died {found.deaths[number]} times)" if number in found.deaths else ""
    return trial_line(number, shown, seconds, found.params[number]) + deaths


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _described(found: Reading) -> dict[str, object]:
    trials = [
        {
            "trial": number,
            "params": found.params[number],
            "score": found.scores.get(number),
            "error": found.errors.get(number),
            "deaths": found.deaths.get(number, 0),
            "started": found.started[number],
            "finished": found.finished.get(number),
        }
        for number in sorted(found.params)
    ]
    reads = [{"time": _time(t), "reader": who, "what": what, "reason": why} for t, who, what, why in found.reads]
    return {"trials": trials, "notes": found.notes, "reads": reads}
