"""Estimators with a declared cost: what leaves holds no seed, no count of fits, and no class that a record decided."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.executors.models import kind_of, open_model, pack_model
from dptune.integrations.estimators import epsilon_of, estimator_trainer
from dptune.randomness import Randomness

RNG = np.random.default_rng(0)
Y = np.arange(600) % 3
X = np.clip(RNG.normal(size=(600, 2)) * 0.1 + np.stack([np.cos(Y * 2.0), np.sin(Y * 2.0)], axis=1) / 2, -1, 1)
DATA = dpt.Dataset(X, Y, 3, name="rings", feature_range=(-1, 1))


class Noisy(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Noised class sums; keeps its generator, as estimators do."""

    def __init__(self, epsilon: float = 1.0, random_state: Any = None) -> None:
        self.epsilon, self.random_state = epsilon, random_state

    def fit(self, x: Any, y: Any) -> Noisy:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError("one class")
        sums = np.stack([x[y == one].sum(axis=0) for one in self.classes_])
        self.centres_ = sums + self.random_state.laplace(scale=4 / self.epsilon, size=sums.shape)
        return self

    def predict(self, x: Any) -> Any:
        return self.classes_[np.argmax(x @ self.centres_.T, axis=1)]


def test_the_seed_of_the_noise_does_not_leave() -> None:
    trainer = estimator_trainer(lambda p: make_pipeline(FunctionTransformer(), Noisy()), cost=dpt.PureDp(1.0))
    one, same, other = (trainer.fit({}, DATA, Randomness.rehearsal(seed).generator()).model for seed in (1, 1, 2))
    assert one[-1].random_state is None
    assert np.array_equal(one[-1].centres_, same[-1].centres_)
    assert not np.array_equal(one[-1].centres_, other[-1].centres_)


@pytest.mark.parametrize("places", [[], [0], [0, 3], [0, 1], list(range(9))])
def test_no_record_decides_which_classes_there_are(places: list[int]) -> None:
    trainer = estimator_trainer(lambda p: Noisy(), cost=dpt.PureDp(1.0))
    fitted = trainer.fit({}, DATA.take(np.array(places, int)), Randomness.rehearsal(1).generator())
    assert fitted.model.classes_.tolist() == [0, 1, 2]


def test_images_and_other_data_are_refused_before_the_charge() -> None:
    trainer = estimator_trainer(lambda p: Noisy(), cost=dpt.PureDp(1.0))
    trainer.check({}, DATA)
    with pytest.raises(InvalidInput, match="have the shape"):
        trainer.check({}, dpt.Dataset(X.reshape(600, 1, 2), Y, 3))
    with pytest.raises(InvalidInput, match="got tuple"):
        trainer.check({}, (X, Y))


@pytest.mark.parametrize("name", ["data_norm", "bounds", "bounds_X", "classes"])
def test_bounds_that_would_be_read_off_the_records_are_refused(name: str) -> None:
    class Careless:
        __module__ = "diffprivlib.models"
        epsilon = 1.0

    one = Careless()
    setattr(one, name, None)
    with pytest.raises(InvalidInput, match=f"give '{name}'"):
        epsilon_of(one)


def test_arrays_become_what_estimators_are_fitted_on(tmp_path: Path) -> None:
    trainer = estimator_trainer(
        lambda p: LogisticRegression(C=p["c"]), cost=dpt.PureDp(0.2), validation=dpt.Dataset(X, Y, 3, public=True)
    )
    release = dpt.tune(
        (X, Y), trainer=trainer, space=dpt.Space(c=dpt.Float(0.1, 1)), classes=3, records=600, epsilon=2, delta=1e-5,
        seed=1, data_is="synthetic", explain=None, out=tmp_path / "run",
    )  # fmt: skip
    assert release.model.predict(X).shape == (600,)


diffprivlib = pytest.mark.filterwarnings("ignore")  # its warnings are about other things than this


def _models() -> Any:
    try:
        return importlib.import_module("diffprivlib.models")  # not among the dependencies
    except ImportError as error:  # absent, or too old for the installed scikit-learn
        pytest.skip(f"diffprivlib cannot be imported here ({error})")


@diffprivlib
@pytest.mark.parametrize("name", ["GaussianNB", "LogisticRegression"])
def test_estimators_of_diffprivlib_are_fitted_and_stored_without_a_pickle(name: str) -> None:
    models = _models()
    makers = {
        "GaussianNB": lambda p: models.GaussianNB(epsilon=p["epsilon"], bounds=(-1, 1)),
        "LogisticRegression": lambda p: models.LogisticRegression(epsilon=p["epsilon"], data_norm=1.5),
    }
    trainer = estimator_trainer(makers[name], validation=dpt.Dataset(X, Y, 3, public=True))
    assert trainer.cost({"epsilon": 30.0}) == dpt.PureDp(30.0)
    one, same = (trainer.fit({"epsilon": 30.0}, DATA, Randomness.rehearsal(1).generator()) for _ in range(2))
    assert one.score > 0.7
    assert one.model.get_params()["random_state"] is None if name == "LogisticRegression" else True
    content = pack_model(one.model)
    assert content == pack_model(same.model)  # nothing of how often it was fitted
    assert kind_of(content) == "skops"
    assert np.array_equal(open_model(content).predict(X), one.model.predict(X))


@diffprivlib
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["GaussianNB", "LogisticRegression"])
def test_the_plain_estimator_predicts_as_diffprivlib_does(name: str, classes: int) -> None:
    from dptune.integrations.estimators import _plain  # noqa: PLC0415 - what is under test

    models, kept = _models(), classes > Y
    given = models.GaussianNB(epsilon=30, bounds=(-1, 1), random_state=1)
    if name == "LogisticRegression":
        given = models.LogisticRegression(epsilon=30, data_norm=1.5, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given.fit(X[kept], Y[kept])
        made = _plain(given)
        assert type(made) is not type(given)
        assert np.array_equal(made.predict(X), given.predict(X))
        assert np.allclose(made.predict_proba(X), given.predict_proba(X), atol=1e-12)


def test_a_forest_is_refused_before_the_charge(tmp_path: Path) -> None:
    """Its file could not be opened safely, which shows on blank records."""
    trainer = estimator_trainer(lambda p: RandomForestClassifier(2, max_depth=p["depth"]), cost=dpt.PureDp(0.2))
    space = dpt.Space(depth=dpt.Int(1, 2))
    scored = dpt.PrivateValidation.of(0.2, 60, noise=20.0)
    plan = dpt.RandomStopping(space, dpt.Geometric(2), validation=scored).plan(dpt.Budget(2, 1e-4), trainer)
    data = dpt.Dataset(np.random.default_rng(0).random((60, 2)), np.arange(60) % 2, classes=2)
    ledger = dpt.Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 2, 1e-4)
    with pytest.raises(
        InvalidInput, match=r"trees and forests cannot be released safely.*pickle=True.*Nothing was charged"
    ):
        dpt.run(plan, trainer, data, ledger=ledger, dataset="icu", out=tmp_path / "run", explain=None)
    assert ledger.charges() == []
    assert not (tmp_path / "run").exists()
