"""The audits of Xiang et al. again: three games at four base epsilons, with real training, and ours beside them.

The slides show their results as pictures without numbers, so what can be compared is their findings; the notes of
the table say which of them hold here. Base: DP-SGD, noise calibrated to each epsilon, geometric number of runs with
mean 10.
"""

from __future__ import annotations

from collections.abc import Callable

from dptune.accounting import DpSgd, Geometric
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.literature import published
from dptune.audit.auditor import Audit, audit
from dptune.audit.games import Game
from dptune.audit.training_games import play_training
from dptune.reproductions.table import Table

__all__ = ["xiang_audit"]

DELTA = 1e-5
_RATE, _STEPS = 0.1, 20
_COLUMNS = ("one run", "ntnv", "ntcv", "etcv", "worst case", "certificate", "dptune", "Xiang T3", "PS22")


def _silent(line: str) -> None:
    del line


def xiang_audit(
    progress: Callable[[str], None] = _silent,
    *,
    trained: int = 1000,
    empty: int = 10**7,
    bases: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0),
    seed: int | None = None,
) -> Table:
    """Play all four games; ``trained`` and ``empty`` are games per world with and without real training."""
    rows: list[tuple[str | int | float, ...]] = []
    for epsilon in bases:
        noise = calibrate_noise(lambda level: DpSgd(_RATE, level, _STEPS), epsilon, DELTA)
        base, runs = DpSgd(_RATE, noise, _STEPS), Geometric(10)
        found: dict[str, Audit] = {}
        for name in ("ntnv", "ntcv", "etcv", "worst-case"):
            progress(f"base epsilon {epsilon:g}: {name}")
            games = trained if name.startswith("nt") else empty
            game = Game(name, base, runs, DELTA, games)
            found[name] = play_training(game) if name.startswith("nt") else audit(game, seed)
        bounds = published(base, runs, DELTA)
        last = found["worst-case"]
        shown = [found[name].bound.low for name in ("ntnv", "ntcv", "etcv", "worst-case")]
        others = [bounds[name].epsilon or float("nan") for name in ("xiang_theorem3", "papernot_steinke")]
        rows.append((last.base_epsilon, *shown, last.certificate, last.upper, *others))
    return Table(
        f"Audits of private selection: DP-SGD (rate {_RATE:g}, {_STEPS} steps), geometric runs with mean 10, "
        f"delta {DELTA:g}; {trained} games per world with training, {empty:g} without, confidence 0.95 for each number",
        _COLUMNS,
        rows,
        _notes(rows),
    )


def _notes(rows: list[tuple[str | int | float, ...]]) -> tuple[str, ...]:
    table = [[float(cell) for cell in row] for row in rows]

    def share(column: int) -> str:
        held = sum(row[column] > row[0] for row in table)
        return f"{held} of {len(table)} bases"

    gains = ", ".join(f"{row[2] - row[1]:+.2f}" for row in table)
    return (
        f"NTNV, 'tuning leaks limited privacy': the games exceed the base epsilon at {share(1)}.",
        f"NTCV, 'controlling the score does not help much': ntcv minus ntnv is {gains}; above the base at {share(2)}.",
        f"ETCV, 'epsilon_l > epsilon_B': at {share(3)} with this number of games.",
        f"Worst case (ours), the same comparison: {share(4)}.",
        "The slides train larger models on other data and print no numbers; few games cannot show a large epsilon.",
    )
