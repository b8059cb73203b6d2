"""A search that can be heard by nobody: what it prints, warns or logs goes to the vault.

Surrogates warn when they do not converge, user rules print; how often they do tells how many trials there were.
Every call of a search inside the seal goes through :class:`Quiet`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dptune.methods.trial import Outcome, Search, Selection, Trial

__all__ = ["Quiet", "silence"]


def _opened(log: Path) -> TextIO:
    """For its owner alone; takes every text, as a search must not stop over what it prints."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def silence(log: Path) -> Iterator[None]:
    """Send standard output and error to a file, and keep warnings and logging still."""
    before = logging.root.manager.disable
    with _opened(log) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
                yield
        finally:
            logging.disable(before)


@dataclass(frozen=True)
class Quiet:
    """A search whose warnings and prints go to a log in the vault."""

    search: Search
    log: Path

    @property
    def done(self) -> bool:
        with silence(self.log):
            return self.search.done

    def ask(self) -> list[Trial]:
        with silence(self.log):
            return self.search.ask()

    def tell(self, outcome: Outcome) -> None:
        with silence(self.log):
            self.search.tell(outcome)

    def result(self) -> Selection:
        with silence(self.log):
            return self.search.result()
