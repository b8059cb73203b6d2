"""Engine A computes exactly the sum of clipped per-record gradients.

The reference is brute force: central differences of the loss in double precision, one record at a time.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._compiled import kernel
from dptune.training._layers import product
from dptune.training._prepared import _KEPT
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Activation, Mlp, softmax
from dptune.training.numpy_engine import NumpyEngine

MODELS = [
    softmax(5, 3),
    Mlp(5, 3, (4,), "tanh"),
    Mlp(5, 2, (4, 3), "relu"),
    Mlp(5, 4, (6,), Activation("tempered_sigmoid", 1.58, 3.0, 0.71)),
]


def records(count: int, classes: int, features: int = 5, seed: int = 0, filled: float = 1.0) -> Dataset:
    """Records of which a share ``filled`` of the features is not zero; the first record is empty if that is below 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features)) * (rng.random((count, features)) < filled)
    if filled < 1.0:
        x[0] = 0.0
    return Dataset(x, rng.integers(0, classes, count), classes)


def loss(engine: NumpyEngine, parameters: np.ndarray, data: Dataset, row: int) -> float:
    logits = engine.logits(parameters, data.x[row : row + 1])[0]
    shifted = logits - logits.max()
    return float(np.log(np.exp(shifted).sum()) - shifted[data.y[row]])


def slow_gradient(engine: NumpyEngine, parameters: np.ndarray, data: Dataset, row: int) -> np.ndarray:
    step, gradient = 1e-6, np.zeros_like(parameters)
    for place in range(len(parameters)):
        up, down = parameters.copy(), parameters.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (loss(engine, up, data, row) - loss(engine, down, data, row)) / (2 * step)
    return gradient


def clipped(gradients: list[np.ndarray], clip: float, dimension: int) -> np.ndarray:
    total = np.zeros(dimension)
    for gradient in gradients:
        total += gradient * min(1.0, clip / max(float(np.linalg.norm(gradient)), 1e-300))
    return total


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [0.05, 0.7, 100.0])
def test_clipped_sum_equals_brute_force(model: Mlp, clip: float) -> None:
    engine = NumpyEngine(model, double=True)
    data = records(17, model.classes)
    engine.bind(data)
    parameters = np.random.default_rng(1).normal(size=engine.dimension)
    gradients = [slow_gradient(engine, parameters, data, row) for row in range(17)]
    out = np.empty((1, engine.dimension))
    engine.clipped_sums(parameters[None], [np.arange(17)], np.array([clip]), out)
    np.testing.assert_allclose(out[0], clipped(gradients, clip, engine.dimension), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_a_stack_equals_its_members_on_ragged_batches(model: Mlp) -> None:
    data = records(300, model.classes)
    rng = np.random.default_rng(2)
    sizes = [0, 1, 17, 61, 300]
    batches = [rng.choice(300, size, replace=False) for size in sizes]
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = rng.normal(size=(len(sizes), engine.dimension))
    clips = np.array([0.1, 0.5, 1.0, 2.0, 0.3])
    together = np.empty_like(parameters)
    engine.clipped_sums(parameters, batches, clips, together)
    for row, batch in enumerate(batches):
        alone = np.empty((1, engine.dimension))
        engine.clipped_sums(parameters[row : row + 1], [batch], clips[row : row + 1], alone)
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-10, atol=1e-12)
    assert not together[0].any()


def test_single_and_double_precision_agree() -> None:
    model = Mlp(5, 3, (8,), "tanh")
    data = records(100, 3)
    outs = []
    for double in (False, True):
        engine = NumpyEngine(model, double=double)
        engine.bind(data)
        parameters = np.random.default_rng(3).normal(size=(1, engine.dimension)).astype(engine.dtype)
        out = np.empty_like(parameters)
        engine.clipped_sums(parameters, [np.arange(100)], np.array([0.5]), out)
        outs.append(out[0])
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-4, atol=1e-5)


def test_one_record_moves_the_sum_by_at_most_the_clip_norm() -> None:
    model = Mlp(5, 3, (8, 8), "relu")
    data = records(50, 3)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = 5 * np.random.default_rng(4).normal(size=(1, engine.dimension))
    whole, less = np.empty((1, engine.dimension)), np.empty((1, engine.dimension))
    engine.clipped_sums(parameters, [np.arange(50)], np.array([0.4]), whole)
    for left_out in range(50):
        engine.clipped_sums(parameters, [np.delete(np.arange(50), left_out)], np.array([0.4]), less)
        assert np.linalg.norm(whole - less) <= 0.4 * (1 + 1e-9)


