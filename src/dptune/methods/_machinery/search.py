"""What searches share: how a configuration becomes a trial, how the best is chosen, and how told outcomes are kept.

The choice breaks ties by an independent uniform and treats failures as absent (``docs/theorems/select.md``); nothing
here may depend on the order in which outcomes arrive.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import TrainingCosts
from dptune.methods.parts import DataPart
from dptune.methods.trial import Label, Outcome, Params, Selection, Trial
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Candidates, Domain
from dptune.trainer import DeclaresBatch

__all__ = [
    "FINAL",
    "RATES",
    "BestTrial",
    "FixedTrials",
    "Outcomes",
    "Training",
    "best_of",
    "default_params",
    "scaled_batch",
    "winner_of",
]

FINAL = -1
RATES = ("learning_rate", "lr")


class Outcomes:
    """Outcomes by index; refuses what was not asked for or was told before."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self.scores: dict[int, float] = {}

    def ask(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that were not given out before."""
        fresh = [trial for trial in trials if trial.index not in self._asked]
        self._asked.update(trial.index for trial in fresh)
        return fresh

    def tell(self, outcome: Outcome) -> None:
        if outcome.index not in self._asked:
            raise InvalidInput(f"Trial {outcome.index} was not asked for; tell a search only what it asked for.")
        if outcome.index in self.scores:
            raise InvalidInput(f"Trial {outcome.index} was told before; a trial counts once.")
        self.scores[outcome.index] = outcome.score

    def has(self, indices: Iterable[int]) -> bool:
        return all(index in self.scores for index in indices)


class FixedTrials(ABC):
    """A search whose trials are all known when it begins; subclasses choose among them in the end, or add more."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._outcomes = Outcomes()
        self._trials = {trial.index: trial for trial in trials}

    @property
    def done(self) -> bool:
        return self._outcomes.has(self._trials)

    def ask(self) -> list[Trial]:
        return self._outcomes.ask(self._trials.values())

    def tell(self, outcome: Outcome) -> None:
        self._outcomes.tell(outcome)

    def result(self) -> Selection:
        if not self.done:
            raise InvalidInput("The search is not done; tell every outcome first.")
        return self._select()

    @abstractmethod
    def _select(self) -> Selection:
        """The choice, once every outcome was told."""


class BestTrial(FixedTrials):
    """The trial with the highest score is chosen, or the public default if all failed."""

    def __init__(self, trials: Iterable[Trial], randomness: Randomness, default: Params) -> None:
        super().__init__(trials)
        self._randomness, self._default = randomness, default

    def _select(self) -> Selection:
        return winner_of(self._trials, self._outcomes.scores, self._randomness, self._default)


def best_of(scores: dict[int, float], randomness: Randomness) -> int | None:
    """The index with the highest score, ties by an independent uniform; None if all failed."""
    alive = [index for index, score in scores.items() if score > -math.inf]
    if not alive:
        return None
    return max(alive, key=lambda index: (scores[index], randomness.uniform("tie", index), -index))


def winner_of(trials: dict[int, Trial], scores: dict[int, float], randomness: Randomness, default: Params) -> Selection:
    """The best trial, or the public default."""
    winner = best_of(scores, randomness)
    return Selection(dict(default)) if winner is None else Selection(dict(trials[winner].params), trials[winner])


@dataclass(frozen=True)
class Training:
    """How configurations are trained: at what cost, on which records, with which fixed parameters, scored how.

    Args:
        base: what one training costs, for every configuration of the space.
        part: the records that are trained on.
        fixed: parameters that the plan sets beside the configuration's own.
        validation: the private records that score a training, if any do.
    """

    base: TrainingCosts
    part: DataPart
    fixed: Params
    validation: PrivateValidation | None

    def trial(self, index: int, params: Params, label: Label, place: int | None = None) -> Trial:
        """One training of a configuration; ``place`` is its index, where the space is a list of candidates."""
        trial = self.base.oblige(Trial(index, params, self.part, label, candidate=params), place)
        trial = replace(trial, params={**self.fixed, **trial.params})
        if self.validation is None:
            return trial
        part, held = self.validation.split(self.part)
        return replace(trial, part=part, validation=self.validation.held_out(held))

    def final_trial(self, space: Domain, params: Params) -> Trial:
        """The final training of a configuration; its index does not tell how many runs there were."""
        place = space.items.index(params) if isinstance(space, Candidates) else None
        return replace(self.trial(FINAL, params, ("final",), place), final=True)


def default_params(space: Domain, default: Params | None) -> Params:
    """The public default, checked to lie in the space."""
    chosen = dict(space.default if default is None else default)
    if not isinstance(space, Candidates):
        missing = sorted({name for name, _ in space.dimensions} ^ set(chosen))
        if missing:
            raise InvalidInput(f"'default' must set exactly the parameters of the space; check {missing[0]!r}.")
        outside = [name for name, one in space.dimensions if not one.contains(chosen[name])]
        if outside:
            raise InvalidInput(f"'default' must lie in the space, so that its cost is known; check {outside[0]!r}.")
        return chosen
    if chosen not in space.items:
        raise InvalidInput(f"'default' must be one of the candidates, so that its cost is known; got {chosen!r}.")
    return chosen


def scaled_batch(trainer: object, space: Domain, share: float) -> Params:
    """The public denominator of gradients for a part that holds about ``share`` of the records.

    Only where the learning rate is tuned: a fixed learning rate over a fixed denominator transfers as it is.
    Trainers that declare none get nothing: their denominators are their own affair.
    """
    tuned = any(name in space.names for name in RATES)
    if not isinstance(trainer, DeclaresBatch) or share == 1.0 or not tuned:
        return {}
    return {"batch_size": float(trainer.declared_batch) * share}
