"""Whitening: what one record moves, that no other record decides its rounding, what is paid, and models' lenses."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dptune._places import part_of
from dptune._typing import Array
from dptune.accounting import DpSgd, Gaussian, compose, parallel
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.judging import correct
from dptune.randomness import Randomness
from dptune.training import (
    Adam,
    Cnn,
    DpSgdTrainer,
    Holdout,
    Mlp,
    Regression,
    Settings,
    TrainedModel,
    Whitening,
    linear,
    softmax,
)
from dptune.training.lens import LONGEST, CentredLens, Lens
from dptune.training.moments import second_moments
from dptune.training.whitening import MOST_FEATURES, check_whitened, through
from dptune.units import UnitDataset

SETTINGS = Settings.from_batch(60, 600, noise_multiplier=2.0, steps=50, clip_norm=0.5, learning_rate=2.0)
ROWS = st.integers(1, 7).flatmap(
    lambda features: arrays(
        np.float64, st.tuples(st.integers(1, 9), st.just(features)), elements=st.floats(-1e9, 1e9, width=32)
    )
)


def _private(x: Array) -> Dataset:
    return Dataset(x, np.zeros(len(x), np.int64), 2)


def _data(count: int = 600) -> Dataset:
    """Records that have most of their length in common, and tell classes apart by little."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, count)
    x = np.concatenate([np.full((count, 1), 5.0), rng.normal(size=(count, 3)), 0.8 * (2 * y[:, None] - 1)], axis=1)
    return Dataset(x / np.linalg.norm(x, axis=1, keepdims=True), y, 2)


@given(ROWS, st.floats(1e-3, 1e3), st.floats(0.5, 1.0), st.booleans(), st.data())
def test_one_record_moves_the_moments_by_at_most_their_length(
    x: Array, radius: float, length: float, constant: bool, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(x) - 1))
    moments = functools.partial(second_moments, radius=radius, length=length, constant=constant)
    moved = moments(_private(x)) - moments(_private(np.delete(x, place, axis=0)))
    alone = moments(_private(x[place : place + 1]))
    assert np.array_equal(moved, alone)  # to the last bit: the others' rounding does not depend on it
    assert np.linalg.norm(moved) <= length
    assert np.array_equal(moved, moved.T)


def test_the_moments_of_records_of_length_one_are_nearly_all_of_it() -> None:
    x = np.random.default_rng(0).normal(size=(50, 20))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.allclose(second_moments(_private(x), 1.0, 1.0), x.T @ x, atol=50 * 2e-4)
    assert np.allclose(second_moments(_private(x * 7.0), 7.0, 1.0), x.T @ x, atol=50 * 2e-4)
    assert np.trace(second_moments(_private(x), 1.0, 0.9)) == pytest.approx(45.0, rel=1e-2)


def test_a_unit_of_several_rows_moves_them_no_further_than_a_record() -> None:
    x = np.random.default_rng(1).normal(size=(40, 5)) * 3.0
    keys = ["many"] * 30 + [f"unit {place}" for place in range(10)]
    units = UnitDataset(_private(x), keys, unit_rows=30)
    others = UnitDataset(_private(x[30:]), keys[30:], unit_rows=30)
    moved = second_moments(units, 1.0, 1.0) - second_moments(others, 1.0, 1.0)
    assert 0.0 < np.linalg.norm(moved) <= 1.0
    assert np.trace(moved) == pytest.approx(1.0, abs=0.01)


def test_noise_is_symmetric_and_as_large_as_is_paid() -> None:
    """Off the diagonal every entry counts twice in the norm that one record moves, so it needs less."""
    from dptune.training.whitening import _add_noise  # noqa: PLC0415 - the mechanism itself

    drawn = []
    for game in range(400):
        moments = np.zeros((6, 6))
        _add_noise(moments, 5.0, Randomness.rehearsal(game))
        assert np.array_equal(moments, moments.T)
        drawn.append(moments)
    off = np.array([one[np.triu_indices(6, 1)] for one in drawn])
    on = np.array([np.diag(one) for one in drawn])
    assert on.std() == pytest.approx(5.0, rel=0.05)
    assert off.std() == pytest.approx(5.0 / math.sqrt(2.0), rel=0.05)
    for record in np.random.default_rng(2).normal(size=(20, 6)):  # whatever the record: its distance in deviations
        outer = np.outer(record, record) / (record @ record)
        distance = math.hypot(
            np.linalg.norm(np.diag(outer)) / 5.0,
            np.linalg.norm(outer[np.triu_indices(6, 1)]) * math.sqrt(2.0) / 5.0,
        )
        assert distance == pytest.approx(1.0 / 5.0)


