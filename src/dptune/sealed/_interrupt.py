"""Ctrl-C in the middle of a run: one line that says what was charged and how to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dptune.errors import DptuneError, Interrupted
from dptune.sealed._terms import terms_of
from dptune.sealed.vault import Vault

__all__ = ["interruptible"]


@contextlib.contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into :class:`~dptune.errors.Interrupted`, after everything that was not charged was taken back."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(_what_stands(folder)) from None


def _what_stands(folder: Path) -> str:
    """What is known without looking at anything but the run's public terms."""
    vault = Vault(folder / "vault")
    if not vault.path.exists():
        return "Stopped before anything was charged."
    try:
        terms = terms_of(vault)
    except DptuneError:
        return f"Stopped. What the run in {folder} was charged stays charged: resume it."
    by_hand = f"dptune.resume({str(folder)!r}, trainer, data)"
    go_on = by_hand if terms.job is None else f"'dptune resume {folder}'"
    if terms.ledger is None:
        return f"Stopped. The rehearsal in {folder} is not charged: finish it with {go_on}, or start another one."
    return (
        f"Stopped. The run in {folder} was charged epsilon {terms.plan.price():.4g} at delta "
        f"{terms.plan.budget.delta:g} on {terms.dataset!r}, which stays charged: finish it with {go_on}, at no further "
        "charge."
    )
