"""Records that were charged under another name: noticed by keyed hashes, for the custodian's eyes alone.

A folder beside the ledger (``LEDGER.overlap``, for its owner alone, so that nobody else can even see how large the file
in it is) holds a sample of keyed hashes of every data set's records. It serves a warning and nothing else: no
admission, price, statement or release may depend on it, since it depends on the records. The sample is chosen by the
hashes themselves, so the same records are chosen from two data sets: at most some sixteen thousand of each.

Records are compared as they were encoded, and the lines of a CSV file also as they stand in it: so the same file is
noticed under another schema, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune._files import connect, private_folder, storage_errors
from dptune.ledgers.samples import MOST, Sample

__all__ = ["Overlap", "OverlapWarning", "note_records", "overlaps"]

_SHARE = 0.01  # of the smaller data set: below it records may be equal by chance
_TABLES = {"records": ("datasets", "units"), "lines": ("files", "lines")}  # what is compared: names, hashes
_SCHEMA = tuple(
    f"CREATE TABLE IF NOT EXISTS {statement}"
    for names, hashes in _TABLES.values()
    for statement in (
        f"{names} (name TEXT PRIMARY KEY, level INTEGER NOT NULL)",
        f"{hashes} (name TEXT, hash BLOB, level INTEGER NOT NULL, PRIMARY KEY (name, hash))",
    )
)


class OverlapWarning(UserWarning):
    """Some of these records were charged under another name. It depends on the records: for the custodian alone."""


@dataclass(frozen=True)
class Overlap:
    """Records of one data set that are in the ledger as another one.

    Args:
        dataset: the other name.
        share: about which part of the smaller data set they are.

    Example:
        >>> Overlap("icu", 0.25).dataset
        'icu'
    """

    dataset: str
    share: float

    def __str__(self) -> str:
        return (
            f"About {max(1, round(100 * self.share))}% of these records, or of those charged as {self.dataset!r}, are "
            "in both: people whose records stand under two names have two budgets. If they are the same people, charge "
            f"dataset={self.dataset!r}. This warning depends on the records: it is for the custodian alone."
        )


@contextlib.contextmanager
def _file(ledger: Path) -> Iterator[Any]:
    """The file with the hashes, in one transaction."""
    folder = ledger.with_name(ledger.name + ".overlap")
    with (
        storage_errors(f"What notices records under two names, in {folder.name},"),
        contextlib.closing(connect(private_folder(folder) / "hashes.db", "DELETE")) as db,
    ):
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        yield db
        db.execute("COMMIT")


def overlaps(sample: Sample, dataset: str, ledger: Path) -> list[Overlap]:
    """Other data sets in which a noticeable part of these records is.

    Args:
        sample: of the records.
        dataset: their name.
        ledger: the ledger beside which the hashes lie.

    Returns:
        The other names, each with the part of the smaller of both data sets that they share.

    Raises:
        DptuneError: the file cannot be read.

    Example:
        >>> import numpy as np
        >>> from dptune.ledgers import Ledger
        >>> from dptune.ledgers.samples import sample_of
        >>> path = Ledger.create("hospital.ledger").path
        >>> rows = np.arange(12.0).reshape(4, 3)
        >>> note_records(sample_of(rows, path), "icu", path)
        >>> [one.dataset for one in overlaps(sample_of(rows[:2], path), "ward", path)]
        ['icu']
    """
    found = []
    names, hashes = _TABLES[sample.of]
    query = f"SELECT hash FROM {hashes} WHERE name = ? AND level >= ?"
    with _file(ledger) as db:
        for name, level in db.execute(f"SELECT name, level FROM {names} WHERE name != ?", (dataset,)).fetchall():
            common = max(int(level), sample.level)
            theirs = {row[0] for row in db.execute(query, (name, common))}
            ours = {one for one, own in sample.hashes.items() if own >= common}
            smaller = min(len(theirs), len(ours))
            if smaller and len(ours & theirs) >= max(1.0, _SHARE * smaller):
                found.append(Overlap(str(name), len(ours & theirs) / smaller))
    return found


def note_records(sample: Sample, dataset: str, ledger: Path) -> None:
    """Keep the hashes of records under the name that they are charged to, beside those that are there.

    Args:
        sample: of the records.
        dataset: their name.
        ledger: the ledger beside which the hashes lie.

    Raises:
        DptuneError: the file cannot be written.
    """
    names, hashes = _TABLES[sample.of]
    with _file(ledger) as db:
        known = db.execute(f"SELECT level FROM {names} WHERE name = ?", (dataset,)).fetchone()
        level = sample.level if known is None else max(sample.level, int(known[0]))
        kept = [(dataset, one, own) for one, own in sample.hashes.items() if own >= level]
        db.executemany(f"INSERT OR REPLACE INTO {hashes} VALUES (?, ?, ?)", kept)
        count = f"SELECT count(*) FROM {hashes} WHERE name = ? AND level >= ?"
        while db.execute(count, (dataset, level)).fetchone()[0] > MOST:
            level += 1
        db.execute(f"DELETE FROM {hashes} WHERE name = ? AND level < ?", (dataset, level))
        db.execute(f"INSERT OR REPLACE INTO {names} VALUES (?, ?)", (dataset, level))
