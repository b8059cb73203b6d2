"""What one record of a run is, where it is a unit of several rows: what the ledger must say, and what statements say.

The unit is declared with the data, by a schema or beside arrays, before any record is read. Nothing here looks at rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptune.accounting import Neighbours
from dptune.errors import InvalidInput
from dptune.ledgers import Ledger
from dptune.trainer import HonoursUnits
from dptune.units import UnitDataset

__all__ = ["RECORD", "DeclaredUnits", "check_relation_of_units", "check_unit_in", "declared_units"]

RECORD = "record"


@dataclass(frozen=True)
class DeclaredUnits:
    """Units as they were declared: what one is called, how many of its rows take part, where its key is, and whether
    the trainer is known to treat all of them as one record."""

    unit: str
    unit_rows: int
    column: str | None
    honoured: bool

    @property
    def phrase(self) -> str:
        """What a statement says a unit is."""
        column = repr(self.column)
        key = "under the same key" if self.column is None else f"with the same value in the column {column}"
        return f"one {self.unit}: all rows {key}, of which at most {self.unit_rows} take part"

    @property
    def assumption(self) -> str | None:
        """What must be taken on trust, where the trainer is not one that is known to keep rows together."""
        if self.honoured:
            return None
        return (
            f"The trainer treats all rows of one {self.unit} as one record: its declared cost is for adding or "
            f"removing a {self.unit}, not a row."
        )


def declared_units(data: object, trainer: object) -> DeclaredUnits | None:
    """The units of the data; None where a record is what it is."""
    if not isinstance(data, UnitDataset):
        return None
    honoured = isinstance(trainer, HonoursUnits) and trainer.honours_units is True
    return DeclaredUnits(data.unit, data.unit_rows, data.column, honoured)


def check_relation_of_units(data: object, neighbours: Neighbours) -> None:
    """Refuse to pay for groups of records where a record is a whole unit already."""
    if isinstance(data, UnitDataset) and neighbours.most > 1:
        raise InvalidInput(
            f"The data says that all rows of one {data.unit} are one record, and the budget is for '{neighbours}': "
            "only one of the two may speak of several rows. Leave out 'most_records' (neighbours=...group(...))."
        )


def check_unit_in(book: Ledger, dataset: str, data: Any) -> None:
    """Refuse a ledger that protects something else than the units of the data."""
    if not isinstance(data, UnitDataset):
        return
    _, protected = book.terms(dataset)
    if protected != data.unit:
        raise InvalidInput(
            f"The ledger protects each {protected} of {dataset!r}, and here a record is a {data.unit}: a charge for "
            f"the one is none for the other. Use the ledger's word if both are the same (unit_name in the schema, "
            f"unit=...), or open the data set with --unit {data.unit}."
        )
