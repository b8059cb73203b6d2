"""Ctrl-C in :func:`dptune.tune`, and the same call once more: what was charged is said in one line, and finished.

A run of ``tune`` is finished by the call that began it, with ``resume=FOLDER``: data and trainer follow from the other
arguments, so nobody has to make them by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec

from dptune.errors import Interrupted, InvalidInput
from dptune.methods import Budget
from dptune.sealed.interrupt import WORKING_IN, before_the_charge, budget_of, interrupted, undisturbed, what_stands
from dptune.sealed.release import Release
from dptune.sealed.run import resume
from dptune.trainer import Trainer

__all__ = ["finish", "stops_in_one_line"]

P = ParamSpec("P")
_TOLD = ("executor", "beat")  # of the runner's options, what a resumed run may have otherwise


def stops_in_one_line(tune: Callable[P, Release]) -> Callable[P, Release]:
    """Let Ctrl-C in ``tune`` end in one line, also while records are read and the plan is made."""

    @functools.wraps(tune)
    def stoppable(*args: P.args, **named: P.kwargs) -> Release:
        before = WORKING_IN.set(None)
        try:
            return tune(*args, **named)
        except KeyboardInterrupt as error:
            if isinstance(error, Interrupted) and error.folder is None:
                raise
            with undisturbed():
                raise _stopped(WORKING_IN.get(), named) from None
        finally:
            WORKING_IN.reset(before)

    return stoppable


def _stopped(folder: Path | None, named: Mapping[str, object]) -> Interrupted:
    """What to raise: a run has a folder before it can be charged, so without one nothing was."""
    resumed, charge = named.get("resume"), named.get("charge")
    earlier = None if charge is None else str(charge)
    if folder is not None:
        return interrupted(what_stands(folder, f"the same call and resume={str(folder)!r}", earlier), folder)
    if resumed is not None:
        return interrupted(f"Stopped. The run in {resumed} is as it was before.")
    return interrupted(before_the_charge(earlier))


def finish(
    folder: str | Path, trainer: Trainer[Any, object], data: object, budget: Budget, options: dict[str, Any]
) -> Release:
    """Finish a run of ``tune`` that was cut off; its plan, ledger and charge are the stored ones.

    Args:
        folder: the run's.
        trainer: as the other arguments of ``tune`` made it.
        data: the same records.
        budget: as the call says it; another one than the run's is refused.
        options: those of the runner.

    Returns:
        The release.

    Raises:
        InvalidInput: there is no run in this folder, or it began otherwise.
    """
    out = options.get("out")
    if out is not None and Path(out).absolute() != Path(folder).absolute():
        raise InvalidInput(f"'resume' is {str(folder)!r} and 'out' {str(out)!r}; a run is finished in its own folder.")
    began = budget_of(folder)
    if began != budget:
        raise InvalidInput(
            f"The run in {folder} has epsilon {began.epsilon:g} at delta {began.delta:g}, not {budget.epsilon:g} at "
            f"{budget.delta:g}; finish it with the arguments that it began with."
        )
    return resume(folder, trainer, data, **{name: options[name] for name in _TOLD if name in options})
