"""The page of a ledger: every data set with its budget over time, its charges, and what is left for one more.

The whole ledger is verified first; one that does not verify gets no page. A long list of charges stays small: rows are
short, and lines are drawn through at most a few hundred points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dptune.accounting.neighbours import neighbours_from_text
from dptune.ledgers import Charge, Ledger, Status
from dptune.ledgers.entries import Entry
from dptune.report.svg import Picture, box, line, path, text
from dptune.report.templating import render
from dptune.sealed.amounts import at_least, at_most
from dptune.sealed.statement import RAISED

__all__ = ["AccountPage", "LedgerPage", "ledger_html"]

_MOST_POINTS = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 408.0, 20.0, 140.0
_FEW = 50  # charges that are shown without opening anything


@dataclass(frozen=True)
class AccountPage:
    """What the template sees of one data set."""

    name: str
    anchor: str
    unit: str
    neighbours: str
    budget: str
    delta: str
    spent: str
    left: str
    raised: str
    picture: Picture
    charges: tuple[tuple[str, str, str, str, str, str], ...]
    counted: str
    open: bool


@dataclass(frozen=True)
class LedgerPage:
    """What the template of a ledger sees."""

    title: str
    verified: str
    head: str
    accounts: tuple[AccountPage, ...]
    linked: bool


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most a few hundred of them, the last one always: sums only grow, so nothing between stands out."""
    step = max(1, len(points) // _MOST_POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


_Place = Callable[[float, float], tuple[float, float]]


def _counted(charges: int) -> str:
    return "1 charge" if charges == 1 else f"{charges} charges"


def _bars(totals: list[tuple[int, float]], at: _Place) -> list[str]:
    """One bar for each charge: what all charges up to it cost together."""
    found = []
    for number, total in totals:
        (left, top), (right, bottom) = at(number - 1, total), at(number, 0.0)
        gap = min(3.0, 0.15 * (right - left))
        found.append(box(left + gap, top, right - left - 2 * gap, bottom - top, "fa"))
    return found


def _steps(totals: list[tuple[int, float]], at: _Place) -> list[str]:
    """The outline of the bars, filled, where single ones would be too narrow."""
    points, before = [at(0, 0.0)], 0
    for number, total in _thinned(totals):
        points += [at(before, total), at(number, total)]
        before = number
    return [path([*points, at(before, 0.0)], "fa", closed=True)]


def over_time(place: int, status: Status, charges: list[Charge], budgets: list[tuple[int, float]]) -> Picture:
    """What all charges cost together, charge by charge, below the budget that was in force.

    Args:
        place: of the data set on the page.
        status: where its budget stands.
        charges: all of them, in order.
        budgets: the budgets, each with the number of charges before it.

    Returns:
        The picture.
    """
    count = max(1, len(charges))
    totals = [(i + 1, one.total) for i, one in enumerate(charges) if one.total is not None]
    most = max([status.epsilon, *(total for _, total in totals)])

    def at(number: float, value: float) -> tuple[float, float]:
        return _LEFT + (_RIGHT - _LEFT) * number / count, _BOTTOM - (_BOTTOM - _TOP) * value / most

    drawn = _bars(totals, at) if len(totals) <= _FEW else _steps(totals, at)
    limit: list[tuple[float, float]] = []
    for after, epsilon in budgets:
        limit += [*([(at(after, 0.0)[0], limit[-1][1])] if limit else []), at(after, epsilon)]
    limit.append((_RIGHT, limit[-1][1]))
    parts = [
        path([(_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], "axis"),
        *drawn,
        path(limit, "b"),
        text(_LEFT - 6, at(0, most)[1] + 4, f"{most:g}"[:5], "dim", "end"),
        text(_LEFT - 6, _BOTTOM + 4, "0", "dim", "end"),
        text(_LEFT, _BOTTOM + 16, "first charge" if len(charges) > 1 else "", "dim"),
        text(_RIGHT, _BOTTOM + 16, _counted(len(charges)), "dim", "end"),
        box(_LEFT, _BOTTOM + 27, 26, 10, "fa"),
        text(_LEFT + 34, _BOTTOM + 36, "epsilon of all charges together"),
        line(_LEFT + 236, _BOTTOM + 32, _LEFT + 262, _BOTTOM + 32, "b"),
        text(_LEFT + 270, _BOTTOM + 36, "budget"),
    ]
    said = (
        f"After {_counted(len(charges))} all of them together cost epsilon {at_most(status.spent)} of a budget of "
        f"{status.epsilon:g}."
    )
    return Picture(f"d{place}", f"Budget over time: {status.dataset}", said, 420, 182, tuple(parts))


def _budgets(entries: list[Entry], dataset: str) -> list[tuple[int, float]]:
    """Each budget that was in force, with the number of charges before it."""
    found, charges = [], 0
    for entry in entries:
        if entry.body.get("dataset") != dataset:
            continue
        if entry.body["kind"] in ("dataset", "raise"):
            found.append((charges, float(entry.body["filter"]["epsilon"])))
        charges += entry.body["kind"] == "charge"
    return found


def _row(charge: Charge, links: Mapping[str, str]) -> tuple[str, str, str, str, str, str]:
    figures = at_most(charge.epsilon), at_most(charge.total)
    when = charge.time[:16].replace("T", " ")
    return str(charge.number), when, charge.method, *figures, links.get(charge.charge, "")


def _protected(status: Status) -> str:
    """What every charge hides, and what that assumes."""
    relation = neighbours_from_text(status.neighbours)
    assumed = relation.unit_assumption(status.unit)
    said = f"Data sets are compared that differ by {relation.phrase(status.unit, 'gerund')}."
    return said if assumed is None else f"{said} {assumed}"


def _account(
    place: int, status: Status, charges: list[Charge], entries: list[Entry], links: Mapping[str, str]
) -> AccountPage:
    return AccountPage(
        name=status.dataset,
        anchor=f"data-{place}",
        unit=status.unit,
        neighbours=_protected(status),
        budget=f"{status.epsilon:g}",
        delta=f"{status.delta:g}",
        spent=at_most(status.spent),
        left=at_least(status.left),
        raised=RAISED if status.rule == "odometer" else "",
        picture=over_time(place, status, charges, _budgets(entries, status.dataset)),
        charges=tuple(_row(one, links) for one in charges),
        counted=_counted(len(charges)),
        open=len(charges) <= _FEW,
    )


def ledger_html(book: Ledger, links: Mapping[str, str] | None = None) -> str:
    """The page of a ledger.

    Args:
        book: the ledger, which is verified first.
        links: where the statement of a charge is, by the charge's name.

    Returns:
        One self-contained page.

    Raises:
        Corrupt: the ledger does not verify; the message says what does not hold.
        InvalidInput: jinja2 is not installed.
    """
    entries = book.verified()
    by_name: dict[str, list[Charge]] = {}
    for charge in book.charges():
        by_name.setdefault(charge.dataset, []).append(charge)
    seal = "seal, sums and admissions hold" if book.has_key else "sums and admissions hold; the key is not here"
    accounts = [
        _account(place, status, by_name.get(status.dataset, []), entries, links or {})
        for place, status in enumerate(book.datasets())
    ]
    page = LedgerPage(
        title=f"Privacy ledger: {Path(book.path).name}",
        verified=f"Verified when this page was made: {len(entries)} entries; all pages, hashes, {seal}.",
        head=entries[-1].hash,
        accounts=tuple(accounts),
        linked=bool(links),
    )
    return render("ledger.html", page)
