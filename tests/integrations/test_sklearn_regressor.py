"""The scikit-learn regressor: its own checks, private records with a schema, and what must be refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.integrations.sklearn import PrivateTunedClassifier, PrivateTunedRegressor

pandas = pytest.importorskip("pandas", reason="needs the extra 'tables'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "scikit_learn_regression.py"

# Checks that fit nothing, or once: the rest takes minutes and is in the slow test.
QUICK = {
    "check_estimator_cloneable",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_estimator_sparse_array",
    "check_supervised_y_no_nan",
    "check_fit2d_1sample",
    "check_fit1d",
    "check_requires_y_none",
    "check_n_features_in",
}


def _checks() -> list[tuple[str, Any, Any]]:
    generated = estimator_checks_generator(PrivateTunedRegressor(data_is="public"))
    return [(check.func.__name__, estimator, check) for estimator, check in generated]


@pytest.mark.parametrize(("name", "estimator", "check"), [one for one in _checks() if one[0] in QUICK])
def test_quick_checks_of_scikit_learn(name: str, estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "estimator", "check"), _checks())
def test_all_checks_of_scikit_learn(name: str, estimator: Any, check: Any) -> None:
    """None is expected to fail; it skips what needs an array API that is not switched on."""
    check(estimator)


def _schema(tmp_path: Path, target: str) -> Path:
    path = tmp_path / "schema.toml"
    head = 'version = 1\nrecords = 400\n[columns.size]\nkind = "number"\nrange = [20, 150]\n[columns.rent]\n'
    path.write_text(f'{head}kind = "target"\n{target}\n', encoding="utf-8")
    return path


def test_private_records_are_tuned_within_their_budget(tmp_path: Path) -> None:
    size = np.random.default_rng(0).uniform(20, 150, 400)
    table = pandas.DataFrame({"size": size, "rent": 10 * size})
    table.loc[3, "rent"] = np.nan  # repaired, never refused
    ledger = dpt.Ledger.create(tmp_path / "a.ledger")
    ledger.add("flats", 3.0, 1e-5)
    schema = _schema(tmp_path, "range = [0, 1600]")
    model = PrivateTunedRegressor(3.0, schema=schema, dataset="flats", ledger=ledger, out=tmp_path / "run")
    model.fit(table[["size"]], table["rent"])
    assert model.epsilon_ <= 3.0
    assert model.n_features_in_ == 1
    assert model.feature_names_in_.tolist() == ["size"]
    assert sorted(model.best_params_) == ["batch_size", "learning_rate", "noise_multiplier"]
    assert "the number rent" in model.statement_
    assert not hasattr(model, "classes_")
    found = model.predict(table[["size"]])
    assert (found >= 0).all()
    assert (found <= 1600).all()
    assert model.score(table[["size"]].drop(3), table["rent"].drop(3)) <= 1.0
    assert clone(model).get_params()["dataset"] == "flats"


def test_a_schema_for_the_other_kind_is_refused(tmp_path: Path) -> None:
    table = pandas.DataFrame({"size": [20.0, 30.0], "rent": [1, 0]})
    x, y = table[["size"]], table["rent"]
    schema = _schema(tmp_path, 'classes = ["0", "1"]')
    with pytest.raises(InvalidInput, match="use PrivateTunedClassifier"):
        PrivateTunedRegressor(schema=schema, dataset="a").fit(x, y)
    schema = _schema(tmp_path, "range = [0, 1]")
    with pytest.raises(InvalidInput, match="use PrivateTunedRegressor"):
        PrivateTunedClassifier(schema=schema, dataset="a").fit(x, y)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 40
    runpy.run_path(str(EXAMPLE))
    said = capsys.readouterr().out
    assert "epsilon " in said
    assert "R^2 on records that nobody looked at" in said
