"""An audit for people: the table, and the figure with the attack's trade-off curve under the claimed one.

The curve of the attack is measured from drawn outputs; the claimed one comes from the account. Matplotlib is imported
only when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.accounting.literature import published
from dptune.audit.attacks import Attack
from dptune.audit.auditor import Audit
from dptune.audit.statistics import gdp_reading
from dptune.errors import InvalidInput


def number(value: float) -> str:
    """A figure of the table; games that train models have no expectation."""
    return f"{value:.4f}" if np.isfinite(value) else "-"


__all__ = ["figure", "rows", "trade_off"]

Array = NDArray[np.float64]


def rows(audit: Audit) -> list[list[str]]:
    """Bounds from the lowest claim to the highest, each with what it is."""
    game, bound = audit.game, audit.bound
    heuristic = gdp_reading(bound.counts, game.delta, game.confidence)
    seen = f"{bound.counts.tested} and {bound.counts.other} hits in {game.games:g} games per world"
    table = [
        ["one run, untuned", f"{audit.base_epsilon:.4f}", "what is usually reported"],
        ["shown by the games", f"{bound.low:.4f}", f"confidence {game.confidence:g}; {seen}"],
        ["expected beforehand", number(audit.expected), f"attack: {audit.attack}"],
        ["interval of this event", f"{bound.low:.3f} - {bound.high:.3f}", "its own loss, not a guarantee"],
        ["Gaussian reading", f"{heuristic.epsilon:.4f}", heuristic.label],
        ["certificate", f"{audit.certificate:.4f}", "some score costs this much, by theory"],
        ["dptune, proven", f"{audit.upper:.4f}", "no score costs more"],
    ]
    for name, value in published(game.base, game.runs, game.delta).items():
        if value.epsilon is not None and np.isfinite(value.epsilon):
            table.append([name.replace("_", " "), f"{value.epsilon:.4f}", "published"])
    return table


def trade_off(attack: Attack, games: int, seed: int | None = None) -> tuple[Array, Array]:
    """Measured levels and powers of the events "the place is before t", from outputs of both worlds."""
    source = np.random.default_rng(seed)
    seen = [attack.winners(world)(source.random(games)) for world in (0, 1)]
    ends = [np.sort(places[~np.isnan(places)]) for places in seen]
    marks = np.quantile(np.concatenate(ends), np.linspace(0.0, 1.0, 400))
    level, power = (np.searchsorted(places, marks) / games for places in ends)
    return level, power


def figure(audits: Sequence[Audit], attack: Attack, path: Path, games: int = 200_000, seed: int | None = None) -> None:
    """Bounds by base epsilon on the left; the last attack's trade-off curve against the claimed one on the right."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput("A figure needs matplotlib. Run: pip install 'dptune[report]'.") from error
    made = Figure(figsize=(9, 4))
    left, right = made.subplots(1, 2)
    base = [audit.base_epsilon for audit in audits]
    for label, values, style in (
        ("dptune, proven", [audit.upper for audit in audits], "C3_"),
        ("certificate", [audit.certificate for audit in audits], "C0x"),
        ("shown by the games", [audit.bound.low for audit in audits], "C2^"),
    ):
        left.plot(base, values, style, label=label, markersize=9)
    top = max(base) * 1.1
    left.plot([0, top], [0, top], "k:", linewidth=0.8, label="one run")
    left.set_xlabel("epsilon of one run")
    left.set_ylabel("epsilon of the released winner")
    left.legend()
    level, power = trade_off(attack, games, seed)
    x = np.linspace(0.0, 1.0, 400)
    cost = audits[-1].game.cost
    right.plot(x, 1.0 - cost.roc(x, "remove" if attack.forward else "add"), "C3", label="claimed")
    right.plot(level, 1.0 - power, "C2", label="attack, measured")
    right.set_xlabel("false positive rate")
    right.set_ylabel("false negative rate")
    right.legend()
    made.tight_layout()
    made.savefig(path, dpi=120)
