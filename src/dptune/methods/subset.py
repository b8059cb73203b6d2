"""Tuning on a random part, training on the rest or on everything (Koskela and Kulkarni 2023, variants 1 and 2).

Variant 1 costs ``disjoint(tune, base, q)``, variant 2 ``compose(subsample(tune, q), base)``; see
``docs/theorems/disjoint.md`` and ``subsample.md``. The part is drawn by independent coins; ratios used for transfer
are public, never the private sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dptune._validate import real
from dptune.accounting import Cost, compose, disjoint, subsample
from dptune.errors import InvalidInput
from dptune.methods._costs import Bases, Priced, calibrated
from dptune.methods._kinds import costs_of, noise_of
from dptune.methods._search import RATES, default_params, final_trial, scaled_batch
from dptune.methods.adaptive import Adaptive, adaptive_from
from dptune.methods.base import (
    Budget,
    Meaning,
    Outcome,
    Params,
    Plan,
    Randomness,
    Search,
    Selection,
    Trial,
    plan_of,
    register_search,
)
from dptune.methods.parts import Coin, DataPart
from dptune.methods.random_stopping import RandomStopping, stopping_from, tuning_assumptions, tuning_of
from dptune.methods.validation import PrivateValidation
from dptune.spaces import space_from_json

__all__ = ["Subset"]


@dataclass(frozen=True)
class Subset:
    """Tune with ``method`` on a part that holds each record with probability ``fraction``, then train once.

    ``final`` is "rest" (variant 1) or "all" (variant 2). ``transfer`` says what happens to the winner's parameters:
    "sgd" multiplies the learning rate by the public ratio of sizes, "none" (right for Adam) changes nothing, a
    dictionary gives a factor for each parameter, "auto" looks at the trainer's optimiser and changes nothing if it
    shows none. ``warm_start`` begins the final training from the tuned model.
    """

    method: RandomStopping
    fraction: float
    final: str = "rest"
    transfer: str | Mapping[str, float] = "auto"
    warm_start: bool = False

    name = "subset"

    def __post_init__(self) -> None:
        if not isinstance(self.method, RandomStopping):
            raise InvalidInput(f"'method' must be RandomStopping(...) or Adaptive(...); got {self.method!r}.")
        hint = "It is the probability that a record is used for tuning."
        checked = real("fraction", self.fraction, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "fraction", checked)
        if self.final not in ("rest", "all"):
            raise InvalidInput(f"'final' must be 'rest' (variant 1) or 'all' (variant 2); got {self.final!r}.")
        if isinstance(self.transfer, Mapping):
            for name, factor in self.transfer.items():
                real(f"transfer of {name}", factor, 0, low_open=True)
        elif self.transfer not in ("auto", "sgd", "none"):
            raise InvalidInput(f"'transfer' must be 'auto', 'sgd', 'none' or a dictionary; got {self.transfer!r}.")

    @property
    def final_share(self) -> float:
        """The expected share of the records that the final training sees."""
        return 1.0 - self.fraction if self.final == "rest" else 1.0

    @property
    def ratio(self) -> float:
        """How many times more records the final training sees than a tuning run: public."""
        return self.final_share / self.fraction

    @property
    def parts(self) -> tuple[DataPart, DataPart]:
        """The records that are tuned on, and those that the final training sees."""
        return DataPart((Coin(self.fraction),)), DataPart((Coin(self.fraction, False),) if self.final == "rest" else ())

    def together(self, tune: Cost, worst: Cost) -> Cost:
        """The cost of tuning and final training."""
        # The winner decides the final training, so its cost must hold for every candidate.
        if self.final == "rest":
            return disjoint(tune, worst, self.fraction)
        return compose(subsample(tune, self.fraction), worst)

    def total(self, priced: Priced, validation: PrivateValidation | None) -> Cost:
        """The cost of everything at one level of noise."""
        return self.together(self.method.tuning_cost(priced.base, validation), priced.worst)

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise whose total cost stays within the budget."""
        bases = Bases(trainer, self.method.space, budget, self.method.costs)
        validation = self.method.validated(budget, trainer)
        what = f"Tuning on a share of {self.fraction:g} and training on {self.final}"
        priced, _ = calibrated(bases, lambda at: self.total(at, validation), budget, what)
        default, _ = default_params(self.method.space, self.method.default)
        inner = self.method.settings(priced, validation, trainer, self.fraction)
        before, after = self.parts
        inner["part"] = before.describe()
        settings = {
            "inner": {"method": self.method.name, "settings": inner},
            "final": {
                "base": priced.settings,
                "part": after.describe(),
                "fixed": scaled_batch(trainer, self.method.space, self.final_share),
                "validation": None,
            },
            "factors": self._factors(trainer),
            "warm_start": self.warm_start,
            "fraction": self.fraction,
            "variant": 1 if self.final == "rest" else 2,
        }
        return plan_of(self.name, settings, budget, default)

    def _factors(self, trainer: Any) -> dict[str, float]:
        if isinstance(self.transfer, Mapping):
            return dict(self.transfer)
        rule = self.transfer
        if rule == "auto":
            optimizer = getattr(getattr(trainer, "settings", None), "optimizer", None)
            rule = "none" if optimizer is None or "adam" in type(optimizer).__name__.lower() else "sgd"
        return dict.fromkeys(RATES, self.ratio) if rule == "sgd" else {}


