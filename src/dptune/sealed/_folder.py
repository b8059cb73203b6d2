"""The run's folder: who may start a run in it, and what a run that was refused takes back.

The folder is locked before anything in it is looked at, made or removed, and the lock is held until the run ends. Only
what this process made is ever removed, so a second start cannot touch the first one's run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dptune._files import locked, make_folders, remove_tree, storage_errors
from dptune.errors import DptuneError, InvalidInput
from dptune.ledgers.ledger import Ledger
from dptune.methods.plan import Plan
from dptune.sealed.vault import Vault

__all__ = ["Folder", "check_unused", "new_folder", "working_in"]

_OWN_LEDGER = "run.ledger"
_TRIES = 100  # of a folder that others keep removing


@dataclass
class Folder:
    """A locked folder in which a run may begin."""

    path: Path
    created: bool  # by this process
    own: bool = False  # this process made a ledger in it

    def own_ledger(self, plan: Plan, dataset: str, unit: str) -> Ledger:
        """The ledger of a run that was given none: good for this plan's budget alone."""
        path = self.path / _OWN_LEDGER
        self.own = not path.exists()
        book = Ledger.create(path)
        if all(one.dataset != dataset for one in book.datasets()):  # it may be there from a start that was cut off
            book.add(dataset, plan.budget.epsilon, plan.budget.delta, unit, plan.cost.neighbours)
        return book

    def clean(self) -> None:
        """Leave nothing behind of a run that was refused, but what was there before."""
        if self.own:
            for end in ("", "-journal", "-wal", "-shm", ".key"):
                self.path.joinpath(_OWN_LEDGER + end).unlink(missing_ok=True)
        if self.created:
            with contextlib.suppress(OSError):
                self.path.rmdir()


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Folder]:
    """Make a folder for a new run, or take one that holds none, and keep everybody else out."""
    for _ in range(_TRIES):
        with contextlib.ExitStack() as stack:
            with storage_errors(f"The folder {path}"):
                if path.exists() and not path.is_dir():
                    raise InvalidInput(f"{path} is a file; 'out' must be a folder.")
                created = make_folders(path)
                try:
                    mine = stack.enter_context(locked(path))
                except FileNotFoundError:  # another process was refused and took its folder back
                    continue
            if mine:
                _check_empty(path)
                yield Folder(path, created)
                return
            if path.exists():
                raise _busy(path)
    raise _busy(path)


@contextlib.contextmanager
def working_in(path: Path) -> Iterator[None]:
    """Keep everybody else out of a folder with a run."""
    with contextlib.ExitStack() as stack:
        with storage_errors(f"The folder {path}"):
            mine = stack.enter_context(locked(path))
        if not mine:
            raise _busy(path)
        yield


def _busy(path: Path) -> DptuneError:
    return DptuneError(f"Another process is working on the run in {path}. Wait for it, or choose another folder.")


def check_unused(path: Path) -> None:
    """Refuse a folder that holds a run, and say whether that run is finished."""
    if not (path / "vault").exists() and not (path / "release").exists():
        return
    if _finished(path):
        raise InvalidInput(
            f"There is already a run in {path}, and it is finished: see {path / 'release' / 'statement.md'}. Choose "
            "another folder for a new one."
        )
    raise InvalidInput(
        f"There is already a run in {path}. Finish it with 'dptune resume {path}', or choose another folder."
    )


def _finished(path: Path) -> bool:
    """Whether the release of a run is out and its secret destroyed; False where the folder cannot say."""
    try:
        vault = Vault(path / "vault")
        return vault.destroyed() and Vault.open(vault.path).facts().get("state") == "released"
    except DptuneError:
        return False


def _check_empty(path: Path) -> None:
    """Refuse a folder that holds a run; take away what starts left that were cut off before they began."""
    check_unused(path)
    for unfinished in path.glob(".vault-*"):  # nobody else works here, and nothing was charged for them
        remove_tree(unfinished)
