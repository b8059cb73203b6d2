"""The generator of an estimator's noise: what is released must not tell the noise that protects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

import dptune as dpt
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.integrations.estimators import estimator_trainer

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
