"""The exceptions of dptune.

    DptuneError
      InvalidInput        a value that cannot be: says what was given, why not, what to do
        NotComparable     a published bound whose own conditions do not hold here
      BudgetExceeded      no setting, or no remaining budget, satisfies the request
      Corrupt             a ledger or a run folder that contradicts itself, or cannot be read
      Stopped             a sealed run that stopped before its release; says how to go on, never why in detail
        Interrupted       by Ctrl-C; also a KeyboardInterrupt

Everything a user can cause derives from DptuneError, so one ``except`` is enough; on the command line
each becomes one line and exit code 2.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["BudgetExceeded", "Corrupt", "DptuneError", "Interrupted", "InvalidInput", "NotComparable", "Stopped"]


class DptuneError(Exception):
    """Base of every error that dptune raises on purpose."""


class InvalidInput(DptuneError, ValueError):
    """A value that cannot be; the message says what was given, why it cannot be and what to do."""


class NotComparable(InvalidInput):
    """A published bound was asked for outside its own conditions."""


class BudgetExceeded(DptuneError):
    """The request costs more than the budget allows, whatever is tried."""


class Corrupt(DptuneError):
    """A ledger or run folder that was damaged, edited or rolled back; the message says which and what to do."""


class Stopped(DptuneError):
    """A sealed run that stopped before its release. Details are in the vault alone: they may depend on the data."""


class Interrupted(Stopped, KeyboardInterrupt):
    """A run that was stopped by Ctrl-C; the message says what was charged and how to go on."""

    folder: Path | None = None
    """The run's, if one had begun."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the line, no traceback."""
        return [f"dptune: {self}"]
