"""The hyperparameter-free optimiser: what a step releases is one Gaussian of the noise that is priced."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptune.accounting import DpSgd
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Mlp, Settings, softmax
from dptune.training.free_trainer import FreeTrainer, _Losses, split_noise

SETTINGS = Settings(0.3, 1.5, steps=60, clip_norm=1.0, learning_rate=1.0, batch_size=180.0)


def _data(count: int = 600) -> Dataset:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 4))
    return Dataset(x, (x[:, 0] > 0).astype(np.int64), 2)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.7])
def test_the_parts_are_one_gaussian_of_the_priced_noise(share: float) -> None:
    gradient, loss = split_noise(1.7, share)
    assert (gradient**-2 + 3.0 * loss**-2) ** -0.5 == pytest.approx(1.7, rel=1e-12)
    assert FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS), share).cost({"noise_multiplier": 1.7}) == DpSgd(
        0.3, 1.7, 60
    )


def _loss(flat: np.ndarray, data: Dataset, batch: np.ndarray, most: float) -> float:
    """The first of three, beside parameters that are none."""
    found = _Losses(data)([flat, flat * np.inf, flat * 0.0], batch, most)
    assert (found >= 0.0).all()
    assert (found <= len(batch) * most * (1.0 + 1e-9)).all()
    return float(found[0])


def test_one_record_moves_a_sum_of_losses_by_at_most_its_range() -> None:
    rng, most = np.random.default_rng(1), 2.0 * math.log(2)
    hard = np.array([[1e6, -1e6, 0.0, 3.0], [np.finfo(np.float32).max / 4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    data = _data(6)
    for record in hard:
        for label in (0, 1):
            for place in (0, 3, 6):
                with_it = Dataset(np.insert(data.x, place, record, axis=0), np.insert(data.y, place, label), 2)
                flat = rng.normal(size=10) * 5.0
                with np.errstate(all="ignore"):
                    moved = _loss(flat, with_it, np.arange(7), most) - _loss(flat, data, np.arange(6), most)
                assert -1e-9 <= moved <= most * (1.0 + 1e-9)
    with np.errstate(all="ignore"):
        assert _loss(np.zeros(10), data, np.arange(0), most) == 0.0


def test_losses_are_cross_entropies() -> None:
    data, flat = _data(5), np.random.default_rng(2).normal(size=10)
    scores = np.asarray(data.x, np.float64) @ flat.reshape(5, 2)[:-1] + flat.reshape(5, 2)[-1]
    expected = [math.log(np.exp(row).sum()) - row[label] for row, label in zip(scores, data.y, strict=True)]
    with np.errstate(all="ignore"):
        assert _loss(flat, data, np.arange(5), 1e9) == pytest.approx(sum(expected))


def test_it_trains_without_a_learning_rate() -> None:
    data = _data()
    trainer = FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, validation=data))
    trainer.check({}, data)
    one, same, other = (trainer.fit({}, data, Randomness.rehearsal(seed)) for seed in (1, 1, 2))
    assert one.score > 0.9
    assert np.array_equal(one.model.parameters, same.model.parameters)
    assert not np.array_equal(one.model.parameters, other.model.parameters)
    assert trainer.fit({}, data.take(np.arange(0)), Randomness.rehearsal(1)).score >= 0.0  # no records at all


def test_what_it_cannot_train_is_refused() -> None:
    with pytest.raises(InvalidInput, match="softmax"):
        FreeTrainer(DpSgdTrainer(Mlp(4, 2, (3,)), SETTINGS))
    with pytest.raises(InvalidInput, match="public encoder"):
        FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, prepared="a:b@" + "0" * 64))
    with pytest.raises(InvalidInput, match="Dataset"):
        FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS)).check({}, [1, 2])
