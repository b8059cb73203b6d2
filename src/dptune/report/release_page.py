"""The page of one release: its statement, what attacks can reach, the literature, the plan, the budget.

Made from a :class:`~dptune.sealed.public.PublicRelease` and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from dptune.accounting.attackers import of_a_hundred
from dptune.methods.baselines import GuessPlan
from dptune.report.figures import bars, budget_picture, reach, trade_off
from dptune.report.literature import against_literature
from dptune.report.plan_picture import Stage, plan_picture, stages
from dptune.report.svg import Picture
from dptune.report.templating import render
from dptune.sealed.amounts import at_most
from dptune.sealed.public import PublicRelease
from dptune.sealed.rendering import annex_html, questions_html, warnings_html

__all__ = ["ReleasePage", "release_html"]


@dataclass(frozen=True)
class ReleasePage:
    """What the template of a release sees."""

    title: str
    lead: str
    tiles: tuple[tuple[str, str], ...]
    only: str
    warnings: str
    questions: str
    annex: str
    reach: Picture | None
    rates: tuple[tuple[str, str], ...]
    literature: Picture | None
    silent: str
    delta: str
    plan: Picture | None
    stages: tuple[Stage, ...]
    params: tuple[tuple[str, str], ...]
    files: str
    budget: Picture | None


_SILENT = {
    False: "No published bound is about this plan.",
    True: "Published bounds are about tuning. Here nothing was tuned: the price is that of one training.",
}


def _tiles(release: PublicRelease, power: float | None) -> tuple[tuple[str, str], ...]:
    only = "" if release.guarantee else ", in a sealed run"
    found = [(f"epsilon{only}", at_most(release.epsilon)), ("delta", f"{release.delta:g}")]
    if power is not None:
        found.append(("found of 100, at 1 false alarm in 100", f"at most {of_a_hundred(power)}"))
    return (*found, ("unit of privacy", release.unit), ("method", release.method))


def _page(release: PublicRelease) -> ReleasePage:
    plan = release.plan
    drawn = plan if plan is not None and plan.guaranteed else None
    rates = [] if drawn is None else reach(drawn.cost)
    rows = [] if drawn is None else against_literature(drawn, release.epsilon, release.epsilon_lower)
    papers = any(row.kind == "fb" for row in rows)
    power = dict(rates).get(0.01) if release.guarantee else None
    whom = f"one {release.unit} in the data set “{release.dataset}”"
    return ReleasePage(
        title=release.statement.title,
        lead=f"What this release can at most reveal about {whom}, and what that rests on."
        if release.guarantee
        else "A rehearsal: it shows what a sealed run of the same plan would release, and protects nobody.",
        tiles=_tiles(release, power),
        warnings=warnings_html(release.statement),
        questions=questions_html(release.statement, level=3),
        annex=annex_html(release.statement),
        only="" if release.guarantee else "Not here, but in a sealed run of the same plan: ",
        reach=None if drawn is None else trade_off(drawn.cost, release.epsilon, release.delta),
        rates=tuple((f"{100 * rate:g}", of_a_hundred(found)) for rate, found in rates),
        literature=bars("paper", "Epsilon beside the literature", rows) if rows else None,
        silent="" if papers else _SILENT[isinstance(drawn, GuessPlan)],
        delta=f"{release.delta:g}",
        plan=None if plan is None else plan_picture(plan),
        stages=() if plan is None else stages(plan),
        params=tuple((name, json.dumps(value)) for name, value in sorted(release.params.items())),
        files=", ".join(release.files),
        budget=None if release.budget is None else budget_picture(release.budget, release.spent, release.epsilon),
    )


def release_html(release: PublicRelease) -> str:
    """The page of a release.

    Args:
        release: what it says to everybody.

    Returns:
        One self-contained page.

    Raises:
        InvalidInput: jinja2 is not installed.
    """
    return render("release.html", _page(release))
