"""Units of several rows in training: their rows' gradients are summed, then clipped as a whole, by every engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.training.sensitivity import CLASSES, CLIPS, Sums, fast, secure

from dptune import Dataset, UnitDataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import Cosine, DpSgdTrainer, Holdout, Settings, descend, engine_for, models, softmax
from dptune.training._compiled import kernel
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Mlp
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.unit_sums import UnitSums

MOST = 40
SIZES = [1, 3, 4, 2, 1, 4]
MLPS = [softmax(20, CLASSES), softmax(20, 2), Mlp(20, CLASSES, (7,), "relu"), Mlp(20, CLASSES, (9, 5))]


def _units(features: int, classes: int, size: int) -> UnitDataset:
    """Units of one to four rows and, last, one of ``size`` rows whose gradients are longer than any clip norm here."""
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(len(SIZES) + 1), [*SIZES, size])
    x = rng.normal(size=(len(keys), features))
    x[-size:] = 40.0 * np.sign(rng.normal(size=features))
    return UnitDataset(Dataset(x, rng.integers(0, classes, len(keys)), classes), keys, MOST, "patient")


def _check(make: Callable[[], Any], data: UnitDataset, sums: Sums, clips: list[float]) -> None:
    """Insert and remove the last unit, with one of two labels, at the front, in the middle and at the end."""
    engine, peers, most = UnitSums(make()), np.arange(len(SIZES)), 0.0
    for clip in clips:
        without = sums(engine, data.take(peers), clip)  # type: ignore[arg-type] # units in place of records
        for place, label in itertools.product((0, 3, len(SIZES)), (0, 1)):
            data.rows.y[data.starts[-2] :] = label
            with_it = sums(engine, data.take(np.insert(peers, place, len(SIZES))), clip)  # type: ignore[arg-type]
            moved = float(np.linalg.norm(with_it - without)) / clip
            assert moved <= 1.0 + 1e-6, f"clip {clip}, place {place}: the sum moves by {moved} clip norms"
            most = max(most, moved)
    assert most > 0.5, "this unit is too short to show anything"


@pytest.mark.parametrize("size", [1, 2, 4, MOST])
@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("model", MLPS)
def test_one_unit_moves_a_sum_by_at_most_the_clip_norm(model: Mlp, sums: Sums, size: int) -> None:
    _check(lambda: engine_for(model, double=True), _units(20, model.classes, size), sums, CLIPS)


def _cancelling() -> UnitDataset:
    """Forty units whose rows are long and cancel but for a little, and one more whose rows cancel altogether.

    The last one has no zeros, and so many rows that the records are sparse without it alone: the compiled pass computes
    all others in another order then.
    """
    rng, features = np.random.default_rng(0), 100
    keys = np.repeat(np.arange(41), [8] * 40 + [MOST])
    x = 1e5 * rng.normal(size=(41, features)) * (rng.random((41, features)) < 0.3)
    x[-1] = 7.0
    x = x[keys] * (1 + 1e-4 * rng.normal(size=(len(keys), features)) * (keys < 40)[:, None])
    return UnitDataset(Dataset(x, np.arange(len(keys)) % 2, 2), keys, MOST)


def test_other_units_cannot_change_what_is_left_of_rows_that_cancel() -> None:
    data, model = _cancelling(), softmax(100, 2)
    engine, sums = UnitSums(engine_for(model, double=True)), []
    for some in (data, data.take(np.arange(40))):
        engine.bind(some)
        sums.append(np.empty((1, model.dimension)))
        engine.clipped_sums(np.zeros((1, model.dimension)), [np.arange(len(some))], np.array([1.0]), sums[-1])
    assert np.linalg.norm(sums[1]) > 0.1
    assert np.linalg.norm(sums[0] - sums[1]) < 1e-9


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
def test_in_single_precision_they_could() -> None:
    """Why such engines are refused."""
    data, engine = _cancelling(), NumpyEngine(softmax(100, 2), compiled=True)
    sums = []
    for some in (data, data.take(np.arange(40))):
        engine.bind(some.rows)
        total, own = np.zeros(engine.dimension), np.empty((1, engine.dimension), np.float32)
        for first, end in itertools.pairwise(some.starts):
            zeros = np.zeros((1, engine.dimension), np.float32)
            engine.clipped_sums(zeros, [np.arange(first, end)], np.array([1024.0]), own)
            total += own[0] / max(1.0, float(np.linalg.norm(own)))
        sums.append(total)
    assert np.linalg.norm(sums[0] - sums[1]) > 1e-6


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("compiled", [False, None])
def test_the_fused_engine(compiled: bool | None, sums: Sums) -> None:
    make = lambda: FusedEngine(models.dp_hypo_cnn(), compiled=compiled, double=True)  # noqa: E731 - short
    _check(make, _units(784, 10, 3), sums, [1.0])


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("layers", ["linear", "own"])
def test_the_torch_engine(layers: str, sums: Sums) -> None:
    torch = pytest.importorskip("torch")
    from dptune.training.torch_engine import TorchEngine  # noqa: PLC0415 - optional dependency

    nn = torch.nn
    inner = nn.Sequential(nn.Linear(20, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, CLASSES))

    class Own(nn.Module):  # type: ignore[misc,name-defined] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    made = inner if layers == "linear" else Own()
    _check(lambda: TorchEngine(made, double=True), _units(20, CLASSES, 3), sums, [1.0])


def _gradients(model: Mlp, data: UnitDataset, parameters: np.ndarray) -> np.ndarray:
    """Every row's gradient by finite differences of its loss."""
    engine, step = NumpyEngine(model, double=True), 1e-6

    def losses(flat: np.ndarray) -> np.ndarray:
        logits = np.asarray(engine.logits(flat, data.rows.x), np.float64)
        return np.asarray(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), data.rows.y])

    ways = np.eye(len(parameters)) * step
    return np.stack([(losses(parameters + way) - losses(parameters - way)) / (2 * step) for way in ways], axis=1)