@pytest.mark.parametrize("zeros", [0, 10])
@pytest.mark.parametrize("hidden", [(), (3,), (3, 4), (70, 64)])
def test_a_record_whose_gradient_overflows_contributes_nothing(
    compiled: bool, zeros: int, hidden: tuple[int, ...]
) -> None:
    x = np.zeros((3, 2 + zeros), np.float32)
    x[:, :2] = 1.0
    x[1, :2] = 3e38
    data = Dataset(x, np.array([0, 1, 0]), 2, public=True)  # as they are: nothing is clipped
    engine = NumpyEngine(Mlp(2 + zeros, 2, hidden, "relu"), compiled=compiled)
    engine.bind(data)
    parameters = np.full((1, engine.dimension), 2.0, np.float32)
    out, rest = np.empty_like(parameters), np.empty_like(parameters)
    with np.errstate(all="ignore"):
        engine.clipped_sums(parameters, [np.arange(3)], np.array([1.0]), out)
        engine.clipped_sums(parameters, [np.array([0, 2])], np.array([1.0]), rest)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, rest, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hidden", [(), (6,), (40, 5)])
@pytest.mark.parametrize("classes", [2, 10])
def test_no_share_is_longer_than_a_small_clip_norm(compiled: bool, hidden: tuple[int, ...], classes: int) -> None:
    """A huge input and a derivative whose square vanishes in single precision: their product is no small gradient."""
    worst = 0.0
    for filled in (4, 40):
        for large in (1e12, 1e16, 1.7e19):
            x = np.zeros((1, 40), np.float32)
            x[0, :filled] = large / filled
            engine = NumpyEngine(Mlp(40, classes, hidden, "relu"), compiled=compiled)
            engine.bind(Dataset(x, np.zeros(1, int), classes, public=True))
            for gap in np.linspace(20.0, 80.0, 61):  # the first class is right, by ever more
                parameters = np.zeros((1, engine.dimension), np.float32)
                blocks = engine._blocks(parameters[0])
                for block in blocks[:-1]:
                    block[0] = 1.0
                blocks[-1][0, 0] = gap / (large / filled)
                out = np.empty_like(parameters)
                for clip in (1e-2, 1e-6):
                    with np.errstate(over="ignore"):
                        engine.clipped_sums(parameters, [np.zeros(1, np.int64)], np.array([clip]), out)
                    worst = max(worst, float(np.linalg.norm(out.astype(np.float64))) / clip)
    assert 0.9 < worst <= 1.0 + 1e-5


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("hidden", [(49, 64), (64, 64), (16,)])
@pytest.mark.parametrize("filled", [1.0, 0.1])
def test_parameters_that_are_not_finite_give_empty_sums(hidden: tuple[int, ...], filled: float) -> None:
    """Which products are left out depends on all records; without this rule 0 times infinity would, too."""
    engine = NumpyEngine(Mlp(20, 2, hidden, "relu"), compiled=True)
    engine.bind(records(100, 2, 20, filled=filled))
    out = np.empty((1, engine.dimension), np.float32)
    for bad in (np.inf, -np.inf, np.nan):
        for place in (0, engine.dimension // 2, engine.dimension - 1):
            parameters = np.random.default_rng(6).normal(size=(1, engine.dimension)).astype(np.float32)
            engine.clipped_sums(parameters, [np.arange(100)], np.ones(1), out)
            assert np.isfinite(out).all()
            assert out.any()
            parameters[0, place] = bad
            engine.clipped_sums(parameters, [np.arange(100)], np.ones(1), out)
            assert not out.any()


@pytest.mark.usefixtures("instruction_set")
def test_padding_is_never_active() -> None:
    """49 units are padded to 64, which become NaN for a record that overflows; weights end with unit 49."""
    model, data = Mlp(5, 2, (49, 64), "relu"), records(40, 2)
    wild = data.x.copy()
    wild[7] = 1e39
    engine, out, rest = NumpyEngine(model, compiled=True), *np.empty((2, 1, model.dimension), np.float32)
    engine.bind(Dataset(wild, data.y, 2, public=True))
    parameters = engine.start(Randomness.rehearsal(1))[None]
    engine.clipped_sums(parameters, [np.arange(40)], np.ones(1), out)
    engine.clipped_sums(parameters, [np.delete(np.arange(40), 7)], np.ones(1), rest)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, rest, rtol=1e-5, atol=1e-6)


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from dptune.training._compiled import kernel
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Mlp
from dptune.training.numpy_engine import NumpyEngine

