"""Everything public about a run that is released: what statements, ``release.json`` and pages are made from.

Gathered from the plan, the ledger's receipt and what the user declared; nothing here may come from the vault (no
score, no count, no duration). The words for people are in ``page_one.py`` and ``annex.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dptune._version import __version__
from dptune.accounting import Neighbours
from dptune.accounting.attackers import Attackers
from dptune.ledgers import Receipt
from dptune.methods.plan import Plan
from dptune.sealed._units import DeclaredUnits
from dptune.sealed.features import encoder_words
from dptune.sealed.lasting import randomness
from dptune.tables import Encoder, NumberTarget

__all__ = ["FILES", "RAISED", "SCHEMA", "WATERMARK", "Facts", "chance_of_no_model", "no_model"]

WATERMARK = "NO GUARANTEE"
SCHEMA = {"name": "dptune release", "version": 1}
FILES = ("release.json", "statement.md", "statement.html", "plan.json")

RAISED = (
    "The budget of the data set was raised after earlier releases, so it was not fixed in advance: no (epsilon, delta) "
    "for all releases from it together was known beforehand. What holds is weaker: with probability at least "
    "1 - delta, at every moment since the raise, the privacy loss of everything released so far is at most the "
    "epsilon of the budget (docs/theorems/filter.md). This assumes that the raise was decided by releases and public "
    "things alone. The guarantee of each release by itself is not changed by it."
)
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
    public_encoder: dict[str, Any] | None = None  # what made features of records: name, sha256, width
    units: DeclaredUnits | None = None  # what a record is, where it is a unit of several rows
    attackers: Attackers | None = None  # what anybody can learn; None without a guarantee
    spent: float | None = None  # an epsilon that covers every charge to the data set up to this one
    training: str | None = None  # how the trainer says that it trains
    generator: str | None = None  # the name of what draws its noise, where the trainer says so

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
        encoded = () if self.public_encoder is None else (encoder_words(self.public_encoder),)
        return (*self.plan.assumptions, *(() if units is None else (units,)), *encoded, *raised, *ALWAYS)

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
    def word(self) -> str:
        """What one that is protected is called, throughout: the custodian's word, or a client."""
        return self.neighbours.what if self.neighbours.what == "client" else self.unit

    @property
    def mode(self) -> str:
        return "rehearsal" if self.receipt is None else "sealed"

    @property
    def randomness(self) -> str:
        """Where noise and choices came from."""
        return "a fixed seed that anybody can repeat." if self.receipt is None else randomness(self.generator)

    def describe(self) -> dict[str, Any]:
        """What ``release.json`` holds beside the statement."""
        guaranteed = self.receipt is not None
        measured = {}
        if not guaranteed and self.seconds is not None:
            measured = {"seconds_per_training": self.seconds[0], "trained_together": self.seconds[1]}
        return {
            "schema": SCHEMA,
            "dptune": __version__,
            "readings": None if self.attackers is None else self.attackers.describe(),
            "dataset_spent": self.spent,
            **measured,
            **({} if self.encoder is None else {"encoder": self.encoder, "predicts": self.target}),
            **({} if self.public_encoder is None else {"public_encoder": self.public_encoder}),
            **({} if self.units is None else {"unit_rows": self.units.unit_rows, "unit_column": self.units.column}),
            **({} if self.training is None else {"training": self.training}),
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
            "randomness": self.randomness,
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
            "files": [*FILES, *([self.model] if self.model else [])],
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
