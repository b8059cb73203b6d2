"""Engine B: every layer's clipped sums equal Opacus', in every mode; noiseless runs agree; bad modules are
refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training.benchmark_data import Dataset
from dptune.training.dpsgd import Settings, descend
from dptune.training.models import (
    Activation,
    Cnn,
    Conv,
    GlobalMean,
    MaxPool,
    Mlp,
    dp_hype_cifar_cnn,
    dp_hype_cnn,
    dp_hypo_cnn,
    softmax,
)
from dptune.training.noise import SecureNoise
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.sampling import PoissonSampler

torch = pytest.importorskip("torch", reason="engine B needs torch")
opacus_optim = pytest.importorskip("opacus.optimizers", reason="Opacus is the reference here")
opacus_sample = pytest.importorskip("opacus.grad_sample", reason="Opacus is the reference here")

from torch import nn  # noqa: E402 - after the check that torch exists

from dptune.training import _bookkeeping, _torch_gradients  # noqa: E402 - as above
from dptune.training._bookkeeping import TemperedSigmoid  # noqa: E402 - as above
from dptune.training.torch_engine import TorchEngine  # noqa: E402 - as above
from dptune.training.torch_models import build  # noqa: E402 - as above

SIZES = [0, 1, 17, 61, 300]
IMAGE = (2, 9, 9)


def image_net(*layers: nn.Module, flat: int) -> nn.Sequential:
    return nn.Sequential(nn.Unflatten(1, IMAGE), *layers, nn.Flatten(), nn.Linear(flat, 3))


def modules() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    pools: dict[str, nn.Module] = {
        "maxpool": nn.MaxPool2d(2, 1),
        "avgpool": nn.AvgPool2d(2, 1),
    }
    elementwise: dict[str, nn.Module] = {
        "selu": nn.SELU(),
        "leaky relu": nn.LeakyReLU(),
        "softplus": nn.Softplus(),
        "hardtanh": nn.Hardtanh(),
        "identity": nn.Identity(),
    }
    return {
        **{n: nn.Sequential(nn.Linear(162, 7), layer, nn.Linear(7, 3)) for n, layer in elementwise.items()},
        "global maximum": image_net(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AdaptiveMaxPool2d(1), flat=4),
        "softmax": nn.Linear(162, 3),
        "mlp": nn.Sequential(nn.Linear(162, 7), nn.Tanh(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)),
        "no bias": nn.Sequential(nn.Linear(162, 7, bias=False), nn.Sigmoid(), nn.Linear(7, 3, bias=False)),
        "tempered": nn.Sequential(nn.Linear(162, 7), TemperedSigmoid(1.58, 3.0, 0.71), nn.Linear(7, 3)),
        "conv": image_net(nn.Conv2d(2, 4, 3), nn.ReLU(), flat=196),
        "conv stride padding": image_net(nn.Conv2d(2, 4, 4, 2, 1), nn.GELU(), flat=64),
        "conv dilation no bias": image_net(nn.Conv2d(2, 4, 3, dilation=2, bias=False), nn.ELU(), flat=100),
        **{name: image_net(nn.Conv2d(2, 4, 3), nn.ReLU(), pool, flat=144) for name, pool in pools.items()},
        "global mean": image_net(nn.Conv2d(2, 4, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), flat=4),
        "two convs": image_net(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(4, 5, 3, 2), nn.ReLU(), flat=20
        ),
        "group norm": image_net(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), flat=196),
    }


def records(count: int = 300, features: int = 162, classes: int = 3, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(rng.normal(size=(count, features)), rng.integers(0, classes, count), classes)


def opacus_sums(module: nn.Module, data: Dataset, batch: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """What Opacus adds noise to (``summed_grad`` after its own clip_and_accumulate), and the sum of its per-record
    gradients clipped in double precision: its norms are rounded like all it computes."""
    copied = build_copy(module)
    sampled = opacus_sample.GradSampleModule(copied)
    optimizer = opacus_optim.DPOptimizer(
        torch.optim.SGD(sampled.parameters(), lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        expected_batch_size=1,
    )
    x = torch.from_numpy(np.asarray(data.x[batch], dtype=np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about hooks on inputs without gradients
        torch.autograd.backward(nn.functional.cross_entropy(sampled(x), torch.from_numpy(data.y[batch])))
    exact = torch.zeros(sum(p.numel() for p in sampled.parameters()), dtype=torch.float64)
    for record in range(len(batch)):
        gradient = torch.cat([p.grad_sample[record].reshape(-1).double() for p in sampled.parameters()])
        exact += gradient * (clip / gradient.norm().clamp(min=clip))
    optimizer.clip_and_accumulate()
    return np.concatenate([p.summed_grad.reshape(-1).numpy() for p in sampled.parameters()]), exact.numpy()


def opacus_clipped_sum(module: nn.Module, data: Dataset, batch: np.ndarray, clip: float) -> np.ndarray:
    """What Opacus adds noise to."""
    return opacus_sums(module, data, batch, clip)[0]


def build_copy(module: nn.Module) -> nn.Module:
    import copy  # noqa: PLC0415 - used here only

    return copy.deepcopy(module).float()


def our_clipped_sum(engine: Any, data: Dataset, batch: np.ndarray, clip: float) -> np.ndarray:
    engine.bind(data)
    parameters = engine.start(Randomness.rehearsal(0))[None]
    out = np.empty_like(parameters)
    engine.clipped_sums(parameters, [batch], np.array([clip]), out)
    result: np.ndarray = out[0]
    return result


def relative(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("name", list(modules()))
@pytest.mark.parametrize("clip", [0.1, 1.0, 30.0])
def test_clipped_sums_equal_opacus(name: str, clip: float) -> None:
    module, data, rng = modules()[name], records(), np.random.default_rng(1)
    engine = TorchEngine(module)
    for size in SIZES:
        batch = rng.choice(300, size, replace=False)
        got = our_clipped_sum(engine, data, batch, clip)
        if size == 0:
            assert not got.any()
            continue
        assert relative(got, opacus_clipped_sum(module, data, batch, clip)) < 1e-5
    assert engine.mode == ("vmap" if name == "group norm" else "bookkeeping")


@pytest.mark.parametrize("mode", ["vmap", "alone"])
@pytest.mark.parametrize("name", ["mlp", "two convs"])
def test_fallbacks_equal_book_keeping(name: str, mode: str) -> None:
    module, data = modules()[name], records()
    batch = np.arange(61)
    expected = our_clipped_sum(TorchEngine(module, mode="bookkeeping"), data, batch, 0.7)
    assert relative(our_clipped_sum(TorchEngine(module, mode=mode), data, batch, 0.7), expected) < 1e-5


DESCRIPTIONS = [
    softmax(162, 3),
    Mlp(162, 3, (6, 4), "relu"),
    Mlp(162, 3, (20,), "tanh"),
    Mlp(162, 3, (6,), Activation("tempered_sigmoid", 1.58, 3.0, 0.71)),
]


def in_numpy_order(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Torch keeps weights as (outputs, inputs), engine A as (inputs, outputs)."""
    return np.concatenate([part.T.reshape(-1) for part in parts])