@pytest.mark.parametrize("model", [softmax(3, 2), Mlp(3, 3, (4,))])
def test_the_sum_is_that_of_the_rows_gradients_clipped_by_unit(model: Mlp) -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 5, 14)
    data = UnitDataset(Dataset(rng.normal(size=(14, 3)), rng.integers(0, model.classes, 14), model.classes), keys, 9)
    parameters = 0.3 * rng.normal(size=model.dimension)
    rows = _gradients(model, data, parameters)
    sums = np.stack([rows[data.row_units == unit].sum(axis=0) for unit in range(len(data))])
    norms = np.linalg.norm(sums, axis=1)
    clip = float(np.median(norms))  # some are clipped and some are not
    expected = (np.minimum(1.0, clip / norms)[:, None] * sums).sum(axis=0)
    engine, out = UnitSums(engine_for(model, double=True)), np.empty((1, model.dimension))
    engine.bind(data)
    batch = [np.arange(len(data))]
    engine.clipped_sums(parameters[None], batch, np.array([clip]), out)
    np.testing.assert_allclose(out[0], expected, atol=1e-7)
    assert engine.lattice_sums(parameters[None], batch, np.array([clip]), [2.0**-30], out)
    np.testing.assert_allclose(out[0], expected, atol=1e-3)


def test_an_overflowing_row_silences_its_unit_alone() -> None:
    data = _units(20, 2, 2)
    data.rows.x[0] = np.nan  # as a network that overflows would make it
    engine = UnitSums(engine_for(softmax(20, 2), double=True))
    assert np.isfinite(fast(engine, data, 1.0)).all()  # type: ignore[arg-type] # units in place of records


def test_an_engine_in_single_precision_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"double precision.*double=True"):
        descend(engine_for(softmax(20, 2)), _units(20, 2, 1), [_SETTINGS], [Randomness.rehearsal(0)])
    with pytest.raises(InvalidInput, match="need a UnitDataset"):
        UnitSums(engine_for(softmax(20, 2), double=True)).bind(_units(20, 2, 1).rows)


_SETTINGS = Settings(0.5, 1.0, steps=4, clip_norm=1.0, learning_rate=0.5, batch_size=3, schedule=Cosine())


def test_units_of_one_row_train_the_model_that_their_rows_do() -> None:
    """Batches, noise and first weights are those of the same number of records, so only rounding differs."""
    rng = np.random.default_rng(2)
    rows = Dataset(rng.normal(size=(60, 5)), rng.integers(0, 3, 60), 3)
    both: tuple[Dataset | UnitDataset, ...] = (rows, UnitDataset(rows, range(60), 3))
    plain, by_unit = (  # in doubles: in single precision noise is another
        descend(engine_for(Mlp(5, 3, (4,)), double=True), data, [_SETTINGS], [Randomness.rehearsal(7)])[0]
        for data in both
    )
    np.testing.assert_allclose(by_unit, plain, atol=1e-9)
    held = DpSgdTrainer(Mlp(5, 3, (4,)), _SETTINGS, holdout=Holdout(0.3, 20))
    assert held.fit({}, UnitDataset(rows, range(60), 3), Randomness.rehearsal(7)).score >= 0.0


@pytest.mark.parametrize("secure_noise", [False, True])
def test_batches_are_drawn_by_unit(secure_noise: bool) -> None:
    """With the same rows twice in each unit, a step is that of one row in each with gradients twice as long."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 5)), rng.integers(0, 2, 40)
    once = UnitDataset(Dataset(x, y, 2), range(40), 2)
    twice = UnitDataset(Dataset(np.tile(x, (2, 1)), np.tile(y, 2), 2), [*range(40)] * 2, 2)
    settings = Settings(0.5, 1.0, 3, clip_norm=1e-3, learning_rate=0.5, batch_size=3, secure=secure_noise)
    trained = [
        descend(engine_for(softmax(5, 2), double=True), data, [settings], [Randomness.rehearsal(4)])[0]
        for data in (once, twice)
    ]
    np.testing.assert_allclose(trained[0], trained[1], atol=1e-7)  # every gradient is clipped to the same


def test_a_model_that_does_not_fit_is_refused_before_it_is_trained() -> None:
    trainer = DpSgdTrainer(softmax(19, 2), _SETTINGS)
    with pytest.raises(InvalidInput, match="takes 19 features"):
        trainer.check({}, _units(20, 2, 1))
    DpSgdTrainer(softmax(20, 2), _SETTINGS).check({}, _units(20, 2, 1))


def test_public_units_are_judged_row_by_row() -> None:
    units = _units(20, 2, 1)
    with pytest.raises(InvalidInput, match=r"give the units' '\.rows'"):
        DpSgdTrainer(softmax(20, 2), _SETTINGS, validation=units)  # type: ignore[arg-type] # what is refused
    fitted = DpSgdTrainer(softmax(20, 2), _SETTINGS, validation=units.rows).fit({}, units, Randomness.rehearsal(1))
    assert fitted.score == fitted.model.accuracy(units.rows)
