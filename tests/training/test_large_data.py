"""Large data: what engines gather for a batch has the bits of what they would have prepared, and no copy is made."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from dptune import _memory, data
from dptune._places import Part
from dptune.data import Dataset
from dptune.judging import correct
from dptune.ledgers import Ledger, samples
from dptune.methods.parts import Coin
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Holdout, Mlp, Settings, numpy_engine, softmax
from dptune.training._compiled import kernel
from dptune.training.trained_model import TrainedModel
from dptune.units import UnitDataset

ROWS, FEATURES = 600, 7


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Everything is large: nothing is prepared for all records, and parts are places."""
    monkeypatch.setattr(_memory, "MANY", 1)
    monkeypatch.setattr(data, "_FEW", 1)
    return monkeypatch


def _records(kind: Any = np.float32, classes: int = 2) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset(rng.normal(size=(ROWS, FEATURES)).astype(kind), rng.integers(0, classes, ROWS), classes)


def _trained(model: Mlp, records: Any, secure: bool, holdout: Holdout | None = None) -> list[Any]:
    settings = Settings(0.1, 1.0, steps=6, clip_norm=0.7, learning_rate=0.5, batch_size=60, secure=secure)
    trainer = DpSgdTrainer(model, settings, holdout=holdout)
    keys = [Randomness.rehearsal(seed) for seed in range(3)]
    params = [{"lr": 0.1}, {"lr": 0.5}, {"lr": 1.0}]
    return trainer.fit_many(params, records, keys)


MODELS = {
    "softmax": softmax(FEATURES, 2),
    "softmax, compiled": softmax(FEATURES, 6),
    "network": Mlp(FEATURES, 2, (5,)),
    "tempered": Mlp(FEATURES, 2, (300,)),
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("which", ["all", "part", "units", "held out"])
def test_trainings_have_the_same_bits(
    name: str, kind: Any, secure: bool, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name]
    places = np.flatnonzero(np.random.default_rng(5).random(ROWS) < 0.8)

    def records() -> Any:
        made = _records(kind, model.classes)
        if which == "units":
            return UnitDataset(made, np.arange(ROWS) % 200, 2).take(np.arange(3, 190))
        return made.take(places) if which == "part" else made

    holdout = Holdout(0.2, 100.0) if which == "held out" else None
    before = _trained(model, records(), secure, holdout)
    monkeypatch.setattr(_memory, "MANY", 1)
    monkeypatch.setattr(data, "_FEW", 1)
    given = records()
    assert isinstance(given.rows if which == "units" else given, Part) == (which in ("part", "units"))
    after = _trained(model, given, secure, holdout)
    for old, new in zip(before, after, strict=True):
        assert old.model.parameters.tobytes() == new.model.parameters.tobytes()
        assert old.score == new.score


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("secure", [False, True])
def test_a_training_reads_only_the_records_of_its_batches(name: str, secure: bool, large: pytest.MonkeyPatch) -> None:
    class Watched(np.ndarray):
        """An array that notes which rows are taken from it; none are if it is read as a whole."""

        rows: ClassVar[set[int]] = set()

        def __getitem__(self, index: Any) -> Any:
            Watched.rows.update(np.atleast_1d(index).tolist())
            return np.asarray(self)[index]

    if kernel is not None and name != "softmax" and not secure:
        pytest.skip("the kernel reads the rows at the places that it is given")
    model = MODELS[name]
    records = _records(classes=model.classes)
    object.__setattr__(records, "x", records.x.view(Watched))
    Watched.rows = set()
    settings = Settings(0.01, 1.0, steps=3, clip_norm=0.7, learning_rate=0.5, batch_size=6, secure=secure)
    DpSgdTrainer(model, settings).fit({}, records, Randomness.rehearsal(0))
    assert 0 < len(Watched.rows) < 60


def test_a_part_is_trained_on_without_a_copy(large: pytest.MonkeyPatch) -> None:
    part = _records().take(np.arange(100, 500))
    _trained(MODELS["softmax"], part, False)
    assert "_x" not in vars(part)


def test_large_stacks_are_trained_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _trained(MODELS["softmax"], _records(), False)
    monkeypatch.setattr(numpy_engine, "_MOST_ROWS", 10)
    for old, new in zip(before, _trained(MODELS["softmax"], _records(), False), strict=True):
        assert np.allclose(old.model.parameters, new.model.parameters, rtol=0, atol=1e-5)


def test_verdicts_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch, large: pytest.MonkeyPatch) -> None:
    records = _records()
    model = TrainedModel(softmax(FEATURES, 2), np.random.default_rng(0).normal(size=16).astype(np.float32))
    whole = correct(model, records)
    monkeypatch.setattr("dptune.judging._TOGETHER", 7)
    assert correct(model, records) == whole > 0
    assert correct(model, (records.x, records.y)) == whole
    assert correct(model, UnitDataset(records, np.arange(ROWS), 1)) == whole


def test_coins_are_tossed_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Randomness.rehearsal(3)
    wanted = key.generator("coin", "subset").random(1000) < 0.3
    monkeypatch.setattr("dptune.methods.parts._COINS", 64)
    assert np.array_equal(Coin(0.3).mask(1000, None, key), wanted)
    assert np.array_equal(Coin(0.3, inside=False).mask(1000, None, key), ~wanted)


def test_the_sample_of_hashes_is_that_of_all_records(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Ledger.create(tmp_path / "a.ledger").path
    monkeypatch.setattr(samples, "MOST", 20)
    rows = np.random.default_rng(0).integers(0, 300, (1000, 1)).astype(np.float32)  # some are equal
    whole = samples.sample_of(rows, path)
    monkeypatch.setattr(samples, "_WORDS", 16)
    assert samples.sample_of(rows, path) == whole
    assert whole is not None
    assert 5 <= len(whole.hashes) <= 20
    assert whole.level >= 3
