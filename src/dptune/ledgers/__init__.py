"""The budget ledger: what may be spent on each data set, and what was charged to it."""

from dptune.ledgers._chain import ledger_key
from dptune.ledgers.default import default_ledger
from dptune.ledgers.entries import Entry
from dptune.ledgers.ledger import Ledger
from dptune.ledgers.overlap import OverlapWarning
from dptune.ledgers.records import Charge, Purpose, Receipt, Status

__all__ = [
    "Charge",
    "Entry",
    "Ledger",
    "OverlapWarning",
    "Purpose",
    "Receipt",
    "Status",
    "default_ledger",
    "ledger_key",
]