def test_the_cost_is_that_of_training_and_moments() -> None:
    whitening = Whitening(0.1)
    noise = whitening.noise_multiplier(SETTINGS)
    assert noise == pytest.approx(3.0 * 2.0 / (0.1 * math.sqrt(50)))
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=whitening)
    both = compose(DpSgd(0.1, 2.0, 50), Gaussian(noise))
    assert trainer.cost({}).epsilon(1e-5) == both.epsilon(1e-5) > DpSgd(0.1, 2.0, 50).epsilon(1e-5)
    held = dataclasses.replace(trainer, holdout=Holdout(0.2, 100.0, 0.05))
    assert held.cost({}).epsilon(1e-5) == parallel(both, Gaussian(5.0)).epsilon(1e-5)


def test_a_lens_brings_down_what_all_records_have_in_common() -> None:
    data = _data()
    lens = Whitening(0.5).lens(data, dataclasses.replace(SETTINGS, noise_multiplier=0.3), Randomness.rehearsal(1))
    assert isinstance(lens, Lens)
    assert lens.taken.size == 1
    assert abs(lens.directions[0, 0]) > 0.95
    shown = through(data, lens)
    assert isinstance(shown, Dataset)
    assert np.linalg.norm(shown.x, axis=1) == pytest.approx(1.0, rel=1e-6)
    before, after = np.mean(data.x[:, 0] ** 2), np.mean(shown.x[:, 0] ** 2)
    assert before > 0.87
    assert after == pytest.approx(0.3 / (0.3 + 1.0 - before), abs=0.03)  # brought down to 1.5 of five, then scaled


@pytest.mark.parametrize("directions", [0, 1, 3, 20])
def test_a_record_through_a_lens_has_the_same_bits_in_every_company(directions: int) -> None:
    rng = np.random.default_rng(directions)
    columns = np.linalg.qr(rng.normal(size=(37, 37)))[0][:, :directions]
    lens = Lens(np.ascontiguousarray(columns, np.float32), np.linspace(0, 1, directions).astype(np.float32))
    x = rng.normal(size=(300, 37)).astype(np.float32)
    x[5], x[6, 3], x[7, 4] = 0.0, np.inf, np.nan
    together = lens(x)
    alone = np.concatenate([lens(x[place : place + 1]) for place in range(len(x))])
    assert np.array_equal(together, alone)
    assert np.array_equal(lens(x[::-1][:171]), together[::-1][:171])
    assert not together[5:8].any()


def test_without_noise_few_features_and_many_records_the_lens_is_the_inverse_root() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(5000, 3)) * np.array([8.0, 1.0, 1.0])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    free = dataclasses.replace(SETTINGS, noise_multiplier=0.0, batch_size=500.0)
    lens = Whitening().lens(_private(x), free, Randomness.rehearsal(0))
    assert isinstance(lens, Lens)
    largest = np.linalg.eigvalsh(x.T @ x / 5000)[-1]
    assert lens.taken == pytest.approx([1.0 - math.sqrt(0.5 / largest)], abs=1e-3)


@pytest.mark.parametrize("features", [1, 2, 5, 37])
def test_a_record_through_a_centred_lens_has_the_same_bits_in_every_company(features: int) -> None:
    rng = np.random.default_rng(features)
    middle, matrix = (rng.normal(size=shape).astype(np.float32) for shape in ((features,), (features, features)))
    lens = CentredLens(middle, matrix)
    x = rng.normal(size=(300, features)).astype(np.float32)
    x[5], x[6, 0], x[7, -1], x[8, 0] = middle, np.inf, np.nan, 3e38
    together = lens(x)
    alone = np.concatenate([lens(x[place : place + 1]) for place in range(len(x))])
    assert np.array_equal(together, alone)
    assert np.array_equal(lens(x[::-1][:171]), together[::-1][:171])
    assert not together[5:8].any()
    assert np.isfinite(together).all()
    assert np.linalg.norm(together, axis=1).max() <= LONGEST * (1 + 1e-6)
    exact = (x[9:].astype(np.float64) - middle) @ matrix
    exact *= np.minimum(1.0, LONGEST / np.linalg.norm(exact, axis=1, keepdims=True))
    assert np.allclose(together[9:], exact, atol=1e-5)


