"""Numbers from a table to a release and to predictions; scores by name; what is not declared is refused."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune import UnitDataset, tune
from dptune.cli import main
from dptune.errors import InvalidInput
from dptune.planner import default_regression, named_score, with_score
from dptune.planner.incoming import Declared, bring_in
from dptune.regression import RegressionDataset, range_of
from dptune.scores import AbsoluteError, Accuracy, Auc, Balanced
from dptune.sealed import load_release
from dptune.tables import Encoder, Number, NumberTarget, Schema, Target
from dptune.trainer import trainer
from dptune.training import DpSgdTrainer, Mlp, Regression, Settings, TrainedRegression, softmax
from dptune.training.trained_regression import coefficient_of_determination

SCHEMA = """
version = 1
records = 2000
[columns.size]
kind = "number"
range = [20, 150]
[columns.town]
kind = "category"
values = ["Ulm", "Bonn"]
[columns.rent]
kind = "target"
range = [0, 2000]
"""
BUDGET: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-4, "explain": None}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    size, ulm = rng.uniform(20, 150, 2000), rng.random(2000) < 0.5
    rent = 100 + 10 * size + 150 * ulm + rng.normal(0, 60, 2000)
    rows = [f"{a:.2f},{'Ulm' if b else 'Bonn'},{c:.2f}" for a, b, c in zip(size, ulm, rent, strict=True)]
    path = tmp_path / "flats.csv"
    path.write_text("size,town,rent\n" + "\n".join(rows) + "\n50,Ulm,dear\n50,Ulm,1e999\nbroken\n", encoding="utf-8")
    (tmp_path / "flats.toml").write_text(SCHEMA, encoding="utf-8")
    return path


def test_a_table_of_numbers_is_tuned_and_predicted_in_two_commands(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, found = tmp_path / "run", tmp_path / "predictions.csv"
    given = ["tune", str(table), "--schema", str(tmp_path / "flats.toml"), "--epsilon", "3", "--delta", "1e-4"]
    assert main([*given, "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["predicts"] == {"column": "rent", "range": [0, 2000]}
    assert shown["epsilon"] <= 3
    release = load_release(out)
    (row,) = [one for one in shown["statement"]["figures"] if one["name"] == "Predicts"]
    assert row["text"] == "the number rent, within its declared range [0, 2000]"
    assert "the number rent" in release.statement
    assert "one minus its absolute error" in release.statement
    assert isinstance(release.model, TrainedRegression)
    (small, large) = release.predict([{"size": 30, "town": "Bonn"}, {"size": "120", "town": "Ulm"}])
    assert 0 <= small < large <= 2000
    assert main(["predict", str(out), str(table), "--out", str(found)]) == 0
    lines = found.read_text().splitlines()
    assert lines[0] == "prediction"
    truth = [float(line.split(",")[2]) for line in table.read_text().splitlines()[1:2001]]
    assert coefficient_of_determination([float(line) for line in lines[1:2001]], truth) > 0.9


def test_every_kind_of_data_may_have_numbers(tmp_path: Path) -> None:
    x, y = np.zeros((50, 2)), np.linspace(0, 7, 50)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    for data in ((x, y), tmp_path / "a.npz", (x, y.tolist())):
        private = bring_in(data, Declared(records=50, target_range=(0, 5)), None)
        assert isinstance(private.data, RegressionDataset)
        assert private.data.y.max() == 5
        public = bring_in(data, Declared(public=True), None)
        assert range_of(public.data) == (0, 7)
    units = bring_in((x, y), Declared(records=25, target_range=(0, 5), units=np.arange(50) // 2, unit_rows=2), None)
    assert isinstance(units.data, UnitDataset)
    assert range_of(bring_in((x, y), Declared(public=True, task="classification"), None).data) is None
    with pytest.raises(InvalidInput, match="target_range"):
        bring_in((x, y), Declared(records=50), None)
    with pytest.raises(InvalidInput, match="contradict"):
        bring_in((x, y), Declared(records=50, classes=2, target_range=(0, 5)), None)
    with pytest.raises(InvalidInput, match="cannot be a regression's"):
        bring_in((x, np.array(["a", "b"] * 25)), Declared(public=True, task="regression"), None)
    schema = Schema(50, (Number("a", 0, 1), Number("b", 0, 1), NumberTarget("y", 0, 5)))
    with pytest.raises(InvalidInput, match="the schema's target says another"):
        bring_in((x, y), Declared(schema=schema, task="classification"), None)


def test_units_of_numbers_are_tuned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (600, 2))
    release = tune(
        (x, 4 * x[:, 0]), target_range=(0, 5), records=300, units=np.arange(600) // 2, unit_rows=2, unit="patient",
        data_is="synthetic", seed=1, out=tmp_path / "run", **BUDGET,
    )  # fmt: skip
    assert isinstance(release.model, TrainedRegression)
    assert "patient" in release.statement


def test_an_unbalanced_table_is_tuned_by_the_balanced_score(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (400, 2))
    given: dict[str, Any] = {"records": 400, "classes": 2, "data_is": "synthetic", "seed": 1, **BUDGET}
    y = (x[:, 0] > 0.85).astype(int)
    release = tune((x, y), score="balanced", shares=[0.85, 0.15], out=tmp_path / "run", **given)
    assert "declared shares: 0.85, 0.15" in release.statement
    with pytest.raises(InvalidInput, match="never counted"):
        tune((x, y), score="balanced", out=tmp_path / "no", **given)
    with pytest.raises(InvalidInput, match="those of the records are classes"):
        tune((x, y), score="absolute", out=tmp_path / "no", **given)
    assert not (tmp_path / "no").exists()


def test_shares_are_declared_or_public() -> None:
    data = bring_in((np.zeros((8, 1)), np.array([0] * 6 + [1] * 2)), Declared(records=8, classes=2), None).data
    schema = Schema(8, (Number("a", 0, 1), Target("y", ("0", "1"), shares=(0.8, 0.2))))
    assert named_score("balanced", None, data, Encoder(schema), public=False) == Balanced((0.8, 0.2))
    assert named_score("auc", (0.7, 0.3), data, Encoder(schema), public=False) == Auc((0.7, 0.3))
    assert named_score("balanced", None, data, None, public=True) == Balanced((0.7, 0.3))
    assert named_score(None, None, data, None, public=False) is None
    with pytest.raises(InvalidInput, match="belong to a score"):
        named_score(None, (0.5, 0.5), data, None, public=False)


def test_a_score_is_set_on_built_in_trainers_alone() -> None:
    made = with_score(default_regression(3, (0, 1), 100), AbsoluteError(0.1))
    assert isinstance(made, DpSgdTrainer)
    assert made.declared_score == AbsoluteError(0.1)
    settings = Settings(0.1, 1.0, 1, clip_norm=1.0, learning_rate=1.0, batch_size=10)
    assert DpSgdTrainer(softmax(2, 2), settings).declared_score is None
    own: Any = trainer(cost=default_regression(3, (0, 1), 100).cost({}))(lambda params, data, rng: (None, 0.0))
    assert with_score(own, None) is own
    with pytest.raises(InvalidInput, match="declared_score"):
        with_score(own, Accuracy())


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "regression.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) < 40
    pytest.importorskip("pandas", reason="needs the extra 'tables'")
    runpy.run_path(str(example))
    said = capsys.readouterr().out
    assert "without privacy: R^2 0.518" in said


def test_a_job_of_numbers_takes_networks_and_scores(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (300, 2))
    np.savez(tmp_path / "a.npz", x=x, y=4 * x[:, 0])
    job = tmp_path / "job.toml"
    text = """
