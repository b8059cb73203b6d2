"""What may be seen by whom: the budget ledger, the vault, the run and its release."""

from dptune.sealed.compare import Comparison, compare_release
from dptune.sealed.filter import Filter, renyi_curve
from dptune.sealed.ledger import Charge, Ledger, Purpose, Receipt, Status
from dptune.sealed.randomness import Randomness
from dptune.sealed.release import Release, load_release
from dptune.sealed.run import resume, run
from dptune.sealed.vault import Reading, Vault, read_vault

__all__ = [
    "Charge",
    "Comparison",
    "Filter",
    "Ledger",
    "Purpose",
    "Randomness",
    "Reading",
    "Receipt",
    "Release",
    "Status",
    "Vault",
    "compare_release",
    "load_release",
    "read_vault",
    "renyi_curve",
    "resume",
    "run",
]
