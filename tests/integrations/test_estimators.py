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
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.executors.models import kind_of, open_model, pack_model
from dptune.integrations.estimators import epsilon_of, estimator_trainer
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset

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


def _stated(name: str = "LogisticRegression", **attributes: Any) -> Any:
    usual = {"data_norm": 1.5, "fit_intercept": False} if name == "LogisticRegression" else {}
    return type(name, (), {"__module__": "diffprivlib.models", "epsilon": 0.5, **usual, **attributes})()


def test_what_diffprivlib_states_is_for_a_record_replaced() -> None:
    """Its models tell the exact number of records, so no epsilon at all covers one that is added or removed."""
    assert epsilon_of(_stated()) == dpt.PureDp(0.5, neighbours=dpt.RECORD_REPLACED)
    trainer = estimator_trainer(lambda p: _stated(), validation=dpt.Dataset(X, Y, 3, public=True))
    with pytest.raises(InvalidInput, match="one record replaced"):
        dpt.RandomStopping(dpt.Space(c=dpt.Int(1, 2)), dpt.Geometric(2)).plan(dpt.Budget(4, 1e-5), trainer)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"fit_intercept": True}, "hold back its intercept"), ({"data_norm": 2.1}, "holds up to data_norm=2")],
)
def test_a_logistic_regression_that_does_more_than_its_noise_is_made_for_is_not_read(options: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        epsilon_of(_stated(**options))


@pytest.mark.parametrize("stated", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("inverse", [0.1, 1.0, 10.0, 1000.0])
def test_the_objective_of_diffprivlib_keeps_its_epsilon_up_to_a_norm_of_two(stated: float, inverse: float) -> None:
    assert max(_lost(stated, norm, 1 / inverse) for norm in (0.1, 0.5, 1.0, 1.5, 2.0)) <= stated + 1e-9


def test_the_objective_of_diffprivlib_loses_more_beyond_it() -> None:
    assert _lost(1.0, 12.0, 1.0) > 1.35  # stated: 1


def _lost(stated: float, norm: float, alpha: float) -> float:
    """The largest privacy loss of one record replaced, in one dimension and with no other record, at points of a grid.

    The noise is that of diffprivlib's mechanism 'Vector' as LogisticRegression calls it; the weight w is where the
    noise is minus the gradient, so its density is that of the noise times the second derivative.
    """
    left = stated - 2 * np.log(1 + 0.25 * norm / alpha)
    if left <= 0:
        left, alpha = stated / 2, 0.25 * norm / np.expm1(stated / 4)
    w = np.linspace(-20, 20, 4001) / norm

    def log_density(x: float) -> Any:  # of a record x with the label 1; a label 0 is -x
        share = 1 / (1 + np.exp(np.clip(w * x, -700, 700)))
        slope, bend = alpha * w - x * share, alpha + x * x * share * (1 - share)
        return -np.abs(slope) * left / (2 * norm) + np.log(bend)

    records = [log_density(x) for x in np.linspace(-norm, norm, 9)]
    return float(max(np.max(one - other) for one in records for other in records))


def test_a_record_of_naive_bayes_may_change_its_class() -> None:
    assert epsilon_of(_stated("GaussianNB", bounds=(-1, 1))).pure_epsilon == 1.0
    assert epsilon_of(_stated("GaussianNB", bounds=([0, -1], [1, 0]))).pure_epsilon == 1.0
    for bounds in ((5, 6), ([-1, -2], [1, -1])):
        with pytest.raises(InvalidInput, match="have 0 between them"):
            epsilon_of(_stated("GaussianNB", bounds=bounds))


@pytest.mark.parametrize("name", ["DecisionTreeClassifier", "RandomForestClassifier"])
def test_a_record_of_a_tree_may_change_its_leaf(name: str) -> None:
    """diffprivlib names a leaf's class by permute-and-flip on counts, at the price of a record added or removed."""
    assert epsilon_of(_stated(name, bounds=(-1, 1), classes=[0, 1])).pure_epsilon == 1.0
    flips = np.log(_second([9, 1]) / _second([10, 0]))  # a record of the first class becomes one of the second
    assert flips == pytest.approx(2.0)


def _second(counts: list[int]) -> float:
    """How likely permute-and-flip takes the second, smaller one of two, at epsilon 1 for a record added or removed."""
    return 0.5 * float(np.exp(counts[1] - counts[0]))


@pytest.mark.parametrize("name", ["LinearRegression", "KMeans", "PCA", "StandardScaler", "SomethingNew"])
def test_an_epsilon_that_is_not_that_of_a_replaced_record_is_not_read(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"diffprivlib's {name} states was not found to be the cost"):
        epsilon_of(_stated(name, bounds_X=(0, 1), bounds_y=(0, 1)))


@pytest.mark.parametrize("places", [[], [0], list(range(600))])
def test_estimators_are_fitted_on_numbers(places: list[int]) -> None:
    numbers = RegressionDataset(X, X @ [1.0, 2.0], target_range=(-3, 3), feature_range=(-1, 1))
    shown = RegressionDataset(X, X @ [1.0, 2.0], target_range=(-3, 3), public=True)
    trainer = estimator_trainer(lambda p: LinearRegression(), cost=dpt.PureDp(1.0), validation=shown)
    trainer.check({}, numbers)
    fitted = trainer.fit({}, numbers.take(np.array(places, int)), Randomness.rehearsal(1).generator())
    assert fitted.model.predict(X).shape == (600,)
    if len(places) == 600:
        assert fitted.score > 0.95
    with pytest.raises(InvalidInput, match="classes, or numbers"):
        trainer.check({}, DATA)


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
        "LogisticRegression": lambda p: models.LogisticRegression(
            epsilon=p["epsilon"], data_norm=1.5, fit_intercept=False
        ),
    }
    trainer = estimator_trainer(makers[name], validation=dpt.Dataset(X, Y, 3, public=True))
    price = 60.0 if name == "GaussianNB" else 30.0
    assert trainer.cost({"epsilon": 30.0}) == dpt.PureDp(price, neighbours=dpt.RECORD_REPLACED)
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


@diffprivlib
def test_a_linear_regression_of_diffprivlib_is_released(tmp_path: Path) -> None:
    models, targets = _models(), X @ [1.0, 2.0]
    trainer = estimator_trainer(
        lambda p: models.LinearRegression(epsilon=5.0, bounds_X=(-1, 1), bounds_y=(-3, 3), fit_intercept=p["c"]),
        cost=dpt.PureDp(5.0, neighbours=dpt.RECORD_REPLACED),  # declared: what it states is not read
        validation=RegressionDataset(X, targets, target_range=(-3, 3), public=True),
    )
    release = dpt.tune(
        (X, targets), target_range=(-3, 3), records=600, trainer=trainer, space=dpt.Space(c=dpt.Choice(True, False)),
        epsilon=40, delta=1e-5, neighbours=dpt.RECORD_REPLACED, dataset="rings", ledger=_opened(tmp_path), explain=None,
        out=tmp_path / "run",
    )  # fmt: skip
    assert type(release.model).__module__.startswith("sklearn.")
    assert release.model.score(X, targets) > 0.5


def _opened(folder: Path) -> dpt.Ledger:
    ledger = dpt.Ledger.create(folder / "one.ledger")
    ledger.add("rings", 40, 1e-5, neighbours=dpt.RECORD_REPLACED)
    return ledger


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
