"""The errors of a federated vote.

    DptuneError
      ProtocolError       a message that the protocol does not allow here: forged, repeated, malformed
        Refused           a client's own policy says no; nothing private has left it
      Aborted             too few clients are left; nothing was unmasked
      MissingExtra        an optional dependency is not installed

A message of these never contains a vote, a loss or a secret: it may be shown to the other side.
"""

from __future__ import annotations

from dptune.errors import DptuneError

__all__ = ["Aborted", "MissingExtra", "ProtocolError", "Refused"]


class ProtocolError(DptuneError):
    """A message that this stage does not allow: what came, why it is refused. The other side sent it, so the remedy is
    always the same: this client or this vote is given up, and a new vote may be started."""


class Refused(ProtocolError):
    """A client's own policy forbids the request."""


class Aborted(DptuneError):
    """The sum was given up before anything was unmasked."""


class MissingExtra(DptuneError, ImportError):
    """An optional dependency is missing; the message says which extra brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"This needs '{package}', which is not installed: pip install 'dptune[{extra}]'.")
