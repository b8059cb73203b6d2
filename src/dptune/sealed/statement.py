"""The privacy statement: what was released, what it costs, and under which assumptions, for people and for machines.

Written from the plan, the ledger's receipt and what the user declared, all of it public; nothing here may come from
the vault (no score, no count, no duration). ``docs/statement.md`` explains every line to a data-protection officer.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from dptune.accounting import Neighbours
from dptune.ledgers import Receipt
from dptune.methods.plan import Plan
from dptune.sealed._units import DeclaredUnits
from dptune.tables import Encoder, NumberTarget

__all__ = ["RAISED", "WATERMARK", "Facts", "chance_of_no_model", "no_model", "statement_markdown"]

WATERMARK = "NO GUARANTEE"

_RANDOMNESS = {
    "sealed": "32 bytes from the operating system, expanded by keyed BLAKE2b (one independent stream for each purpose; "
    "numerical noise by Philox, 10 rounds, under a secret 128-bit key). The bytes were destroyed at release.",
    "rehearsal": "a fixed seed that anybody can repeat.",
}
_RULES = {
    "fixed": "exact composition (privacy loss distributions) of charges fixed before the first release",
    "renyi": "a Renyi filter, which also holds for charges chosen after seeing earlier releases",
    "odometer": "a Renyi odometer: the budget was raised after earlier releases (see below)",
    "none": "none: a rehearsal is not charged",
}
RAISED = (
    "The budget of the data set was raised after earlier releases, so it was not fixed in advance. For all releases "
    "from it together no (epsilon, delta) holds that was known beforehand. What holds: with probability at least "
    "1 - delta the privacy loss of everything released from it so far is, at any moment since the raise, at most the "
    "epsilon of its budget (docs/theorems/filter.md). This assumes that the raise was decided by releases and public "
    "things alone. The guarantee of this release by itself is not changed by it."
)
_REPLAYS = {
    "exact": "yes, checked in a rehearsal",
    "inexact": "NO: a rehearsal gave two different results from the same generator, so a trial that was cut off is "
    "trained "
    "again with fresh noise. The guarantee then also assumes that interruptions do not depend on the data.",
    "unknown": "not checked. If it does not, a trial that was cut off is trained again with fresh noise, and the "
    "guarantee "
    "also assumes that interruptions do not depend on the data.",
}
ALWAYS = (
    "The trainer's declared cost covers everything that it returns, its score included, and whether it fails.",
    "Nothing but the files of the release leaves: the vault, its timing and its size stay with the curator.",
    "Noise inside a training is drawn in floating point, unless its trainer does better; docs/sharp_edges.md lists "
    "this and what else is not defended.",
)


@dataclass(frozen=True)
class Facts:
    """Everything public about a run that is released."""

    plan: Plan
    params: dict[str, Any]
    dataset: str
    unit: str
    epsilon: float
    epsilon_lower: float | None
    receipt: Receipt | None  # None in a rehearsal
    budget: tuple[float, float] | None  # of the data set
    model: str | None  # file name
    released: str  # the public time that files carry
    release_at: str | None  # the public time before which nothing was to be released
    late: bool  # the release appeared after that time
    replay: str
    data_is: str
    seconds: tuple[float, int] | None = None  # of one training, and how many shared a worker; in a rehearsal alone
    encoder: dict[str, Any] | None = None  # how rows of a table become features
    units: DeclaredUnits | None = None  # what a record is, where it is a unit of several rows

    @property
    def neighbours(self) -> Neighbours:
        """What the guarantee is about: that of the cost that was charged, never written beside it."""
        return self.plan.cost.neighbours

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on: the method's sentences, one about units where they are not records, and those
        of every run."""
        units = self.neighbours.unit_assumption(self.unit) if self.units is None else self.units.assumption
        raised = (RAISED,) if self.receipt is not None and self.receipt.rule == "odometer" else ()
        return (*self.plan.assumptions, *(() if units is None else (units,)), *raised, *ALWAYS)

    @property
    def target(self) -> dict[str, Any] | None:
        """What the model predicts, where it was trained on a table: the column, and its classes or its range."""
        if self.encoder is None:
            return None
        target = Encoder.from_json(self.encoder).schema.target
        if isinstance(target, NumberTarget):
            return {"column": target.name, "range": list(target.target_range)}
        return {"column": target.name, "classes": list(target.classes)}

    @property
    def mode(self) -> str:
        return "rehearsal" if self.receipt is None else "sealed"

    def describe(self) -> dict[str, Any]:
        """The content of ``release.json``."""
        guaranteed = self.receipt is not None
        measured = {}
        if not guaranteed and self.seconds is not None:
            measured = {"seconds_per_training": self.seconds[0], "trained_together": self.seconds[1]}
        return {
            **measured,
            **({} if self.encoder is None else {"encoder": self.encoder, "predicts": self.target}),
            **({} if self.units is None else {"unit_rows": self.units.unit_rows, "unit_column": self.units.column}),
            "params": self.params,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.plan.budget.delta,
            "epsilon_lower": self.epsilon_lower,
            "method": self.plan.method,
            "dataset": self.dataset,
            "guarantee": guaranteed,
            "watermark": None if guaranteed else WATERMARK,
            "mode": self.mode,
            "data": self.data_is,
            "unit": self.unit,
            "neighbours": self.neighbours.phrase(self.unit),
            "theorem": self.plan.theorem,
            "assumptions": list(self.assumptions),
            "replay": self.replay,
            "randomness": _RANDOMNESS[self.mode],
            "noise_multiplier": self.plan.noise_multiplier,
            "budget": {"epsilon": self.plan.budget.epsilon, "delta": self.plan.budget.delta},
            "dataset_budget": None if self.budget is None else {"epsilon": self.budget[0], "delta": self.budget[1]},
            "ledger": None
            if self.receipt is None
            else {
                "rule": self.receipt.rule,
                "entry": self.receipt.number,
                "head": self.receipt.head,
                "charge": self.receipt.charge,
            },
            "model": self.model,
            "outcome": "no model" if self.model is None else "model",
            "chance_of_no_model": chance_of_no_model(self.plan),
            "released": self.released,
            "release_at": self.release_at,
            "late": self.late,
            "files": ["release.json", "statement.md", "plan.json", *([self.model] if self.model else [])],
        }


