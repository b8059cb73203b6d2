"""A release as pages may see it: a typed value of public things alone, read from a release folder and checked.

Templates and figures receive this and nothing else, so nothing private can reach them: it is made from the files that
were published, never from a vault. A folder whose files are not those that its run signed is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune._files import storage_errors
from dptune.errors import Corrupt, InvalidInput
from dptune.methods.plan import Plan
from dptune.methods.stored import plan_from_json
from dptune.sealed._binding import digest_of, file_digest
from dptune.sealed.content import Statement, statement_from_json
from dptune.sealed.release import Release, load_release
from dptune.sealed.statement import SCHEMA

__all__ = ["PublicRelease", "public_release"]


@dataclass(frozen=True)
class PublicRelease:
    """What a release says to everybody.

    Args:
        statement: for people.
        plan: what was fixed before any record was read; None if its method is not installed here.
        params: the released configuration.
        epsilon: what everything cost; None where nothing finite is known.
        delta: at which epsilon is stated.
        epsilon_lower: a certificate; None if none is known.
        method: by its name.
        dataset: by its name.
        unit: what is protected.
        guarantee: whether anybody is; False for a rehearsal.
        budget: of the data set, as (epsilon, delta); None for a rehearsal.
        spent: an epsilon that covers every charge to the data set up to this one.
        files: what was published.
        released: the public time that files carry.
    """

    statement: Statement
    plan: Plan | None
    params: dict[str, Any]
    epsilon: float | None
    delta: float
    epsilon_lower: float | None
    method: str
    dataset: str
    unit: str
    guarantee: bool
    budget: tuple[float, float] | None
    spent: float | None
    files: tuple[str, ...]
    released: str


def public_release(release: Release | str | Path) -> PublicRelease:
    """Read what a release says to everybody.

    Args:
        release: a release, the folder of a finished run, or a copy of its ``release`` folder.

    Returns:
        The public value.

    Raises:
        Corrupt: there is no release in the folder, or its files are not those that its run signed.
        InvalidInput: an older version made it.

    Example:
        >>> public_release("nowhere")
        Traceback (most recent call last):
        ...
        dptune.errors.Corrupt: There is no release in nowhere: give the folder of a finished run, or 'release' in it.
    """
    found = release if isinstance(release, Release) else load_release(release)
    details = found.details
    if details.get("schema") != SCHEMA:
        raise InvalidInput(
            f"The release in {found.path} was made by another version of dptune and cannot be shown as a page; read "
            "its statement.md."
        )
    _check_files(found)
    try:
        budget = details["dataset_budget"]
        return PublicRelease(
            statement=statement_from_json(details["statement"]),
            plan=_plan(found),
            params=details["params"],
            epsilon=details["epsilon"],
            delta=details["delta"],
            epsilon_lower=details["epsilon_lower"],
            method=details["method"],
            dataset=details["dataset"],
            unit=details["unit"],
            guarantee=details["guarantee"] is True,
            budget=None if budget is None else (budget["epsilon"], budget["delta"]),
            spent=details["dataset_spent"],
            files=tuple(details["files"]),
            released=details["released"],
        )
    except (KeyError, TypeError, InvalidInput):
        raise _damaged(found) from None


def _damaged(release: Release) -> Corrupt:
    return Corrupt(f"The release in {release.path} is not as its run wrote it. Take it from where it was published.")


def _check_files(release: Release) -> None:
    """Fields and files against the digests that the run signed; who signed is for ``dptune ledger verify``."""
    seal: Any = release.details.get("seal")
    if seal is None and release.details.get("guarantee") is False:
        return
    try:
        fields = {name: digest_of(value) for name, value in release.details.items() if name != "seal"}
        same = fields == seal["fields"] and {*seal["files"], "release.json"} == set(release.details["files"])
        for name, digest in seal["files"].items():
            same = same and Path(name).name == name and file_digest((release.path / name).read_bytes()) == digest
    except (KeyError, TypeError, AttributeError, OSError):
        same = False
    if not same:
        raise _damaged(release)


def _plan(release: Release) -> Plan | None:
    """The stored plan, derived again; None for a method that is not installed here."""
    with storage_errors("The release"):
        text = (release.path / "plan.json").read_text(encoding="utf-8")
    try:
        return plan_from_json(text)
    except InvalidInput:
        return None
