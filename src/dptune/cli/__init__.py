"""The command line: one file per command, one way to fail.

Every command prints a table for people or, with ``--json``, one JSON object; bad input is one line on standard
error and exit code 2, never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from dptune.cli.audit import audit
from dptune.cli.compare import compare
from dptune.cli.demo import demo
from dptune.cli.ledger import ledger
from dptune.cli.plan import plan
from dptune.cli.price import price
from dptune.cli.reproduce import reproduce
from dptune.cli.resume import resume
from dptune.cli.tune import tune
from dptune.cli.vote import vote
from dptune.errors import DptuneError

__all__ = ["app", "main"]

app = typer.Typer(
    name="dptune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _about() -> None:
    """Differentially private hyperparameter tuning with one honest budget."""


app.command()(demo)
app.command()(price)
app.command()(plan)
app.command()(compare)
app.command()(tune)
app.command()(resume)
app.command()(vote)
app.command()(reproduce)
app.add_typer(ledger, name="ledger")
app.command()(audit)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (and exits with it when called as a program)."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = app(args=given, standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except DptuneError as error:
        code = _refuse(str(error))
    except Exception as error:
        # The parser's own errors carry their message in this method, whichever library provides them.
        message = getattr(error, "format_message", None)
        if message is not None:
            code = _refuse(f"{message()} See 'dptune --help'.") if message() else 0
        elif type(error).__name__ == "Abort":  # what the parser makes of Ctrl-C
            code = _refuse("Stopped.")
        else:
            raise
    if arguments is None:
        sys.exit(code)
    return code


def _refuse(message: str) -> int:
    print(f"dptune: {' '.join(message.split())}", file=sys.stderr)
    return 2
