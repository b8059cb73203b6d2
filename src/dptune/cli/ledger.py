"""``dptune ledger``: show, verify, rebuild, or add a data set to a custodian's ledger."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from dptune.accounting import ADDED_OR_REMOVED
from dptune.cli._output import number, print_json, print_rows
from dptune.ledgers import Charge, Ledger, Status
from dptune.sealed.release_check import Comparison, compare_release

__all__ = ["ledger"]

ledger = typer.Typer(no_args_is_help=True, help="The budget ledger: show, verify, rebuild, add a data set.")

_File = Annotated[Path, typer.Argument(help="The ledger.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object for machines.")]
_RULES = {"open": "no charge", "fixed": "exact", "renyi": "Renyi"}
_EXPLAINED = (
    "together: what all charges cost together, at the data set's delta.\n"
    "next: the largest single charge of Gaussian noise that would still be admitted.\n"
    "They do not add up to the budget: together, charges cost less than the sum of\n"
    "their epsilons, and the rule that admits later charges keeps a margin."
)
_NO_KEY = "its key is not here, so its seal was not checked"


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


def _cut(text: str, width: int) -> str:
    """A text of exactly this width."""
    return f"{text if len(text) <= width else text[: width - 1] + '…':{width}}"


def _line(charge: Charge) -> str:
    """One charge in 80 columns."""
    time = charge.time[:16].replace("T", " ")
    figures = f"{number(charge.epsilon):>8} {number(charge.total):>8}"
    return f"{charge.number:>5} {time:16} {_cut(charge.dataset, 16)} {_cut(charge.method, 16)} {figures}"


@ledger.command()
def show(file: _File, as_json: _Json = False) -> None:
    """What was charged to every data set, charge by charge, and what is left."""
    book = Ledger(file)
    found, charges, head = book.datasets(), book.charges(), book.head
    if as_json:
        listed = {
            "datasets": [dataclasses.asdict(one) for one in found],
            "charges": [dataclasses.asdict(one) for one in charges],
        }
        print_json({"ledger": str(file), "head": head, **listed})
        return
    columns = ["data set", "unit", "epsilon", "delta", "charges", "together", "next", "rule"]
    print_rows(f"ledger {file.name}", columns, [_row(one) for one in found])
    print(_EXPLAINED)
    if charges:
        print(f"{'entry':>5} {'time':16} {'data set':16} {'method':16} {'alone':>8} {'together':>8}")
        print("\n".join(_line(charge) for charge in charges))
    print(f"head {head}")


@ledger.command()
def verify(
    file: _File,
    statement: Annotated[
        Path | None, typer.Option(help="A release.json: it must be what was charged here and signed by its run.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Check every page, hash, seal, sum and admission; with a statement, that the release is what was charged."""
    book = Ledger(file)
    entries = book.verified()
    newest = entries[-1].hash
    result = None if statement is None else compare_release(entries, statement)
    if as_json:
        found = {
            "ledger": str(file),
            "verified": True,
            "head": newest,
            "entries": len(entries),
            "seal": book.has_key,
        }
        print_json(found | ({} if result is None else {"statement": dataclasses.asdict(result)}))
        return
    seal = "seal, sums and admissions hold" if book.has_key else f"sums and admissions hold; {_NO_KEY}"
    print(f"{file.name}: {len(entries)} entries, all pages, hashes, {seal}.\nhead {newest}")
    if statement is not None and result is not None:
        _print_comparison(statement, result)


def _print_comparison(statement: Path, result: Comparison) -> None:
    print(f"{statement.name} agrees with the charge in entry {result.entry} ({result.charge}). Compared:")
    for name in result.compared:
        print(f"  {name}")
    if result.not_compared:
        print("NOT compared:")
    for name, reason in result.not_compared:
        print(f"  {name}: {reason}")


@ledger.command()
def rebuild(file: _File) -> None:
    """Make a ledger anew from its entries: one of an older version, or one whose sealed state or key is lost."""
    kept = Ledger.rebuild(file)
    print(f"{file.name} was checked and rebuilt with all its entries; the old file is {kept.name}.")


@ledger.command()
def add(
    file: _File,
    dataset: Annotated[str, typer.Argument(help="The data set's name.")],
    epsilon: Annotated[float, typer.Option(help="Lifetime budget of the data set.")],
    delta: Annotated[float, typer.Option(help="Its delta, for example 1e-5.")],
    unit: Annotated[str, typer.Option(help="What one neighbour differs by: record, patient, user.")] = "record",
    most_records: Annotated[
        int, typer.Option(help="The largest number of records that one unit has; every charge must pay for so many.")
    ] = 1,
    as_json: _Json = False,
) -> None:
    """Add a data set with its lifetime budget; makes the ledger if it is not there."""
    relation = ADDED_OR_REMOVED.group(most_records)
    status = Ledger.create(file).add(dataset, epsilon, delta, unit, relation)
    if as_json:
        print_json(dataclasses.asdict(status))
        return
    print(f"{dataset}: epsilon {epsilon:g}, delta {delta:g} for each {unit}, in {file.name}.")
    assumed = relation.unit_assumption(unit)
    if assumed is not None:
        print(f"Statements will say: {assumed}")
