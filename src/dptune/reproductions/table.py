"""Rows of a reproduced figure, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Table"]

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """A title, columns, rows, and notes that say what differs from the paper and what does not reproduce."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def as_dicts(self) -> list[dict[str, Cell]]:
        """The rows for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __str__(self) -> str:
        cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in self.rows]
        widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(self.columns)]
        lines = [self.title, "  ".join(name.rjust(width) for name, width in zip(self.columns, widths, strict=True))]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, *self.notes])
