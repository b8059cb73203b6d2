"""A search run to its end on scores that a function gives: for simulations and tests, with no seal around it."""

from __future__ import annotations

from collections.abc import Callable

from dptune.methods.plan import Plan
from dptune.methods.trial import Outcome, Selection, Trial
from dptune.randomness import Randomness

__all__ = ["Score", "drive"]

Score = Callable[[Trial], float]


def drive(plan: Plan, randomness: Randomness, score: Score, *, reverse: bool = False) -> tuple[list[Trial], Selection]:
    """Run a search to its end; ``reverse`` tells every batch in the opposite order."""
    search = plan.start(randomness)
    seen: list[Trial] = []
    while trials := search.ask():
        seen.extend(trials)
        for trial in reversed(trials) if reverse else trials:
            search.tell(Outcome(trial.index, score(trial)))
    if not search.done:
        raise AssertionError("A search that asks for nothing more must be done; mend the search of this method.")
    return seen, search.result()
