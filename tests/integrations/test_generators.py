"""The generator of an estimator's noise: what is released must not tell the noise that protects it."""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

import dptune as dpt
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.integrations._generators import secret_state
from dptune.integrations.estimators import estimator_trainer
from dptune.randomness import Randomness

_DATA = Dataset(np.arange(40.0, dtype=np.float32).reshape(20, 2), np.arange(20) % 2, 2, name="toy")


class NoisyCount(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """A private count of records, in the manner of diffprivlib: the noise comes from ``random_state``."""

    def __init__(self, epsilon: float = 1.0, random_state: Any = None) -> None:
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, x: Any, y: Any) -> NoisyCount:
        self.classes_ = np.array([0, 1])
        self.count_ = len(x) + check_random_state(self.random_state).laplace(scale=1 / self.epsilon)
        return self

    def predict(self, x: Any) -> Any:
        return np.zeros(len(x), int)


class _Keeps(NoisyCount):
    """One that keeps its generator where nobody can remove it."""

    def fit(self, x: Any, y: Any) -> _Keeps:
        super().fit(x, y)
        self.kept_ = (check_random_state(self.random_state),)
        return self


class _Remembers(NoisyCount):
    """One that keeps its generator under another name, and in an object that it holds."""

    def fit(self, x: Any, y: Any) -> _Remembers:
        super().fit(x, y)
        self.rng_ = check_random_state(self.random_state)
        self.parts_ = {"one": [NoisyCount(random_state=7).fit(x, y)]}
        return self


def _fitted(factory: Any, seed: int = 5) -> Any:
    return estimator_trainer(lambda params: factory(), cost=dpt.PureDp(1.0)).fit({}, _DATA, np.random.default_rng(seed))


def test_the_released_estimator_does_not_tell_its_noise() -> None:
    released = _fitted(NoisyCount).model
    assert released.random_state is None
    again = NoisyCount().set_params(**released.get_params()).fit(_DATA.x, _DATA.y)  # whoever fits it again
    assert abs(released.count_ - again.count_) > 1e-9


def test_the_noise_is_a_function_of_the_run() -> None:
    assert _fitted(NoisyCount).model.count_ == _fitted(NoisyCount).model.count_
    assert _fitted(NoisyCount).model.count_ != _fitted(NoisyCount, seed=6).model.count_


def test_members_of_an_ensemble_forget_their_seeds_too() -> None:
    bag = _fitted(lambda: BaggingClassifier(LogisticRegression(), n_estimators=3)).model
    assert [one.random_state for one in bag.estimators_] == [None] * 3
    assert bag._seeds is None
    assert open_model(pack_model(bag)).predict(_DATA.x).shape == (20,)


class _Notes(NoisyCount):
    """One that draws a seed for its noise and keeps it in a way of its own."""

    def __init__(self, note: Any = None, random_state: Any = None) -> None:
        super().__init__(random_state=random_state)
        self.note = note

    def fit(self, x: Any, y: Any) -> _Notes:
        self.classes_ = np.array([0, 1])
        self.part_ = self.note(7, check_random_state(self.random_state).randint(2**31 - 1))
        return self


@pytest.mark.parametrize(
    ("note", "left"),
    [
        (lambda public, seed: {"seed": public}, {"seed": None}),
        (lambda public, seed: {"one": {"member__random_state": public}}, {"one": {"member__random_state": None}}),
        (lambda public, seed: {"_seeds": np.array([public])}, {"_seeds": None}),
        (lambda public, seed: functools.partial(print, seed=public).keywords, {"seed": None}),
        (lambda public, seed: {"seed": print, "seeds_used": 3}, {"seed": print, "seeds_used": 3}),
    ],
)
def test_seeds_are_cleared_by_their_names(note: Any, left: Any) -> None:
    assert _fitted(lambda: _Notes(note)).model.part_ == left


@pytest.mark.parametrize(
    "note",
    [
        lambda public, seed: [("random_state", public)],
        lambda public, seed: seed,
        lambda public, seed: {"begun_with": [int(seed)]},
        lambda public, seed: np.array([[1, seed]], dtype=np.uint64),
        lambda public, seed: np.array([seed, "a"], dtype=object),
        lambda public, seed: lambda: seed,
    ],
)
def test_a_seed_that_was_given_is_refused_under_any_name(note: Any) -> None:
    with pytest.raises(InvalidInput, match="keeps a seed of its noise inside of a"):
        _fitted(lambda: _Notes(note))


