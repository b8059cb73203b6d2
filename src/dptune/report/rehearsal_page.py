"""The page of a rehearsal: scores, failures, timings and all configurations. For public and synthetic data alone.

It is made from :class:`~dptune.sealed.rehearsal.Rehearsed`, which refuses a sealed run, and is watermarked throughout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dptune.report.figures import Bar, bars
from dptune.report.svg import Picture, line, path, text
from dptune.report.templating import render
from dptune.sealed.rehearsal import Rehearsed, RehearsedTrial

__all__ = ["RehearsalPage", "parallel_coordinates", "rehearsal_html"]

_MOST_LINES, _MOST_AXES, _MOST_TRACEBACKS, _MOST_BARS = 400, 8, 10, 15
_WIDTH, _TOP, _BOTTOM = 420, 46.0, 236.0


@dataclass(frozen=True)
class RehearsalPage:
    """What the template of a rehearsal sees."""

    title: str
    mark: str
    data: str
    warnings: tuple[str, ...]
    scores: Picture | None
    timings: Picture | None
    configurations: Picture | None
    rows: tuple[tuple[str, str, str, str, str], ...]
    tracebacks: tuple[tuple[str, str], ...]


def _places(values: Sequence[Any]) -> tuple[list[float], str, str]:
    """Where values stand on an axis from 0 to 1, and what its ends say; words stand at equal distances."""
    numbers = [float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) == len(values) and all(math.isfinite(one) for one in numbers):
        low, high = min(numbers), max(numbers)
        logarithmic = low > 0 and high / low > 50
        scaled = [math.log(one) for one in numbers] if logarithmic else numbers
        least, span = min(scaled), (max(scaled) - min(scaled)) or 1.0
        return [(one - least) / span for one in scaled], f"{low:.3g}", f"{high:.3g}"
    known = sorted({json.dumps(one, default=str) for one in values})
    where = {one: place / max(1, len(known) - 1) for place, one in enumerate(known)}
    return [where[json.dumps(one, default=str)] for one in values], known[0][:10], known[-1][:10]


def parallel_coordinates(trials: Sequence[RehearsedTrial]) -> Picture | None:
    """All configurations as lines across axes, one for each parameter and the score; None if there is no axis.

    Args:
        trials: of a rehearsal.

    Returns:
        The picture; the best one stands out, failures have another colour.

    Example:
        >>> one, two = (RehearsedTrial(i, {"lr": 0.1 + i}, 0.5 + i / 4, 1.0, None, 0) for i in range(2))
        >>> parallel_coordinates([one, two]).description
        'Axes: lr, score. 2 trainings, 0 of them failed. The best had lr 1.1, score 0.75.'
    """
    shown = list(trials)[:_MOST_LINES]
    names = sorted({name for one in shown for name in one.params})
    varying = [name for name in names if len({json.dumps(one.params.get(name), default=str) for one in shown}) > 1]
    axes = (varying or names)[: _MOST_AXES - 1]
    if not shown or not axes:
        return None
    alive = [one.score for one in shown if one.score > -math.inf]
    floor = min(alive, default=0.0)
    columns = [[one.params.get(name) for one in shown] for name in axes]
    columns.append([one.score if one.score > -math.inf else floor for one in shown])
    drawn = [_places(column) for column in columns]
    xs = [40.0 + 340.0 * place / (len(columns) - 1) for place in range(len(columns))]
    best = max(range(len(shown)), key=lambda i: shown[i].score)
    parts: list[str] = []
    for i in sorted(range(len(shown)), key=lambda i: i == best):
        points = [(x, _BOTTOM - (_BOTTOM - _TOP) * where[i]) for x, (where, _, _) in zip(xs, drawn, strict=True)]
        failed = shown[i].score == -math.inf
        parts.append(path(points, "fail" if failed else "best" if i == best else "thin"))
    for place, (x, name, (_, low, high)) in enumerate(zip(xs, [*axes, "score"], drawn, strict=True)):
        up = 12 if place % 2 == 0 else 24  # names of neighbours must not run into each other
        edge = ("start", 0.0) if place == 0 else ("end", _WIDTH) if x == xs[-1] else ("middle", x)  # never cut off
        parts += [line(x, _TOP, x, _BOTTOM, "axis"), text(edge[1], up, name[:16], "strong", edge[0])]
        parts += [text(x, _BOTTOM + 14, low, "dim", "middle"), text(x, _TOP - 6, high, "dim", "middle")]
    won = shown[best]
    figures = [f"{name} {won.params.get(name)}" for name in axes] + [f"score {won.score:.4g}"]
    said = (
        f"Axes: {', '.join([*axes, 'score'])}. {len(shown)} trainings, {len(shown) - len(alive)} of them failed. The "
        f"best had {', '.join(figures)}."
    )
    return Picture("lines", "All configurations", said, _WIDTH, 258, tuple(parts))


def _score_bars(trials: Sequence[RehearsedTrial]) -> Picture | None:
    rows = [
        Bar(f"trial {one.number}", one.score, "fa", said=f"{one.score:.4f}") for one in trials if one.score > -math.inf
    ]
    rows = sorted(rows, key=lambda row: -row.value)[:_MOST_BARS]
    positive = rows and rows[-1].value >= 0
    return bars("scores", "Scores, the best first", rows, "the score") if positive else None


def _timing_bars(trials: Sequence[RehearsedTrial]) -> Picture | None:
    ended = [(one.number, one.seconds) for one in trials if one.seconds is not None]
    rows = [Bar(f"trial {number}", seconds, "fd", said=f"{seconds:.3f}") for number, seconds in ended]
    rows = sorted(rows, key=lambda row: -row.value)
    return bars("seconds", "Seconds of the longest trainings", rows[:_MOST_BARS], "seconds") if rows else None


def _short(value: object) -> str:
    """A value of a configuration, for a column that is narrow; the vault has every digit."""
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value, default=str)


def _row(one: RehearsedTrial) -> tuple[str, str, str, str, str]:
    score = f"{one.score:.4f}" if one.score > -math.inf else "failed"
    seconds = "-" if one.seconds is None else f"{one.seconds:.3f}"
    params = ", ".join(f"{name} {_short(value)}" for name, value in sorted(one.params.items()))
    return str(one.number), score, seconds, str(one.deaths), params


def rehearsal_html(found: Rehearsed) -> str:
    """The page of a rehearsal.

    Args:
        found: all that it knows.

    Returns:
        One self-contained page, watermarked.

    Raises:
        InvalidInput: jinja2 is not installed.
    """
    details = found.release.details
    tracebacks: dict[str, str] = {}
    for one in found.failed:
        said = one.error or ("The worker process died." if one.deaths else "The score was not a number.")
        tracebacks.setdefault(said.strip().splitlines()[-1], said.strip())
    page = RehearsalPage(
        title=f"Rehearsal: {found.release.dataset}",
        mark=str(details["watermark"]),
        data=str(details["data"]),
        warnings=tuple(found.warnings()),
        scores=_score_bars(found.trials),
        timings=_timing_bars(found.trials),
        configurations=parallel_coordinates(found.trials),
        rows=tuple(_row(one) for one in found.trials),
        tracebacks=tuple(tracebacks.items())[:_MOST_TRACEBACKS],
    )
    return render("rehearsal.html", page)
