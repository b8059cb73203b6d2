"""``dptune ledger``: show, verify, rebuild; add a data set or raise its budget. Without a file: the default ledger."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from dptune.accounting import ADDED_OR_REMOVED
from dptune.cli._commands import HELP
from dptune.cli._output import number, print_json, print_rows
from dptune.errors import InvalidInput
from dptune.ledgers import Charge, Ledger, Status, default_ledger
from dptune.ledgers.default import open_default_folder
from dptune.sealed.release_check import Comparison, compare_release
from dptune.sealed.statement import RAISED

__all__ = ["ledger"]

ledger = typer.Typer(
    no_args_is_help=True, context_settings=HELP, help="The budget ledger: show, verify, rebuild, add, raise."
)

_File = Annotated[Path | None, typer.Argument(help="The ledger; none: your default one.")]
_Named = Annotated[
    list[str], typer.Argument(metavar="[FILE] DATASET", help="The ledger (none: your default one) and the data set.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object for machines.")]
_RULES = {"open": "no charge", "fixed": "exact", "renyi": "Renyi", "odometer": "odometer"}
_EXPLAINED = (
    "together: what all charges cost together, at the data set's delta.\n"
    "next: the largest single charge of Gaussian noise that would still be admitted.\n"
    "They do not add up to the budget: together, charges cost something else than the\n"
    "sum of their epsilons, and the rule that admits later charges keeps a margin."
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
def show(file: _File = None, as_json: _Json = False) -> None:
    """What was charged to every data set, charge by charge, and what is left."""
    file = file or default_ledger()
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
    file: _File = None,
    statement: Annotated[
        Path | None,
        typer.Option(help="A release.json that must be what was charged here; or a vote.json, with a client's ledger."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Check every page, hash, seal, sum and admission; with a statement, that the release is what was charged."""
    file = file or default_ledger()
    if statement is not None and _is_vote(statement):
        _verify_vote(file, statement, as_json)
        return
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
    _print_compared(result.compared, result.not_compared)


def _print_compared(compared: tuple[str, ...], not_compared: tuple[tuple[str, str], ...]) -> None:
    for name in compared:
        print(f"  {name}")
    if not_compared:
        print("NOT compared:")
    for name, reason in not_compared:
        print(f"  {name}: {reason}")


def _is_vote(statement: Path) -> bool:
    """Whether this is the statement of a federated vote, which clients charge to ledgers of their own."""
    try:
        return '"dptune vote"' in statement.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _verify_vote(file: Path, statement: Path, as_json: bool) -> None:
    from dptune.federated.vote_files import check_vote  # noqa: PLC0415 - needs the extra 'flower'

    result = check_vote(statement, file)
    if as_json:
        print_json({"ledger": str(file), "verified": True, "statement": dataclasses.asdict(result)})
        return
    print(
        f"{statement.name} agrees with what this client charged at {result.charged_at} for the vote {result.session}. "
        "Compared:"
    )
    _print_compared(result.compared, result.not_compared)


@ledger.command()
def rebuild(file: _File = None) -> None:
    """Make a ledger anew from its entries: one of an older version, or one whose sealed state or key is lost."""
    file = file or default_ledger()
    kept = Ledger.rebuild(file)
    print(f"{file.name} was checked and rebuilt with all its entries; the old file is {kept.name}.")


def _named(words: list[str]) -> tuple[Path, str]:
    """The ledger's file and the data set, from one word or two."""
    if len(words) > 2:
        raise InvalidInput(f"Give a data set, or a ledger and a data set; got {len(words)} words. Quote names.")
    return (Path(words[0]), words[1]) if len(words) == 2 else (default_ledger(), words[0])


@ledger.command()
def add(
    named: _Named,
    epsilon: Annotated[float, typer.Option(help="Lifetime budget of the data set.")],
    delta: Annotated[float, typer.Option(help="Its delta, for example 1e-5.")],
    unit: Annotated[str, typer.Option(help="What one neighbour differs by: record, patient, user.")] = "record",
    most_records: Annotated[
        int, typer.Option(help="The largest number of records that one unit has; every charge must pay for so many.")
    ] = 1,
    as_json: _Json = False,
) -> None:
    """Add a data set with its lifetime budget; makes the ledger if it is not there."""
    file, dataset = _named(named)
    relation = ADDED_OR_REMOVED.group(most_records)
    book = Ledger.create(file if len(named) == 2 else open_default_folder())
    status = book.add(dataset, epsilon, delta, unit, relation)
    if as_json:
        print_json(dataclasses.asdict(status))
        return
    print(f"{dataset}: epsilon {epsilon:g}, delta {delta:g} for each {unit}, in {file.name}.")
    assumed = relation.unit_assumption(unit)
    if assumed is not None:
        print(f"Statements will say: {assumed}")


@ledger.command("raise")
def raise_(
    named: _Named,
    epsilon: Annotated[float, typer.Option(help="The new lifetime budget of the data set.")],
    delta: Annotated[float | None, typer.Option(help="Its new delta; none: the one that it has.")] = None,
    as_json: _Json = False,
) -> None:
    """Raise a data set's budget. After a charge that weakens the guarantee, and later statements say so."""
    file, dataset = _named(named)
    status = Ledger(file).raise_budget(dataset, epsilon, delta)
    if as_json:
        print_json(dataclasses.asdict(status))
        return
    print(f"{dataset}: epsilon {status.epsilon:g}, delta {status.delta:g} for each {status.unit}, in {file.name}.")
    if status.rule == "odometer":
        print(f"Statements of later charges will say: {RAISED}")