@pytest.mark.parametrize("model", DESCRIPTIONS)
@pytest.mark.parametrize("filled", [1.0, 0.1])
def test_engine_a_equals_opacus_on_the_same_weights(model: Mlp, compiled: bool, filled: float) -> None:
    """Records that are mostly zero take a way of their own through the compiled pass."""
    data, rng, module = records(), np.random.default_rng(1), build(model)
    if filled < 1.0:
        data = data.map(lambda x: x * (np.random.default_rng(2).random(x.shape) < filled))
    shapes = [p.shape for p in module.parameters()]
    ends = np.cumsum([p.numel() for p in module.parameters()])[:-1]
    parameters = in_numpy_order(p.detach().numpy() for p in module.parameters())[None]
    engine = NumpyEngine(model, compiled=compiled)
    engine.bind(data)
    for clip in (0.1, 1.0, 30.0):
        for size in SIZES:
            batch = rng.choice(300, size, replace=False)
            out = np.empty_like(parameters)
            engine.clipped_sums(parameters, [batch], np.array([clip]), out)
            if size == 0:
                assert not out.any()
                continue
            theirs = np.split(opacus_clipped_sum(module, data, batch, clip), ends)
            expected = in_numpy_order(part.reshape(shape) for part, shape in zip(theirs, shapes, strict=True))
            assert relative(out[0], expected) < 1e-5


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (dp_hypo_cnn(), 16 * 65 + 32 * 257 + 32 * 513 + 10 * 33),
        (dp_hype_cnn(), 32 * 10 + 64 * 289 + 128 * (144 * 64 + 1) + 10 * 129),
        (dp_hype_cifar_cnn(), 32 * 28 + 32 * 289 + 64 * 289 + 128 * 577 + 10 * 129),
    ],
)
@pytest.mark.parametrize("sizes", [[0, 1, 17], pytest.param([61, 300], marks=pytest.mark.slow)])
def test_the_papers_networks_equal_opacus(model: Cnn, count: int, sizes: list[int]) -> None:
    """Layers as in DP-HyPO, appendix E.1, and DP-Hype, appendix B.

    All are compared with Opacus' per-record gradients clipped in double precision, and with its own sums; but not the
    larger batches of DP-Hype's MNIST network, where its norm over 1.2 million parameters errs by about 1e-5."""
    torch.manual_seed(0)
    module = build(model)
    assert sum(p.numel() for p in module.parameters()) == count
    data = records(300, features=model.features, classes=10)
    engine = TorchEngine(module)
    for size in sizes:
        batch = np.random.default_rng(size).choice(300, size, replace=False)
        for clip in (0.1, 1.0, 30.0):
            got = our_clipped_sum(engine, data, batch, clip)
            if size == 0:
                assert not got.any()
            else:
                theirs, exact = opacus_sums(module, data, batch, clip)
                assert relative(got, exact) < 1e-6
                if size <= 17 or count < 1e6:
                    assert relative(got, theirs) < 1e-5
    assert engine.mode == "bookkeeping"


