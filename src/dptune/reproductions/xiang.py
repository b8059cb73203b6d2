"""The audits of Xiang et al. again: three games at four base epsilons, with real training, and ours beside them.

The slides show their results as pictures without numbers, so what can be compared is their findings; the table's
verdicts say which of them hold here. Base: DP-SGD, noise calibrated to each epsilon, geometric number of runs with
mean 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dptune.accounting import DpSgd, Geometric
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.literature import published
from dptune.audit.auditor import Curve, audit
from dptune.audit.games import Game
from dptune.audit.training_games import play_training
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Plot, Table, Verdict, verdict

__all__ = ["Area", "area", "xiang_audit"]

DELTA = 1e-5
_RATE, _STEPS = 0.1, 20
_GAMES = ("ntnv", "ntcv", "etcv", "worst-case")
_COLUMNS = ("one run", "ntnv", "ntcv", "etcv", "worst case", "certificate", "dptune", "Xiang T3", "PS22")


def xiang_audit(
    progress: Callable[[str], None] = silent,
    *,
    trained: int = 5000,
    empty: int = 10**9,
    bases: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0),
    seed: int | None = None,
    workers: int | None = None,
    folder: Path | None = None,
) -> Table:
    """Play all four games; ``trained`` and ``empty`` are games per world with and without real training.

    What a game showed is kept in the folder; prices are computed anew.
    """
    rows: list[tuple[str | int | float, ...]] = []
    played: list[dict[str, Shown]] = []
    kept, told = Kept("xiang-audit", folder), Progress(len(bases) * len(_GAMES), progress)
    for epsilon in bases:
        noise = calibrate_noise(lambda level: DpSgd(_RATE, level, _STEPS), epsilon, DELTA)
        base, runs = DpSgd(_RATE, noise, _STEPS), Geometric(10)
        found: dict[str, Shown] = {}
        for name in _GAMES:
            game = Game(name, base, runs, DELTA, trained if name.startswith("nt") else empty)
            key = {"game": name, "noise": noise, "games": game.games, "seed": seed}
            known = key in kept
            found[name] = Shown(*kept.get(key, partial(_play, game, seed, workers)))
            said = f"base {epsilon:g}: {name} shows {found[name].low:.3f} (this event at most {found[name].high:.2f})"
            told.known() if known else told.done(said)
        bounds, last = published(base, runs, DELTA), Game("worst-case", base, runs, DELTA, empty)
        shown = [found[name].low for name in _GAMES]
        others = [bounds[name].epsilon or float("nan") for name in ("xiang_theorem3", "papernot_steinke")]
        rows.append((last.base_epsilon(), *shown, last.certificate(), last.upper(), *others))
        played.append(found)
    return Table(
        f"Audits of private selection: DP-SGD (rate {_RATE:g}, {_STEPS} steps), geometric runs with mean 10, "
        f"delta {DELTA:g}; {trained} games per world with training, {empty:g} without, confidence 0.95 for each number",
        _COLUMNS,
        rows,
        _notes(rows),
        _verdicts(rows, played),
        Plot("epsilon of one run", "epsilon shown or bounded", {
            name: ([float(row[0]) for row in rows], [float(row[i]) for row in rows])
            for i, name in enumerate(_COLUMNS)
        }),
    )  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What one game showed: a lower bound, where the truth may be for its event, and the attack's area."""

    low: float
    high: float
    area: float
    error: float


def _play(game: Game, seed: int | None, workers: int | None) -> list[float]:
    """The numbers of :class:`Shown`; games without training have no measured area."""
    if not game.name.startswith("nt"):
        bound = audit(game, seed).bound
        return [bound.low, bound.high, 0.0, 0.0]
    source = None if seed is None else Randomness.rehearsal(seed)
    found = play_training(game, workers=workers, randomness=source)
    under = area(found.curve, game.games)
    return [found.bound.low, found.bound.high, under.value, under.error]


@dataclass(frozen=True)
class Area:
    """The area under an attack's ROC curve, all games used, with its standard error (Hanley and McNeil 1982)."""

    value: float
    error: float


def area(curve: Curve | None, games: int) -> Area:
    """A half says that the attacker learns nothing; no threshold is chosen, so nothing is held out."""
    if curve is None:
        raise InvalidInput("The area needs an attack whose curve was measured.")
    level, power = (np.concatenate([[0.0], side, [1.0]]) for side in curve[:2])
    value = float(np.diff(level) @ (power[1:] + power[:-1]) / 2.0)
    first, second = value / (2.0 - value), 2.0 * value**2 / (1.0 + value)
    variance = value * (1.0 - value) + (games - 1) * (first + second - 2.0 * value**2)
    return Area(value, math.sqrt(max(variance, 0.0)) / games)


def _notes(rows: list[tuple[str | int | float, ...]]) -> tuple[str, ...]:
    held = sum(float(row[4]) > float(row[0]) for row in rows)
    return (
        f"Worst case (ours) exceeds the base epsilon at {held} of {len(rows)} bases.",
        "The slides train larger models on other data and print no numbers.",
    )


def _verdicts(rows: list[tuple[str | int | float, ...]], played: list[dict[str, Shown]]) -> tuple[Verdict, ...]:
    """The three findings. Few games show little, so that a game shows nothing is no finding unless areas agree."""
    table = [[float(cell) for cell in row] for row in rows]

    def share(column: int) -> tuple[int, str]:
        held = sum(row[column] > row[0] for row in table)
        return held, f"{held} of {len(table)} bases"

    areas = [[found[name] for name in ("ntnv", "ntcv")] for found in played]
    gains = ", ".join(f"{row[2] - row[1]:+.2f}" for row in table)
    seen = "; ".join(f"{one.area:.3f} and {other.area:.3f}" for one, other in areas)
    steps = [(other.area - one.area) / max(math.hypot(one.error, other.error), 1e-12) for one, other in areas]
    above, controlled, shown = share(1), share(2), share(3)
    return (
        verdict(
            "NTNV: in practice, tuning DP-SGD leaks limited privacy",
            above[0] == 0,
            f"the games exceed the base epsilon at {above[1]}",
        ),
        verdict(
            "NTCV: controlling the score does not help much",
            max(steps) < 3.0 and controlled[0] == 0,
            f"ntcv minus ntnv is {gains}, above the base at {controlled[1]}; areas under the ROC curve, ntnv and ntcv, "
            f"by base: {seen}, differences in standard errors {', '.join(f'{step:+.1f}' for step in steps)} (much is "
            "read as 3)",
        ),
        verdict(
            "ETCV: the lower bound exceeds the base epsilon, so selection leaks more",
            True if shown[0] == len(table) else None,
            f"shown at {shown[1]} with this number of games; a lower bound that stays below shows nothing",
        ),
    )
