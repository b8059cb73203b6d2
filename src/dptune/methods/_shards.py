"""Utilities of low sensitivity: every candidate trained on k disjoint shards, scores averaged (Ding et al.).

Scores are clipped to [0, 1] and rounded to whole parts of 2^20, so a training record moves a candidate's sum by at
most 2^20 and a private validation record by at most k (2^20 / M + 1): exact integers, no rounding to worry about
(``docs/theorems/shards.md``). A failure, an empty shard too, counts as 0. The utilities must never be released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dptune.accounting import Cost, compose
from dptune.errors import InvalidInput
from dptune.methods._costs import Bases, Priced, calibrated
from dptune.methods._declared import NOISE, tunable_noise
from dptune.methods._kinds import costs_of, noise_of
from dptune.methods._search import default_params, scaled_batch
from dptune.methods.base import Budget, Meaning, Params, Plan, Trial, plan_of
from dptune.methods.parts import ALL, Client, Shard
from dptune.methods.validation import PrivateValidation
from dptune.spaces import Candidates, space_from_json

__all__ = ["UNIT", "Shared", "check_candidates", "part_trial", "sensitivity_of", "shared_meaning", "total_utility"]

UNIT = 2**20


def check_candidates(candidates: object) -> Candidates:
    """A list of at least two candidates."""
    if not isinstance(candidates, Candidates):
        raise InvalidInput(f"'candidates' must be a list: Space.of([...]) or space.grid(...); got {candidates!r}.")
    if len(candidates) < 2:
        raise InvalidInput("Choosing needs at least two candidates; with one there is nothing to tune.")
    return candidates


def sensitivity_of(shards: int, validation: PrivateValidation | None) -> int:
    """The most one record moves a sum of rounded scores."""
    if validation is None:
        return UNIT
    return max(UNIT, shards * (math.ceil(UNIT / validation.denominator) + 1))


def total_utility(scores: list[float]) -> int:
    """The sum over shards of clipped, rounded scores; failures count as 0."""
    return sum(0 if math.isinf(s) and s < 0 else math.floor(min(max(s, 0.0), 1.0) * UNIT) for s in scores)


def part_trial(settings: Params, index: int, params: Params, condition: Shard | Client) -> Trial:
    """The training of a candidate on one part."""
    part = ALL.and_(condition)
    extra: Params = {"candidate": params}
    validation = PrivateValidation.from_json(settings["validation"])
    if validation is not None:
        # Clients validate on their own records; shards on records that no shard trains on.
        source = part if isinstance(condition, Client) else ALL
        part, _ = validation.split(part)
        held = validation.split(source)[1]
        extra["validation"] = {"part": held.describe(), "denominator": validation.denominator, "noise": 0.0}
    label = ("part", condition.index, "trial", index)
    return Trial(index, {**settings["fixed"], **params, **settings["level"]}, part, label, extra)


@dataclass(frozen=True)
class Shared:
    """What the methods that choose by cheap trainings on parts and then train once have in common."""

    name: str
    candidates: Candidates
    default: Params | None
    parts: int
    private: bool
    validation: PrivateValidation | None

    def plan(self, budget: Budget, trainer: Any, choice: Cost, settings: Params) -> Plan:
        """Pay for a choice, then train the chosen candidate once on everything with what is left."""
        bases = Bases(trainer, self.candidates, budget)

        def total(priced: Priced) -> Cost:
            return compose(choice, priced.worst)

        what = f"The choice (epsilon {choice.epsilon(budget.delta):.4g}) and one training"
        priced, _ = calibrated(bases, total, budget, what)
        level = _level(trainer, self.candidates, priced.noise if self.private else 0.0)
        full = {
            **settings,
            "space": self.candidates.describe(),
            "validation": None if self.validation is None else self.validation.describe(),
            "fixed": scaled_batch(trainer, self.candidates, 1.0 / self.parts),
            "level": level,
            "final": {"base": priced.settings, "part": [], "fixed": {}, "validation": None},
        }
        return plan_of(self.name, full, budget, default_params(self.candidates, self.default)[0])


def shared_meaning(
    settings: Params, choice: Callable[[Candidates], Cost], parts: str, theorem: str, assumptions: tuple[str, ...]
) -> Meaning:
    """What a choice by parts and one training cost; ``parts`` names the setting that counts the parts."""
    candidates, last = check_candidates(space_from_json(settings["space"])), settings["final"]
    if last["part"] or last["validation"] is not None:
        raise InvalidInput("The final training of this method sees every record; plan again.")
    return Meaning(
        compose(choice(candidates), costs_of(last["base"], candidates).worst),
        noise_of(last["base"]),
        len(candidates) * int(settings[parts]) + 1.0,
        theorem,
        assumptions,
        candidates,
    )


def _level(trainer: Any, candidates: Candidates, noise: float | None) -> Params:
    """The noise of trainings whose scores alone are used; trainers that set their own get nothing."""
    return {NOISE: noise} if tunable_noise(trainer, candidates.default) else {}
