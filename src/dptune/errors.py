"""The exceptions of dptune.

    DptuneError
      InvalidInput        a value that cannot be: says what was given, why not, what to do
        NotComparable     a published bound whose own conditions do not hold here
      BudgetExceeded      no setting, or no remaining budget, satisfies the request

Everything a user can cause derives from DptuneError, so one ``except`` is enough; on the command line
each becomes one line and exit code 2.
"""

from __future__ import annotations

__all__ = ["BudgetExceeded", "DptuneError", "InvalidInput", "NotComparable"]


class DptuneError(Exception):
    """Base of every error that dptune raises on purpose."""


class InvalidInput(DptuneError, ValueError):
    """A value that cannot be; the message says what was given, why it cannot be and what to do."""


class NotComparable(InvalidInput):
    """A published bound was asked for outside its own conditions."""


class BudgetExceeded(DptuneError):
    """The request costs more than the budget allows, whatever is tried."""
