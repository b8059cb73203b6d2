"""``dptune.report``: a page for a release, a ledger or a rehearsal, written to one file.

What is given decides which page it is. A vault is refused: no page may be made from what never leaves a run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from dptune._files import plain, storage_errors
from dptune.errors import InvalidInput
from dptune.ledgers import Ledger
from dptune.report.ledger_page import ledger_html
from dptune.report.rehearsal_page import rehearsal_html
from dptune.report.release_page import release_html
from dptune.sealed.public import public_release
from dptune.sealed.rehearsal import read_rehearsal
from dptune.sealed.release import Release

__all__ = ["report"]

_MOST_RUNS = 20_000  # release.json files that are looked at for links


def report(
    what: Release | Ledger | str | Path,
    out: str | Path | None = None,
    *,
    rehearsal: bool = False,
    runs: str | Path | None = None,
) -> Path:
    """Write a page for people: of a release, a ledger, or a rehearsal.

    Args:
        what: a release, a ledger, the folder of a finished run or of a copy of its release, or the file of a ledger.
        out: the file to write; by default ``report.html`` beside what is shown.
        rehearsal: show everything that a rehearsal knows, scores and failures too. A sealed run is refused.
        runs: a folder with runs; the page of a ledger links their statements.

    Returns:
        Where the page is: one self-contained file of HTML.

    Raises:
        InvalidInput: there is nothing to show, a vault was given, a sealed run was asked for as a rehearsal, or
            jinja2 is not installed.
        Corrupt: the release or the ledger is damaged.

    Example:
        >>> import numpy as np
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return {"rate": params["lr"]}, -abs(params["lr"] - 1)
        >>> method = dpt.RandomStopping(dpt.Space(lr=dpt.Float(0.1, 10, log=True)), dpt.Geometric(3))
        >>> plan = method.plan(dpt.Budget(1, 1e-5), guess)
        >>> release = dpt.run(plan, guess, np.arange(3), data_is="synthetic", out="shown")
        >>> report(release, "icu.html").read_text()[:15]
        '<!DOCTYPE html>'
    """
    if isinstance(what, Release | Ledger):
        path = what.path
    else:
        path = Path(what)
        _refuse_vault(path)
        _refuse_vote(path)
    place = _place(path) if out is None else Path(out)
    if rehearsal:
        page = rehearsal_html(read_rehearsal(path.parent if isinstance(what, Release) else path))
    elif isinstance(what, Release) or path.is_dir() or path.name == "release.json":
        page = release_html(public_release(what if isinstance(what, Release) else _folder(path)))
    else:
        book = what if isinstance(what, Ledger) else _ledger(path)
        page = ledger_html(book, None if runs is None else _links(Path(runs), place))
    _write(place, page)
    return place


def _place(path: Path) -> Path:
    """Where a page goes if nobody says: never into a release folder, whose content was signed."""
    if path.is_dir():
        return (path.parent if (path / "release.json").is_file() else path) / "report.html"
    if path.name == "release.json":
        return path.parent.parent / "report.html"
    return path.with_name(f"{path.name}.html")


def _folder(path: Path) -> Path:
    return path.parent if path.name == "release.json" else path


def _refuse_vault(path: Path) -> None:
    """Refuse anything inside of a vault, and the vault."""
    around = (path, *path.absolute().parents)
    if any(
        (one / "inside" / "run.db").exists() or (one.name == "inside" and (one / "run.db").exists()) for one in around
    ):
        raise InvalidInput(
            f"{path} is a vault, which never leaves a run: no page is made from it. Give the run's folder or its "
            "'release'."
        )
    if not path.exists():
        raise InvalidInput(f"There is no {path}: give the folder of a finished run, or the file of a ledger.")


def _refuse_vote(path: Path) -> None:
    """A federated vote has its page already."""
    if path.name == "vote.json" or (path / "vote.json").is_file():
        folder = path.parent if path.name == "vote.json" else path
        raise InvalidInput(f"{path} is a federated vote, which has its page already: {folder / 'statement.html'}.")


def _ledger(path: Path) -> Ledger:
    with storage_errors("The ledger"), path.open("rb") as stream:
        head = stream.read(16)
    if head[:15] != b"SQLite format 3":
        raise InvalidInput(f"{path} is neither a run's folder nor a ledger: give one of them.")
    return Ledger(path)


def _links(runs: Path, place: Path) -> dict[str, str]:
    """Where the statements of charges are, relative to the page."""
    if not runs.is_dir():
        raise InvalidInput(f"There is no folder {runs} with runs.")
    found: dict[str, str] = {}
    for seen, path in enumerate(sorted(runs.glob("**/release.json"))):
        page = path.with_name("statement.html")
        if seen >= _MOST_RUNS or not page.is_file():
            continue
        try:
            charge = json.loads(path.read_text(encoding="utf-8"))["ledger"]["charge"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # not a release of a sealed run
        if isinstance(charge, str):
            found[charge] = os.path.relpath(page.absolute(), place.absolute().parent).replace(os.sep, "/")
    return found


def _write(place: Path, page: str) -> None:
    if place.is_dir():
        raise InvalidInput(f"{place} is a folder; give the name of a file, such as {place / 'report.html'}.")
    if (place.parent / "release.json").exists():
        raise InvalidInput(
            f"{place} would stand inside of a release, whose files were signed; write the page somewhere else."
        )
    try:
        place.write_text(plain(page), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"The page cannot be written to {place} ({error.strerror or error}).") from None
