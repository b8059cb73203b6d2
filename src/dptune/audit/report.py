"""An audit for people: the table, and the figure with the attack's trade-off curve under the claimed one.

The curve of the attack is measured from drawn outputs; the claimed one comes from the account. Matplotlib is imported
only when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dptune.audit.attacks import Attack
from dptune.audit.auditor import Audit, Curve, curve_of
from dptune.audit.statistics import gdp_reading
from dptune.errors import InvalidInput

__all__ = ["figure", "rows", "trade_off"]


def number(value: float) -> str:
    """A figure of the table; games that train models have no expectation, some plans no certificate."""
    return f"{value:.4f}" if np.isfinite(value) else "-"


def rows(audit: Audit) -> list[list[str]]:
    """Bounds from the lowest claim to the highest, each with what it is."""
    game, bound = audit.game, audit.bound
    heuristic = gdp_reading(bound.counts, game.delta, game.confidence)
    seen = f"{bound.counts.tested} and {bound.counts.other} hits in {bound.counts.games:g} games per world"
    if bound.counts.games != game.games:
        seen += f" (of {game.games:g}; the others chose the threshold)"
    table = [
        ["one run, untuned", f"{audit.base_epsilon:.4f}", "what is usually reported"],
        ["shown by the games", f"{bound.low:.4f}", f"confidence {game.confidence:g}; {seen}"],
        ["expected beforehand", number(audit.expected), f"attack: {audit.attack}"],
        ["interval of this event", f"{bound.low:.3f} - {bound.high:.3f}", "its own loss, not a guarantee"],
        ["Gaussian reading", f"{heuristic.epsilon:.4f}", heuristic.label],
        ["certificate", number(audit.certificate), "some score costs this much, by theory"],
        ["dptune, proven", f"{audit.upper:.4f}", "no score costs more"],
    ]
    table += [[name.replace("_", " "), f"{value:.4f}", "published"] for name, value in _published(audit).items()]
    return table


def _published(audit: Audit) -> dict[str, float]:
    found = {name: value.epsilon for name, value in audit.game.published().items()}
    return {name: value for name, value in found.items() if value is not None and np.isfinite(value)}


def _joined(values: dict[str, float]) -> list[tuple[float, str]]:
    """Values with their names; those within two percent of each other share a line."""
    joined: list[tuple[float, str]] = []
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        text = name.replace("_", " ")
        if joined and value < joined[-1][0] * 1.02:
            joined[-1] = (joined[-1][0], f"{joined[-1][1]}, {text}")
        else:
            joined.append((value, text))
    return joined


def trade_off(attack: Attack, games: int, seed: int | None = None) -> Curve:
    """The trade-off of an attack on empty training, measured on outputs of both worlds."""
    source = np.random.default_rng(seed)
    without, with_it = (attack.winners(world)(source.random(games)) for world in (0, 1))
    return curve_of(without, with_it, attack.forward)


def figure(audits: Sequence[Audit], curve: Curve, path: Path) -> None:
    """Bounds by base epsilon on the left; the last attack's trade-off curve against the claimed one on the right."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise InvalidInput("A figure needs matplotlib. Run: pip install 'dptune[report]'.") from error
    made = Figure(figsize=(9, 4.5))
    left, right = made.subplots(1, 2)
    base = [audit.base_epsilon for audit in audits]
    for audit in audits:
        left.plot([audit.base_epsilon] * len(_published(audit)), [*_published(audit).values()], "_", color="0.6")
    for value, names in _joined(_published(audits[-1])):
        left.annotate(names, (base[-1], value), xytext=(6, -2), textcoords="offset points", fontsize=6)
    left.plot(base, [audit.upper for audit in audits], "C3_", label="dptune, proven", markersize=11)
    left.plot(base, [audit.certificate for audit in audits], "C0x", label="certificate", markersize=8)
    low, high = ([getattr(audit.bound, end) for audit in audits] for end in ("low", "high"))
    left.vlines(base, low, high, color="C2", linewidth=1.0)
    confidence = audits[-1].game.confidence
    left.plot(base, low, "C2^", label=f"shown by the games ({confidence:g})", markersize=7)
    top = max(base) * 1.1
    left.plot([0, top], [0, top], "k:", linewidth=0.8, label="one run")
    left.set_xlim(0, top * 2)  # room for the names
    left.set_xlabel("epsilon of one run")
    left.set_ylabel("epsilon of the release")
    left.legend(fontsize=7)
    level, power, forward = curve
    x = np.linspace(0.0, 1.0, 400)
    right.plot(x, 1.0 - audits[-1].game.cost.roc(x, "remove" if forward else "add"), "C3", label="claimed")
    right.plot(level, 1.0 - power, "C2", label="attack, measured")
    right.set_xlabel("false positive rate")
    right.set_ylabel("false negative rate")
    right.legend(fontsize=7)
    made.tight_layout()
    made.savefig(path, dpi=120)
