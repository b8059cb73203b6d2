"""Where private data are charged that were given no ledger: one ledger for each user, so that one data set has one
budget whoever forgets to name it.

``$DPTUNE_LEDGER`` names the file; without it the file is in the platform's folder for a user's data.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dptune._files import make_folders, storage_errors
from dptune.errors import InvalidInput

__all__ = ["default_ledger", "is_default", "open_default_folder"]

VARIABLE = "DPTUNE_LEDGER"
_NAME = "budget.ledger"


def default_ledger() -> Path:
    """The file of the user's default ledger, whether it is there or not.

    Returns:
        ``$DPTUNE_LEDGER``, or ``dptune/budget.ledger`` in the folder that the platform keeps for a user's data, for
        example ``~/.local/share`` on Linux.

    Raises:
        InvalidInput: ``$DPTUNE_LEDGER`` is not an absolute path, so that every folder would have another ledger.

    Example:
        >>> default_ledger().is_absolute()
        True
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_absolute():
            raise InvalidInput(f"${VARIABLE} must be an absolute path, the same in every folder; got {named!r:.200}.")
        return path
    return _data_folder() / "dptune" / _NAME


def _data_folder() -> Path:
    """The platform's folder for a user's data."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    named = Path(os.environ.get("XDG_DATA_HOME") or "")
    return named if named.is_absolute() else home / ".local" / "share"  # as the XDG specification has it


def open_default_folder() -> Path:
    """The file of the default ledger, in a folder that is there, for its owner alone where it had to be made."""
    path = default_ledger()
    with storage_errors(f"The folder of the default ledger {path}"):
        make_folders(path.parent)
    return path


def is_default(path: Path) -> bool:
    """Whether a ledger is the user's default one, so that commands need not name it."""
    try:
        return path.resolve() == default_ledger().resolve()
    except InvalidInput:
        return False
