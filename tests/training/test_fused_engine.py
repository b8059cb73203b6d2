"""Engine C, compiled and in numpy, agrees with engine B, and puts noise on every parameter and on nothing else."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings, descend, engine_for, fused_engine, load
from dptune.training._compiled import kernel
from dptune.training.benchmark_data import Dataset
from dptune.training.fused_engine import _LAYERS, FusedEngine
from dptune.training.models import dp_hype_cnn, dp_hypo_cnn
from dptune.training.noise import SecureNoise

needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")

SETTINGS = Settings(
    sampling_rate=0.1, noise_multiplier=0.0, steps=10, clip_norm=0.5, learning_rate=0.3, batch_size=50.0
)


def images(count: int = 500, seed: int = 0) -> Dataset:
    """Random strokes on black: as in real images many places tie in the pooling."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, 28, 28)).astype(np.float32)
    x[:, :, :6] = x[:, :9] = x[:, 24:] = 0.0
    x[: count // 10] = 0.0
    return Dataset(x.reshape(count, -1), rng.integers(0, 10, count), 10)


@functools.cache
def weights() -> np.ndarray:
    return np.asarray(FusedEngine(dp_hypo_cnn()).start(Randomness.rehearsal(1)) * np.float32(1.5))


@functools.cache
def settled() -> np.ndarray:
    """Records without a near tie: within rounding of a kink or of two equal maxima, engines may differ."""
    torch = pytest.importorskip("torch", reason="the torch engine is the reference")
    data = images()
    engine = engine_for(dp_hypo_cnn(), engine="torch", double=True)
    values = torch.from_numpy(data.x.astype(np.float64))
    gap = torch.full((len(data),), np.inf, dtype=torch.float64)
    for layer in engine.release(weights().astype(np.float64)):  # type: ignore[attr-defined] # torch's own
        with torch.no_grad():
            if isinstance(layer, torch.nn.ReLU):
                gap = torch.minimum(gap, values.flatten(1).abs().min(1).values)
            if isinstance(layer, torch.nn.MaxPool2d):
                windows = values.unfold(2, 2, 1).unfold(3, 2, 1).flatten(4).sort(dim=4).values
                between = windows[..., 3] - windows[..., 2]
                gap = torch.minimum(gap, between.masked_fill(between == 0, np.inf).flatten(1).min(1).values)
            values = layer(values)
    return np.flatnonzero((gap > 1e-6).numpy())


@pytest.mark.parametrize("clip", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("size", [0, 1, 17, 61, 300])
@pytest.mark.parametrize("mode", ["bookkeeping", "vmap"])
def test_clipped_sums_equal_torch(size: int, clip: float, compiled: bool, mode: str) -> None:
    pytest.importorskip("torch", reason="torch is the reference")
    from dptune.training.torch_engine import TorchEngine  # noqa: PLC0415 - after the check that torch exists
    from dptune.training.torch_models import build  # noqa: PLC0415 - after the check that torch exists

    data = images()
    parameters = weights()[None]
    assert len(settled()) > 450
    batch = np.random.default_rng(size).choice(settled(), size, replace=False)
    sums = []
    for engine in (FusedEngine(dp_hypo_cnn(), compiled=compiled), TorchEngine(build(dp_hypo_cnn()), mode=mode)):
        engine.bind(data)
        out = np.empty_like(parameters)
        engine.clipped_sums(parameters, [batch], np.array([clip]), out)
        sums.append(out)
    assert np.linalg.norm(sums[0] - sums[1]) <= 1e-5 * np.linalg.norm(sums[1])


def test_trajectories_and_outputs_equal_the_torch_engine(compiled: bool) -> None:
    pytest.importorskip("torch", reason="the torch engine is the reference")
    data, key = images(), Randomness.rehearsal(2)
    start = FusedEngine(dp_hypo_cnn()).start(key)
    ends, logits = [], []
    for engine in (FusedEngine(dp_hypo_cnn(), compiled=compiled), engine_for(dp_hypo_cnn(), engine="torch")):
        ends.append(descend(engine, data, [SETTINGS], [key], [start])[0])
        logits.append(engine.logits(ends[-1], data.x))
    assert np.linalg.norm(ends[0] - ends[1]) < 1e-5 * np.linalg.norm(ends[1])
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-3, atol=1e-4)


def test_noise_is_on_every_parameter_and_independent() -> None:
    """No records: what moves is noise. Padded lanes inside the kernel must leave no trace."""
    empty = images().take(np.empty(0, dtype=np.int64))
    engine = engine_for(dp_hypo_cnn(), engine="fused")
    settings = dataclasses.replace(SETTINGS, noise_multiplier=1.0, steps=1)
    moves = []
    for seed in range(400):
        key = Randomness.rehearsal(seed)
        moves.append(descend(engine, empty, [settings], [key])[0] - engine.start(key))
    values = np.stack(moves) / (0.3 * 0.5 / 50.0)
    assert values.shape[1] == 26_010
    assert np.abs(values.mean(axis=0)).max() < 7 / np.sqrt(400)
    assert np.abs(values.var(axis=0) - 1).max() < 7 * np.sqrt(2 / 400)
    tail = values[:, -342:]  # the last two layers, which are padded inside the kernel
    gram = tail.T @ tail / len(tail)
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 7 / np.sqrt(400)


@pytest.mark.parametrize("size", [1e20, 1e30, 3e38])
def test_a_record_that_overflows_moves_the_sum_by_no_more_than_the_clip_norm(compiled: bool, size: float) -> None:
    """Whether such a record's gradient is finite depends on the weights; its share never exceeds the clip norm."""
    data = images(20)
    wild = data.x.copy()
    wild[3] = size
    engine = FusedEngine(dp_hypo_cnn(), compiled=compiled)
    engine.bind(Dataset(wild, data.y, 10, public=True))
    for seed in range(6):
        parameters = engine.start(Randomness.rehearsal(seed))[None]
        out, rest = np.empty_like(parameters), np.empty_like(parameters)
        with np.errstate(all="ignore"):
            engine.clipped_sums(parameters, [np.arange(20)], np.array([1.0]), out)
            engine.clipped_sums(parameters, [np.delete(np.arange(20), 3)], np.array([1.0]), rest)
        assert np.isfinite(out).all()
        assert np.linalg.norm((out - rest).astype(float)) <= 1 + 1e-6


def test_no_share_of_a_fast_sum_is_longer_than_a_small_clip_norm(compiled: bool) -> None:
    """Huge inputs of dense layers with derivatives so small that scaling would round them away or up."""
    engine = FusedEngine(dp_hypo_cnn(), compiled=compiled)
    wild = np.zeros((1, 26_010), np.float32)
    wild[0, 9232], wild[0, 25_648], wild[0, 25_680] = (
        3.4e38,
        1.0,
        1e-30,
    )  # biases of layers 2 and 3, a weight of layer 4
    starts = [wild, engine.start(Randomness.rehearsal(1))[None]]
    x = np.concatenate(
        [np.zeros((1, 784)), np.random.default_rng(3).random((10, 784)) * np.logspace(30, 39, 10)[:, None]]
    )
    out, worst = np.empty((1, 26_010), np.float32), 0.0
    for parameters in starts:
        for label in range(10):
            engine.bind(Dataset(x, np.full(11, label), 10, public=True))
            for record in range(11):
                for clip in (1e-6, 1e-3):
                    with np.errstate(all="ignore"):
                        engine.clipped_sums(parameters, [np.array([record])], np.array([clip]), out)
                    worst = max(worst, float(np.linalg.norm(out.astype(np.float64))) / clip)
    assert worst <= 1.0 + 1e-5


def single(engine: FusedEngine, p: np.ndarray, index: np.ndarray, limit: float, lattice: float) -> np.ndarray:
    """The shares of single records."""
    shares = np.empty((len(index), engine.dimension))
    for row, record in enumerate(index):
        assert engine.lattice_sums(p, [np.array([record])], np.array([limit]), [lattice], shares[row : row + 1])
    return shares


@pytest.mark.parametrize("clip", [0.1, 1.0, 30.0])
def test_sums_on_the_lattice_are_exact(clip: float, compiled: bool) -> None:
    """Bit for bit: a batch is the sum of its records in any order, each on the lattice and within the clip norm."""
    data, parameters = images(), weights()[None].astype(np.float64)
    scale = 1.1 * clip
    lattice = SecureNoise.lattice(scale)
    engine = FusedEngine(dp_hypo_cnn(), double=True, compiled=compiled)
    engine.bind(data)
    limit = clip - SecureNoise(Randomness.rehearsal(1), 1).margin(engine.dimension, scale, clip)
    batch = np.random.default_rng(3).permutation(500)[:61]
    shares = single(engine, parameters, batch, limit, lattice)
    assert np.array_equal(shares, np.rint(shares / lattice) * lattice)
    assert np.linalg.norm(shares, axis=1).max() <= clip
    assert np.linalg.norm(shares, axis=1).max() > 0.99 * clip or clip > 1.0
    together = np.empty_like(parameters)
    for order in (batch, np.sort(batch), batch[::-1]):
        assert engine.lattice_sums(parameters, [order], np.array([limit]), [lattice], together)
        assert np.array_equal(together[0], shares.sum(axis=0))
    plain = np.empty_like(parameters)
    engine.clipped_sums(parameters, [batch], np.array([limit]), plain)
    rounding = lattice * np.sqrt(61 * engine.dimension)  # half a step a coordinate and record, at most
    assert np.linalg.norm(together - plain) < rounding + 1e-5 * np.linalg.norm(plain)


def test_a_record_has_the_same_bits_in_every_place_and_company(compiled: bool) -> None:
    """Every place of every size of a block, among records that overflow; on a lattice that shows all bits."""
    data = images(30)
    wild = data.x.copy()
    wild[20:25] = 3e38
    wild[25:] *= np.float32(1e20)
    broken = Dataset(wild, data.y, 10, public=True)
    engine = FusedEngine(dp_hypo_cnn(), double=True, compiled=compiled)
    engine.bind(broken)
    parameters = weights()[None].astype(np.float64)
    rng, out = np.random.default_rng(4), np.empty((1, engine.dimension))
    with np.errstate(all="ignore"):
        shares = single(engine, parameters, np.arange(30), 1.0, 2.0**-40)
        for size in (*range(1, 14), 24, 25):
            batch = rng.permutation(30)[:size]
            engine.lattice_sums(parameters, [batch], np.ones(1), [2.0**-40], out)
            assert np.array_equal(out[0], shares[batch].sum(axis=0))


@needs_kernel
@pytest.mark.parametrize("part", ["sum", "outputs"])
def test_a_build_that_depends_on_the_place_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that errs by one step in the last place of a full block; predictions then go one by one."""

    class Uneven:
        @staticmethod
        def cnn_sum(p: object, x: object, y: object, index: np.ndarray, clip: float, unit: float, out: object) -> None:
            kernel.cnn_sum(p, x, y, index, clip, unit, out)
            if part == "sum" and len(index) == 12:
                out[-1] += 1.0  # type: ignore[index] # an array

        @staticmethod
        def cnn_forward(p: object, x: np.ndarray, out: np.ndarray) -> None:
            kernel.cnn_forward(p, x, out)
            if part == "outputs" and len(x) == 12:
                out[-1] += 1.0

    fused_engine._same_in_every_place.cache_clear()
    assert fused_engine._same_in_every_place()
    right = FusedEngine(dp_hypo_cnn()).logits(weights(), images().x[:12])
    fused_engine._same_in_every_place.cache_clear()
    monkeypatch.setattr(fused_engine, "kernel", Uneven)
    assert not fused_engine._same_in_every_place()
    with pytest.raises(InvalidInput, match="different places of a batch"):
        FusedEngine(dp_hypo_cnn(), double=True, compiled=True)
    assert not FusedEngine(dp_hypo_cnn(), double=True).compiled
    assert FusedEngine(dp_hypo_cnn()).compiled
    assert np.array_equal(FusedEngine(dp_hypo_cnn()).logits(weights(), images().x[:12]), right)
    fused_engine._same_in_every_place.cache_clear()


def wild_parameters(case: str) -> np.ndarray:
    """Parameters under which the factors of a dense layer's gradient are of very different size."""
    parts = dict(
        zip(("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4"), (math.prod(s) for s, *_ in _LAYERS), strict=True)
    )
    ends = np.cumsum([0, *parts.values()])
    flat = np.zeros(26_010)
    view = {name: flat[a:b] for name, a, b in zip(parts, ends, ends[1:], strict=False)}
    rng = np.random.default_rng(5)
    if case == "huge inputs, tiny derivatives of the hidden layer":
        view["b2"][:], view["b3"][:] = 2.0**59, 1.0
        view["w4"][:] = 2.0**-38 * rng.choice([-1.0, 1.0], 320)
        view["b4"][:] = -28.0
        view["b4"][3] = 0.0
    elif case == "huge hidden layer, tiny derivatives of the outputs":
        view["b3"][:] = 2.0**60
        view["b4"][:] = -53.0
        view["b4"][3] = 0.0
    elif case == "many equal coordinates":
        flat[:] = 0.01
    elif case == "huge weights":
        flat[:] = rng.normal(size=26_010) * 1e4
    else:
        flat[:] = rng.normal(size=26_010) * 1e-12
    return flat[None]


CASES = (
    "huge inputs, tiny derivatives of the hidden layer",
    "huge hidden layer, tiny derivatives of the outputs",
    "many equal coordinates",
    "huge weights",
    "tiny weights",
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clip", [2.0**-40, 1e-9, 1e-4, 1.0, 1e9, 2.0**40])
def test_no_share_is_longer_than_the_clip_norm(case: str, clip: float, compiled: bool) -> None:
    """Norms in whole numbers, without rounding; records are black, white, huge, tiny and mixed."""
    rng = np.random.default_rng(6)
    x = np.zeros((6, 784), np.float32)
    x[1], x[2], x[3], x[4] = 1.0, 1e15, 1e-30, rng.normal(size=784)
    x[5] = 10.0 ** rng.uniform(-20, 10, 784)
    engine = FusedEngine(dp_hypo_cnn(), double=True, compiled=compiled)
    engine.bind(Dataset(x, np.full(6, 3), 10, public=True))
    lattice = SecureNoise.lattice(clip)
    limit = clip - SecureNoise(Randomness.rehearsal(1), 1).margin(engine.dimension, clip, clip)
    with np.errstate(all="ignore"):
        shares = single(engine, wild_parameters(case), np.arange(6), limit, lattice)
    for share in np.rint(shares / lattice):
        assert sum(int(step) ** 2 for step in share) <= (clip / lattice) ** 2  # the lattice is a power of two


def test_secure_runs_follow_the_plain_ones(compiled: bool) -> None:
    data, key = images(), Randomness.rehearsal(5)
    settings = dataclasses.replace(SETTINGS, noise_multiplier=2.0**-10)
    secure = FusedEngine(dp_hypo_cnn(), double=True, compiled=compiled)
    one = descend(secure, data, [dataclasses.replace(settings, secure=True)], [key])[0]
    two = descend(FusedEngine(dp_hypo_cnn()), data, [SETTINGS], [key])[0]
    assert one.dtype == np.float64
    moved = np.linalg.norm(two - secure.start(key))
    assert 0 < np.linalg.norm(one - two) < 0.05 * moved


def test_only_its_own_network_and_data() -> None:
    with pytest.raises(InvalidInput, match="trains dp_hypo_cnn"):
        FusedEngine(dp_hype_cnn())
    with pytest.raises(InvalidInput, match="784 pixels and 10 classes"):
        engine_for(dp_hypo_cnn(), engine="fused").bind(load("digits").train)


def test_mnist_is_learnt(data_root: Path) -> None:
    split = load("mnist")
    settings = Settings.from_batch(512, 60_000, noise_multiplier=1.0, steps=100, clip_norm=1.0, learning_rate=1.0)
    made = DpSgdTrainer(dp_hypo_cnn(), settings, validation=split.test)
    fitted = made.fit({}, split.train, Randomness.rehearsal(1))
    assert fitted.score > 0.75
    assert fitted.model.accuracy(split.test) == fitted.score
