"""Records that are images: kept for torch, seen as rows by built-in models, repaired one by one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.audit.canaries import canary_for
from dptune.data import Dataset, size, take
from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.ledgers import Ledger
from dptune.ledgers.samples import sample_of
from dptune.methods.blank import blank_records
from dptune.randomness import Randomness
from dptune.sealed._records import mark_of
from dptune.training import Cnn, DpSgdTrainer, Mlp, Settings
from dptune.training.engines import engine_for
from dptune.training.models import Conv
from dptune.units import UnitDataset

SHAPE = (2, 4, 3)
RNG = np.random.default_rng(5)
X = RNG.random((12, *SHAPE)).astype(np.float32)
Y = np.arange(12) % 3
SETTINGS = Settings(0.5, 1.0, steps=6, clip_norm=1.0, learning_rate=0.5, batch_size=6)


def _images(**rules: Any) -> Dataset:
    return Dataset(X, Y, 3, **rules)


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 3, 2), (0, 2, 1)])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e30, -7.0])
def test_a_bad_value_is_repaired_and_changes_nothing_else(odd: float, place: tuple[int, int, int]) -> None:
    values = X.copy()
    values[(4, *place)] = odd
    found, clean = Dataset(values, Y, 3, feature_range=(0, 1), missing=0.5), _images(feature_range=(0, 1))
    changed = np.argwhere(found.x != clean.x)
    assert changed.tolist() == [[4, *place]]
    assert found.x[(4, *place)] == (0.5 if np.isnan(odd) else float(odd > 0))


def test_shapes_parts_and_rows() -> None:
    images = _images(name="scans")
    assert (images.shape, images.features, len(images), images.flat.shape) == (SHAPE, 24, 12, (24,))
    assert images.flat is images.flat
    assert images.flat.flat is images.flat
    assert np.shares_memory(images.flat.x, images.x)
    part = take(images, np.array([7, 1]))
    assert np.array_equal(part.x, X[[7, 1]])
    assert part.flat is not images.flat
    assert np.array_equal(part.flat.x, X[[7, 1]].reshape(2, 24))
    shards = images.shards(3, Randomness.rehearsal(1))
    assert sum(map(size, shards)) == 12
    assert all(shard.shape == SHAPE for shard in shards)
    assert images.take(np.array([], int)).flat.x.shape == (0, 24)
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(again.x, images.x)


def test_an_array_without_a_dimension_of_features_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one image"):
        Dataset(np.zeros(3), np.zeros(3, int), 2)


def test_blank_images_are_a_function_of_public_things() -> None:
    made, other = (blank_records(Dataset(x, Y, 3)) for x in (X, np.zeros_like(X)))
    assert made.shape == SHAPE
    assert np.array_equal(made.x, other.x)
    assert set(made.y.tolist()) == {0, 1, 2}
    units = UnitDataset(_images(), np.arange(12) // 2, unit_rows=2)
    assert units.blank().rows.shape == SHAPE


def test_marks_and_overlaps_know_images(tmp_path: Path) -> None:
    ledger, key = Ledger.create(tmp_path / "a.ledger").path, Randomness.rehearsal(0)
    whole, part = sample_of(_images(), ledger), sample_of(_images().take(np.arange(4)), ledger)
    assert whole is not None
    assert part is not None
    assert len(whole.hashes) == 12
    assert set(part.hashes) < set(whole.hashes)
    assert mark_of(_images(), key) == mark_of(_images(), key)
    assert mark_of(_images(), key) != mark_of(_images().flat, key)


MODELS: list[Mlp | Cnn] = [Mlp(24, 3), Mlp(24, 3, (5,), "relu"), Cnn((2, 4, 3), 3, (Conv(2, 2),))]


@pytest.mark.parametrize("model", MODELS, ids=["softmax", "mlp", "cnn"])
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_built_in_models_see_the_same_rows(model: Mlp | Cnn, engine: str) -> None:
    trainer = DpSgdTrainer(model, SETTINGS, engine=engine)
    images = _images()
    trainer.check({}, images)
    fitted = [trainer.fit({}, data, Randomness.rehearsal(3)).model for data in (images, images.flat)]
    assert np.array_equal(fitted[0].parameters, fitted[1].parameters)
    assert np.array_equal(fitted[0].predict(X), fitted[1].predict(X.reshape(12, 24)))
    assert correct(fitted[0], images) == correct(fitted[0], images.flat)


def test_an_engine_knows_the_rows_of_the_same_images_again() -> None:
    engine, images = engine_for(MODELS[0]), _images()
    engine.bind(images)
    first = engine._x  # type: ignore[attr-defined]
    engine.bind(images)
    assert engine._x is first  # type: ignore[attr-defined]


def test_public_validation_must_have_the_shape_of_the_records() -> None:
    trainer = DpSgdTrainer(MODELS[0], SETTINGS, validation=_images().flat)
    with pytest.raises(InvalidInput, match="2 x 4 x 3 features but those of 'validation' 24"):
        trainer.check({}, _images())


def test_a_canary_for_images_is_an_image() -> None:
    dark = X.copy()
    dark[:, 1, 2, 2] = 0.0
    canary = canary_for(Dataset(dark, Y, 3))
    assert np.argwhere(canary.x).tolist() == [[0, 1, 2, 2]]
    assert canary_for(_images()).shape == SHAPE


def test_an_npz_of_images_is_tuned_and_predicted(tmp_path: Path) -> None:
    np.savez(tmp_path / "scans.npz", x=X, y=Y)
    release = dpt.tune(
        tmp_path / "scans.npz", records=1000, classes=3, epsilon=3, delta=1e-4, seed=1, data_is="synthetic",
        explain=None, out=tmp_path / "run",
    )  # fmt: skip
    assert release.model.predict(X).shape == (12,)
    assert np.array_equal(release.model.predict(X), release.model.predict(X.reshape(12, -1)))
