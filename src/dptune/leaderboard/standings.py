"""From finished cells to a table and a picture: means with their standard errors, best first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dptune.leaderboard.entrants import ENTRANTS
from dptune.report.figures import Bar, bars
from dptune.report.svg import Picture, box, text

__all__ = ["Overall", "Standing", "described", "overall", "picture", "standings"]

_GROUP = 30  # height of a heading in the picture


@dataclass(frozen=True)
class Standing:
    """What one entrant reached on one data set at one total.

    Args:
        data: the benchmark.
        epsilon: the total.
        method: the entrant.
        accuracy: the mean over repetitions, on records that no run looked at.
        error: its standard error; None for one repetition.
        worst: the least of them.
        repetitions: how many there are.
        seconds: the mean wall time, with planning, without features.
        processor_seconds: the mean processor time of it.
        saw: whether the settings were chosen with a look at this data set.
        guaranteed: whether the releases are private at the total.
    """

    data: str
    epsilon: float
    method: str
    accuracy: float
    error: float | None
    worst: float
    repetitions: int
    seconds: float
    processor_seconds: float
    saw: bool
    guaranteed: bool


def standings(rows: Iterable[Mapping[str, Any]]) -> list[Standing]:
    """The table of finished cells: by data set and total, the best entrant first.

    Args:
        rows: finished cells, as :func:`dptune.leaderboard.races.finished` gives them.

    Returns:
        One standing for each data set, total and entrant.

    Example:
        >>> cell = {"data": "digits", "epsilon": 1.0, "method": "default", "seconds": 2.0, "processor_seconds": 2.0,
        ...         "settings_saw_data": False}
        >>> (found,) = standings([{**cell, "accuracy": 0.8}, {**cell, "accuracy": 0.9}])
        >>> round(found.accuracy, 3), round(found.error, 3), found.worst
        (0.85, 0.05, 0.8)
    """
    groups: dict[tuple[str, float, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["epsilon"], row["method"]), []).append(row)
    places = {data: place for place, data in enumerate(dict.fromkeys(data for data, _, _ in groups))}
    found = [_standing(*key, group) for key, group in groups.items()]
    return sorted(found, key=lambda one: (places[one.data], one.epsilon, -one.accuracy, one.method))


def _standing(data: str, epsilon: float, method: str, group: Sequence[Mapping[str, Any]]) -> Standing:
    values = [float(row["accuracy"]) for row in group]
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    known = ENTRANTS.get(method)
    return Standing(
        data,
        epsilon,
        method,
        statistics.fmean(values),
        error,
        min(values),
        len(values),
        statistics.fmean(float(row["seconds"]) for row in group),
        statistics.fmean(float(row["processor_seconds"]) for row in group),
        any(bool(row["settings_saw_data"]) for row in group),
        known is not None and known.guaranteed,
    )


@dataclass(frozen=True)
class Overall:
    """What one entrant reached on average over all data sets and totals.

    Args:
        method: the entrant.
        accuracy: the mean of its accuracies.
        error: the standard error of that; None where some accuracy has none.
    """

    method: str
    accuracy: float
    error: float | None


def overall(found: Sequence[Standing]) -> list[Overall]:
    """The means of entrants that ran on every data set and total of the table, the best first.

    Args:
        found: the standings.

    Returns:
        One mean for each of these entrants.

    Example:
        >>> cell = {"data": "digits", "epsilon": 1.0, "method": "default", "seconds": 2.0, "processor_seconds": 2.0,
        ...         "settings_saw_data": False, "accuracy": 0.8}
        >>> (one,) = overall(standings([cell, {**cell, "epsilon": 3.0, "accuracy": 0.9}]))
        >>> one.method, round(one.accuracy, 3), one.error
        ('default', 0.85, None)
    """
    columns = {(one.data, one.epsilon) for one in found}
    rows: dict[str, list[Standing]] = {}
    for one in found:
        rows.setdefault(one.method, []).append(one)
    made = [_overall(method, row) for method, row in rows.items() if len(row) == len(columns)]
    return sorted(made, key=lambda one: (-one.accuracy, one.method))


def _overall(method: str, row: Sequence[Standing]) -> Overall:
    errors = [one.error for one in row if one.error is not None]
    error = math.hypot(*errors) / len(row) if len(errors) == len(row) else None
    return Overall(method, statistics.fmean(one.accuracy for one in row), error)


def described(found: Sequence[Standing], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The table as plain JSON values.

    Args:
        found: the standings.
        protocol: the rules under which they were reached.

    Returns:
        One dictionary, for ``leaderboard.json`` and ``--json``.
    """
    return {"protocol": dict(protocol), "standings": [asdict(one) for one in found]}


def picture(found: Sequence[Standing]) -> Picture:
    """One bar for each entrant, in groups by data set and total.

    A bar begins at the worst accuracy of its group less a tenth of the range, so that differences show; the figure
    beside it is the accuracy with its standard error.

    Args:
        found: the standings, in order.

    Returns:
        The picture.
    """
    parts: list[str] = []
    said: list[str] = []
    top = 0
    groups = dict.fromkeys((one.data, one.epsilon) for one in found)
    for number, (data, epsilon) in enumerate(groups):
        members = [one for one in found if (one.data, one.epsilon) == (data, epsilon)]
        title = f"{data}, total epsilon {epsilon:g}"
        drawn = bars(f"g{number}", title, _bars(members), "accuracy")
        parts.append(text(4, top + 20, title, "strong"))
        parts.append(f'<g transform="translate(0 {top + _GROUP})">{"".join(drawn.parts)}</g>')
        said.append(f"{title}: {drawn.description}")
        top += _GROUP + drawn.height
    if not groups:
        parts, top = [box(0, 0, 420, 20, "empty"), text(4, 14, "no finished cells")], 20
    return Picture(
        "leaderboard",
        "Accuracy at the same total epsilon (bars do not begin at 0)",
        " ".join(said),
        420,
        top + 6,
        tuple(parts),
    )


def _bars(members: Sequence[Standing]) -> list[Bar]:
    low, high = min(one.accuracy for one in members), max(one.accuracy for one in members)
    floor = low - 0.1 * (high - low) - 1e-9
    shown = []
    for one in members:
        error = "" if one.error is None else f" ({one.error:.4f})"
        kind = "fd" if not one.guaranteed else "fa" if one.method == "planner" else "fb"
        shown.append(Bar(one.method, one.accuracy - floor, kind, said=f"{one.accuracy:.4f}{error}"))
    return shown
