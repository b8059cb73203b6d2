"""The plan as a picture: who trains on what. Each stage is a bar over all records, with the parts that it sees.

Shares are those of the plan, which are public; the true sizes of parts are not known to anybody here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dptune.methods.noisy_best import NoisyBestPlan
from dptune.methods.plan import Plan
from dptune.methods.subset import SubsetPlan
from dptune.methods.threshold import ThresholdPlan
from dptune.methods.voting import VotePlan
from dptune.report.svg import Picture, box, text

__all__ = ["Stage", "plan_picture", "stages"]

_WIDTH = 412.0
_MOST_BOXES = 12


@dataclass(frozen=True)
class Stage:
    """One step of a plan.

    Args:
        title: what happens.
        parts: which shares of the records take part, as (from, to, kind).
        note: for whom a picture says too little.

    Example:
        >>> Stage("Train once", ((0.0, 1.0, "fa"),), "on all records").parts
        ((0.0, 1.0, 'fa'),)
    """

    title: str
    parts: tuple[tuple[float, float, str], ...]
    note: str


def stages(plan: Plan) -> tuple[Stage, ...]:
    """The stages of a plan, in order.

    Args:
        plan: of any method; one that is not known here is drawn as trainings on all records.

    Returns:
        One stage or two.
    """
    if isinstance(plan, SubsetPlan):
        return _subset(plan)
    if isinstance(plan, NoisyBestPlan | ThresholdPlan | VotePlan):
        return _choice(plan)
    trained = plan.expected_runs
    many = "One training" if trained == 1 and plan.law is None else f"About {trained:g} trainings"
    drawn = "" if plan.law is None else " Their number is drawn at random and stays secret."
    return (_scored(plan, many, f"Each sees the records anew; the best one is released.{drawn}"),)


def _scored(plan: Plan, title: str, note: str, end: float = 1.0) -> Stage:
    """Trainings on the records up to ``end``, of which private validation holds a share back."""
    if plan.validation is None:
        return Stage(title, ((0.0, end, "fa"),), note)
    held = end * (1.0 - plan.validation.fraction)
    said = f"{note} A share of {plan.validation.fraction:g} is held back and scores them (second colour)."
    return Stage(title, ((0.0, held, "fa"), (held, end, "fb")), said)


def _subset(plan: SubsetPlan) -> tuple[Stage, ...]:
    share, runs = plan.fraction, plan.expected_runs - 1.0
    note = (
        f"Each record takes part with probability {share:g}, by a secret coin. The best of them decides the settings; "
        "their number is drawn at random and stays secret."
    )
    first = _scored(plan, f"Tune: about {runs:g} trainings on a small part", note, share)
    rest = plan.train_on == "rest"
    last = Stage(
        "Train once with the settings found",
        ((share if rest else 0.0, 1.0, "fc"),),
        "It sees the other records, none of those that were tuned on."
        if rest
        else "It sees all records, also those that were tuned on.",
    )
    return first, last


def _choice(plan: NoisyBestPlan | ThresholdPlan | VotePlan) -> tuple[Stage, ...]:
    count, candidates = plan.parts.count, len(plan.parts.candidates)
    shown = min(count, _MOST_BOXES)
    parts = tuple((i / shown, (i + 0.92) / shown, "fa" if i % 2 == 0 else "fb") for i in range(shown))
    vote = isinstance(plan, VotePlan)
    who = "client" if vote else "shard"
    how = "vote, and noise is added to the sum of votes" if vote else "are averaged, and noise decides among them"
    drawn = "" if shown == count else f" ({shown} are drawn)"
    first = Stage(
        f"Choose: {candidates} candidates on each of {count} {who}s{drawn}",
        parts,
        f"A record belongs to one {who}. Scores of {who}s {how}. Their models are never released.",
    )
    last = Stage("Train once with the chosen settings", ((0.0, 1.0, "fc"),), "It sees all records.")
    return first, last


def plan_picture(plan: Plan) -> Picture:
    """Who trains on what.

    Args:
        plan: what was fixed before any record was read.

    Returns:
        The picture; its description has the notes of all stages.
    """
    found = stages(plan)
    parts: list[str] = []
    for place, stage in enumerate(found):
        y = 18 + 62 * place
        parts += [text(4, y, f"{place + 1}. {stage.title}"), box(4, y + 8, _WIDTH, 26, "empty")]
        for start, end, kind in stage.parts:
            parts.append(box(4 + _WIDTH * start, y + 8, max(3.0, _WIDTH * (end - start)), 26, kind))
    bottom = 62 * len(found) + 10
    parts += [text(4, bottom, "0", "dim"), text(_WIDTH + 4, bottom, "all records", "dim", "end")]
    said = " ".join(f"{place + 1}. {stage.title}. {stage.note}" for place, stage in enumerate(found))
    return Picture("plan", "Who trains on what", said, 420, bottom + 8, tuple(parts))
