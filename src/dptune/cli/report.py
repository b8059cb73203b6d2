"""``dptune report``: a page for people, of a release, a ledger or a rehearsal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._output import print_json
from dptune.errors import InvalidInput
from dptune.report import report as write_report
from dptune.sealed import load_release
from dptune.sealed.public import public_release
from dptune.sealed.schema import registry_entry

__all__ = ["report"]


def report(
    what: Annotated[Path, typer.Argument(metavar="RUN|LEDGER", help="The folder of a finished run, or a ledger.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; none: report.html beside it.")] = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Everything that a rehearsal knows: scores, failures, timings.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option(help="A folder with runs: a ledger's page links their statements.")
    ] = None,
    registry: Annotated[
        Path | None, typer.Option(help="Also write the release's entry for a public registry of epsilons, as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Write a page for people: a release with its statement and pictures, a ledger, or a rehearsal."""
    entry = None
    if registry is not None:
        release = load_release(what)
        public_release(release)  # what was changed is not registered
        entry = registry_entry(release.details)
    page = write_report(what, out, rehearsal=rehearsal, runs=runs)
    if registry is not None:
        try:
            registry.write_text(json.dumps(entry, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{registry} cannot be written ({error.strerror}).") from None
    if as_json:
        print_json({"page": str(page), "registry": None if registry is None else str(registry)})
        return
    print(f"page: {page}")
    if registry is not None:
        print(f"registry entry: {registry}")
