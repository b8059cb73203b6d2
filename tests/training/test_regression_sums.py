"""Regressions by DP-SGD: gradients by hand and by torch, predictions in the range, files, bits of single records."""

from __future__ import annotations

import numpy as np
import pytest

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import kind_of, open_model, pack_model
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.scores import AbsoluteError, Balanced, SquaredError
from dptune.training import (
    Adam,
    DpSgdTrainer,
    Holdout,
    Mlp,
    Regression,
    Settings,
    TrainedRegression,
    engine_for,
    linear,
)
from dptune.training.numpy_engine import NumpyEngine

ENDS = (-40.0, 60.0)


def _records(count: int = 400, seed: int = 0) -> RegressionDataset:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (count, 4))
    y = x @ np.array([30.0, -20.0, 10.0, 0.0]) + rng.normal(0, 1.0, count)
    return RegressionDataset(x, y, target_range=ENDS)


def _settings(**others: object) -> Settings:
    given = {"noise_multiplier": 0.5, "steps": 60, "clip_norm": 0.1, "learning_rate": 0.05, "optimizer": Adam()}
    return Settings.from_batch(100, 400, **{**given, **others})


@pytest.mark.parametrize("double", [False, True])
def test_the_sum_of_linear_regression_is_the_errors_times_the_features(double: bool) -> None:
    data = _records(9)
    engine = NumpyEngine(linear(4, ENDS), double=double)
    engine.bind(data)
    flat = np.array([[0.3, -3.0, 0.2, 0.1, 0.4]]).astype(engine.dtype)
    rows = np.column_stack([data.x, np.ones(9)])
    errors = np.clip(rows @ flat[0] - data.scaled, -1.0, 1.0)  # beyond the whole range, the loss is a straight line
    assert (np.abs(errors) == 1.0).any()
    assert (np.abs(errors) < 1.0).any()
    gradients = rows * errors[:, None]
    norms = np.linalg.norm(gradients, axis=1)
    for clip in (1e3, 0.5):
        expected = (gradients * np.minimum(1.0, clip / norms)[:, None]).sum(axis=0)
        out = np.empty_like(flat)
        engine.clipped_sums(flat, [np.arange(9)], np.array([clip]), out)
        assert out[0] == pytest.approx(expected, rel=1e-5)
        if double:
            assert engine.lattice_sums(flat, [np.arange(9)], np.array([clip]), [0.0], out)
            assert out[0] == pytest.approx(expected, abs=4e-6 * clip)  # steps are a part of the clip norm


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_sum_of_a_network_is_that_of_torch(activation: str) -> None:
    torch = pytest.importorskip("torch")
    data, model = _records(7), Regression(4, (5, 3), activation, target_range=ENDS)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    flat = engine.start(Randomness.rehearsal(1))[None]
    out = np.empty_like(flat)
    engine.clipped_sums(flat, [np.arange(7)], np.array([1e6]), out)
    weights = torch.tensor(flat[0], requires_grad=True)
    values, start = torch.tensor(data.x), 0
    for place, (rows, columns) in enumerate(((4, 5), (5, 3), (3, 1))):
        end = start + (rows + 1) * columns
        block = weights[start:end].reshape(rows + 1, columns)
        values, start = values @ block[:-1] + block[-1], end
        if place < 2:
            values = torch.relu(values) if activation == "relu" else torch.tanh(values)
    torch.nn.functional.huber_loss(values[:, 0], torch.tensor(data.scaled), reduction="sum", delta=1.0).backward()
    assert out[0] == pytest.approx(weights.grad.numpy(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_regression_learns_and_predicts_inside_of_the_range(hidden: tuple[int, ...], secure: bool) -> None:
    data, model = _records(), Regression(4, hidden, target_range=ENDS)
    trainer = DpSgdTrainer(model, _settings(secure=secure, steps=100), validation=_records(50, 1))
    trainer.check({}, data)
    fitted = trainer.fit({}, data, Randomness.rehearsal(1))
    assert isinstance(fitted.model, TrainedRegression)
    assert fitted.model.score(data.x, data.y) > 0.7
    assert 0.7 < fitted.score <= 1.0
    far = fitted.model.predict(1e6 * np.random.default_rng(0).normal(size=(50, 4)))
    assert far.min() >= ENDS[0]
    assert far.max() <= ENDS[1]
    assert not hasattr(fitted.model, "predict_proba")


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_prediction_is_the_same_alone_and_in_company(hidden: tuple[int, ...]) -> None:
    model, x = Regression(4, hidden, target_range=ENDS), np.random.default_rng(2).normal(size=(60, 4))
    flat = np.random.default_rng(1).normal(size=model.dimension).astype(np.float32)
    trained = TrainedRegression(model, flat)
    together = trained.predict(x)
    assert [trained.predict(x[i : i + 1])[0] for i in range(60)] == together.tolist()
    assert trained.predict(x[::-1])[::-1].tolist() == together.tolist()


def test_a_model_is_stored_as_data() -> None:
    model = TrainedRegression(Regression(4, (3,), "relu", target_range=ENDS), np.arange(19, dtype=np.float32))
    content = pack_model(model)
    assert kind_of(content) == "npz"
    again = open_model(content)
    assert (again.description, repr(again)) == (model.description, repr(model))
    assert again.predict(np.ones((2, 4))).tolist() == model.predict(np.ones((2, 4))).tolist()


def test_warm_starts_stacks_and_holdouts() -> None:
    data = _records()
    trainer = DpSgdTrainer(linear(4, ENDS), _settings(), holdout=Holdout(0.2, 80, 0.05), score=SquaredError(0.5))
    one, two = trainer.fit_many([{"lr": 0.05}, {"lr": 0.02}], data, [Randomness.rehearsal(s) for s in (1, 2)])
    alone = trainer.fit({"lr": 0.05}, data, Randomness.rehearsal(1))
    assert one.score == alone.score
    assert one.model.parameters == pytest.approx(alone.model.parameters, abs=1e-5)
    assert two.score != one.score
    again = trainer.fit_from({"lr": 0.01}, data, Randomness.rehearsal(3), one.model)
    assert again.model.score(data.x, data.y) > 0.7


def test_what_does_not_fit_is_refused_before_anything_is_trained() -> None:
    numbers, classes = _records(), Dataset(np.zeros((4, 4)), np.arange(4) % 2, 2)
    for model, data, said in (
        (linear(4, ENDS), classes, "targets of the data are classes"),
        (Mlp(4, 2), numbers, "targets of the data are real numbers"),
        (linear(4, (0, 1)), numbers, "declared in"),
        (linear(3, ENDS), numbers, "3 features"),
        (lambda params: None, numbers, "a torch module; got NoneType"),
    ):
        with pytest.raises(InvalidInput, match=said):
            DpSgdTrainer(model, _settings()).check({}, data)
    with pytest.raises(InvalidInput, match="classes"):
        DpSgdTrainer(linear(4, ENDS), _settings(), score=Balanced((0.5, 0.5))).check({}, numbers)
    with pytest.raises(InvalidInput, match="numbers"):
        DpSgdTrainer(Mlp(4, 2), _settings(), score=AbsoluteError()).check({}, classes)
    with pytest.raises(InvalidInput, match="'score' must be a score"):
        DpSgdTrainer(Mlp(4, 2), _settings(), score="balanced")  # type: ignore[arg-type]


def test_the_torch_engine_refuses_numbers() -> None:
    pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match="engine='numpy'"):
        engine_for(linear(4, ENDS), engine="torch").bind(_records())
