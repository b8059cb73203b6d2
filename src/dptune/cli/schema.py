"""``dptune schema``: draft the public schema of a table from the names of its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._commands import HELP
from dptune.cli._output import print_json
from dptune.errors import InvalidInput
from dptune.tables import CsvFormat
from dptune.tables import draft as draft_schema

__all__ = ["schema"]

schema = typer.Typer(
    context_settings=HELP,
    help="The public schema of a table: draft one from the names of its columns.",
    no_args_is_help=True,
)


@schema.callback()
def _about() -> None:
    """The public schema of a table: draft one from the names of its columns."""


@schema.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file; only its header is read.")],
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="The column that says whose row it is, where somebody may have several.")
    ] = None,
    from_public: Annotated[
        Path | None,
        typer.Option(help="A file of the same kind with PUBLIC records: ranges and values are read off it."),
    ] = None,
    delimiter: Annotated[str, typer.Option(help="What stands between fields.")] = ",",
    out: Annotated[Path | None, typer.Option(help="Where to write the draft; by default it is printed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Write a schema to be filled in, from the names of the columns alone (Parquet: and their declared types)."""
    text = draft_schema(file, target=target, unit=unit, from_public=from_public, csv=CsvFormat(delimiter))
    if out is not None:
        try:
            with out.open("x", encoding="utf-8") as stream:
                stream.write(text)
        except FileExistsError:
            raise InvalidInput(f"{out} exists; a draft overwrites nothing. Choose another name.") from None
        except OSError as error:
            raise InvalidInput(f"{out} cannot be written ({error.strerror}).") from None
    if as_json:
        print_json({"schema": text, "unfilled": text.count("FILL IN:"), "out": None if out is None else str(out)})
    elif out is None:
        print(text, end="")
    else:
        print(f"Wrote {out}: {text.count('FILL IN:')} lines to fill in.")
