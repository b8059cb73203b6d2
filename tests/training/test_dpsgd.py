"""The loop does what the accountant assumes: Poisson batches, fixed steps, public denominators, noise
everywhere.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training.benchmark_data import Dataset
from dptune.training.dpsgd import Settings, descend
from dptune.training.models import Mlp, softmax
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.optimizers import Cosine, Momentum
from dptune.training.sampling import PoissonSampler

BASE = Settings(sampling_rate=0.2, noise_multiplier=1.5, steps=40, clip_norm=0.5, learning_rate=0.7, batch_size=20.0)


def records(count: int = 100, features: int = 6, classes: int = 3) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset(rng.normal(size=(count, features)), rng.integers(0, classes, count), classes)


def with_(**changes: Any) -> Settings:
    return dataclasses.replace(BASE, **changes)


@pytest.mark.parametrize("model", [softmax(6, 3), Mlp(6, 3, (5,), "relu")])
@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_data_set_walks_by_noise_alone_with_the_stated_variance(model: Mlp, compiled: bool) -> None:
    """Steps on no records: the parameters are a sum of independent Gaussians of known size.

    The kernel pads widths of 3 and 5 to 16: noise is on every parameter, and on nothing else.
    """
    data, steps = records(0), 30
    engine = NumpyEngine(model, compiled=compiled)
    settings = with_(steps=steps)
    keys = [Randomness.rehearsal(seed) for seed in range(600)]
    ends = np.stack([descend(engine, data, [settings], [key])[0] - engine.start(key) for key in keys])
    assert ends.shape[1] == model.dimension
    deviation = 0.7 * 1.5 * 0.5 / 20.0 * np.sqrt(steps)
    assert abs(ends.std() / deviation - 1) < 6 / np.sqrt(2 * ends.size)
    per_coordinate = np.std(ends, axis=0) / deviation
    assert np.abs(per_coordinate - 1).max() < 6 / np.sqrt(2 * len(ends))
    gram = np.atleast_2d(np.corrcoef(ends.T))
    assert np.abs(gram - np.eye(len(gram))).max() < 7 / np.sqrt(len(ends))


def test_noiseless_run_equals_a_plain_loop_with_public_denominator() -> None:
    data, key = records(), Randomness.rehearsal(5)
    model = Mlp(6, 3, (5,), "tanh")
    settings = with_(noise_multiplier=0.0, optimizer=Momentum(0.9))
    got = descend(NumpyEngine(model, double=True), data, [settings], [key])[0]
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    sampler = PoissonSampler(key, len(data), settings.sampling_rate)
    parameters = engine.start(key)[None]
    velocity = np.zeros_like(parameters)
    for step in range(settings.steps):
        total = np.zeros_like(parameters)
        for record in sampler.batch(step):
            one = np.empty_like(parameters)
            engine.clipped_sums(parameters, [np.array([record])], np.array([settings.clip_norm]), one)
            total += one
        velocity = 0.9 * velocity + total / settings.batch_size
        parameters = parameters - settings.learning_rate * velocity
    np.testing.assert_allclose(got, parameters[0], rtol=1e-9)


def test_candidates_of_a_stack_have_independent_noise() -> None:
    engine = NumpyEngine(softmax(60, 30))
    data = records(0, features=60, classes=30)
    ends = descend(engine, data, [with_(steps=3)] * 4, [Randomness.rehearsal(seed) for seed in range(4)])
    gram = np.corrcoef(np.stack(ends))
    assert np.abs(gram - np.eye(4)).max() < 6 / np.sqrt(engine.dimension)


def test_the_schedule_scales_every_step() -> None:
    data, key = records(), Randomness.rehearsal(6)
    settings = with_(noise_multiplier=0.0, steps=7, schedule=Cosine(warmup=0.3, floor=0.1))
    engine = NumpyEngine(softmax(6, 3), double=True)
    got = descend(engine, data, [settings], [key])[0]
    sampler, parameters = PoissonSampler(key, len(data), settings.sampling_rate), engine.start(key)[None]
    for step in range(7):
        total = np.empty_like(parameters)
        engine.clipped_sums(parameters, [sampler.batch(step)], np.array([settings.clip_norm]), total)
        rate = settings.learning_rate * settings.schedule.factor(step, 7)
        parameters = parameters - rate * total / settings.batch_size
    np.testing.assert_allclose(got, parameters[0], rtol=1e-12)


@pytest.mark.parametrize("secure", [False, True])
def test_a_stack_equals_separate_runs(secure: bool) -> None:
    data = records()
    keys = [Randomness.rehearsal(seed) for seed in range(3)]
    settings = [with_(secure=secure, learning_rate=lr, clip_norm=c) for lr, c in ((0.1, 1.0), (0.5, 0.3), (1.0, 2.0))]
    engine = NumpyEngine(Mlp(6, 3, (4,)), double=secure)
    together = descend(engine, data, settings, keys)
    for row in range(3):
        alone = descend(engine, data, settings[row : row + 1], keys[row : row + 1])[0]
        np.testing.assert_allclose(together[row], alone, rtol=1e-4, atol=1e-5)


def test_runs_repeat_from_their_key_and_differ_between_keys() -> None:
    data, engine = records(), NumpyEngine(softmax(6, 3))
    one, again, other = (descend(engine, data, [BASE], [Randomness.rehearsal(s)])[0] for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_the_number_of_records_is_no_denominator() -> None:
    """Doubling the data doubles the first noiseless step: only public constants divide."""
    data = records()
    twice = data.take(np.tile(np.arange(100), 2))
    settings = with_(noise_multiplier=0.0, sampling_rate=1.0, steps=1)
    engine = NumpyEngine(softmax(6, 3), double=True)
    small, large = (descend(engine, d, [settings], [Randomness.rehearsal(1)])[0] for d in (data, twice))
    np.testing.assert_allclose(large, 2 * small, rtol=1e-12)


def test_warm_start_continues_from_given_parameters() -> None:
    data, engine = records(), NumpyEngine(softmax(6, 3), double=True)
    start = np.arange(engine.dimension, dtype=float)
    settings = with_(noise_multiplier=0.0, learning_rate=1e-12)
    got = descend(engine, data, [settings], [Randomness.rehearsal(1)], [start])[0]
    np.testing.assert_allclose(got, start, atol=1e-9)
    with pytest.raises(InvalidInput, match="warm start needs 21 parameters"):
        descend(engine, data, [settings], [Randomness.rehearsal(1)], [start[:3]])


def test_divergence_is_an_outcome() -> None:
    settings = with_(learning_rate=1e38, steps=20)
    end = descend(NumpyEngine(Mlp(6, 3, (4,), "relu")), records(), [settings], [Randomness.rehearsal(1)])[0]
    assert end.shape == (43,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_norm": 0.0}, "'clip_norm' must be"),
        ({"clip_norm": 1e-45}, "'clip_norm' is 1e-45, where squares"),
        ({"clip_norm": 1e-30}, "'clip_norm' between"),
        ({"clip_norm": 1e37}, "'clip_norm' between"),
        ({"sampling_rate": 1.5}, "'sampling_rate' must be"),
        ({"steps": 0}, "'steps' must be"),
        ({"noise_multiplier": -1.0}, "'noise_multiplier' must be"),
        ({"learning_rate": float("nan")}, "'learning_rate' must be"),
        ({"batch_size": 0}, "'batch_size' must be"),
    ],
)
def test_bad_settings_say_so_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        with_(**change)
    assert "\n" not in str(caught.value)


def test_a_batch_above_the_data() -> None:
    with pytest.raises(InvalidInput, match="only 100 records"):
        Settings.from_batch(256, 100, noise_multiplier=1.0, steps=1, clip_norm=1.0, learning_rate=1.0)
    assert Settings.from_batch(
        25, 100, noise_multiplier=1.0, steps=1, clip_norm=1.0, learning_rate=1.0
    ).sampling_rate == pytest.approx(0.25)


def test_shared_keys_and_mixed_stacks_are_refused() -> None:
    engine, key = NumpyEngine(softmax(6, 3)), Randomness.rehearsal(1)
    with pytest.raises(InvalidInput, match="share a run key"):
        descend(engine, records(), [BASE, BASE], [key, key])
    with pytest.raises(InvalidInput, match="must share steps"):
        descend(engine, records(), [BASE, with_(steps=3)], [key, Randomness.rehearsal(2)])
    with pytest.raises(InvalidInput, match="double precision"):
        descend(engine, records(), [with_(secure=True)], [key])
    with pytest.raises(InvalidInput, match=r"'noise_multiplier' of at least 0\.000976562"):
        descend(NumpyEngine(softmax(6, 3), double=True), records(), [with_(secure=True, noise_multiplier=1e-4)], [key])
    with pytest.raises(InvalidInput, match="its own part of the records"):
        descend(engine, records(), [BASE], [key], None, [])


def test_secure_runs_take_any_number_of_records() -> None:
    """It is private, so it may be no reason to refuse, though with the least noise 2^23 shares could leave the bits."""
    data = Dataset(np.zeros((2**23, 1), np.float32), np.zeros(2**23, np.int64), 2)
    few = with_(secure=True, noise_multiplier=2.0**-10, sampling_rate=1e-6, steps=1)
    ended = descend(NumpyEngine(softmax(1, 2), double=True), data, [few], [Randomness.rehearsal(1)])
    assert np.isfinite(ended[0]).all()
