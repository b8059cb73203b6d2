"""``dptune leaderboard``: tuning methods and their rivals at the same total epsilon, on public benchmarks.

What is run and how it is judged is in ``leaderboard/``; this file only asks, prints and draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptune._validate import real
from dptune.cli._output import print_json, tell
from dptune.errors import InvalidInput

if TYPE_CHECKING:
    from dptune.leaderboard import Race, Standing

__all__ = ["leaderboard"]

_MINUTES, _QUICK_MINUTES = 120.0, 10.0
_DATA, _QUICK_DATA = "mnist,fashion-mnist,adult,imdb", "digits,adult"


def leaderboard(
    data: Annotated[str | None, typer.Option(help=f"Benchmarks, with commas between them; {_DATA}.")] = None,
    epsilon: Annotated[str, typer.Option(help="Totals, with commas between them.")] = "1,3",
    methods: Annotated[
        str | None, typer.Option(help="Entrants, with commas between them, such as planner,default; all private ones.")
    ] = None,
    repetitions: Annotated[int | None, typer.Option(help="How often each is run; 3, with --quick 2.")] = None,
    validation: Annotated[str, typer.Option(help="'private', or 'public': half of the test part scores.")] = "private",
    delta: Annotated[float, typer.Option(help="The delta of every total.")] = 1e-5,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no further run after this time; 120, with --quick 10.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that train the runs of one entrant.")] = 2,
    out: Annotated[Path, typer.Option(help="The folder that keeps what is finished.")] = Path("leaderboard"),
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Small data sets, two repetitions, ten minutes.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: the table of what is finished.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Compare tuning methods and rivals at the same total epsilon; goes on where it was stopped."""
    from dptune.leaderboard.entrants import ENTRANTS  # noqa: PLC0415 - help must not wait for engines
    from dptune.leaderboard.races import Protocol, Race, finished, race  # noqa: PLC0415 - the same
    from dptune.leaderboard.standings import described, standings  # noqa: PLC0415 - the same

    private = [name for name, one in ENTRANTS.items() if one.guaranteed]
    todo = Race(
        _names((_QUICK_DATA if quick else _DATA) if data is None else data),
        _totals(epsilon),
        tuple(private) if methods is None else _names(methods),
        repetitions if repetitions is not None else 2 if quick else 3,
        Protocol(validation, delta),
    )
    usual = _QUICK_MINUTES if quick else _MINUTES
    limit = 0.0 if show else usual if minutes is None else real("minutes", minutes, 0.0, low_open=True)
    if show and not finished(out):
        raise InvalidInput(f"The folder {out} holds no finished runs. Leave --show out to make some.")
    rows = race(todo, out, workers=workers, seconds=60.0 * limit, tell=tell)
    found = standings(rows)
    asked = len(list(todo.cells()))
    whole = {**described(found, {"validation": validation, "delta": delta}), "finished": len(rows), "asked": asked}
    _write(out, whole, found)
    if as_json:
        print_json(whole)
    else:
        _print(found, todo, len(rows), asked, out)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _totals(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _names(text))
    except ValueError:
        raise InvalidInput(f"'epsilon' must be numbers with commas between them, such as 1,3; got {text!r}.") from None


def _write(out: Path, whole: dict[str, object], found: list[Standing]) -> None:
    """The table as JSON and the picture, beside the finished cells."""
    import json  # noqa: PLC0415 - as above

    from dptune.cli._figure import write_figure  # noqa: PLC0415 - as above
    from dptune.leaderboard.standings import picture  # noqa: PLC0415 - as above

    (out / "leaderboard.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    write_figure(out / "leaderboard.svg", picture(found))


def _print(found: list[Standing], todo: Race, done: int, asked: int, out: Path) -> None:
    """A line for each standing, no wider than a screen."""
    from dptune.leaderboard.standings import overall  # noqa: PLC0415 - as above

    print("Accuracy (standard error) on test records that no run looked at, at the same total epsilon")
    for group in dict.fromkeys((one.data, one.epsilon) for one in found):
        members = [one for one in found if (one.data, one.epsilon) == group]
        saw = f"settings saw {group[0]}" if any(one.saw for one in members) else f"settings did not see {group[0]}"
        print(f"\n{group[0]}, total epsilon {group[1]:g}; {saw}")
        print(f"  {'method':18}{'accuracy':<18}{'worst':>8}{'runs':>6}{'wall s':>8}{'processor s':>13}")
        for one in members:
            error = "" if one.error is None else f" ({one.error:.4f})"
            times = f"{one.seconds:8.0f}{one.processor_seconds:13.0f}"
            note = "" if one.guaranteed else "  NOT private"
            print(f"  {one.method:18}{one.accuracy:.4f}{error:<12}{one.worst:8.4f}{one.repetitions:6}{times}{note}")
    if len({(one.data, one.epsilon) for one in found}) > 1:
        print("\nmean over all of them, of entrants that ran on each")
        for mean in overall(found):
            print(f"  {mean.method:18}{mean.accuracy:.4f}" + ("" if mean.error is None else f" ({mean.error:.4f})"))
    print(
        f"\n{todo.protocol.validation} validation, delta {todo.protocol.delta:g}; {done} of {asked} runs are finished."
    )
    print(f"The table and a picture are in {out}; the rules are docs/leaderboard.md.")
    if done < asked:
        print("The same command goes on where this one stopped.")
