"""Sums that one record moved by more than the clip norm, or made infinite, when weights are extreme."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dptune.data import Dataset
from dptune.judging import correct
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.training import DpSgdTrainer, Regression, Settings, engine_for


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6])
def test_the_sign_of_an_error_does_not_follow_the_size_of_a_batch(scale: float) -> None:
    """Outputs near the target, of large weights: in single precision their last bits changed with the batch."""
    rng, model = np.random.default_rng(0), Regression(64, (), target_range=(0, 1))
    engine, records = engine_for(model), 148
    for _ in range(40):
        parameters = np.zeros((1, model.dimension), np.float32)
        parameters[0, :64], parameters[0, 64] = rng.normal(size=64) * scale, 0.5
        weights, x = parameters[0, :64].astype(float), rng.normal(size=64)
        x -= weights * (x @ weights) / (weights @ weights)
        engine.bind(
            RegressionDataset(np.tile(x.astype(np.float32), (records, 1)), np.full(records, 0.5), target_range=(0, 1))
        )
        sums = []
        for count in (records - 1, records):
            out = np.zeros(parameters.shape, engine.dtype)
            engine.clipped_sums(parameters.astype(out.dtype), [np.arange(count)], np.array([1.0]), out)
            sums.append(out[0].astype(float))
        assert np.linalg.norm(sums[1] - sums[0]) <= 1 + 1e-6


def test_a_record_of_zeros_does_not_destroy_a_secure_sum() -> None:
    torch = pytest.importorskip("torch", reason="modules need torch")

    def make(params: Any) -> Any:
        module = torch.nn.Sequential(
            torch.nn.Linear(3, 4, bias=False), torch.nn.Tanh(), torch.nn.Linear(4, 2, bias=False)
        )
        with torch.no_grad():
            module[2].weight.copy_(torch.tensor([[1.0, 2, 3, 4], [4, 3, 2, 1]]) * 1e34)
            module[0].weight.copy_(torch.ones(4, 3))
        return module

    rng = np.random.default_rng(0)
    x, y = np.vstack([rng.normal(size=(20, 3)), np.zeros((1, 3))]), np.append(rng.integers(0, 2, 20), 0)
    settings = Settings.from_batch(
        21, records=21, noise_multiplier=4.0, steps=1, clip_norm=1.0, learning_rate=0.1, secure=True
    )
    for seed in range(3):
        model = DpSgdTrainer(make, settings).fit({}, Dataset(x, y, classes=2), Randomness.rehearsal(seed)).model
        assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("odd", ["a", "1", b"q", None, 1.5, [2]])
def test_the_type_of_one_label_decides_no_other_verdict(odd: Any) -> None:
    class Parity:
        judges_each_record_alone = True

        def predict(self, x: Any) -> Any:
            return (np.asarray(x)[:, 0] % 2).astype(int)

    x, y = np.arange(5.0)[:, None], [0, 1, 0, 1]
    assert correct(Parity(), (x[:4], y)) == 4
    assert correct(Parity(), (x, [*y, odd])) == 4
