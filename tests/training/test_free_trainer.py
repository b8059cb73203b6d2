"""The hyperparameter-free optimiser: what a step releases is one Gaussian of the noise that is priced."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dptune._places import part_of
from dptune.accounting import DpSgd
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.scores import Balanced
from dptune.training import Automatic, DpSgdTrainer, Mlp, Settings, Whitening, pace, softmax
from dptune.training.free_trainer import FreeTrainer, split_noise
from dptune.training.lens import CentredLens
from dptune.training.noise import SecureNoise
from dptune.training.pace import Pace, StepLosses
from dptune.training.sampling import PoissonSampler
from dptune.units import UnitDataset

SETTINGS = Settings(0.3, 1.5, steps=60, clip_norm=1.0, learning_rate=1.0, batch_size=180.0)


def _data(count: int = 600) -> Dataset:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 4))
    return Dataset(x, (x[:, 0] > 0).astype(np.int64), 2)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.7])
def test_the_parts_are_one_gaussian_of_the_priced_noise(share: float) -> None:
    gradient, loss = split_noise(1.7, share)
    assert (gradient**-2 + 2.0 * loss**-2) ** -0.5 == pytest.approx(1.7, rel=1e-12)
    assert FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS), share).cost({"noise_multiplier": 1.7}) == DpSgd(
        0.3, 1.7, 60
    )


HARD = np.array([[1e6, -1e6, 0.0, 3.0], [np.finfo(np.float32).max / 4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def _sums(flat: np.ndarray, ahead: np.ndarray, data: Dataset, ranges: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return StepLosses(data)(flat, ahead, np.arange(len(data)), ranges)


@pytest.mark.parametrize("ranges", [[0.3, 0.01], [1e-9, 1e-12], [50.0, 80.0]])
def test_one_record_moves_each_sum_by_at_most_its_range(ranges: list[float]) -> None:
    rng, most, data = np.random.default_rng(1), np.array(ranges), _data(6)
    reached = np.zeros(2)
    for record in HARD:
        for label in (0, 1):
            for place in (0, 3, 6):
                with_it = Dataset(np.insert(data.x, place, record, axis=0), np.insert(data.y, place, label), 2)
                for size in (1e-8, 1.0, 1e8, np.inf):
                    flat, ahead = rng.normal(size=10) * 5.0, rng.normal(size=10) * size
                    moved = _sums(flat, ahead, with_it, most) - _sums(flat, ahead, data, most)
                    assert (np.abs(moved) <= most * (1.0 + 1e-9)).all()
                    assert moved[1] >= -1e-9 * most[1]
                    reached = np.maximum(reached, np.abs(moved) / most)
    assert (reached > 0.99).all() or ranges[0] > 1.0
    assert (_sums(np.zeros(10), np.ones(10), data.take(np.arange(0)), most) == 0.0).all()


def test_falls_and_bends_are_differences_of_cross_entropies_over_norms() -> None:
    data, rng = _data(5), np.random.default_rng(2)
    flat, ahead = rng.normal(size=10), 0.3 * rng.normal(size=10)
    inputs = np.column_stack([data.x.astype(np.float32).astype(np.float64), np.ones(5)])

    def losses(parameters: np.ndarray) -> np.ndarray:
        scores = inputs @ parameters.reshape(5, 2)
        return np.array([math.log(np.exp(row).sum()) - row[label] for row, label in zip(scores, data.y, strict=True)])

    norms = []
    for row, label in zip(inputs, data.y, strict=True):  # by finite differences, one parameter after the other
        one, slopes = Dataset(row[None, :4], np.array([label]), 2), []
        assert one.classes == 2
        for place in range(10):
            nudge = np.eye(10)[place] * 1e-6
            up, down = ((row @ (flat + side * nudge).reshape(5, 2)) for side in (1.0, -1.0))
            slopes.append((math.log(np.exp(up).sum()) - up[label] - math.log(np.exp(down).sum()) + down[label]) / 2e-6)
        norms.append(float(np.linalg.norm(slopes)))
    behind, now, before = (losses(flat + side * ahead) for side in (1.0, 0.0, -1.0))
    weights = 1.0 / (np.array(norms) + 0.01)
    expected = [((behind - before) / 2.0) @ weights, (behind + before - 2.0 * now) @ weights]
    assert _sums(flat, ahead, data, np.array([1e6, 1e6])) == pytest.approx(expected, rel=1e-4)


def test_sums_do_not_depend_on_how_records_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    data, rng = _data(50), np.random.default_rng(4)
    flat, ahead, ranges = rng.normal(size=10), rng.normal(size=10), np.array([0.4, 0.2])
    whole = _sums(flat, ahead, data, ranges)
    every = [_sums(flat, ahead, data.take(np.array([place])), ranges) for place in range(50)]
    assert whole.tolist() == [math.fsum(column) for column in np.transpose(every)]
    monkeypatch.setattr(pace, "_SOME", 7)
    assert _sums(flat, ahead, data, ranges).tolist() == whole.tolist()
    twice = Dataset(np.repeat(data.x, 2, axis=0), np.repeat(data.y, 2), 2).take(np.arange(0, 100, 2))
    assert _sums(flat, ahead, twice, ranges).tolist() == whole.tolist()


def _trained_by_the_textbook(data: Dataset, settings: Settings, share: float, key: Randomness) -> np.ndarray:
    """Every step written out: gradients and losses of one record after the other, noise as it is drawn."""
    inputs = np.column_stack([data.x.astype(np.float64), np.ones(len(data))])
    width = inputs.shape[1]
    scales = split_noise(settings.noise_multiplier, share)
    noises = SecureNoise(key.child("gradient"), 2 * width), SecureNoise(key.child("losses"), 2)
    most = [1.0 - SecureNoise.margin_of(size, scale, 1.0) for size, scale in zip((2 * width, 2), scales, strict=True)]
    sampler = PoissonSampler(key, len(data), settings.sampling_rate, settings.steps)
    flat, mean, pace = np.zeros((width, 2)), np.zeros((width, 2)), Pace(0.125, scales[1] / settings.batch_size)

    def loss(weights: np.ndarray, place: int) -> float:
        outputs = inputs[place] @ weights
        return float(np.log(np.exp(outputs).sum()) - outputs[data.y[place]])

    for step in range(settings.steps):
        total, told, norms = np.zeros((width, 2)), np.zeros(2), {}
        for place in sampler.batch(step):
            odds = np.exp(inputs[place] @ flat)
            gradient = np.outer(inputs[place], odds / odds.sum() - (np.arange(2) == data.y[place]))
            norms[place] = float(np.linalg.norm(gradient)) + 0.01
            total += most[0] * gradient / norms[place]
        noised = (total.ravel() + scales[0] * noises[0].sample(step)).reshape(width, 2) / settings.batch_size
        mean = 0.9 * mean + 0.1 * noised
        against = mean / (1.0 - 0.9 ** (step + 1))
        ranges = pace.ranges(against.ravel())
        for place, norm in norms.items():
            behind, here, before = (loss(flat + sign * pace.rate * against, place) for sign in (1.0, 0.0, -1.0))
            fall, bend = (behind - before) / 2.0 / norm, (behind + before - 2.0 * here) / norm
            told += [np.clip(fall / ranges[0], -1.0, 1.0), np.clip(bend / ranges[1], 0.0, 1.0)]
        told = told + scales[1] * noises[1].sample(step) / most[1]
        flat = flat - pace.rate * against
        pace.learn(*(told / settings.batch_size * ranges).tolist(), first=step < 10)
    return flat.ravel()


@pytest.mark.parametrize("noise", [1.5, 4.0])
def test_a_training_is_what_the_textbook_says(noise: float) -> None:
    """All noise is in it, on what is released and at its own scale; the run's noise is that of its parameters."""
    data, key, settings = _data(80), Randomness.rehearsal(11), replace(SETTINGS, batch_size=24.0, steps=40)
    trainer = FreeTrainer(DpSgdTrainer(softmax(4, 2), replace(settings, noise_multiplier=0.1)))
    found = trainer.fit({"noise_multiplier": noise}, data, key).model.parameters
    expected = _trained_by_the_textbook(data, replace(settings, noise_multiplier=noise), 0.1, key)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3 * float(np.abs(expected).max()))


