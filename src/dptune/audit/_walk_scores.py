"""The walk over scores: what one record more moves the count of right answers by, where a batch is judged by one call.

Only there records meet: models that promise the verdicts of single records are asked about all of them at once, and a
score computes on arrays. The record may be judged better or worse than all others, who are judged alike: a value that
follows from the batch (its largest, its mean) then moves all of theirs, and the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._typing import Indices
from dptune.audit._judged import JUDGED
from dptune.audit._walk_judging import SCORES
from dptune.audit.supported import COMPANIES, POSITIONS, Company, Worlds, worlds
from dptune.audit.walk import Case, Deck, Movement
from dptune.judging import correct
from dptune.scores import Score

__all__ = ["case"]

_FEATURES, _GROUPS = 6, 2
_FAR = {"just within a quarter": 0.24, "just within a half": 0.48}  # of the range: near the scores' tolerances
_AT_ONCE = {name: JUDGED[name] for name in ("built-in", "echo")}

Standing = Callable[[Company, float], Company]


def _told(company: Company, others: Sequence[float], own: Sequence[float], labels: tuple[int, int]) -> Company:
    """The same company, whose first features say what a model answers, with these labels for the others and the record.

    A label stands for a target of ninths and, by what is left of it, for a class (``supported.dataset``).
    """
    x, record = company.x.copy(), company.record.copy()
    x[:, : len(others)], record[: len(own)] = others, own
    return Company(x, np.full_like(company.y, labels[0]), record, labels[1])


_GOOD, _BAD = 5, 0  # labels: a target of 5/9, the class 2 of three, the second of two
_RIGHT = (5.0 / 9.0, 2.0, 0.9)
_STANDINGS: dict[str, Standing] = {
    "drawn": lambda company, far: company,
    "best": lambda company, far: _told(company, (far, 0.0, 0.4), _RIGHT, (_BAD, _GOOD)),
    "worst": lambda company, far: _told(company, _RIGHT, (far, 0.0, 0.4), (_GOOD, _BAD)),
    "wrong": lambda company, far: _told(company, _RIGHT, (5.0, 1.0, 1.0), (_GOOD, _BAD)),
}
"""How the record does beside the others; right answers of the class 2 count most (``Balanced``)."""


def _look(model: Any, score: Score | None, given: Worlds, groups: Indices, own: int) -> Sequence[Movement]:
    found = []
    for data, labels in ((given.without, groups), (given.having, np.insert(groups, given.place, own))):
        try:
            found.append(correct(model, data, score, groups=labels, number=_GROUPS))
        except Exception as error:  # whatever a score says no with
            return [Movement(f"refusal of records ({type(error).__name__}: {error})", 1.0, 0.0)]
    return [Movement("count of a batch", float(abs(found[1] - found[0])), 1.0)]


def case(deck: Deck) -> Case:
    """One score, one model that is asked about a batch, one record that joins it."""
    score, classes = deck.deal("score", SCORES)
    model = deck.deal("judged", _AT_ONCE)(_FEATURES, classes)
    company = deck.deal("company", COMPANIES)(deck.rng, _FEATURES)
    company = deck.deal("standing", _STANDINGS)(company, deck.deal("far", _FAR))
    given = worlds(company, classes, deck.deal("position", POSITIONS)(len(company.y)))
    groups, own = deck.rng.integers(0, _GROUPS, len(company.y)), int(deck.rng.integers(_GROUPS))
    return Case("scores", deck.describe(), lambda: _look(model, score, given, groups, own))