def chance_of_no_model(plan: Plan) -> float | None:
    """How likely a run of this plan releases no model although nothing is wrong: none was drawn to be trained.

    None where the plan does not say. A method with a final training always trains one.
    """
    law = plan.law
    if law is None:
        return None
    return law.never if plan.expected_runs <= law.expected else 0.0


def no_model(chance: float | None, charged: bool) -> str:
    """What is said of a release without a model: why there may be none, and how likely that is by chance."""
    if chance is None:
        likely = "If this surprises you, something is wrong with the trainer or the data"
    elif chance == 0.0:
        likely = "This does not happen by chance: something is wrong with the trainer or the data"
    else:
        likely = (
            f"If nothing is wrong, this happens with probability {chance:.2g}: the number of trainings is drawn at "
            "random and may be none. Otherwise every training failed"
        )
    paid = " The full cost is charged." if charged else ""
    return (
        f"NO MODEL was released: the parameters are the public default, or their final training failed.{paid} {likely}"
        "; rehearse the job on public or synthetic data, which shows every error."
    )


def _predicts(facts: Facts) -> list[str]:
    """What the model says of a record."""
    target = facts.target
    if target is None:
        return []
    name = f"`{str(target['column']).replace('|', ' ')}`"
    if "range" in target:
        low, high = target["range"]
        return [f"| Predicts | the number {name}, within its declared range [{low:g}, {high:g}] |"]
    return [f"| Predicts | the class {name}, one of {len(target['classes'])} declared ones |"]


