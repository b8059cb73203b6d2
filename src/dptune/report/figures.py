"""The pictures of a release: what attacks can reach, epsilon beside the literature, and the budget.

Each takes public values alone and returns a picture with a description that holds its figures, for people who do not
see it. Bounds are drawn where they are; what is printed is rounded against us.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptune._typing import Array
from dptune.accounting import Cost
from dptune.accounting.attackers import ALARM, of_a_hundred
from dptune.report.svg import Picture, bar, circle, line, path, text
from dptune.sealed.amounts import at_least, at_most

__all__ = ["Bar", "bars", "budget_picture", "reach", "trade_off"]

_RATES = (0.001, 0.01, 0.05, 0.1, 0.5)
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 408.0, 14.0, 246.0
_DECADES = 4


@dataclass(frozen=True)
class Bar:
    """One bar of a comparison.

    Args:
        name: what is compared.
        value: its epsilon.
        kind: "fa" (ours), "fb" (others), "fc" (a certificate) or "fd" (for orientation).
        lower: whether it is a bound from below, which is printed rounded down; others are rounded up.
        said: what is printed instead, for a value that is no bound.

    Example:
        >>> Bar("dptune", 1.5, "fa").value
        1.5
    """

    name: str
    value: float
    kind: str
    lower: bool = False
    said: str | None = None

    @property
    def shown(self) -> str:
        """The value as it is printed."""
        if self.said is not None:
            return self.said
        return at_least(self.value) if self.lower else at_most(self.value)


def reach(cost: Cost, rates: Sequence[float] = _RATES) -> list[tuple[float, float]]:
    """How much any attack finds at several rates of false alarm: pairs of rate and power, both directions.

    Args:
        cost: of everything that was released.
        rates: of false alarm.

    Returns:
        Upper bounds.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> [(rate, round(power, 3)) for rate, power in reach(Gaussian(2.0), (0.01, 0.1))]
        [(0.01, 0.034), (0.1, 0.217)]
    """
    return [(rate, _power(cost, rate)) for rate in rates]


@lru_cache(maxsize=256)
def _power(cost: Cost, rate: float) -> float:
    """Kept, since a page asks for the same rates in its picture, its table and its tiles."""
    return cost.power(rate)


def _both_ways(cost: Cost, rates: Array) -> Array:
    return np.maximum(cost.roc(rates, "remove"), cost.roc(rates, "add"))


def _x(rate: float) -> float:
    """The place of a rate on the logarithmic axis."""
    share = (math.log10(max(rate, 10.0**-_DECADES)) + _DECADES) / _DECADES
    return _LEFT + share * (_RIGHT - _LEFT)


def _y(power: float) -> float:
    return _BOTTOM - power * (_BOTTOM - _TOP)


def trade_off(cost: Cost, epsilon: float | None, delta: float) -> Picture:
    """What any attack can reach: its power against its rate of false alarm, beside guessing.

    Args:
        cost: of everything that was released.
        epsilon: as stated; None where nothing finite is known.
        delta: as stated.

    Returns:
        The picture.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> trade_off(Gaussian(2.0), 2.0, 1e-5).title
        'What an attacker can reach'
    """
    rates = np.logspace(-_DECADES, 0, 161)
    powers = np.minimum(1.0, _both_ways(cost, rates))
    curve = [(_x(r), _y(p)) for r, p in zip(rates, powers, strict=True)]
    guess = [(_x(r), _y(r)) for r in rates]
    parts = [*_axes(), path([*guess, *reversed(curve)], "area", closed=True), path(guess, "guess")]
    if epsilon is not None:
        alone = np.minimum(np.exp(min(epsilon, 700.0)) * rates + delta, 1.0)
        other = 1.0 - np.exp(-epsilon) * np.maximum(1.0 - delta - rates, 0.0)
        stated = np.minimum(alone, other)
        parts.append(path([(_x(r), _y(p)) for r, p in zip(rates, stated, strict=True)], "b"))
    at = _power(cost, ALARM)
    parts += [path(curve, "a"), circle(_x(ALARM), _y(at), 4, "fa"), *_legend(epsilon is not None)]
    said = "; ".join(f"{of_a_hundred(p)} of 100 at {100 * r:g} in 100" for r, p in reach(cost))
    description = (
        "The rate of false alarm from 1 in 10,000 to 1, on a logarithmic axis, against the share that an attack finds. "
        f"No attack finds more than: {said}. The dot is at 1 in 100. Guessing finds as many as it wrongly accuses."
    )
    return Picture("reach", "What an attacker can reach", description, 420, 336, tuple(parts))


def _axes() -> list[str]:
    parts = []
    for power in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts += [line(_LEFT, _y(power), _RIGHT, _y(power), "grid")]
        parts += [text(_LEFT - 6, _y(power) + 4, f"{100 * power:g}", "dim", "end")]
    for place, said in ((1e-4, "0.01"), (1e-3, "0.1"), (1e-2, "1"), (1e-1, "10"), (1.0, "100")):
        parts += [line(_x(place), _TOP, _x(place), _BOTTOM, "grid")]
        parts += [text(_x(place), _BOTTOM + 16, said, "dim", "end" if place == 1.0 else "middle")]
    parts.append(path([(_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], "axis"))
    parts.append(text(_LEFT, _BOTTOM + 34, "wrongly accused, of 100 who are not in the data", "dim"))
    parts.append(text(_LEFT + 6, _TOP + 14, "found, of 100 who are in the data", "dim"))
    return parts


def _legend(stated: bool) -> list[str]:
    rows = [("a", "no attack reaches more than this"), ("guess", "guessing")]
    if stated:
        rows.insert(1, ("b", "what epsilon and delta alone would allow"))
    parts = []
    for place, (kind, said) in enumerate(rows):
        y = _BOTTOM + 52 + 16 * place
        parts += [line(_LEFT, y - 4, _LEFT + 26, y - 4, kind), text(_LEFT + 34, y, said)]
    return parts


def bars(name: str, title: str, rows: Sequence[Bar], what: str = "epsilon") -> Picture:
    """Figures side by side, one bar each.

    Args:
        name: unique on the page.
        title: what is compared.
        rows: the bars, from the top.
        what: the measure.

    Returns:
        The picture.

    Example:
        >>> bars("b", "By whom you ask", [Bar("dptune", 1.5, "fa"), Bar("others", 2.5, "fb")]).height
        76
    """
    most = max((row.value for row in rows if math.isfinite(row.value)), default=1.0) or 1.0
    parts: list[str] = []
    for place, row in enumerate(rows):
        share = row.value / most if math.isfinite(row.value) else 1.0
        parts += bar(16 + 34 * place, share, row.name, row.shown, row.kind)
    said = "; ".join(f"{row.name} {row.shown}" for row in rows)
    return Picture(name, title, f"Bars of {what}: {said}.", 420, 8 + 34 * len(rows), tuple(parts))


def budget_picture(budget: tuple[float, float], spent: float | None, own: float | None) -> Picture:
    """The lifetime budget of a data set, and what all charges up to this one cost together.

    Args:
        budget: its epsilon and delta.
        spent: an epsilon that covers all charges so far; None where nothing finite is known.
        own: of this release alone.

    Returns:
        The picture.

    Example:
        >>> budget_picture((3.0, 1e-5), 1.5, 1.0).description
        'Of a budget of epsilon 3 all charges so far together take 1.5000; this release alone takes 1.0000.'
    """
    rows = []
    if own is not None:
        rows.append(Bar("this release alone", own, "fc"))
    if spent is not None:
        rows.append(Bar("all charges so far, together", spent, "fa"))
    rows.append(Bar("budget of the data set", budget[0], "fd"))
    drawn = bars("budget", "Budget of the data set", rows)
    taken = "an amount that is not known" if spent is None else at_most(spent)
    alone = "" if own is None else f"; this release alone takes {at_most(own)}"
    said = f"Of a budget of epsilon {budget[0]:g} all charges so far together take {taken}{alone}."
    return Picture(drawn.name, drawn.title, said, drawn.width, drawn.height, drawn.parts)
