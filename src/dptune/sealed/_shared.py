"""One budget for one data set, also where nobody named a ledger: the user's default ledger, and the name in it.

The name is declared (``dataset=``, the name of a ``Dataset``) or is the file's own path, whatever link or relative path
led to it. What depends on records here is a warning for the custodian, who also finds it in the vault.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dptune.data import Named
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.ledgers import Ledger
from dptune.ledgers.default import open_default_folder
from dptune.ledgers.overlap import Overlap, OverlapWarning, note_records, overlaps
from dptune.ledgers.samples import Sample, sample_of, sample_of_lines
from dptune.methods.plan import Plan
from dptune.sealed._units import check_unit_in
from dptune.tables import Encoder
from dptune.tables.sources import table_kind

__all__ = ["known_ledger", "name_of", "notice", "shared_ledger"]

_UNNAMED = "data"  # what a Dataset is called that was given no name


def name_of(dataset: str | None, source: str | Path | None, data: Any, *, shared: bool) -> str:
    """The name of the records in a ledger; in the default one, without a declared name, the file that they are in."""
    if dataset:
        return dataset
    if shared and isinstance(data, Path):
        source = data
    if shared and source is not None:
        return str(Path(source).resolve())
    own = data.name if isinstance(data, Named) else None
    if isinstance(own, str) and own and own != _UNNAMED:
        return own
    if shared:
        raise InvalidInput(
            "Private records need a name under which their budget is kept, the same in every run: give dataset='...' "
            "(--dataset; 'dataset' in [run] of a job). Nothing was charged."
        )
    return _UNNAMED


def known_ledger(ledger: str | Path | Ledger, plan: Plan, data: Any, dataset: str) -> Ledger:
    """A ledger that has the data set; what does not fit it is refused before anything is written."""
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    book.check_relation(dataset, plan.cost)
    check_unit_in(book, dataset, data)
    return book


def shared_ledger(
    plan: Plan, data: Any, dataset: str, explain: Callable[[str], None] | None
) -> tuple[Ledger, tuple[float, float] | None]:
    """The user's default ledger, and the budget with which this run will open the data set if it is new there."""
    book = Ledger.create(open_default_folder())
    if book.knows(dataset):
        return known_ledger(book, plan, data, dataset), None
    budget = plan.budget
    if explain is not None:
        explain(
            f"The data set {dataset!r} is new in the ledger {book.path}: this run opens its budget with its own "
            f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, for all runs that will ever use these records."
        )
    return book, (budget.epsilon, budget.delta)


def _samples(data: Any, book: Ledger, source: str | Path | None, encoder: object) -> list[Sample]:
    """What these records are compared by: as they were encoded, and the lines of a CSV file as they are."""
    found = [sample_of(data, book.path)]
    if source is not None and isinstance(encoder, Encoder) and table_kind(Path(source)) == "csv":
        found.append(sample_of_lines(Path(source), book.path, header=encoder.schema.csv.header))
    return [one for one in found if one is not None]


def notice(
    data: Any, dataset: str, book: Ledger, source: str | Path | None = None, encoder: object = None
) -> list[str]:
    """Warn of records that were charged under another name, and keep the hashes of these; nothing else follows.

    The notes are kept before the charge: names without a charge are not warned of, and none can be missed.
    """
    try:
        others: dict[str, Overlap] = {}
        for sample in _samples(data, book, source, encoder):
            for one in overlaps(sample, dataset, book.path):
                others[one.dataset] = max(one, others.get(one.dataset, one), key=lambda two: two.share)
            note_records(sample, dataset, book.path)
        found = [str(one) for one in others.values() if book.knows(one.dataset) and book.status(one.dataset).charges]
    except Corrupt as error:
        found = [f"{error} The run goes on: it serves a warning alone."]
    except DptuneError as error:  # the disk: what the run needs will say so itself
        return [str(error)]
    except Exception as error:  # records that cannot be compared: whether a run goes on must not depend on them
        return [f"The records were not compared with those under other names ({type(error).__name__})."]
    for text in found:
        try:
            warnings.warn(text, OverlapWarning, stacklevel=3)
        except OverlapWarning:  # a filter makes errors of warnings: the run would end for what is in its records
            print(text, file=sys.stderr)
    return found
