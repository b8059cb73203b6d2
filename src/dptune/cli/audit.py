"""``dptune audit``: play a game against an account and print how close the attack comes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dptune.accounting.runs import parse_runs
from dptune.audit import Audit, Game
from dptune.audit import audit as conduct
from dptune.audit.auditor import games_for, plan_attack
from dptune.audit.games import NAMES, TRAINED
from dptune.audit.report import figure as draw
from dptune.audit.report import rows, trade_off
from dptune.cli._expressions import parse_base
from dptune.cli._output import print_json, print_rows, wrapped
from dptune.errors import InvalidInput

__all__ = ["audit"]

_CURVE = 200_000
WALK = "implementations"  # no game: a walk over the code


def _games(value: float) -> int:
    if not math.isfinite(value) or value != math.floor(value) or value < 1:
        raise InvalidInput(f"'games' must be a whole number of games per world, for example 1e6; got {value:g}.")
    return int(value)


def audit(
    game: Annotated[str, typer.Option(help=" | ".join((*NAMES, WALK)))],
    games: Annotated[
        float | None, typer.Option(help="Games per world, for example 1e7 (thousands where models are trained).")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="In place of games: how many are expected to show this epsilon? Plays none.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="gdp:MU | gaussian:NOISE | dpsgd:RATE,NOISE,STEPS | laplace:SCALE | pure:EPS")
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P"),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of the statement, for example 1e-5.")] = None,
    job: Annotated[
        Path | None,
        typer.Option(help="A tuning job (TOML) to attack instead of base and runs: any method, any trainer."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability that the lower bound holds.")] = 0.95,
    data: Annotated[str, typer.Option(help="Records to train on (ntnv, ntcv): digits or mnist.")] = "digits",
    state: Annotated[
        Path | None, typer.Option(help="File to continue from after an interruption (ntnv, ntcv).")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the games (ntnv, ntcv).")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw bounds and trade-off curve into this file.")] = None,
    draws: Annotated[int | None, typer.Option(help="Cases of every way to draw (implementations).")] = None,
    seed: Annotated[int, typer.Option(help="Which cases are drawn (implementations).")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Attack private selection: a lower bound from games, a certificate, and the account's upper bound."""
    if _is_walk(game, draws, (games, target, base, runs, delta, job, state, workers, figure)):
        _walk(draws or 0, seed, as_json)
        return
    if figure is not None and not figure.parent.is_dir():
        raise InvalidInput(f"'figure' cannot be written: there is no folder {figure.parent}.")
    if (games is None) == (target is None):
        raise InvalidInput("State either --games (how many to play per world) or --target (how many would be needed).")
    count = 1 if games is None else _games(games)
    if job is not None:
        if (base, runs, delta, target) != (None,) * 4 or game not in TRAINED:
            raise InvalidInput(
                "'job' is for ntnv and ntcv, and says the rest itself: leave out base, runs, delta and target."
            )
        title, found = f"{game}: {job}", _job(job, game, count, confidence, state, workers, as_json)
    else:
        if base is None or runs is None or delta is None:
            raise InvalidInput("An audit needs --base, --runs and --delta, or --job with a tuning job.")
        described = Game(game, parse_base(base), parse_runs(runs), delta, count, confidence)
        if target is not None:
            _needed(described, target, as_json)
            return
        title = f"{game}: epsilon at delta {delta:g}, {described.base}, {described.runs}"
        found = _trained(described, data, state, workers, as_json) if game in TRAINED else conduct(described)
        if figure is not None and found.curve is None:
            draw([found], trade_off(plan_attack(described), _CURVE), figure)
    if figure is not None and found.curve is not None:
        draw([found], found.curve, figure)
    _report(title, found, as_json)


def _report(title: str, found: Audit, as_json: bool) -> None:
    """Say what the games showed."""
    if as_json:
        print_json(found.describe())
        return
    print_rows(title, ["", "epsilon", ""], rows(found))
    verdict = "The games CONTRADICT the account." if found.broken else "No game contradicts the account."
    print(f"{verdict} {found.seconds:.1f} s.")


def _is_walk(game: str, draws: int | None, others: tuple[object, ...]) -> bool:
    """Whether the walk is asked for; refuses what is neither a walk nor a game."""
    if game not in (*NAMES, WALK):
        raise InvalidInput(f"'game' must be one of {', '.join((*NAMES, WALK))}; got {game!r}.")
    if (game == WALK) != (draws is not None):
        raise InvalidInput(f"'draws' is for --game {WALK}, which needs it: how many cases of every way to draw.")
    if game == WALK and any(other is not None for other in others):
        raise InvalidInput(f"--game {WALK} takes --draws, --seed and --json alone: it plays no games.")
    return game == WALK


def _walk(draws: int, seed: int, as_json: bool) -> None:
    from dptune.audit.walk import walk  # noqa: PLC0415 - loads the training engines

    found = walk(draws, seed)
    if as_json:
        print_json({"game": WALK, "draws": draws, "seed": seed, **found.describe()})
        return
    rows = [
        [way, str(count), str(found.refused[way]), f"{found.widest.get(way, 0.0):.6f}"]
        for way, count in found.counts.items()
    ]
    print_rows("One record put in or taken out", ["way", "cases", "refused", "moved, of what is paid"], rows)
    for case, one in found.findings:
        print(wrapped(f"BROKEN {case.way}: {one} ({case.name})"))
    print("One record moves MORE than it pays." if found.broken else "No record moves more than it pays.")


def _needed(game: Game, target: float, as_json: bool) -> None:
    needed = games_for(game, target)
    if as_json:
        print_json({"game": game.name, "target": target, "games": needed, "confidence": game.confidence})
        return
    print(f"{needed:g} games per world of {game.name} are expected to show more than {target:g}.")


def _trained(game: Game, data: str, state: Path | None, workers: int | None, quiet: bool) -> Audit:
    from dptune.audit.training_games import play_training  # noqa: PLC0415 - loads the training engines

    return play_training(game, data, state, progress=not quiet, workers=workers)


def _job(
    path: Path, game: str, games: int, confidence: float, state: Path | None, workers: int | None, quiet: bool
) -> Audit:
    from dptune.audit.canaries import CanaryMargin, canary_for, with_record  # noqa: PLC0415 - loads the engines
    from dptune.audit.tuning_games import TuningGame, check_unpaid, play_tuning  # noqa: PLC0415 - the same
    from dptune.cli._job import load_data, make_budget, read_job, with_schema  # noqa: PLC0415 - the same
    from dptune.cli._tuning import make_plan, make_trainer  # noqa: PLC0415 - the same
    from dptune.training import Dataset  # noqa: PLC0415 - the same

    job = with_schema(read_job(path))
    marked = str(job.get("data", "kind", "private"))
    check_unpaid(marked)  # before a record is read
    loaded = load_data(job)
    records, public = loaded.data, loaded.public
    if not isinstance(records, Dataset):
        raise InvalidInput("A canary needs a dptune Dataset; for other data play dptune.audit.tuning_games.TuningGame.")
    trainer = make_trainer(job, records, public)
    plan, _ = make_plan(job, records, trainer, make_budget(job))
    canary = canary_for(records)
    worlds = (records, with_record(records, canary))
    described = TuningGame(game, plan, trainer, worlds, CanaryMargin(canary), games, confidence, marked)
    return play_tuning(described, state, progress=not quiet, workers=workers)
