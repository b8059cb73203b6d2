"""``dptune reproduce``: a published figure or table, computed again on this machine.

Each figure is a function that returns rows; this file only names them. A figure that was scaled down says so in its
notes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dptune.cli._output import print_json
from dptune.errors import InvalidInput

if TYPE_CHECKING:
    from dptune.federated.reproduce import Table

__all__ = ["reproduce"]


def _hype_fig2() -> Table:
    from dptune.federated.reproduce import hype_fig2  # noqa: PLC0415 - needs the extra 'flower'

    return hype_fig2()


def _hype_fig4() -> Table:
    from dptune.federated.reproduce import hype_fig4  # noqa: PLC0415 - needs the extra 'flower'

    return hype_fig4(progress=lambda line: print(line, file=sys.stderr))


def _hype_scales() -> Table:
    from dptune.federated.reproduce import hype_scales  # noqa: PLC0415 - needs the extra 'flower'

    return hype_scales()


FIGURES: dict[str, Callable[[], Table]] = {
    "hype-fig2": _hype_fig2,
    "hype-fig4": _hype_fig4,
    "hype-scales": _hype_scales,
}


def reproduce(
    figure: Annotated[str, typer.Argument(help=f"One of: {', '.join(FIGURES)}.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compute a published figure again."""
    if figure not in FIGURES:
        raise InvalidInput(f"'figure' must be one of {', '.join(FIGURES)}; got {figure!r}.")
    table = FIGURES[figure]()
    if as_json:
        print_json({"title": table.title, "rows": table.as_dicts(), "notes": list(table.notes)})
    else:
        print(table)
