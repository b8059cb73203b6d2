"""Ctrl-C in the middle of a run: one line that says what was charged and how to go on, and no traceback.

The line is an exception, :class:`~dptune.errors.Interrupted`, so a program may catch it. If nobody does, Python calls
``sys.excepthook``: the hook set here prints the line instead of a traceback, once, and then gives way to the one that
was there before. Notebooks ask the exception itself (``_render_traceback_``).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from dptune.errors import DptuneError, Interrupted
from dptune.methods.budget import Budget
from dptune.sealed._terms import terms_of
from dptune.sealed.vault import Vault

__all__ = ["BEFORE_THE_CHARGE", "budget_of", "interrupted", "interruptible", "what_stands"]

BEFORE_THE_CHARGE = "Stopped before anything was charged."


@contextlib.contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into :class:`~dptune.errors.Interrupted`, after everything that was not charged was taken back."""
    try:
        yield
    except KeyboardInterrupt:
        raise interrupted(what_stands(folder, f"dptune.resume({str(folder)!r}, trainer, data)"), folder) from None


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


def what_stands(folder: Path, by_hand: str) -> str:
    """What is known without looking at anything but the run's public terms.

    Args:
        folder: the run's.
        by_hand: how a run that was started in Python is finished.

    Returns:
        One line: what was charged, and how to go on.
    """
    vault = Vault(folder / "vault")
    if not vault.path.exists():
        return BEFORE_THE_CHARGE
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