def test_low_bits_of_what_is_released_do_not_tell_records_apart() -> None:
    """Sums are in doubles: noise that ends before their last bits would show them. Here all are on one lattice."""
    data = _data(60)
    settings = Settings(1.0, 3.0, steps=1, clip_norm=1.0, learning_rate=1.0, batch_size=64.0)
    flat, automatic = DpSgdTrainer(softmax(4, 2), settings), replace(settings, clipping=Automatic(0.0))
    for some in (data, data.take(np.arange(59))):
        units = UnitDataset(some, np.arange(len(some)), unit_rows=1)
        released = [
            (FreeTrainer(flat).fit({}, some, Randomness.rehearsal(4)), split_noise(3.0, 0.1)[0]),
            (replace(flat, settings=automatic).fit({}, some, Randomness.rehearsal(4)), 3.0),
            (flat.fit({}, units, Randomness.rehearsal(4)), 3.0),
        ]
        for fitted, scale in released:
            steps = np.asarray(fitted.model.parameters) / (SecureNoise.lattice(scale) / 64.0)
            assert steps.dtype == np.float64
            assert np.abs(steps - np.rint(steps)).max() < 1e-6
            assert np.abs(steps).max() > 1e4


def test_a_part_of_large_records_is_trained_on_as_a_copy_of_it() -> None:
    whole, places, key = _data(300), np.random.default_rng(3).permutation(300)[:90], Randomness.rehearsal(2)
    trainer = FreeTrainer(DpSgdTrainer(softmax(4, 2), replace(SETTINGS, batch_size=27.0, steps=10)))
    part, copied = (trainer.fit({}, one, key).model for one in (part_of(whole, places), whole.take(places)))
    assert np.array_equal(part.parameters, copied.parameters)


