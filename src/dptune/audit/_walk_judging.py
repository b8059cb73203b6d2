"""The walk over private validation: methods, kinds of models and data, and records that models stumble over.

Trainings give a fixed model, so whatever the record moves it moves by being judged. Noise is a function of the run's
secret and a label, the same in both worlds: what is left of a difference of two scores is the record's part. The others
keep their coins and labels when the record joins them, wherever it stands (:class:`Coupled`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from dptune._typing import AnyArray
from dptune.accounting import Cost, Poisson, PureDp
from dptune.audit._inline import Runner
from dptune.audit._judged import JUDGED, MARK
from dptune.audit.supported import COMPANIES, POSITIONS, stored
from dptune.audit.walk import Case, Deck, Movement
from dptune.methods import Adaptive, NoisyBest, RandomStopping, Subset, Threshold, Vote
from dptune.methods.budget import Budget
from dptune.methods.plan import Plan
from dptune.methods.utilities import sensitivity_of, total_utility
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Space
from dptune.training import Dataset

__all__ = ["METHODS", "Coupled", "case", "planned"]

Scores = Mapping[int, float]

_FEATURES, _CLASSES, _PARTS = 6, 3, 3
_DENOMINATOR = 4.0
_BUDGET = Budget(20.0, 1e-5)
_SPACE = Space.of([{"x": 0}, {"x": 1}])
_VALIDATION = PrivateValidation(0.5, _DENOMINATOR, 3.0)


class Given:
    """A trainer that answers every call with the same model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def cost(self, params: Mapping[str, Any]) -> Cost:
        del params
        return PureDp(1e-3)

    def fit(self, params: Mapping[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        del params, data, rng
        return self.model, 0.5


class _Joined:
    """A generator of one value a record, in which the others draw what they draw without the record."""

    def __init__(self, inner: np.random.Generator, place: int, own: float) -> None:
        self._inner, self._place, self._own = inner, place, own

    def random(self, count: int) -> AnyArray:
        return np.insert(self._inner.random(count - 1), self._place, self._own)

    def integers(self, low: int, high: int, count: int) -> AnyArray:
        return np.insert(self._inner.integers(low, high, count - 1), self._place, low + int(self._own * (high - low)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Coupled:
    """A run's randomness for the world with the record: coins and labels of parts are those of the other world."""

    def __init__(self, inner: Randomness, place: int, own: Callable[[tuple[str | int, ...]], float]) -> None:
        self._inner, self._place, self._own = inner, place, own

    def generator(self, *label: str | int) -> Any:
        made = self._inner.generator(*label)
        return _Joined(made, self._place, self._own(label)) if label[0] in ("coin", "shard", "client") else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _counts(without: Scores, having: Scores) -> Movement:
    """Noised counts: each moves by one record at most."""
    moved = max((abs(having[i] - without[i]) for i in without if having[i] != without[i]), default=0.0)
    return Movement("count of a trial", moved * _DENOMINATOR, 1.0)


def _utilities(without: Scores, having: Scores) -> Movement:
    """Sums over shards: each moves by the sensitivity that the choice is priced with."""
    totals = [
        [total_utility([scores[s * _PARTS + i] for i in range(_PARTS)]) for s in range(len(_SPACE))]
        for scores in (without, having)
    ]
    moved = max(abs(a - b) for a, b in zip(*totals, strict=True))
    return Movement("sum over shards", float(moved), float(sensitivity_of(_PARTS, _VALIDATION)))


def _ballots(without: Scores, having: Scores) -> Movement:
    """What a vote counts: one record may change the scores of one client."""
    turned = {i % _PARTS for i in without if having[i] != without[i]}
    return Movement("ballots", float(len(turned)), 1.0)


Compared = Callable[[Scores, Scores], Movement]


def _stopping(**others: Any) -> RandomStopping:
    return RandomStopping(_SPACE, Poisson(3), validation=_VALIDATION, **others)


METHODS: dict[str, tuple[Callable[[], Any], Compared]] = {
    "random-stopping": (_stopping, _counts),
    "adaptive": (lambda: Adaptive(_SPACE, Poisson(3), validation=_VALIDATION), _counts),
    "subset": (lambda: Subset(_stopping(), 0.9), _counts),
    "noisy-best": (lambda: NoisyBest(_SPACE, _PARTS, validation=_VALIDATION), _utilities),
    "threshold": (lambda: Threshold(_SPACE, _PARTS, validation=_VALIDATION), _utilities),
    "threshold, sparse": (lambda: Threshold(_SPACE, _PARTS, variant="sparse", validation=_VALIDATION), _utilities),
    "threshold, batches": (lambda: Threshold(_SPACE, _PARTS, batch=2, validation=_VALIDATION), _utilities),
    "vote": (lambda: Vote(_SPACE, 1, clients=_PARTS, validation=_VALIDATION), _ballots),
    "vote, Dirichlet": (lambda: Vote(_SPACE, 1, clients=_PARTS, alpha=0.5, validation=_VALIDATION), _ballots),
}


@functools.cache
def planned(name: str) -> Plan:
    """The plan of a method; made once, since no record plays a part in it."""
    plan: Plan = METHODS[name][0]().plan(_BUDGET, Given(None))
    return plan


_FORMS: dict[str, Callable[[AnyArray, AnyArray], Any]] = {
    "data set": lambda x, y: Dataset(x, y, _CLASSES),
    "arrays": lambda x, y: (x, y),
    "three columns": lambda x, y: (x, np.arange(len(y)), y),
}


def _scores(plan: Plan, model: Any, data: Any, randomness: Any) -> Scores | str:
    """The score of every trial; how the run ended, if it did not end well."""
    try:
        _, vault, _ = Runner().run(plan, Given(model), data, cast("Randomness", randomness))
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return vault.scores


def case(deck: Deck) -> Case:
    """One method, one kind of model, one record that is held back or trained on."""
    name = deck.deal("method", {one: one for one in METHODS})
    model, form = deck.deal("judged", JUDGED)(_FEATURES, _CLASSES), deck.deal("form", _FORMS)
    company = deck.deal("company", COMPANIES)(deck.rng, _FEATURES)
    marked, held = deck.deal("record", {"marked": True, "plain": False}), deck.deal("part", {"held": 0.0, "rest": 0.9})
    record = np.where(np.arange(_FEATURES) == 0, MARK, company.record) if marked else company.record
    place, seed = deck.deal("position", POSITIONS)(len(company.y)), int(deck.rng.integers(2**31))
    label = float(deck.rng.random())

    def coin(name: tuple[str | int, ...]) -> float:
        return held if name[:2] == ("coin", "validation") else label

    def look() -> Sequence[Movement]:
        plan, source, y = planned(name), Randomness.rehearsal(seed), company.y % _CLASSES
        x, own = stored(company.x, np.float32), stored(record, np.float32)
        both = np.insert(x, place, own, axis=0)
        without = _scores(plan, model, form(x, y), source)
        labels = np.insert(y, place, company.label % _CLASSES)
        having = _scores(plan, model, form(both, labels), Coupled(source, place, coin))
        if isinstance(without, str) or isinstance(having, str):
            ends = [one if isinstance(one, str) else "" for one in (without, having)]
            return [Movement(f"end of the run ({ends[1] or ends[0]})", float(ends[0] != ends[1]), 0.0)]
        return [
            Movement("trials", float(len(without.keys() ^ having.keys())), 0.0),
            Movement("failures", float(sum(np.isinf(having[i]) != np.isinf(without[i]) for i in without)), 0.0),
            METHODS[name][1](without, having),
        ]

    return Case("judging", deck.describe(), look)
