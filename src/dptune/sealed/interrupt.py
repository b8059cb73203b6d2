"""Ctrl-C in the middle of a run: one line that says what was charged and how to go on, and no traceback.

The line is an exception, :class:`~dptune.errors.Interrupted`, so a program may catch it. If nobody does, Python calls
``sys.excepthook``: the hook set here prints the line instead of a traceback, once, and then gives way to the one that
was there before. Notebooks ask the exception itself (``_render_traceback_``).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from dptune.errors import DptuneError, Interrupted
from dptune.methods.budget import Budget
from dptune.sealed._terms import terms_of
from dptune.sealed.vault import Vault

__all__ = [
    "BEFORE_THE_CHARGE",
    "WORKING_IN",
    "before_the_charge",
    "budget_of",
    "interrupted",
    "interruptible",
    "undisturbed",
    "what_stands",
]

BEFORE_THE_CHARGE = "Stopped before anything was charged."

# The folder of the run that this call began or continued: known before anything is in it, and after the run is over.
WORKING_IN: ContextVar[Path | None] = ContextVar("WORKING_IN", default=None)


@contextlib.contextmanager
def interruptible(folder: Path, charge: str | None = None) -> Iterator[None]:
    """Turn Ctrl-C into :class:`~dptune.errors.Interrupted`, after everything that was not charged was taken back.

    Args:
        folder: the run's.
        charge: the charge that it claims, if that was committed earlier.
    """
    WORKING_IN.set(folder)
    try:
        yield
    except KeyboardInterrupt:
        with undisturbed():
            by_hand = f"dptune.resume({str(folder)!r}, trainer, data)"
            raise interrupted(what_stands(folder, by_hand, charge), folder) from None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let another Ctrl-C pass while the line about the first one is being found; it takes a moment."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():  # no other thread may set it
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def before_the_charge(charge: str | None) -> str:
    """What is said of a run that has not begun: a charge that it was to claim was committed earlier, and stands.

    Args:
        charge: that charge; None if the run was to make its own.

    Returns:
        One line.
    """
    if charge is None:
        return BEFORE_THE_CHARGE
    return f"Stopped before the run claimed the charge {charge!r}, which was made earlier and stays charged."


def interrupted(line: str, folder: Path | None = None) -> Interrupted:
    """The exception to raise for Ctrl-C, which is shown as its one line if nobody catches it.

    Args:
        line: what was charged and how to go on.
        folder: the run's, if there is one.

    Returns:
        The exception.

    Example:
        >>> interrupted(BEFORE_THE_CHARGE)
        Interrupted('Stopped before anything was charged.')
    """
    error = Interrupted(line)
    error.folder = folder
    if not isinstance(sys.excepthook, _OneLine):
        sys.excepthook = _OneLine()
    return error


class _OneLine:
    """Shows the next uncaught exception: a line for Ctrl-C in a run, anything else as before; then it is gone."""

    def __init__(self) -> None:
        self.before = sys.excepthook

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if sys.excepthook is self:
            sys.excepthook = self.before
        if isinstance(error, Interrupted):
            print(f"dptune: {error}", file=sys.stderr)
        else:
            self.before(kind, error, trace)


def what_stands(folder: Path, by_hand: str, charge: str | None = None) -> str:
    """What is known without looking at anything but the run's public terms.

    Args:
        folder: the run's.
        by_hand: how a run that was started in Python is finished.
        charge: the charge that it claims, if that was committed earlier.

    Returns:
        One line: what was charged, and how to go on.
    """
    vault = Vault(folder / "vault")
    if not vault.path.exists():
        return before_the_charge(charge)
    try:
        terms = terms_of(vault)
    except DptuneError:
        return f"Stopped. What the run in {folder} was charged stays charged: resume it."
    go_on = by_hand if terms.job is None else f"'dptune resume {folder}'"
    if terms.ledger is None:
        return f"Stopped. The rehearsal in {folder} is not charged: finish it with {go_on}, or start another one."
    return (
        f"Stopped. The run in {folder} was charged epsilon {terms.plan.price():.4g} at delta "
        f"{terms.plan.budget.delta:g} on {terms.dataset!r}, which stays charged: finish it with {go_on}, at no further "
        "charge."
    )


def budget_of(folder: str | Path) -> Budget:
    """The budget with which a run began, whether it is finished or not.

    Args:
        folder: the run's.

    Returns:
        The plan's budget.

    Raises:
        InvalidInput: there is no run in this folder.
        Corrupt: it was damaged.
    """
    return terms_of(Vault.open(Path(folder) / "vault")).plan.budget
