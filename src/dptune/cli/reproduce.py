"""``dptune reproduce``: a published figure or table, computed again on this machine.

Every experiment is a function that returns a table with the paper's claim beside it; this file only names them. Modules
add their own by putting a function into ``FIGURES``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

import typer

from dptune.cli._output import print_json
from dptune.errors import InvalidInput

__all__ = ["FIGURES", "reproduce"]


class Rows(Protocol):
    """What an experiment returns; its ``str`` is the table for people."""

    @property
    def title(self) -> str:
        """What was run."""

    @property
    def notes(self) -> Sequence[str]:
        """What differs, what holds, what does not."""

    def as_dicts(self) -> Sequence[Mapping[str, object]]:
        """The rows for machines."""


def _progress(line: str) -> None:
    print(line, file=sys.stderr)


def _ding_fig3() -> Rows:
    from dptune.reproductions.ding import fig3  # noqa: PLC0415 - only what is asked for is loaded

    return fig3()


def _ding_fig4() -> Rows:
    from dptune.reproductions.ding import fig4  # noqa: PLC0415 - only what is asked for is loaded

    return fig4()


def _hypo_mnist_sim() -> Rows:
    from dptune.reproductions.hypo import mnist_sim  # noqa: PLC0415 - only what is asked for is loaded

    return mnist_sim(progress=_progress)


def _hype_fig2() -> Rows:
    from dptune.reproductions.hype import hype_fig2  # noqa: PLC0415 - needs the extra 'flower'

    return hype_fig2()


def _hype_fig4() -> Rows:
    from dptune.reproductions.hype import hype_fig4  # noqa: PLC0415 - needs the extra 'flower'

    return hype_fig4(progress=_progress)


def _hype_scales() -> Rows:
    from dptune.reproductions.hype import hype_scales  # noqa: PLC0415 - needs the extra 'flower'

    return hype_scales()


def _xiang_audit() -> Rows:
    from dptune.reproductions.xiang import xiang_audit  # noqa: PLC0415 - only what is asked for is loaded

    return xiang_audit(progress=_progress)


FIGURES: dict[str, Callable[[], Rows]] = {
    "ding-fig3": _ding_fig3,
    "ding-fig4": _ding_fig4,
    "hypo-mnist-sim": _hypo_mnist_sim,
    "hype-fig2": _hype_fig2,
    "hype-fig4": _hype_fig4,
    "hype-scales": _hype_scales,
    "xiang-audit": _xiang_audit,
}


def reproduce(
    figure: Annotated[str, typer.Argument(help=f"One of: {', '.join(FIGURES)}.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Compute a published figure again, beside the paper's claim."""
    if figure not in FIGURES:
        raise InvalidInput(f"'figure' must be one of {', '.join(FIGURES)}; got {figure!r}.")
    table = FIGURES[figure]()
    if as_json:
        print_json({"title": table.title, "rows": list(table.as_dicts()), "notes": list(table.notes)})
    else:
        print(table)
