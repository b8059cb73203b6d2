"""``dptune ledger``: show, verify, or add a data set to a custodian's ledger."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._output import number, print_json, print_rows
from dptune.errors import InvalidInput
from dptune.sealed import Ledger, Status

__all__ = ["ledger"]

ledger = typer.Typer(no_args_is_help=True, help="The budget ledger: show, verify, add a data set.")

_File = Annotated[Path, typer.Argument(help="The ledger.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object for machines.")]
_RULES = {"open": "nothing charged", "fixed": "exact, fixed before the first release", "renyi": "Renyi filter"}


def _row(status: Status) -> list[str]:
    return [
        status.dataset,
        status.unit,
        f"{status.epsilon:g}",
        f"{status.delta:g}",
        str(status.charges),
        number(status.spent),
        number(status.left),
        _RULES[status.rule],
    ]


@ledger.command()
def show(file: _File, as_json: _Json = False) -> None:
    """What was charged to every data set, and what is left."""
    book = Ledger(file)
    found = book.datasets()
    if as_json:
        print_json({"ledger": str(file), "head": book.head, "datasets": [dataclasses.asdict(one) for one in found]})
        return
    columns = ["data set", "unit", "epsilon", "delta", "charges", "spent", "left", "rule"]
    print_rows(f"ledger {file.name}", columns, [_row(one) for one in found])
    print(f"head {book.head}")


@ledger.command()
def verify(
    file: _File,
    statement: Annotated[Path | None, typer.Option(help="A release.json: its head must be in the ledger.")] = None,
    as_json: _Json = False,
) -> None:
    """Check every hash, sum and admission; with a statement, that the ledger was not rolled back."""
    head = None
    if statement is not None:
        try:
            head = json.loads(statement.read_text(encoding="utf-8"))["ledger"]["head"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidInput(f"{statement} is no release.json of a sealed run.") from None
    book = Ledger(file)
    newest = book.verify(head)
    count = len(book.entries())
    if as_json:
        print_json({"ledger": str(file), "verified": True, "head": newest, "entries": count})
        return
    print(f"{file.name}: {count} entries, all hashes, sums and admissions hold. Head {newest}")


@ledger.command()
def add(
    file: _File,
    dataset: Annotated[str, typer.Argument(help="The data set's name.")],
    epsilon: Annotated[float, typer.Option(help="Lifetime budget of the data set.")],
    delta: Annotated[float, typer.Option(help="Its delta, for example 1e-5.")],
    unit: Annotated[str, typer.Option(help="What one neighbour differs by: record, patient, user.")] = "record",
    as_json: _Json = False,
) -> None:
    """Add a data set with its lifetime budget; makes the ledger if it is not there."""
    status = Ledger.create(file).add(dataset, epsilon, delta, unit)
    if as_json:
        print_json(dataclasses.asdict(status))
        return
    print(f"{dataset}: epsilon {epsilon:g}, delta {delta:g} for each {unit}, in {file.name}.")