def _model_line(facts: Facts) -> str:
    if facts.model is None:
        return "* no model (there was no training, or all failed)"
    if facts.model.endswith(".pickle"):
        return (
            f"* the model trained with it: `{facts.model}`. This is a PICKLE, which the run was asked for by name: "
            "opening it runs code. Open it only if you trust whoever made this release"
        )
    return f"* the model trained with it: `{facts.model}`, which is data: opening it runs no code"


def _amount(value: float | None) -> str:
    return "none can be stated" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _time_of_release(facts: Facts) -> str:
    """What may be said of the time: that a public one was kept, or that there is none that is covered."""
    if facts.release_at is None:
        return (
            f"| Public time of release | none was fixed: when this release appeared is not covered by the guarantee; "
            f"its files carry {facts.released}, the time of the charge |"
            if facts.receipt is not None
            else f"| Public time of release | {facts.released} |"
        )
    if facts.late:
        return (
            f"| Public time of release | LATE: {facts.release_at} was fixed, and this release appeared after it. When "
            f"it appeared is not covered by the guarantee; its files carry {facts.released} |"
        )
    return f"| Public time of release | {facts.release_at}, fixed before the run began, and kept |"


def statement_markdown(facts: Facts) -> str:
    """The same for people."""
    plan, receipt = facts.plan, facts.receipt
    sealed = receipt is not None
    lines = [f"# Privacy statement: {facts.dataset}", ""]
    if facts.model is None:
        lines = [f"**{no_model(chance_of_no_model(plan), sealed)}**", "", *lines]
    if not sealed:
        lines += [
            f"**{WATERMARK}. This is a rehearsal on {facts.data_is} data with a fixed seed; nothing below protects "
            f"anybody.**",
            "",
        ]
    lines += [
        f"Everything in this release together is **({_amount(facts.epsilon)}, {plan.budget.delta:g})-differentially "
        f"private**: "
        "the tuning, the choice of the configuration and the training of the released model."
        if sealed
        else f"A sealed run of the same plan would state epsilon {_amount(facts.epsilon)} at delta "
        f"{plan.budget.delta:g}.",
        "",
        "| | |",
        "|---|---|",
        f"| Data set | {facts.dataset} |",
        *_predicts(facts),
        f"| Unit of privacy | {f'one {facts.unit}' if facts.units is None else facts.units.phrase} |",
        f"| Neighbouring data sets | differ by {facts.neighbours.phrase(facts.unit, 'gerund')} |",
        f"| Epsilon, delta | {_amount(facts.epsilon)}, {plan.budget.delta:g} |",
        f"| Lower certificate | {_amount(facts.epsilon_lower)} (a mechanism that this account admits really costs "
        f"that much) |",
        f"| Method | {plan.method} |",
        f"| Theorem | {plan.theorem} |",
        f"| Noise multiplier of a training | "
        f"{'varies' if plan.noise_multiplier is None else f'{plan.noise_multiplier:.4f}'} |",
        f"| Randomness | {_RANDOMNESS[facts.mode]} |",
        f"| Rule of admission | {_RULES['none' if receipt is None else receipt.rule]} |",
    ]
    if facts.budget is not None:
        raised = ", raised after earlier releases" if receipt is not None and receipt.rule == "odometer" else ""
        lines.append(f"| Budget of the data set | epsilon {facts.budget[0]:g}, delta {facts.budget[1]:g}{raised} |")
    if receipt is not None:
        lines.append(f"| Ledger | entry {receipt.number}, head `{receipt.head}` |")
    lines += [
        _time_of_release(facts),
        "",
        "## What was released",
        "",
        f"* the configuration: `{json.dumps(facts.params, sort_keys=True)}`",
        _model_line(facts),
        "* the plan (`plan.json`), which was made before any record was read, and this statement",
        "",
        "Not released: scores, the number of trainings, failures, timings, other models.",
        "",
        "## What this rests on",
        "",
    ]
    lines += [f"* {sentence}" for sentence in facts.assumptions]
    lines += [f"* The trainer draws its randomness from the generator it is given alone: {_REPLAYS[facts.replay]}", ""]
    return "\n".join(lines)