class SubsetSearch:
    """The search of the inner method on the part, then one final training."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        inner = plan.settings["inner"]
        self._settings, self._default = plan.settings, plan.default
        self._inner: Search = replace(plan, method=inner["method"], settings=inner["settings"]).start(randomness)
        self._space = space_from_json(inner["settings"]["space"])
        self._seen: dict[int, Trial] = {}

    @property
    def done(self) -> bool:
        return self._inner.done

    def ask(self) -> list[Trial]:
        trials = self._inner.ask()
        self._seen.update((trial.index, trial) for trial in trials)
        return trials

    def tell(self, outcome: Outcome) -> None:
        self._inner.tell(outcome)

    def result(self) -> Selection:
        found = self._inner.result()
        chosen = self._default if found.winner is None else self._seen[found.winner].extra["candidate"]
        trial = final_trial(self._settings["final"], self._space, chosen)
        factors = self._settings["factors"]
        params: Params = {key: value * factors[key] if key in factors else value for key, value in trial.params.items()}
        extra = dict(trial.extra)
        if self._settings["warm_start"] and found.winner is not None:
            extra["warm_start"] = found.winner
        final = replace(trial, params=params, extra=extra)
        return Selection(found.winner, params, final)


def _meaning(settings: Params) -> Meaning:
    inner, last = settings["inner"]["settings"], settings["final"]
    read = {RandomStopping.name: stopping_from, Adaptive.name: adaptive_from}
    if settings["inner"]["method"] not in read:
        raise InvalidInput(f"Subset tuning cannot use {settings['inner']['method']!r} inside; plan again.")
    method = read[settings["inner"]["method"]](inner)
    made = Subset(method, settings["fraction"], "rest" if settings["variant"] == 1 else "all")
    before, after = made.parts
    if inner["part"] != before.describe() or last["part"] != after.describe() or last["validation"] is not None:
        raise InvalidInput("The plan's parts of the records are not those of its fraction; plan again.")
    return Meaning(
        made.together(tuning_of(method, inner), costs_of(last["base"], method.space).worst),
        noise_of(last["base"]),
        method.runs.expected + 1.0,
        "docs/theorems/disjoint.md" if made.final == "rest" else "docs/theorems/subsample.md",
        (
            *tuning_assumptions(inner),
            f"Each record was used for tuning with probability {made.fraction:g}, by an independent coin; which "
            "records and how many is not released.",
            "The final training costs no more than declared, whatever the tuning chose.",
        ),
        method.space,
    )


register_search(Subset.name, _meaning)(SubsetSearch)