def test_records_are_looked_at_through_the_noised_lens_of_the_base() -> None:
    data, key = _data(), Randomness.rehearsal(5)
    base = DpSgdTrainer(softmax(4, 2), SETTINGS, whitening=Whitening(centred=True))
    settings = replace(SETTINGS, noise_multiplier=2.0)
    found = FreeTrainer(base).fit({"noise_multiplier": 2.0}, data, key).model.lens
    assert isinstance(found, CentredLens)
    assert base.whitening is not None
    expected = base.whitening.lens(data, settings, key)
    assert isinstance(expected, CentredLens)
    assert np.array_equal(found.matrix, expected.matrix)


def test_ranges_follow_from_what_was_released() -> None:
    """Whatever records are, a run whose releases are the same asks for the same ranges."""
    pace, same = Pace(0.5, 0.1), Pace(0.5, 0.1)
    for fall, bend in ((0.1, 0.02), (-3.0, -1.0), (math.nan, math.nan), (1e300, 1e300), (0.0, 0.0)):
        for one in (pace, same):
            ranges = one.ranges(np.full(4, 0.3))
            assert np.isfinite(ranges).all()
            assert (ranges > 0.0).all()
            one.learn(fall, bend, first=True)
        assert pace.rate == same.rate


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_first_number_that_is_all_noise_is_soon_forgotten(sign: float) -> None:
    """The first ranges are hundreds of times too wide; the least of the parabola is found all the same."""
    for seed in range(40):  # over 2,000 seeds the rate was within 18.6 and 30.3
        rng, pace = np.random.default_rng(seed), Pace(0.25, 0.1)
        for step in range(400):
            ranges = pace.ranges(np.full(4, 0.27))
            told = np.clip([0.01 * pace.rate, 1e-4 * pace.rate**2], -ranges, ranges)
            noise = rng.normal(size=2) if step else np.array([-sign, sign]) * 4.0
            pace.learn(*(told + 0.1 * ranges * noise).tolist(), first=step < 10)
        assert 15.0 < pace.rate < 38.0  # a quarter of the way to the least, which is at 100


def test_it_trains_without_a_learning_rate() -> None:
    data = _data()
    trainer = FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, validation=data))
    trainer.check({}, data)
    one, same, other = (trainer.fit({}, data, Randomness.rehearsal(seed)) for seed in (1, 1, 2))
    assert one.score > 0.9
    assert np.array_equal(one.model.parameters, same.model.parameters)
    assert not np.array_equal(one.model.parameters, other.model.parameters)
    assert trainer.fit({}, data.take(np.arange(0)), Randomness.rehearsal(1)).score >= 0.0  # no records at all


def test_it_whitens_records_if_its_base_does() -> None:
    data = _data()
    plain = DpSgdTrainer(softmax(4, 2), SETTINGS, validation=data)
    base = replace(plain, whitening=Whitening(radius=4.0))
    trainer = FreeTrainer(base)
    assert trainer.cost({}) == base.cost({}) != plain.cost({})
    assert "whitened" in trainer.declared_training
    trainer.check({}, data)
    fitted = trainer.fit({}, data, Randomness.rehearsal(1))
    assert fitted.score > 0.9
    assert fitted.model.lens is not None


def test_what_it_cannot_train_is_refused() -> None:
    with pytest.raises(InvalidInput, match="softmax"):
        FreeTrainer(DpSgdTrainer(Mlp(4, 2, (3,)), SETTINGS))
    with pytest.raises(InvalidInput, match="public encoder"):
        FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, prepared="a:b@" + "0" * 64))
    with pytest.raises(InvalidInput, match="Dataset"):
        FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS)).check({}, [1, 2])
    for engine in ("torch", "network"):
        with pytest.raises(InvalidInput, match="engine='auto'"):
            FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, engine=engine))
    with pytest.raises(InvalidInput, match="accuracy alone"):
        FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS, score=Balanced((0.5, 0.5))))


def test_no_feature_is_too_small_however_errors_are_set() -> None:
    data = _data(40)
    tiny = Dataset(np.vstack([data.x, [[1e-200, 5e-324, 0.0, 1.0]]]), np.append(data.y, 1), 2)
    with np.errstate(all="raise"):
        assert FreeTrainer(DpSgdTrainer(softmax(4, 2), SETTINGS)).fit({}, tiny, Randomness.rehearsal(1)).score == 0.0
