"""Built-in models judge a record in the same way whatever company it has: the same bits in every batch and order."""

from __future__ import annotations

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings, TrainedModel, engine_for
from dptune.training.benchmark_data import Dataset
from dptune.training.dpsgd import Engine
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, MaxPool, Mlp, dp_hypo_cnn, softmax
from dptune.training.numpy_engine import NumpyEngine

SIZES = [1, 2, 7, 61, 300, 1000]
TEMPERED = Activation("tempered_sigmoid", 1.58, 3.0, 0.71)
MLPS = [
    softmax(784, 10),
    softmax(13, 2),
    Mlp(105, 2, (64, 64), "relu"),
    Mlp(50, 10, (120, 33), "tanh"),
    Mlp(50, 20, (17,), TEMPERED),
    Mlp(1500, 3, (300,), "relu"),
]


def rows(features: int, count: int = 1000) -> np.ndarray:
    """Some are mostly zero, some far too large for single precision, some NaN: none may matter to the others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, features))
    x[::3] *= rng.random((len(x[::3]), features)) < 0.2
    x[5], x[6], x[57] = 1e300, np.nan, -np.inf
    return x


def check(engine: Engine, features: int, sizes: list[int] = SIZES) -> None:
    x, parameters = rows(features, max(sizes)), engine.start(Randomness.rehearsal(1))
    if not parameters.any():
        parameters += np.random.default_rng(1).normal(size=len(parameters)).astype(parameters.dtype)
    expected = np.concatenate([engine.logits(parameters, x[place : place + 1]) for place in range(len(x))])
    rng = np.random.default_rng(2)
    for size in sizes:
        order = rng.permutation(len(x))[:size]
        assert engine.logits(parameters, x[order]).tobytes() == expected[order].tobytes(), size
    assert engine.logits(parameters, x[:0]).shape == (0, expected.shape[1])


@pytest.mark.parametrize("model", MLPS)
def test_mlps(model: Mlp, compiled: bool) -> None:
    check(NumpyEngine(model, compiled=compiled or None), model.features)
    if not compiled:
        check(NumpyEngine(model, compiled=False), model.features)
        check(NumpyEngine(model, double=True), model.features, [1, 7, 61])


def test_the_fused_network(compiled: bool) -> None:
    check(FusedEngine(dp_hypo_cnn(), compiled=compiled), 784, SIZES if compiled else [1, 2, 7, 61])


@pytest.mark.parametrize(
    "model", [Mlp(30, 3, (20,)), Cnn((1, 9, 9), 3, (Conv(4, 3), MaxPool(2, 2), GlobalMean()), dense=(5,))]
)
def test_torch(model: Mlp | Cnn) -> None:
    pytest.importorskip("torch", reason="engine B needs torch")
    check(engine_for(model, engine="torch"), model.features, [1, 2, 7, 61])


@pytest.mark.parametrize("model", MLPS)
def test_the_compiled_outputs_are_those_of_numpy(model: Mlp, instruction_set: str) -> None:
    x, slow, quick = rows(model.features)[100:200], NumpyEngine(model, double=True), NumpyEngine(model)
    parameters = np.random.default_rng(1).normal(size=model.dimension) / 10
    expected, got = slow.logits(parameters, x), quick.logits(parameters, x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)
    blocks = slow._blocks(parameters)
    values = x
    for block in blocks[:-1]:
        values = values @ block[:-1] + block[-1]
        kind = model.nonlinearity
        values = np.maximum(values, 0.0) if kind.kind == "relu" else np.tanh(values) if kind.kind == "tanh" else values
        if kind.kind == "tempered_sigmoid":
            values = kind.scale / (1.0 + np.exp(-kind.temperature * values)) - kind.offset
    np.testing.assert_allclose(expected, values @ blocks[-1][:-1] + blocks[-1][-1], rtol=1e-9, atol=1e-9)


def test_trained_models_say_so() -> None:
    """Methods judge models without this promise one record at a time."""
    settings = Settings(
        sampling_rate=0.5, noise_multiplier=1.0, steps=2, clip_norm=1.0, learning_rate=0.5, batch_size=10.0
    )
    data = Dataset(np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 3, 3)
    model = DpSgdTrainer(Mlp(5, 3, (4,)), settings).fit({}, data, Randomness.rehearsal(1)).model
    assert isinstance(model, TrainedModel)
    assert model.judges_each_record_alone is True


def test_rows_of_the_wrong_width_are_one_line() -> None:
    with pytest.raises(InvalidInput, match="takes rows of 5 features"):
        NumpyEngine(softmax(5, 3)).logits(np.zeros(18), np.zeros((2, 4)))
    with pytest.raises(InvalidInput, match="takes rows of 784 pixels"):
        FusedEngine(dp_hypo_cnn()).logits(np.zeros(26010), np.zeros((2, 4)))
