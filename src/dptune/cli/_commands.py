"""The commands by name: each is a file of this folder, loaded when it runs and not before.

``dptune --help`` lists them from the table below; nothing of accounting, training or the seal is imported for it.
"""

from __future__ import annotations

import contextlib
import importlib
import typing
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dptune._threads import loading_with_one_thread
from dptune.errors import DptuneError, InvalidInput

__all__ = ["COMMANDS", "HELP", "Commands"]

COMMANDS = {
    "demo": "Tune a private softmax regression on digits within epsilon 3, tuning included.",
    "price": "Price a tuning plan: one run, the whole, a certificate from below, and the literature.",
    "plan": "Find the smallest noise multiplier whose total stays within a budget, or below the power of an attack.",
    "compare": "Show, at one budget, what each method needs and how likely it is to try or choose one of the best 5 %.",
    "schema": "The public schema of a table: draft one from the names of its columns.",
    "tune": "Tune on private data within (epsilon, delta) and release the winner, the model and the statement.",
    "resume": "Finish a run that was cut off: same trials, same randomness, no second charge.",
    "predict": "Predict with a released model: a class for every record and the probability of each, or a number.",
    "report": "Write a page for people: a release with its statement and pictures, a ledger, or a rehearsal.",
    "vault": "What a curator may see of a sealed run: scores, errors, timings. Every reading is logged.",
    "vote": "Choose one configuration by a private vote of simulated clients.",
    "reproduce": "Compute a published figure again, beside the paper's claim.",
    "leaderboard": "Compare tuning methods and rivals at the same total epsilon; goes on where it was stopped.",
    "ledger": "The budget ledger: show, verify, rebuild, add, raise.",
    "docs": "Print a page of the documentation that a statement or a message names: proofs, sharp edges, glossary.",
    "audit": "Attack private selection: a lower bound from games, a certificate, and the account's upper bound.",
}
"""Every command with its one line of help: the first line of what ``dptune COMMAND --help`` says."""

HELP = {"help_option_names": ["-h", "--help"]}
_SHORT_SUMS = ("price", "plan", "compare")  # they compute, but nothing that more threads would make faster


class Commands(TyperGroup):
    """The commands of the table, each loaded when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        return _Unloaded(cmd_name, help=COMMANDS[cmd_name], callback=None) if cmd_name in COMMANDS else None


class _Unloaded(TyperCommand):
    """A command that is known by its line of help until it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself: from here on the loaded one answers, also for ``--help``."""
        return _loaded(str(self.name)).make_context(info_name, args, parent=parent, **extra)


def _loaded(name: str) -> Any:
    """The command, from the file of its name."""
    quiet = loading_with_one_thread() if name in _SHORT_SUMS else contextlib.nullcontext()
    try:
        with quiet:
            found = getattr(importlib.import_module(f"dptune.cli.{name}"), name)
    except DptuneError:
        raise
    except ImportError as error:
        raise InvalidInput(
            f"'dptune {name}' cannot be loaded ({error}): install dptune again, with its extras."
        ) from None
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        for one in found.registered_commands:
            if one.callback is not None:
                said = one.name or typer.main.get_command_name(one.callback.__name__)
                _explain_arguments(group.commands[said], one.callback)
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, context_settings=HELP)(found)
    command = typer.main.get_command(alone)
    _explain_arguments(command, found)
    return command


def _explain_arguments(command: Any, function: Callable[..., Any]) -> None:
    """Give arguments the help that they were declared with: some versions of click forget what typer told them."""
    hints = typing.get_type_hints(function, include_extras=True)
    for one in command.params:
        told = [info.help for info in getattr(hints.get(one.name), "__metadata__", ()) if hasattr(info, "help")]
        if told and getattr(one, "help", None) is None:
            one.help = told[0]