@pytest.mark.parametrize("mode", ["bookkeeping", "vmap"])
def test_the_first_step_refuses_wrong_sums(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One percent too much is a wrong privacy statement."""
    right = _bookkeeping.clipped_sum
    engine = TorchEngine(modules()["mlp"], mode=mode)
    our_clipped_sum(TorchEngine(modules()["mlp"], mode=mode), records(), np.arange(20), 1.0)
    if mode == "bookkeeping":
        monkeypatch.setattr(_bookkeeping, "clipped_sum", lambda *given: 1.01 * right(*given))
    else:
        vmapped = _torch_gradients.gradients_by_vmap
        wrong = lambda *given: vmapped(*given) * torch.linspace(1.0, 1.5, len(given[-1]))[:, None]  # noqa: E731
        monkeypatch.setattr("dptune.training.torch_engine.gradients_by_vmap", wrong)
    with pytest.raises(InvalidInput, match="gives other results for a batch"):
        our_clipped_sum(engine, records(), np.arange(20), 100.0)


@pytest.mark.parametrize("name", ["mlp", "two convs"])
def test_a_noiseless_trajectory_equals_opacus(name: str) -> None:
    module, data, key = modules()[name], records(), Randomness.rehearsal(3)
    settings = Settings(
        sampling_rate=0.1, noise_multiplier=0.0, steps=15, clip_norm=0.5, learning_rate=0.5, batch_size=30.0
    )
    ours = descend(TorchEngine(module), data, [settings], [key])[0]
    copied = opacus_sample.GradSampleModule(build_copy(module))
    optimizer = opacus_optim.DPOptimizer(
        torch.optim.SGD(copied.parameters(), lr=0.5),
        noise_multiplier=0.0,
        max_grad_norm=0.5,
        expected_batch_size=30,
    )
    sampler = PoissonSampler(key, len(data), 0.1)
    x, y = torch.from_numpy(data.x.astype(np.float32)), torch.from_numpy(data.y)
    for step in range(15):
        batch = torch.from_numpy(sampler.batch(step))
        optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about hooks on inputs without gradients
            torch.autograd.backward(nn.functional.cross_entropy(copied(x[batch]), y[batch]))
        optimizer.step()
    theirs = np.concatenate([p.detach().reshape(-1).numpy() for p in copied.parameters()])
    assert relative(ours, theirs) < 1e-5


@pytest.mark.parametrize("bias", [True, False])
def test_no_share_is_longer_than_a_small_clip_norm(bias: bool) -> None:
    """A huge input and a derivative whose square vanishes in single precision, and the other way round."""
    first, second = nn.Linear(2, 2, bias=bias), nn.Linear(2, 3, bias=bias)
    worst = 0.0
    for large, scale in ((1.7e19, 1.0), (1e-25, 1e25)):
        for gap in np.linspace(20.0, 80.0, 31):
            with torch.no_grad():
                for p in (*first.parameters(), *second.parameters()):
                    p.zero_()
                first.weight[0, 0] = scale
                second.weight[0, 0] = gap / (large * scale)
            x, y = torch.tensor([[large, 0.0]]), torch.zeros(1, dtype=torch.int64)
            got = _bookkeeping.clipped_sum(nn.Sequential(first, second), x, y, 1e-6)
            worst = max(worst, float(got.double().norm()) / 1e-6)
    assert 0.9 < worst <= 1.0 + 1e-5


class Mixing(nn.Module):
    """A module that looks at the other records of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(162, 3)

    def forward(self, x: Any) -> Any:
        return self.dense(x - x.mean(dim=0, keepdim=True))


class Data(nn.Module):
    """A module whose control flow depends on data, which vmap cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(162, 3)

    def forward(self, x: Any) -> Any:
        return self.dense(x * 2.0) if float(x.sum()) > -1e9 else self.dense(x)


@pytest.mark.parametrize("mode", ["auto", "vmap", "alone"])
def test_a_module_that_mixes_records_is_refused(mode: str) -> None:
    with pytest.raises(InvalidInput, match="mixes records"):
        our_clipped_sum(TorchEngine(Mixing(), mode=mode), records(), np.arange(20), 1.0)


def test_what_vmap_cannot_trace_is_computed_one_by_one() -> None:
    module = Data()
    engine = TorchEngine(module)
    got = our_clipped_sum(engine, records(), np.arange(20), 1.0)
    assert engine.mode == "alone"
    assert relative(got, opacus_clipped_sum(module, records(), np.arange(20), 1.0)) < 1e-5


def test_batch_norm_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="'1' is BatchNorm1d: its output for one record depends on the others"):
        TorchEngine(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))


class Hidden(nn.Module):
    """Batch normalisation without a layer that says so; for one record torch itself refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(162, 3)
        self.mean, self.variance = nn.Buffer(torch.zeros(162)), nn.Buffer(torch.ones(162))

    def forward(self, x: Any) -> Any:
        return self.dense(nn.functional.batch_norm(x, self.mean, self.variance, training=self.training))


def test_what_a_module_cannot_do_for_one_record_is_one_line() -> None:
    with pytest.raises(InvalidInput, match=r"Hidden cannot be trained on one record at a time.*more than 1 value"):
        our_clipped_sum(TorchEngine(Hidden()), records(), np.arange(20), 1.0)
    with pytest.raises(InvalidInput, match="cannot take rows of 162 features"):
        TorchEngine(nn.Sequential(nn.Linear(161, 3))).bind(records())


def test_a_layer_used_twice_is_not_book_kept() -> None:
    shared = nn.Linear(5, 5)
    module = nn.Sequential(nn.Linear(162, 5), shared, nn.Tanh(), shared, nn.Linear(5, 3))
    engine = TorchEngine(module)
    our_clipped_sum(engine, records(), np.arange(20), 1.0)
    assert engine.mode == "vmap"


def test_dropout_is_a_function_of_the_run() -> None:
    module = nn.Sequential(nn.Linear(162, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))
    settings = Settings(
        sampling_rate=0.1, noise_multiplier=1.0, steps=5, clip_norm=0.5, learning_rate=0.5, batch_size=30.0
    )
    one, again = (descend(TorchEngine(module), records(), [settings], [Randomness.rehearsal(1)])[0] for _ in range(2))
    assert np.array_equal(one, again)


@pytest.mark.parametrize("mode", ["bookkeeping", "vmap", "alone"])
def test_dropout_does_not_move_the_others(mode: str) -> None:
    """The attack: rate 1, one step, public weights. A mask of each place's own moved the sum by 10 clip norms and more
    when a record was inserted in front."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(162, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3))
    settings = Settings(
        sampling_rate=1.0, noise_multiplier=0.0, steps=1, clip_norm=1.0, learning_rate=1.0, batch_size=1.0
    )
    data = records(200)
    ends = [
        descend(TorchEngine(module, mode=mode, double=True), part, [settings], [Randomness.rehearsal(1)])[0]
        for part in (data, data.take(np.arange(1, 200)))
    ]
    assert 0.9 < np.linalg.norm(ends[0] - ends[1]) <= 1.0 + 1e-6


def test_masks_change_from_step_to_step() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(162, 3))
    engine = TorchEngine(module)
    engine.bind(records())
    start, patterns = engine.start(Randomness.rehearsal(1)), set()
    for step in range(3):
        out = np.empty((1, engine.dimension), np.float32)
        engine.clipped_sums(start[None] + np.float32(step), [np.arange(20)], np.array([1.0]), out)
        dropped = out[0, :-3].reshape(3, 162)[0] == 0.0  # the same features for all records
        assert 40 < dropped.sum() < 122
        patterns.add(dropped.tobytes())
    assert len(patterns) == 3


@pytest.mark.parametrize("mode", ["auto", "vmap"])
def test_records_whose_gradients_cancel_change_nothing(mode: str) -> None:
    """Equal features with different labels: the sum is about zero, and no check may fail because of that."""
    module = nn.Sequential(nn.Linear(162, 2))
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    data = Dataset(np.tile(records(1).x, (2, 1)), np.array([0, 1]), 2)
    assert np.linalg.norm(our_clipped_sum(TorchEngine(module, mode=mode), data, np.arange(2), 1.0)) < 1e-6


def test_no_record_is_looked_at_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is chosen on rows that are the same whatever the records are."""
    seen: list[bytes] = []
    forward = nn.Linear.forward

    def watched(self: nn.Linear, x: Any) -> Any:
        seen.append(x.detach().numpy().tobytes())
        return forward(self, x)

    monkeypatch.setattr(nn.Linear, "forward", watched)
    views = []
    for data in (records(40, seed=1), records(3, seed=2)):
        seen.clear()
        TorchEngine(nn.Linear(162, 3), mode="alone").bind(data)
        views.append(list(seen))
    assert views[0] == views[1]
    assert views[0]


class Odd(nn.Module):
    """Raises on some records, such as an index that is out of range."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3)

    def forward(self, x: Any) -> Any:
        return self.table(x.long()).sum(1)


@pytest.mark.parametrize("double", [False, True])
def test_a_record_on_which_a_module_raises_contributes_nothing(double: bool) -> None:
    rng = np.random.default_rng(1)
    data = Dataset(rng.integers(0, 50, (20, 6)).astype(np.float32), rng.integers(0, 3, 20), 3)
    data.x[7, 2] = 99.0
    engine = TorchEngine(Odd(), double=double)
    engine.bind(data)
    parameters, out = engine.start(Randomness.rehearsal(1))[None], np.empty((2, 1, engine.dimension), engine.dtype)
    others = np.delete(np.arange(20), 7)
    for place, batch in enumerate((np.arange(20), others)):
        if double:
            engine.lattice_sums(parameters, [batch], np.array([1.0]), [2.0**-20], out[place])
        else:
            engine.clipped_sums(parameters, [batch], np.array([1.0]), out[place])
    assert np.linalg.norm(out[0] - out[1]) <= 1e-6
    outputs = engine.logits(parameters[0], data.x)
    assert np.isnan(outputs[7]).all()
    assert np.isfinite(outputs[others]).all()


OWN = [torch.Generator()]


class Keeping(nn.Module):
    """Keeps something from call to call, or draws where nobody can set the generator back."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.dense, self.way, self.calls = nn.Linear(162, 3), way, 0
        self.mean = nn.Buffer(torch.zeros(162))

    def forward(self, x: Any) -> Any:
        if self.way == "calls":
            self.calls += 1
        elif self.way == "mean":
            self.mean.add_(x.detach().mean(0))
        elif self.way == "own" and self.training:
            x = x * torch.rand(1, generator=OWN[0])
        elif self.way == "numpy" and self.training:
            x = x * float(np.random.random())  # noqa: NPY002 - what users do
        return self.dense(x)


@pytest.mark.parametrize(
    ("way", "why"),
    [("calls", "'calls'"), ("mean", "'mean'"), ("numpy", "generator of numpy"), ("own", "changes between calls")],
)
def test_a_module_whose_records_depend_on_earlier_ones_is_refused(way: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        TorchEngine(Keeping(way)).bind(records())


def test_a_layer_that_only_looks_known_is_not_book_kept() -> None:
    """By its name, by a method of its own, by the dimension that it works on."""

    class TemperedSigmoid(nn.Module):
        def forward(self, x: Any) -> Any:
            return x - x.mean(0)

    patched = nn.ReLU()
    patched.forward = lambda x: x - x.mean(0)  # type: ignore[method-assign,assignment] # what is tested
    for layer in (TemperedSigmoid(), patched, nn.Flatten(0), nn.Unflatten(0, (2, -1))):
        assert _bookkeeping.layers_of(nn.Sequential(nn.Linear(4, 3), layer, nn.Linear(3, 3))) is None


def test_the_callers_module_is_left_alone() -> None:
    module = modules()["mlp"]
    before = [p.detach().clone() for p in module.parameters()]
    settings = Settings(
        sampling_rate=0.1, noise_multiplier=1.0, steps=3, clip_norm=0.5, learning_rate=0.5, batch_size=30.0
    )
    engine = TorchEngine(module)
    end = descend(engine, records(), [settings], [Randomness.rehearsal(1)])[0]
    for old, new in zip(before, module.parameters(), strict=True):
        assert torch.equal(old, new)
    released = engine.release(end)
    np.testing.assert_allclose(
        released(torch.from_numpy(records().x.astype(np.float32))).detach().numpy(),
        engine.logits(end, records().x),
        rtol=1e-5,
        atol=1e-6,
    )


def test_wrong_shapes_are_one_clear_line() -> None:
    engine = TorchEngine(nn.Linear(10, 3))
    with pytest.raises(InvalidInput, match="cannot take rows of 162 features"):
        engine.bind(records())
    with pytest.raises(InvalidInput, match=r"outputs of shape \(4,\) for 3 classes"):
        TorchEngine(nn.Linear(162, 4)).bind(records())
    with pytest.raises(InvalidInput, match="A model must be a description"):
        TorchEngine("net")  # type: ignore[arg-type] # what a careless caller would pass


def test_descriptions_build_networks() -> None:
    tiny = Cnn((2, 9, 9), 3, (Conv(4, 3), MaxPool(2, 2), GlobalMean()), dense=(5,))
    engine = TorchEngine(build(tiny), fresh=True)
    assert our_clipped_sum(engine, records(), np.arange(20), 1.0).shape == (2 * 9 * 4 + 4 + 4 * 5 + 5 + 5 * 3 + 3,)
    assert not np.array_equal(engine.start(Randomness.rehearsal(1)), engine.start(Randomness.rehearsal(2)))


@pytest.mark.parametrize("name", ["mlp", "maxpool", "dropout"])
def test_sums_on_the_lattice_are_exact(name: str) -> None:
    """Bit for bit: a batch is the sum of its records in any order, each on the lattice and within the clip norm."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(162, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    engine = TorchEngine(module if name == "dropout" else modules()[name], double=True)
    engine.bind(records())
    lattice, clip = SecureNoise.lattice(0.1), 0.1
    limit = np.array([clip - SecureNoise(Randomness.rehearsal(1), 1).margin(engine.dimension, clip, clip)])
    parameters = engine.start(Randomness.rehearsal(1))[None]
    shares, together = np.empty((31, engine.dimension)), np.empty_like(parameters)
    for record in range(31):
        assert engine.lattice_sums(parameters, [np.array([record])], limit, [lattice], shares[record : record + 1])
    for share in np.rint(shares / lattice):
        assert 0 < sum(int(step) ** 2 for step in share) <= (clip / lattice) ** 2
    for order in (np.arange(31), np.arange(31)[::-1].copy(), np.array([7, 3, 29])):
        assert engine.lattice_sums(parameters, [order], limit, [lattice], together)
        assert np.array_equal(together[0], shares[order].sum(axis=0))
    plain = np.empty_like(parameters)  # dropout draws the same mask in all modes
    engine.clipped_sums(parameters, [np.arange(31)], limit, plain)
    rounding = lattice * np.sqrt(31 * engine.dimension)
    assert np.linalg.norm(shares.sum(axis=0) - plain[0]) < rounding
    assert engine.lattice_sums(parameters, [np.empty(0, np.int64)], limit, [lattice], together)
    assert not together.any()