kernel.instructions(sys.argv[1])
page = mmap.PAGESIZE
engine = NumpyEngine(Mlp(5, 2, (49, 64), "relu"), compiled=True)
size = -(-4 * engine.dimension // page) * page
room = mmap.mmap(-1, size + page)
begin = ctypes.addressof(ctypes.c_char.from_buffer(room))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin + size), page, mmap.PROT_READ * 0) == 0
parameters = np.frombuffer(room, np.float32, engine.dimension, size - 4 * engine.dimension)[None]
parameters[:] = np.random.default_rng(1).normal(size=parameters.shape)
x = np.ones((40, 5))
x[7] = 1e39
engine.bind(Dataset(x, np.zeros(40, int), 2, public=True))
engine.clipped_sums(parameters, [np.arange(40)], np.ones(1), np.empty_like(parameters))
print("alive")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page by mprotect")
def test_nothing_behind_the_parameters_is_read(instruction_set: str) -> None:
    """A page that must not be touched lies behind them: a process that does dies."""
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED, instruction_set], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


def test_starts_differ_between_runs_and_repeat_within_one() -> None:
    engine = NumpyEngine(Mlp(5, 3, (4,)))
    one, again, other = (engine.start(Randomness.rehearsal(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not NumpyEngine(softmax(5, 3)).start(Randomness.rehearsal(1)).any()


def test_data_that_does_not_fit_the_model() -> None:
    engine = NumpyEngine(softmax(4, 3))
    with pytest.raises(InvalidInput, match="takes 4 features but the data has 5"):
        engine.bind(records(3, 3))
    with pytest.raises(InvalidInput, match="has 3 classes but the data has 2"):
        engine.bind(records(3, 2, features=4))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("clip", [0.1, 1.0, 30.0])
@pytest.mark.parametrize(
    "model",
    [
        softmax(105, 2),
        softmax(441, 10),
        Mlp(37, 3, (64, 64), "relu"),
        Mlp(20, 2, (64, 64), "relu"),
        Mlp(20, 4, (130, 70, 65), "relu"),
        Mlp(20, 5, (200, 96), "relu"),
        Mlp(20, 2, (40,), "tanh"),
        Mlp(64, 10, (33, 17), "tanh"),
        Mlp(5, 16, (130, 16, 1), "tanh"),
        Mlp(1000, 3, (250, 8), "relu"),
    ],
)
@pytest.mark.parametrize("filled", [1.0, 0.1])
def test_the_compiled_pass_equals_numpy(model: Mlp, clip: float, filled: float) -> None:
    """The reference is double precision; widths need padding inside the kernel, batches several blocks, and records
    that are mostly zero are packed."""
    data = records(700, model.classes, model.features, filled=filled)
    exact, fast = NumpyEngine(model, double=True), NumpyEngine(model, compiled=True)
    assert fast.compiled
    assert not exact.compiled
    assert not NumpyEngine(model, compiled=False).compiled
    scale = min(0.3, 3.0 / model.features**0.5)
    parameters = scale * np.random.default_rng(5).normal(size=(1, exact.dimension))
    for size in (0, 1, 17, 61, 300, 600):
        batch = np.random.default_rng(size).choice(700, size, replace=False)
        sums = []
        for engine in (exact, fast):
            engine.bind(data)
            out = np.full((1, engine.dimension), np.nan, engine.dtype)
            engine.clipped_sums(parameters.astype(np.float32).astype(engine.dtype), [batch], np.array([clip]), out)
            sums.append(out)
        assert (fast._packed is not None) == (filled < 0.3)
        assert np.linalg.norm(sums[0] - sums[1]) <= 1e-5 * np.linalg.norm(sums[0])


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
@pytest.mark.parametrize("push", [-50.0, -1.0, 0.0, 1.0, 50.0])
def test_the_compiled_pass_with_few_and_with_most_units_active(push: float) -> None:
    """Idle units are left out where there are many of them; biases decide how many there are."""
    model = Mlp(30, 3, (80, 64), "relu")
    data = records(400, 3, 30)
    exact, fast = NumpyEngine(model, double=True), NumpyEngine(model, compiled=True)
    parameters = 0.2 * np.random.default_rng(6).normal(size=(1, exact.dimension)).astype(np.float32)
    for block in fast._blocks(parameters[0])[:-1]:
        block[-1] += push
    sums = []
    for engine in (exact, fast):
        engine.bind(data)
        sums.append(np.empty((1, engine.dimension), engine.dtype))
        engine.clipped_sums(parameters.astype(engine.dtype), [np.arange(390)], np.array([0.5]), sums[-1])
    assert np.linalg.norm(sums[0] - sums[1]) <= 1e-5 * np.linalg.norm(sums[0])


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
@pytest.mark.parametrize("filled", [1.0, 0.1])
def test_the_kernel_refuses_labels_and_records_that_do_not_exist(filled: float) -> None:
    data, engine = records(50, 3, 20, filled=filled), NumpyEngine(Mlp(20, 3, (4,)))
    engine.bind(data)
    out = np.zeros((1, engine.dimension), np.float32)
    for strange in (-1, 50):
        with pytest.raises(IndexError, match="out of range"):
            engine.clipped_sums(out, [np.array([0, strange])], np.ones(1), out)
    for label in (-1, 3):
        y = np.where(np.arange(50) == 7, label, data.y)
        packed = kernel.pack(data.x.astype(np.float32), y, 0.35)
        assert (packed is None) == (filled == 1.0)
        engine._y, engine._packed = y, packed
        with pytest.raises(IndexError, match="out of range"):
            engine.clipped_sums(out, [np.array([7])], np.ones(1), out)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (256, 106, 64), (300, 106, 64), (256, 65, 64), (997, 30, 70), (400, 200, 150)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_in_parts_is_the_product(shape: tuple[int, int, int], turned: bool) -> None:
    rows, inner, columns = shape
    rng = np.random.default_rng(7)
    left, right = rng.normal(size=(rows, inner)), rng.normal(size=(inner, columns))
    if turned:
        left, right = left.T.copy().T, right.T.copy().T
    out = np.full((rows, columns + 1), np.nan)
    product(left, right, out[:, :-1])
    np.testing.assert_allclose(out[:, :-1], left @ right, rtol=1e-12, atol=1e-12)
    assert np.isnan(out[:, -1]).all()


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
def test_records_are_packed_once_and_forgotten_with_their_data() -> None:
    data = records(50, 3, 20, filled=0.1)
    one, other = NumpyEngine(Mlp(20, 3, (4,))), NumpyEngine(Mlp(20, 3, (8,)))
    one.bind(data)
    other.bind(data)
    assert one._packed is other._packed
    assert data in _KEPT
    held = weakref.ref(data)
    del one, other, data
    gc.collect()
    assert held() is None


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
def test_the_kernel_refuses_packed_records_of_another_shape() -> None:
    engine, data, wider = NumpyEngine(Mlp(20, 3, (4,))), records(50, 3, 20, filled=0.1), records(50, 3, 21, filled=0.1)
    shorter = records(40, 3, 20, filled=0.1)
    engine.bind(data)
    out = np.zeros((1, engine.dimension), np.float32)
    for strange in (wider, shorter):
        engine._packed = kernel.pack(strange.x.astype(np.float32), strange.y, 1.0)
        with pytest.raises(ValueError, match="packed records are others"):
            engine.clipped_sums(out, [np.arange(45)], np.ones(1), out)
    engine.bind(data)
    engine._packed = None  # needs more room
    with pytest.raises(ValueError, match="room holds"):
        engine.clipped_sums(out, [np.arange(45)], np.ones(1), out)


def test_large_networks_and_other_activations_stay_with_numpy() -> None:
    assert not NumpyEngine(Mlp(5, 3, (300,))).compiled
    assert not NumpyEngine(softmax(2000, 3)).compiled
    assert not NumpyEngine(softmax(5, 17)).compiled
    assert not NumpyEngine(Mlp(5, 3, (4,), Activation("tempered_sigmoid"))).compiled


@pytest.mark.parametrize("model", MODELS)
def test_nothing_depends_on_memory_that_was_not_written(model: Mlp, compiled: bool, poison: str) -> None:
    """Not even a warning: those are errors here, and in many users' runs."""
    data, batch = records(30, model.classes), np.arange(30)
    engine, out = NumpyEngine(model, compiled=compiled), np.zeros((1, model.dimension), np.float32)
    engine.bind(data)
    engine.clipped_sums(engine.start(Randomness.rehearsal(1))[None], [batch], np.array([1.0]), out)
    assert 0.0 < float(np.linalg.norm(out)) <= 30.0
