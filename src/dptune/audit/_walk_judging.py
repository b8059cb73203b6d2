"""The walk over private validation: methods, kinds of models and data, and records that models stumble over.

Trainings give a fixed model, so whatever the record moves it moves by being judged. Noise is a function of the run's
secret and a label, the same in both worlds: what is left of a difference of two scores is the record's part. The others
keep their coins and labels when the record joins them, wherever it stands (:class:`Coupled`).
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dptune._typing import AnyArray
from dptune.accounting import Cost, Gaussian, Poisson, PureDp
from dptune.audit._inline import Runner
from dptune.audit._judged import JUDGED, MARK
from dptune.audit.supported import COMPANIES, POSITIONS, dataset, stored
from dptune.audit.walk import Case, Deck, Movement
from dptune.methods.budget import Budget
from dptune.methods.parts import Client, Shard
from dptune.methods.plan import Method, Plan
from dptune.methods.registry import known_methods, method_named, plan_named
from dptune.methods.utilities import sensitivity_of, total_utility
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.scores import AbsoluteError, Accuracy, Auc, Balanced, Score, SquaredError
from dptune.spaces import Float, Space

__all__ = ["SCORES", "Coupled", "case", "methods", "planned"]

Scores = Mapping[int, float]

_FEATURES, _CLASSES, _PARTS = 6, 3, 3
_DENOMINATOR = 4.0
_BUDGET = Budget(20.0, 1e-5)
_SPACE = Space.of([{"x": 0}, {"x": 1}])
_VALIDATION = PrivateValidation(0.5, _DENOMINATOR, 3.0)
_BY_RECORD = ("coin", "shard", "client", "score groups")  # what is drawn for each record


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


class Noised(Given):
    """The same at a cost that follows the noise, which some methods set."""

    def cost(self, params: Mapping[str, Any]) -> Cost:
        return Gaussian(params["noise_multiplier"])


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
        return _Joined(made, self._place, self._own(label)) if label[0] in _BY_RECORD else made

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


_SMALL: dict[str, Any] = {
    "space": _SPACE,
    "candidates": _SPACE,
    "runs": Poisson(3),
    "shards": _PARTS,
    "clients": _PARTS,
    "votes": 1,
    "fraction": 0.9,
    "validation": _VALIDATION,
}
"""What a method gets, by the names of its settings; any other setting keeps its default."""

_RATES = Space(lr=Float(0.1, 1.0, log=True))
_OWN: dict[str, dict[str, Any]] = {"linear-scaling": {"space": _RATES}}
"""What a method gets instead, where it takes nothing else; its trainer's noise can be set."""

_OPTIONS: dict[str, Any] = {"variant": "sparse", "batch": 2, "alpha": 0.5}
"""Settings that change how records are judged; a method that has one is dealt with it, too."""


def _accepted(kind: type[Method]) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def _made(kind: type[Method], score: Score | None = None, **option: Any) -> Method:
    accepted, small = _accepted(kind), {**_SMALL, "validation": replace(_VALIDATION, score=score)}
    given = {name: small[name] for name in accepted if name in small} | option
    if "method" in accepted:
        given["method"] = _made(typing.get_type_hints(kind)["method"], score)
    return kind(**given)


def _judges(name: str) -> bool:
    """Whether a method of dptune promises something and scores by private records; others' are audited by a job."""
    kind = method_named(name)
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]  # so that a walk follows from its seed alone
    return ours and plan_named(name).guaranteed and bool({"validation", "method"} & set(_accepted(kind)))


def methods() -> dict[str, Callable[..., Method]]:
    """Every registered method of dptune that judges private records, as it is and with each of its options."""
    found: dict[str, Callable[..., Method]] = {}
    for name in filter(_judges, known_methods()):
        kind = method_named(name)
        own = _OWN.get(name, {})
        found[name] = functools.partial(_made, kind, **own)
        for option in sorted(_OPTIONS.keys() & set(_accepted(kind))):
            found[f"{name}, {option}"] = functools.partial(_made, kind, **own, **{option: _OPTIONS[option]})
    return found


