"""The live display of a run: elapsed time and a heartbeat, nothing that depends on a secret.

A bar that stops at a fraction of the work would reveal the number of runs, so only a rehearsal shows one. Nothing
is shown when the output is no terminal: the number of lines would depend on the duration.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptune.sealed.loop import Beat

__all__ = ["clock", "heartbeat"]


@contextlib.contextmanager
def clock(what: str) -> Iterator[None]:
    """Say on a terminal what is being done, and for how long, while it is: what may take many seconds.

    Args:
        what: said in words that do not depend on records.
    """
    if not sys.stderr.isatty() and not os.environ.get("FORCE_COLOR"):  # machines watch no clock
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow import
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - the same

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


@contextlib.contextmanager
def heartbeat(what: str) -> Iterator[Callable[[Beat], None] | None]:
    """A function to call with every sign of life, or None if nobody is watching."""
    from rich.console import Console  # noqa: PLC0415 - slow import, and machines watch no display
    from rich.status import Status  # noqa: PLC0415 - the same

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(Status(what, console=console))
        bars: list[Any] = []

        def show(beat: Beat) -> None:
            minutes, seconds = divmod(int(beat.elapsed), 60)
            text = f"{what}  {minutes}:{seconds:02d}"
            if beat.asked is None:
                status.update(text)
                return
            if not bars:
                status.stop()
                bars.append(stack.enter_context(_bar(console)))
                bars[0].add_task("")
            steps = "" if beat.steps is None else f", step {beat.steps[0]} of {beat.steps[1]}"
            bars[0].update(
                0,
                description=f"{text}  rehearsal: {beat.done} of {beat.asked} trials so far{steps}",
                completed=beat.done,
                total=max(beat.asked, 1),
                refresh=True,
            )

        yield show


def _bar(console: Any) -> Any:
    """A bar for a rehearsal, whose number of trials is no secret."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow import

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)
