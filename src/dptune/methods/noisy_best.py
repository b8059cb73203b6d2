"""Permute-and-flip on shard utilities: the recommended way to choose among a list when shards can be afforded.

Every candidate is trained on k disjoint shards; one record moves an average score by at most 1/k, so the choice costs
a small pure epsilon however many candidates there are (``docs/theorems/shards.md``). Then one private training on
everything. Utilities must never be released.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dptune._validate import integer, real
from dptune.accounting import Cost
from dptune.accounting.shards import permute_and_flip
from dptune.errors import InvalidInput
from dptune.methods._search import FixedTrials, final_trial
from dptune.methods._shards import Shared, check_candidates, part_trial, sensitivity_of, shared_meaning, total_utility
from dptune.methods.base import Budget, Meaning, Params, Plan, Randomness, Selection, register_search
from dptune.methods.exact import Bits
from dptune.methods.parts import Shard
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.spaces import Candidates, space_from_json

__all__ = ["NoisyBest"]

SHARD_ASSUMPTIONS = (
    "A record belongs to one shard, by an independent label; a training sees the records of its shard alone.",
    "Scores are between 0 and 1, from public records or from held-back records each of which is judged on its own.",
    "The final training costs no more than the trainer declared, whatever was chosen.",
)


@dataclass(frozen=True)
class NoisyBest:
    """Choose by permute-and-flip with the share ``share`` of the budget's epsilon, then train on everything.

    ``private`` trains the shards with noise too (not needed for privacy: their models are never released).
    """

    candidates: Candidates
    shards: int
    share: float = 0.1
    private: bool = False
    validation: PrivateValidation | None = None
    default: Params | None = None

    name = "noisy-best"

    def __post_init__(self) -> None:
        check_candidates(self.candidates)
        integer("shards", self.shards, 1, 10**6)
        real("share", self.share, 0, 1, low_open=True, high_open=True)

    def plan(self, budget: Budget, trainer: Any) -> Plan:
        """The smallest noise of the final training whose total stays within the budget."""
        validation = validation_of(trainer, self.validation)
        epsilon = self.share * budget.epsilon
        settings: Params = {"shards": self.shards, "epsilon": epsilon}
        shared = Shared(self.name, self.candidates, self.default, self.shards, self.private, validation)
        return shared.plan(budget, trainer, _choice(settings), settings)


class ShardSearch(FixedTrials):
    """All candidates on all shards, then a choice; subclasses say which."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        self._plan, self._randomness = plan, randomness
        self._settings = plan.settings
        self._space = space_from_json(plan.settings["space"])
        if not isinstance(self._space, Candidates):
            raise InvalidInput("Choosing by shards needs a list of candidates.")
        self._shards = int(plan.settings["shards"])
        super().__init__(
            part_trial(self._settings, s * self._shards + i, item, Shard(self._shards, i))
            for s, item in enumerate(self._space.items)
            for i in range(self._shards)
        )

    def utilities(self) -> list[int]:
        """Sums of rounded scores, one for each candidate; never released."""
        k, scores = self._shards, self._told.scores
        return [total_utility([scores[s * k + i] for i in range(k)]) for s in range(len(self._trials) // k)]

    def sensitivity(self) -> int:
        return sensitivity_of(self._shards, PrivateValidation.from_json(self._settings["validation"]))

    def choose(self) -> int | None:
        """The index of the chosen candidate; None for the public default."""
        bits = Bits(self._randomness, "choice")
        return bits.permute_and_flip(self.utilities(), self.sensitivity(), Fraction(self._settings["epsilon"]))

    def _select(self) -> Selection:
        chosen = self.choose()
        items = self._space.items if isinstance(self._space, Candidates) else ()
        params = self._plan.default if chosen is None else dict(items[chosen])
        final = final_trial(self._settings["final"], self._space, params)
        return Selection(None, dict(final.params), final)


def _choice(settings: Params) -> Cost:
    return permute_and_flip(settings["epsilon"])


def _meaning(settings: Params) -> Meaning:
    choice = _choice(settings)
    return shared_meaning(settings, lambda _: choice, "shards", "docs/theorems/shards.md", SHARD_ASSUMPTIONS)


register_search(NoisyBest.name, _meaning)(ShardSearch)