@functools.cache
def planned(name: str, score: Score | None = None) -> Plan:
    """The plan of a method; made once, since no record plays a part in it."""
    return methods()[name](score=score).plan(_BUDGET, _trainer(name, None))


def _trainer(name: str, model: Any) -> Given:
    """What trains for a method, by its name among those that are dealt."""
    return (Noised if name.partition(",")[0] in _OWN else Given)(model)


def _compared(plan: Plan) -> Compared:
    """What one record may move, by how trials divide the records: among clients, among shards, or not at all."""
    trials = plan.start(Randomness.rehearsal(1)).ask()
    divided = {type(condition) for trial in trials for condition in trial.part.conditions}
    return _ballots if Client in divided else _utilities if Shard in divided else _counts


SCORES: dict[str, tuple[Score | None, int]] = {
    "natural": (None, _CLASSES),
    "accuracy": (Accuracy(), _CLASSES),
    "balanced": (Balanced((0.5, 0.3, 0.2)), _CLASSES),
    "auc": (Auc((0.7, 0.3)), 2),
    "natural of numbers": (None, 1),
    "absolute": (AbsoluteError(), 1),
    "squared": (SquaredError(0.5), 1),
}
"""Scores by name, each with how many classes its records have; 1 stands for numbers."""

_FORMS: dict[str, Callable[[AnyArray, AnyArray, int], Any]] = {
    "data set": dataset,
    "arrays": lambda x, y, classes: (x, y % max(2, classes)),
    "three columns": lambda x, y, classes: (x, np.arange(len(y)), y % max(2, classes)),
}


def _scores(plan: Plan, trainer: Given, data: Any, randomness: Any) -> Scores | str:
    """The score of every trial; how the run ended, if it did not end well."""
    try:
        _, vault, _ = Runner().run(plan, trainer, data, cast("Randomness", randomness))
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return vault.scores


def case(deck: Deck) -> Case:
    """One method, one kind of model, one record that is held back or trained on."""
    name = deck.deal("method", {one: one for one in methods()})
    score, classes = deck.deal("score", SCORES)
    model, form = deck.deal("judged", JUDGED)(_FEATURES, classes), deck.deal("form", _FORMS)
    company = deck.deal("company", COMPANIES)(deck.rng, _FEATURES)
    marked, held = deck.deal("record", {"marked": True, "plain": False}), deck.deal("part", {"held": 0.0, "rest": 0.9})
    record = np.where(np.arange(_FEATURES) == 0, MARK, company.record) if marked else company.record
    place, seed = deck.deal("position", POSITIONS)(len(company.y)), int(deck.rng.integers(2**31))
    label = float(deck.rng.random())

    def coin(name: tuple[str | int, ...]) -> float:
        return held if name[:2] == ("coin", "validation") else label

    def look() -> Sequence[Movement]:
        plan, source, y = planned(name, score), Randomness.rehearsal(seed), company.y
        x, own = stored(company.x, np.float32), stored(record, np.float32)
        both = np.insert(x, place, own, axis=0)
        trainer = _trainer(name, model)
        without = _scores(plan, trainer, form(x, y, classes), source)
        labels = np.insert(y, place, company.label)
        having = _scores(plan, trainer, form(both, labels, classes), Coupled(source, place, coin))
        if isinstance(without, str) or isinstance(having, str):
            ends = [one if isinstance(one, str) else "" for one in (without, having)]
            return [Movement(f"end of the run ({ends[1] or ends[0]})", float(ends[0] != ends[1]), 0.0)]
        return [
            Movement("trials", float(len(without.keys() ^ having.keys())), 0.0),
            Movement("failures", float(sum(np.isinf(having[i]) != np.isinf(without[i]) for i in without)), 0.0),
            _compared(plan)(without, having),
        ]

    return Case("judging", deck.describe(), look)
