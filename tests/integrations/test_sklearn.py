"""The scikit-learn classifier: its own checks, private records with a schema, and what must be refused."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import dptune as dpt
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.integrations.estimators import epsilon_of, estimator_trainer
from dptune.integrations.sklearn import PrivateTunedClassifier

pandas = pytest.importorskip("pandas", reason="needs the extra 'tables'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "scikit_learn.py"

# Checks that fit nothing, or once: the rest takes minutes and is in the slow test.
QUICK = {
    "check_estimator_cloneable",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_estimator_sparse_array",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_supervised_y_no_nan",
    "check_fit2d_1sample",
    "check_fit1d",
    "check_requires_y_none",
    "check_n_features_in",
}


def _checks() -> list[tuple[str, Any, Any]]:
    generated = estimator_checks_generator(PrivateTunedClassifier(data_is="public"))
    return [(check.func.__name__, estimator, check) for estimator, check in generated]


@pytest.mark.parametrize(("name", "estimator", "check"), [one for one in _checks() if one[0] in QUICK])
def test_quick_checks_of_scikit_learn(name: str, estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "estimator", "check"), _checks())
def test_all_checks_of_scikit_learn(name: str, estimator: Any, check: Any) -> None:
    """None is expected to fail; it skips what needs an array API that is not switched on."""
    check(estimator)


def _table(count: int) -> Any:
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, count)
    return pandas.DataFrame({"age": age, "city": rng.choice(["Bonn", "Jena"], count), "ill": (age > 50).astype(int)})


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(
        'version = 1\nrecords = 400\n[columns.age]\nkind = "number"\nrange = [18, 90]\n'
        '[columns.city]\nkind = "category"\nvalues = ["Bonn", "Jena"]\n'
        '[columns.ill]\nkind = "target"\nclasses = ["0", "1"]\n',
        encoding="utf-8",
    )
    return path


def test_private_records_are_tuned_once_within_their_budget(schema: Path, tmp_path: Path) -> None:
    table = _table(400)
    table.loc[3, "age"] = np.nan  # repaired, never refused
    x, y = table[["age", "city"]], table["ill"]
    ledger = dpt.Ledger.create(tmp_path / "a.ledger")
    ledger.add("clinic", 2.0, 1e-5)
    model = PrivateTunedClassifier(2.0, schema=schema, dataset="clinic", ledger=ledger, out=tmp_path / "run")
    model.fit(x, y)
    assert model.epsilon_ <= 2.0
    assert model.classes_.tolist() == [0, 1]
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["age", "city"]
    assert model.predict_proba(x[:7]).shape == (7, 2)
    assert 0.0 <= model.score(x, y) <= 1.0
    assert "2" in model.statement_
    assert not hasattr(model, "cv_results_")
    again = clone(model).set_params(out=tmp_path / "second")
    with pytest.raises(BudgetExceeded):
        again.fit(x, y)
    back = pickle.loads(pickle.dumps(model.set_params(ledger=None)))
    assert (back.predict(x) == model.predict(x)).all()


def test_rows_and_classes_belong_together_by_place(schema: Path) -> None:
    """A Series with another index is aligned by pandas, and would get every class wrong."""
    table = _table(60)
    x, y = table[["age", "city"]], table["ill"]
    given: dict[str, Any] = {"schema": schema, "data_is": "synthetic", "random_state": 0}
    one, two = (PrivateTunedClassifier(3.0, **given) for _ in range(2))
    shifted = y.set_axis(range(1000, 1060))
    assert (one.fit(x, y).predict_proba(x) == two.fit(x, shifted).predict_proba(x)).all()


def test_private_records_need_what_is_public_about_them(schema: Path) -> None:
    table = _table(20)
    x, y = table[["age", "city"]], table["ill"]
    with pytest.raises(InvalidInput, match="schema draft"):
        PrivateTunedClassifier().fit(x, y)
    with pytest.raises(InvalidInput, match="dataset='NAME'"):
        PrivateTunedClassifier(schema=schema).fit(x, y)
    with pytest.raises(InvalidInput, match="random_state"):
        PrivateTunedClassifier(schema=schema, dataset="a", random_state=1).fit(x, y)


def test_a_second_fit_forgets_the_first_and_nothing_is_left_behind(
    schema: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    table = _table(60)
    model = PrivateTunedClassifier(3.0, schema=schema, data_is="public", random_state=0)
    model.fit(table[["age", "city"]], table["ill"])
    x = np.random.default_rng(0).normal(size=(40, 3))
    model.set_params(schema=None).fit(x, (x[:, 0] > 0).astype(int))
    assert model.predict_proba(x).shape == (40, 2)  # by its own scaling, not by the schema of before
    assert list((tmp_path / "temporary").glob("dptune-*")) == []


def test_it_works_at_the_end_of_a_pipeline() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.where(x[:, 0] > 0, "yes", "no")
    pipe = make_pipeline(StandardScaler(), PrivateTunedClassifier(3.0, data_is="public", random_state=0))
    assert set(pipe.fit(x, y).predict(x)) <= {"yes", "no"}


def test_nothing_is_predicted_before_a_fit() -> None:
    with pytest.raises(NotFittedError):
        PrivateTunedClassifier(data_is="public").predict(np.zeros((1, 2)))


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 40
    runpy.run_path(str(EXAMPLE))
    said = capsys.readouterr().out
    assert "epsilon " in said
    assert "accuracy on records that nobody looked at" in said


class LogisticRegression:
    """An estimator that is private by itself, in diffprivlib's manner; one of its own, by its module and its name."""

    __module__ = "diffprivlib.models.toy"

    fit_intercept = False
    data_norm = 2.0

    def __init__(self, epsilon: float = 1.0, bounds: object = (0.0, 1.0)) -> None:
        self.epsilon = epsilon
        self.bounds = bounds


def test_the_cost_is_read_off_the_estimator() -> None:
    price = dpt.PureDp(0.25, neighbours=dpt.RECORD_REPLACED)
    assert epsilon_of(LogisticRegression(0.25)) == price
    assert estimator_trainer(lambda p: LogisticRegression(p["epsilon"])).cost({"epsilon": 0.25}) == price
    with pytest.raises(InvalidInput, match="off the private records"):
        epsilon_of(LogisticRegression(0.5, bounds=None))
    with pytest.raises(InvalidInput, match="no number 'epsilon'"):
        epsilon_of(object.__new__(type("Plain", (), {"__module__": "diffprivlib.models"})))
    with pytest.raises(InvalidInput, match="may be anything"):
        epsilon_of(SGDClassifier())  # its epsilon is that of a loss
    with pytest.raises(InvalidInput, match="'cost' must be a cost"):
        estimator_trainer(lambda p: LogisticRegression(), cost=3)  # type: ignore[arg-type]


def test_a_fit_that_was_cut_off_is_resumed_where_it_was(monkeypatch: pytest.MonkeyPatch, schema: Path) -> None:
    """What it does with the folder is the affair of ``tune``, which gets it; no temporary folder is made."""
    given: dict[str, Any] = {}

    def tune(data: Any, **told: Any) -> None:
        given.update(told)
        raise InterruptedError

    monkeypatch.setattr("dptune.integrations._sklearn_base.tune", tune)
    table = _table(40)
    cases: list[dict[str, Any]] = [{"schema": schema, "dataset": "clinic"}, {"data_is": "public"}]
    for told in cases:
        with pytest.raises(InterruptedError):
            PrivateTunedClassifier(**told, resume="runs/clinic").fit(table[["age"]], table["ill"])
        assert (given["resume"], given["out"]) == ("runs/clinic", None)