[data]
file = "a.npz"
target_range = [0, 5]
records = 300
kind = "synthetic"
score = "squared"
[model]
kind = "mlp"
hidden = [4]
optimizer = "adam"
steps = 20
[method]
name = "random-stopping"
runs = "geometric:2"
[budget]
epsilon = 3
delta = 1e-4
[run]
seed = 1
"""
    job.write_text(text, encoding="utf-8")
    assert main(["tune", str(job), "--out", str(tmp_path / "run")]) in (0, 3)
    release = load_release(tmp_path / "run")
    assert "squared error" in release.statement
    for wrong in ('kind = "softmax"', 'kind = "mlp"\nclip = 1'):
        job.write_text(text.replace('kind = "mlp"', wrong), encoding="utf-8")
        assert main(["tune", str(job), "--out", str(tmp_path / "other")]) == 2
    assert main(["tune", str(job), "--shares", "a,b", "--out", str(tmp_path / "other")]) == 2


def test_a_model_that_does_not_predict_numbers_is_refused() -> None:
    told: dict[str, Any] = {"target_range": (0, 3), "records": 200, "dataset": "d", "epsilon": 3, "delta": 1e-4}
    data = (np.zeros((9, 3)), np.zeros(9))
    with pytest.raises(InvalidInput, match=r"^The model fails with .*or a torch module; got NoneType"):
        tune(data, model=lambda params: None, **told)
    with pytest.raises(InvalidInput, match=r"^A Mlp is trained on classes.*model=Regression\(3, \(16,\)"):
        tune(data, model=Mlp(3, 2), **told)
    with pytest.raises(InvalidInput, match=r"The model predicts in \(0.0, 2.0\) but targets are declared in"):
        tune(data, model=Regression(3, (8,), target_range=(0, 2)), **told)


def test_a_users_module_predicts_numbers_end_to_end(tmp_path: Path) -> None:
    nn = pytest.importorskip("torch").nn
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = np.clip(1.5 + x[:, 0], 0.0, 3.0)
    release = tune(
        (x, y), model=lambda params: nn.Sequential(nn.Linear(3, 1)), data_is="public", target_range=(0, 3), records=200,
        epsilon=8, delta=1e-4, seed=1, out=tmp_path / "run",
    )  # fmt: skip
    found = release.model.predict(x)
    assert found.shape == (200,)
    assert (found >= 0.0).all()
    assert (found <= 3.0).all()
    assert "absolute error" in release.statement
