"""Rows of a reproduced figure, for people and machines, with what they say about the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Cell", "Plot", "Table", "Verdict", "verdict"]

Cell = str | int | float
Outcome = Literal["reproduces", "does not reproduce", "cannot be told"]


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper, whether it holds here, and why."""

    claim: str
    outcome: Outcome
    why: str

    def __str__(self) -> str:
        return f"{self.outcome.upper()}: {self.claim} -- {self.why}"


def verdict(claim: str, holds: bool | None, why: str) -> Verdict:
    """A verdict from a comparison that was made; None says that it could not be."""
    outcome: Outcome = "cannot be told" if holds is None else "reproduces" if holds else "does not reproduce"
    return Verdict(claim, outcome, why)


@dataclass(frozen=True)
class Plot:
    """What ``--figure`` draws: named curves over one axis."""

    x: str
    y: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = False


@dataclass(frozen=True)
class Table:
    """A title, columns, rows, notes that say what differs from the paper, and a verdict for every claim."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    plot: Plot | None = None

    def as_dicts(self) -> list[dict[str, Cell]]:
        """The rows for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __str__(self) -> str:
        cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in self.rows]
        widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(self.columns)]
        lines = [self.title, "  ".join(name.rjust(width) for name, width in zip(self.columns, widths, strict=True))]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, *self.notes, *map(str, self.verdicts)])
