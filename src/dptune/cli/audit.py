"""``dptune audit``: play a game against an account and print how close the attack comes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dptune.accounting.runs import parse_runs
from dptune.audit import Audit, Game
from dptune.audit import audit as conduct
from dptune.audit.auditor import plan_attack
from dptune.audit.games import NAMES, TRAINED
from dptune.audit.report import figure as draw
from dptune.audit.report import rows
from dptune.cli._expressions import parse_base
from dptune.cli._output import print_json, print_rows
from dptune.errors import InvalidInput

__all__ = ["audit"]


def _games(value: float) -> int:
    if not math.isfinite(value) or value != math.floor(value) or value < 1:
        raise InvalidInput(f"'games' must be a whole number of games per world, for example 1e6; got {value:g}.")
    return int(value)


def audit(
    game: Annotated[str, typer.Option(help=" | ".join(NAMES))],
    base: Annotated[
        str, typer.Option(help="gdp:MU | gaussian:NOISE | dpsgd:RATE,NOISE,STEPS | laplace:SCALE | pure:EPS")
    ],
    runs: Annotated[
        str, typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P")
    ],
    delta: Annotated[float, typer.Option(help="The delta of the statement, for example 1e-5.")],
    games: Annotated[
        float, typer.Option(help="Games per world, for example 1e7 (thousands where models are trained).")
    ],
    confidence: Annotated[float, typer.Option(help="Probability that the lower bound holds.")] = 0.95,
    data: Annotated[str, typer.Option(help="Records to train on (ntnv, ntcv): digits or mnist.")] = "digits",
    state: Annotated[
        Path | None, typer.Option(help="File to continue from after an interruption (ntnv, ntcv).")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw bounds and trade-off curve into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Attack private selection: a lower bound from games, a certificate from theory, the account's upper bound."""
    described = Game(game, parse_base(base), parse_runs(runs), delta, _games(games), confidence)
    if figure is not None and game in TRAINED:
        raise InvalidInput("'figure' draws games on empty training; leave it out for ntnv and ntcv.")
    if figure is not None and not figure.parent.is_dir():
        raise InvalidInput(f"'figure' cannot be written: there is no folder {figure.parent}.")
    found = _trained(described, data, state, quiet=as_json) if game in TRAINED else conduct(described)
    if figure is not None:
        draw([found], plan_attack(described), figure)
    if as_json:
        print_json(found.summary())
        return
    print_rows(
        f"{game}: epsilon at delta {delta:g}, {described.base}, {described.runs}", ["", "epsilon", ""], rows(found)
    )
    verdict = "The games CONTRADICT the account." if found.broken else "No game contradicts the account."
    print(f"{verdict} {found.seconds:.1f} s.")


def _trained(game: Game, data: str, state: Path | None, quiet: bool) -> Audit:
    from dptune.audit.training_games import play_training  # noqa: PLC0415 - loads the training engines

    return play_training(game, data, state, progress=not quiet)
