"""The command line: one file per command, one way to fail.

A command is loaded when it runs (``_commands.py``). Every command prints a table for people or, with ``--json``, one
JSON object; bad input is one line on standard error and exit code 2, never a traceback.
"""

from __future__ import annotations

import difflib
import errno
import gc
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dptune._version import __version__
from dptune.cli._commands import COMMANDS, HELP, Commands
from dptune.errors import DptuneError

__all__ = ["app", "main"]

_SELDOM = 50_000  # new objects between two looks for garbage; Python looks at every 700
_LONGEST = 1500  # characters of a refusal: what quotes a very long name is cut

app = typer.Typer(
    name="dptune",
    cls=Commands,
    no_args_is_help=True,
    context_settings=HELP,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"dptune {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Differentially private hyperparameter tuning with one honest budget."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (and exits with it when called as a program)."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        gc.set_threshold(_SELDOM)  # what libraries make when they are loaded stays: a twentieth of a price's time
    try:
        # By one name, also as python -m dptune: a shell completes the command, not the interpreter.
        result = app(args=given, prog_name="dptune", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except DptuneError as error:
        code = _refuse(str(error))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        code = _refuse("A file's name is too long for this machine; give the path of a file that is there.")
    except Exception as error:
        # The parser's own errors carry their message in this method, whichever library provides them.
        message = getattr(error, "format_message", None)
        if message is not None:
            code = _refuse(f"{_said(message())} See '{_command(error)} --help'.") if message() else 0
        elif type(error).__name__ == "Abort":  # what the parser makes of Ctrl-C
            code = _refuse("Stopped.")
        else:
            raise
    if arguments is None:
        sys.exit(code)
    return code


def _command(error: Exception) -> str:
    """The command that the parser was at when it found the error."""
    found = getattr(getattr(error, "ctx", None), "command_path", None)
    return found if isinstance(found, str) and found else "dptune"


def _said(message: str) -> str:
    """The parser's message, with the nearest name of a command where it has none, and none of its words twice."""
    wrong = re.match(r"No such command '(.*)'\.$", message)
    near = difflib.get_close_matches(wrong[1], COMMANDS, 1) if wrong else []
    return f"{message} Did you mean '{near[0]}'?" if near else re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)


def _refuse(message: str) -> int:
    line = " ".join(message.split())
    print(f"dptune: {line if len(line) <= _LONGEST else line[:_LONGEST] + '...'}", file=sys.stderr)
    return 2