def _table(count: int = 4000) -> tuple[Dataset, Array]:
    """Numbers that fill a hundredth of their ranges and go together; what tells classes apart is their difference."""
    rng = np.random.default_rng(8)
    common, own = rng.normal(size=(count, 1)), rng.normal(size=(count, 3))
    x = 0.5 + 0.01 * np.concatenate([common + 0.1 * own[:, :2], own[:, 2:]], axis=1)
    return Dataset(x, (own[:, 0] > own[:, 1]).astype(np.int64), 2), x


def test_a_centred_lens_takes_means_away_and_brings_every_direction_to_one_level() -> None:
    data, x = _table()
    free = dataclasses.replace(SETTINGS, noise_multiplier=0.0, batch_size=400.0)
    lens = Whitening(centred=True).lens(data, free, Randomness.rehearsal(0))
    assert isinstance(lens, CentredLens)
    assert lens.middle == pytest.approx(x.mean(axis=0), abs=2e-4)
    shown = (x - lens.middle.astype(np.float64)) @ lens.matrix
    assert shown.T @ shown / len(x) == pytest.approx(np.eye(3) / 3.0, abs=0.04)  # directions are as rounding has them


def test_directions_that_noise_hides_are_not_brought_up() -> None:
    data, _ = _table()
    settings = dataclasses.replace(SETTINGS, batch_size=400.0)
    whitening = Whitening(0.1, centred=True)
    edge = math.sqrt(2.0 * 4) * whitening.noise_multiplier(settings) / 4000.0
    for seed in range(20):
        lens = whitening.lens(data, settings, Randomness.rehearsal(seed))
        assert isinstance(lens, CentredLens)
        most = np.linalg.norm(lens.matrix.astype(np.float64), 2)
        assert most <= 1.0001 / math.sqrt(edge)  # mass is at most one, so the floor is at least the edge of noise
        assert np.abs(lens.middle).max() < 2.0


def test_a_table_of_narrow_numbers_is_learnt_where_it_is_brought_to_a_level() -> None:
    data, _ = _table(8000)
    settings = Settings.from_batch(
        1600, 8000, noise_multiplier=8.0, steps=300, clip_norm=1.0, learning_rate=0.1, optimizer=Adam()
    )
    plain = DpSgdTrainer(softmax(3, 2), settings, validation=data)
    levelled = dataclasses.replace(plain, whitening=Whitening(0.1, centred=True))
    key = Randomness.rehearsal(3)
    assert plain.fit({}, data, key).score < 0.7
    assert levelled.fit({}, data, key).score > 0.9
    assert "centred" in levelled.declared_training


def test_a_centred_lens_is_packed_with_its_model_and_units_are_brought_to_a_level_too() -> None:
    data, key = _data(), Randomness.rehearsal(7)
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=Whitening(centred=True))
    model = trainer.fit({}, data, key).model
    again = open_model(pack_model(model))
    assert isinstance(again, TrainedModel)
    assert isinstance(again.lens, CentredLens)
    assert np.array_equal(again.logits(np.asarray(data.x)), model.logits(np.asarray(data.x)))
    assert pack_model(again) == pack_model(model)
    units = UnitDataset(data, np.arange(600) // 2, unit_rows=2)
    trainer.check({}, units)
    assert isinstance(trainer.fit({}, units, key).model.lens, CentredLens)
    held = dataclasses.replace(trainer, holdout=Holdout(0.2, 120.0, 0.05))
    assert 0.0 < held.fit({}, data, key).score < 1.5
    nobody = trainer.fit({}, data.take(np.arange(0)), key).model  # no records at all
    assert np.isfinite(nobody.logits(np.asarray(data.x))).all()


@pytest.mark.parametrize("model", [softmax(5, 2), Mlp(5, 2, (8,))])
def test_whitened_models_learn_and_are_judged_through_their_lens(model: Mlp) -> None:
    data = _data(2000)
    quiet = Settings.from_batch(400, 2000, noise_multiplier=1.0, steps=60, clip_norm=0.1, learning_rate=20.0)
    trainer = DpSgdTrainer(model, quiet, validation=data, whitening=Whitening(0.2))
    trainer.check({}, data)
    fitted = trainer.fit({}, data, Randomness.rehearsal(5))
    assert fitted.score > 0.9
    assert fitted.score == fitted.model.accuracy(data) == int(correct(fitted.model, data)) / len(data)


def test_a_packed_model_keeps_its_lens() -> None:
    data = _data()
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=Whitening())
    model = trainer.fit({}, data, Randomness.rehearsal(2)).model
    again = open_model(pack_model(model))
    assert isinstance(again, TrainedModel)
    assert again.lens is not None
    assert np.array_equal(again.logits(np.asarray(data.x)), model.logits(np.asarray(data.x)))
    assert pack_model(again) == pack_model(model)


