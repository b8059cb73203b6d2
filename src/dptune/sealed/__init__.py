"""What may be seen by whom: the vault, the run and its release."""

from dptune.sealed.reading import Reading, read_vault
from dptune.sealed.rehearsal import Rehearsed, read_rehearsal, report
from dptune.sealed.release import Release, load_release
from dptune.sealed.release_check import Comparison, compare_release
from dptune.sealed.run import resume, run
from dptune.sealed.vault import Vault

__all__ = [
    "Comparison",
    "Reading",
    "Rehearsed",
    "Release",
    "Vault",
    "compare_release",
    "load_release",
    "read_rehearsal",
    "read_vault",
    "report",
    "resume",
    "run",
]