def test_seeds_of_a_copied_generator_are_known_and_places_of_records_are_not() -> None:
    state = secret_state(np.random.default_rng(1))
    again = copy.deepcopy(state)
    assert state.randint(2**31 - 1, size=2).tolist() == (drawn := again.randint(0, 2**31 - 1, 2).tolist())
    state.randint(0, 1000, 50)
    assert state.told == again.told == set(drawn)


def test_generators_under_other_names_are_removed() -> None:
    model = _fitted(_Remembers).model
    assert model.rng_ is None
    assert model.parts_["one"][0].random_state is None


def test_a_generator_that_cannot_be_removed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="keeps the generator of its noise inside of a tuple"):
        _fitted(_Keeps)


@pytest.mark.parametrize("state", [np.random.RandomState(3), np.random.default_rng(3)])
def test_no_generator_is_stored_with_a_model(state: Any) -> None:
    model = LogisticRegression().fit(_DATA.x, _DATA.y)
    assert open_model(pack_model(model)).random_state is None
    model.random_state = state
    with pytest.raises(InvalidInput, match="keeps a random generator"):
        pack_model(model)


class _Slots:
    """Attributes that are in no dictionary."""

    __slots__ = ("empty", "rng")

    def __init__(self, rng: Any) -> None:
        self.rng = rng


class _SubSlots(_Slots):
    __slots__ = ("other",)


@dataclass(frozen=True, slots=True)
class _Frozen:
    rng: Any


class _Named(NamedTuple):
    rng: Any


def _closure(rng: Any) -> Callable[[], float]:
    return lambda: float(rng.random())


def _default(rng: Any) -> Callable[[], float]:
    def draw(*, source: Any = rng) -> float:
        return float(source.random())

    return draw


def _attribute(rng: Any) -> Callable[[], None]:
    def draw() -> None: ...

    draw.rng = rng  # type: ignore[attr-defined]
    return draw


REMOVED: dict[str, Callable[[Any], Any]] = {
    "slots": _Slots,
    "inherited slots": _SubSlots,
    "frozen": _Frozen,
    "function": _attribute,
}
HIDDEN: dict[str, Callable[[Any], Any]] = {
    "closure": _closure,
    "default": _default,
    "method": lambda rng: rng.normal,
    "partial": lambda rng: functools.partial(print, rng),
    "named tuple": _Named,
    "deque": lambda rng: deque([rng]),
    "set": lambda rng: {rng},
    "iterator": lambda rng: itertools.cycle([rng]),
    "generator expression": lambda rng: (rng.random() for _ in range(3)),
    "array": lambda rng: np.array([[rng]], dtype=object),
    "key": lambda rng: {rng: 1},
    "slots in a closure": lambda rng: _closure(deque([rng])),
}


@pytest.mark.parametrize("kind", [*REMOVED, *HIDDEN])
def test_a_generator_is_found_wherever_it_is(kind: str) -> None:
    class Hides(NoisyCount):
        def fit(self, x: Any, y: Any) -> Hides:
            super().fit(x, y)
            self.part_ = (REMOVED | HIDDEN)[kind](check_random_state(self.random_state))
            return self

    if kind in REMOVED:
        assert _fitted(Hides).model.part_.rng is None
    else:
        with pytest.raises(InvalidInput, match="keeps the generator of its noise inside of a"):
            _fitted(Hides)


SOURCES = [
    np.random.RandomState(3),
    np.random.default_rng(3),
    random.Random(3),
    np.random.SeedSequence(3),
    torch.Generator(),
    Randomness.rehearsal(3),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: type(one).__name__)
def test_no_pickle_of_a_model_holds_a_generator(source: Any) -> None:
    for hide in (_Slots, _Frozen, _closure, _default, lambda rng: [{"one": (rng,)}], lambda rng: rng):
        with pytest.raises(InvalidInput, match="keeps a random generator"):
            pack_model({1: hide(source)}, pickle=True)
    assert pack_model({1: _Slots(7)}, pickle=True)