def test_units_regressions_holdouts_secure_noise_and_warm_starts_are_whitened_too() -> None:
    data, key = _data(), Randomness.rehearsal(7)
    units = UnitDataset(data, np.arange(600) // 2, unit_rows=2)
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=Whitening())
    trainer.check({}, units)
    assert trainer.fit({}, units, key).model.lens is not None
    held = dataclasses.replace(trainer, holdout=Holdout(0.2, 120.0, 0.05))
    assert 0.0 < held.fit({}, data, key).score < 1.5
    secure = dataclasses.replace(trainer, settings=dataclasses.replace(SETTINGS, secure=True))
    first = secure.fit({}, data, key).model
    assert secure.fit_from({}, data, key.child("more"), first).model.lens is not None
    from dptune.regression import RegressionDataset  # noqa: PLC0415

    numbers = RegressionDataset(data.x, data.y.astype(float), target_range=(0.0, 1.0))
    numbered = DpSgdTrainer(linear(5, (0.0, 1.0)), SETTINGS, whitening=Whitening(), validation=numbers)
    assert numbered.fit({}, numbers, key).model.lens is not None


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("numbers", [False, True])
def test_a_warm_start_is_the_same_function_through_another_lens(hidden: tuple[int, ...], numbers: bool) -> None:
    """The second training learns next to nothing: what it says is what the first model says, through its own lens."""
    x = np.random.default_rng(1).normal(0.5, 0.02, (600, 5)).astype(np.float32)
    wanted = (x[:, 0] > x[:, 1]).astype(np.int64)
    made = DpSgdTrainer(Mlp(5, 2, hidden), SETTINGS, whitening=Whitening(0.1, centred=True))
    data: Dataset = Dataset(x, wanted, 2)
    if numbers:
        from dptune.regression import RegressionDataset  # noqa: PLC0415

        data = RegressionDataset(x, wanted.astype(float), target_range=(0.0, 1.0))
        made = dataclasses.replace(made, model=Regression(5, hidden, target_range=(0.0, 1.0)))
    part = data.take(np.arange(60))
    first = made.fit({}, part, Randomness.rehearsal(1)).model
    later = made.fit_from({"lr": 1e-12}, data, Randomness.rehearsal(2), first).model
    assert not np.allclose(later.lens.matrix, first.lens.matrix, rtol=0.1)
    whole = [np.square(model.lens(x)).sum(axis=1) < 1.5**2 - 1e-3 for model in (first, later)]
    kept = whole[0] & whole[1]
    assert kept.sum() > 100
    said, before = (model.predict(x[kept]) if numbers else model.logits(x[kept]) for model in (later, first))
    assert np.allclose(said, before, rtol=1e-3, atol=1e-3)


def test_candidates_of_a_stack_are_whitened_each_for_itself() -> None:
    data, keys = _data(), [Randomness.rehearsal(seed) for seed in (1, 2)]
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=Whitening())
    assert trainer.shape({}) is None
    stacked = trainer.fit_many([{}, {"lr": 1.0}], data, keys)
    alone = [trainer.fit(params, data, key) for params, key in zip([{}, {"lr": 1.0}], keys, strict=True)]
    for one, other in zip(stacked, alone, strict=True):
        assert np.array_equal(one.model.parameters, other.model.parameters)
        assert np.array_equal(one.model.lens.directions, other.model.lens.directions)


def test_candidates_never_share_a_key() -> None:
    trainer = DpSgdTrainer(softmax(5, 2), SETTINGS, whitening=Whitening())
    key = Randomness.rehearsal(1)
    with pytest.raises(InvalidInput, match="share a run key"):
        trainer.fit_many([{"noise_multiplier": 1.0}, {"noise_multiplier": 2.0}], _data(), [key, key])


@pytest.mark.parametrize("value", [0.25, 1e-320, 1e308, np.inf, np.nan])
@pytest.mark.parametrize("centred", [False, True])
def test_no_record_makes_a_training_fail_however_errors_are_set(value: float, centred: bool) -> None:
    x = np.array(_data(50).x, np.float64)
    x[3, 2] = value
    whitening = Whitening(centred=centred)
    trainer = DpSgdTrainer(softmax(5, 2), dataclasses.replace(SETTINGS, steps=2), whitening=whitening)
    odd = _data(50).holding(x, _data(50).y)
    with np.errstate(under="raise", over="raise", invalid="raise"):
        assert trainer.fit({}, odd, Randomness.rehearsal(1)).model.lens is not None


def test_a_row_that_is_not_finite_adds_nothing() -> None:
    x = np.array([[np.inf, 0.0], [np.nan, 0.5], [0.0, 1.0]])
    made = _private(np.zeros((3, 2))).holding(x, np.zeros(3, np.int64))
    assert np.array_equal(second_moments(made, 1.0, 1.0), [[0.0, 0.0], [0.0, 1.0]])


def test_of_a_part_of_large_records_no_copy_of_it_is_kept() -> None:
    whole = _private(np.random.default_rng(6).normal(size=(400, 4)))
    part = part_of(whole, np.arange(0, 400, 3))
    copied = whole.take(np.arange(0, 400, 3))
    assert np.array_equal(second_moments(part, 1.0, 1.0), second_moments(copied, 1.0, 1.0))
    assert "_x" not in vars(part)


def test_bad_figures_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidInput, match="'share'"):
        Whitening(0.0)
    with pytest.raises(InvalidInput, match="'radius'"):
        Whitening(radius=-1.0)
    with pytest.raises(InvalidInput, match="'centred'"):
        Whitening(centred=1)  # type: ignore[arg-type]
    square = np.eye(2, dtype=np.float32)
    for middle, matrix in ((square[0], square[:1]), (square, square), (square[0].astype(float), square)):
        with pytest.raises(InvalidInput, match="lens"):
            CentredLens(middle, matrix)
    with pytest.raises(InvalidInput, match="finite"):
        CentredLens(square[0], square * np.float32(np.nan))
    with pytest.raises(InvalidInput, match="rows of 2 features"):
        CentredLens(square[0], square)(np.zeros((3, 5), np.float32))
    with pytest.raises(InvalidInput, match="at most 2048 features"):
        check_whitened(MOST_FEATURES + 1, 10)
    with pytest.raises(InvalidInput, match="records"):
        check_whitened(3, 1e9)
    with pytest.raises(InvalidInput, match="leave it out for networks"):
        DpSgdTrainer(Cnn((1, 8, 8), 2, ()), SETTINGS, whitening=Whitening())
    with pytest.raises(InvalidInput, match="'whitening' must be a Whitening"):
        DpSgdTrainer(softmax(3, 2), SETTINGS, whitening=True)  # type: ignore[arg-type]
    loud = DpSgdTrainer(softmax(5, 2), dataclasses.replace(SETTINGS, noise_multiplier=1e5), whitening=Whitening())
    with pytest.raises(InvalidInput, match="too large for its lattice"):
        loud.check({}, _data())
    with pytest.raises(InvalidInput, match="lens"):
        Lens(np.zeros((3, 2), np.float32), np.zeros(3, np.float32))
    with pytest.raises(InvalidInput, match="single precision"):
        Lens(np.zeros((3, 2)), np.zeros(2))
    for part in (np.nan, np.inf, -0.1, 1.5):
        with pytest.raises(InvalidInput, match="between 0 and 1"):
            Lens(np.zeros((3, 1), np.float32), np.full(1, part, np.float32))
