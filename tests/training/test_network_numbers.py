"""Targets that are numbers in the compiled engine and in torch: the squared error, against double precision."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.training import network_reference as reference
from tests.training.sensitivity import PEERS, check, fast, records, secure

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.training import DpSgdTrainer, Holdout, Settings
from dptune.training._compiled import kernel
from dptune.training.clipping import Automatic, Clipping, Flat, PerLayer, Quantile
from dptune.training.ruled_sums import RuledSums
from dptune.training.unit_sums import UnitSums
from dptune.units import UnitDataset

torch = pytest.importorskip("torch", reason="modules need torch")
from tests.training.drawn_networks import networks  # noqa: E402 - after the check that torch exists
from tests.training.some_networks import MAKERS, flat_of, image_net, summed  # noqa: E402 - as above
from torch import nn  # noqa: E402 - as above

from dptune.sealed._predicting import TorchModel  # noqa: E402 - as above
from dptune.training._recognise import describe, record_shape  # noqa: E402 - as above
from dptune.training.engines import engine_for  # noqa: E402 - as above
from dptune.training.network_engine import NetworkEngine  # noqa: E402 - as above
from dptune.training.torch_engine import TorchEngine  # noqa: E402 - as above

compiled = pytest.mark.skipif(kernel is None, reason="the kernels are not compiled")
DRAWN = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
RULES: list[Clipping] = [Flat(), Automatic(), Quantile(), PerLayer()]


@pytest.fixture(params=() if kernel is None else kernel.instructions())
def instructions(request: Any) -> Iterator[str]:
    kernel.instructions(request.param)
    yield request.param
    kernel.instructions(kernel.instructions()[-1])


def numbers(features: int, count: int) -> RegressionDataset:
    """Targets in a range that is not [0, 1]; some are beyond it."""
    rng = np.random.default_rng(features)
    x = rng.normal(size=(count, features)).astype(np.float32)
    return RegressionDataset(x, rng.normal(size=count) * 60.0, target_range=(-100.0, 50.0))


def one_output(make: Any) -> nn.Sequential:
    """The same network with one output; its last weights are long enough for errors beyond the range."""
    module: nn.Sequential = make()
    torch.manual_seed(8)
    last: Any = module[-1]
    return nn.Sequential(*list(module)[:-1], nn.Linear(last.in_features, 1, bias=last.bias is not None))


def gradients(module: nn.Module, data: RegressionDataset) -> Any:
    layers, flat = describe(module), flat_of(module)
    pairs = zip(data.x, data.scaled, strict=True)
    return np.array([reference.gradient(layers, data.x.shape[1:], flat, x, float(y)) for x, y in pairs])


@functools.cache
def expected(make: Any) -> Any:
    module = one_output(make)
    data = numbers(record_shape(describe(module))[0], 300)  # type: ignore[index] # all say their shape
    return data, gradients(module, data)


@compiled
@given(networks(outputs=1), st.sampled_from([0.01, 1.0, 1e6]), st.integers(0, 2))
@DRAWN
def test_drawn_networks_equal_double_precision(drawn: Any, clip: float, level: int) -> None:
    module, features = drawn
    data = numbers(features, 17)
    kernel.instructions(kernel.instructions()[min(level, len(kernel.instructions()) - 1)])
    try:
        found = summed(engine_for(module, engine="network"), data, flat_of(module), clip)
    finally:
        kernel.instructions(kernel.instructions()[-1])
    each = gradients(module, data)
    norms = np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-30)
    wanted = (each * np.minimum(1.0, clip / norms)).sum(0)
    assert np.linalg.norm(found - wanted) <= 1e-6 * np.minimum(norms, clip).sum()


@compiled
@pytest.mark.parametrize("count", [0, 1, 17, 61, 300])
@pytest.mark.parametrize("make", MAKERS)
def test_batches_of_every_size_equal_double_precision(make: Any, count: int, instructions: str) -> None:
    data, each = expected(make)
    module = one_output(make)
    shares = each * np.minimum(1.0, 0.3 / np.linalg.norm(each, axis=1, keepdims=True))
    found = summed(engine_for(module), data, flat_of(module), 0.3, count)
    error = np.linalg.norm(found - shares[:count].sum(0))
    assert error <= 1e-6 * np.linalg.norm(shares[:count], axis=1).sum()
    exact = engine_for(module, double=True)
    exact.bind(data)
    out = np.empty((1, len(each[0])))
    assert exact.lattice_sums(  # type: ignore[attr-defined] # it has them
        flat_of(module)[None].astype(float), [np.arange(count)], np.array([0.3]), [2.0**-20], out
    )
    assert np.abs(out[0] - shares[:count].sum(0)).max() <= count * 2.0**-20
    assert np.array_equal(out * 2.0**20, np.rint(out * 2.0**20))


def test_the_error_has_a_straight_line_beyond_the_range() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(2, 1)
    module = nn.Sequential(layer)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0.0]]))
        layer.bias.zero_()
    data = RegressionDataset(
        np.array([[1.0, 0.0], [0.1, 0.0], [-9.0, 0.0]]), np.array([0.5, 0.5, 0.5]), target_range=(0, 1)
    )
    for name in ("network", "torch") if kernel is not None else ("torch",):
        engine = engine_for(module, engine=name, numbers=True)
        for place, slope in enumerate((1.0, -0.2, -1.0)):
            found = summed(engine, data.take(np.array([place])), flat_of(module), 1e6)
            np.testing.assert_allclose(found, slope * np.array([data.x[place, 0], 0.0, 1.0]), atol=1e-6)


@compiled
@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("make", MAKERS)
def test_one_record_moves_a_sum_by_the_clip_norm(make: Any, rule: Clipping, sums: Any) -> None:
    module, double = one_output(make), sums is secure
    features = record_shape(describe(module))[0]  # type: ignore[index] # all say their shape

    def engine() -> Any:
        made = engine_for(module, double=double, rule=rule, numbers=True)
        return made if isinstance(rule, Flat) else RuledSums(made, rule)

    check(engine, records(features, 1), sums, [0.01, 0.1])


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_one_record_moves_a_sum_of_torchs_by_the_clip_norm(rule: Clipping, sums: Any) -> None:
    module = one_output(MAKERS[1])

    def engine() -> Any:
        made = engine_for(module, engine="torch", rule=rule, numbers=True)
        return made if isinstance(rule, Flat) else RuledSums(made, rule)

    check(engine, records(21, 1), sums, [0.05])


@pytest.mark.parametrize("engine", ["network", "torch"])
def test_no_record_turns_the_errors_of_others_that_are_zero_but_for_rounding(engine: str) -> None:
    """Large features that cancel: outputs that round by how many there are would turn all the errors at once."""
    if engine == "network" and kernel is None:
        pytest.skip("the kernels are not compiled")
    rng, moved = np.random.default_rng(0), []
    for _ in range(20):
        width, count = int(rng.integers(3, 40)), int(rng.integers(2, 60))
        weights, row = rng.normal(size=width), rng.normal(size=width) * 1e6
        row -= weights * (row @ weights) / (weights @ weights)
        module = nn.Sequential(nn.Linear(width, 1))
        flat = np.append(weights, 0.5 - row @ weights)
        x, y = np.vstack([rng.normal(size=width), *[row] * count]), np.append(0.1, np.full(count, 0.5))
        made: Any = engine_for(module, engine=engine, numbers=True)
        made.bind(RegressionDataset(x, y, target_range=(0, 1)))
        out = np.empty((2, made.dimension), made.dtype)
        for total, batch in zip(out, (np.arange(count + 1), np.arange(1, count + 1)), strict=True):
            made.clipped_sums(flat[None].astype(made.dtype), [batch], np.ones(1), total[None])
        moved.append(np.linalg.norm(out[0].astype(float) - out[1]))
    assert 0.5 < max(moved) <= 1.0 + 1e-5  # sums of 60 in single precision round by about 1e-6


@compiled
@pytest.mark.parametrize("outputs", [1, 5])
def test_units_of_several_rows_are_clipped_as_a_whole(outputs: int) -> None:
    """The sum of a unit's gradients, against double precision: rows that differ, that cancel, that repeat."""
    module = one_output(image_net) if outputs == 1 else image_net()
    rng, flat = np.random.default_rng(3), flat_of(module)
    x = rng.normal(size=(9, 144)).astype(np.float32)
    x[4] = x[3]
    rows: Any
    if outputs == 1:
        rows = RegressionDataset(x, np.array([5.0, 1.0, -7.0, 9.0, -9.0, 0.0, 2.0, 3.0, 4.0]), target_range=(-10, 10))
        targets = [float(one) for one in rows.scaled]
    else:
        rows = Dataset(x, np.arange(9) % 5, 5)
        targets = rows.y.tolist()
    layers = describe(module)
    each = np.array([reference.gradient(layers, (144,), flat, one, own) for one, own in zip(x, targets, strict=True)])
    names = ["a", "a", "a", "b", "b", "c", "d", "d", "d"]
    units = np.array([each[[name == own for own in names]].sum(0) for name in "abcd"])
    sizes = np.array([np.linalg.norm(each[[name == own for own in names]], axis=1).sum() for name in "abcd"])
    norms = np.linalg.norm(units, axis=1)
    for clip in (0.05, 1.0, 100.0):
        shares = units * np.minimum(1.0, clip / norms)[:, None]
        engine = UnitSums(engine_for(module, engine="network", double=True))
        engine.bind(UnitDataset(rows, names, unit_rows=3))
        out = np.empty((1, len(flat)))
        engine.clipped_sums(flat[None].astype(float), [np.arange(4)], np.array([clip]), out)
        assert np.linalg.norm(out[0] - shares.sum(0)) <= 1e-6 * (sizes * np.minimum(1.0, clip / norms)).sum()
        assert engine.lattice_sums(flat[None].astype(float), [np.arange(4)], np.array([clip]), [2.0**-20], out)
        assert np.abs(out[0] - shares.sum(0)).max() <= 4 * 2.0**-20 + 1e-6 * sizes.sum()


class Own(nn.Module):
    """Nothing that the compiled engine knows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Any) -> Any:
        return self.inner(x) * 1.0


def make_own(params: Any) -> nn.Module:
    return Own()


def make_known(params: Any) -> nn.Module:
    return Own().inner


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("make", [make_known, make_own])
def test_a_users_module_predicts_numbers(make: Any, secured: bool) -> None:
    rng, known = np.random.default_rng(0), make is make_known
    x = rng.normal(size=(40 if known else 8, 6)).astype(np.float32)
    y = np.clip(50.0 + 20.0 * x[:, 0] - 10.0 * x[:, 1], 0.0, 100.0)
    data = RegressionDataset(x, y, target_range=(0, 100))
    given_ = Settings(1.0, 0.01, 20 if known else 3, 1.0, 1.0, float(len(x)), secure=secured)
    trainer = DpSgdTrainer(make, given_, validation=data)
    trainer.check({}, data)
    model, score = trainer.fit({}, data, Randomness.rehearsal(1))
    found = TorchModel(model).predict(x)
    assert ((found >= 0.0) & (found <= 100.0)).all()
    assert score == pytest.approx(np.mean(np.maximum(0.0, 1.0 - np.abs(found - y) / 25.0)), abs=1e-4)
    with pytest.raises(InvalidInput, match="predicts numbers"):
        TorchModel(model).predict_proba(x)
    again = open_model(pack_model(model, factory=make, params={}), factory=make)
    assert np.array_equal(TorchModel(again).predict(x), found)
    if known:
        assert np.abs(found - y).mean() < 8.0
        assert TorchModel(model).score(x, y) > 0.7
        held = DpSgdTrainer(make, given_, holdout=Holdout(0.5, 20.0, 0.01))
        assert held.fit({}, data, Randomness.rehearsal(2)).score > 0.4


def test_which_engine_computes_numbers() -> None:
    if kernel is not None:
        assert type(engine_for(make_known({}), numbers=True)) is NetworkEngine
        assert engine_for(make_known({}), numbers=True).dtype is np.float32
    torchs: Any = engine_for(make_own({}), numbers=True)
    assert (type(torchs), torchs.dtype) == (TorchEngine, np.float64)
    torchs.bind(numbers(6, 5))
    assert torchs.mode == "alone"


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_what_does_not_fit_numbers_is_refused(engine: str) -> None:
    several = nn.Sequential(nn.Linear(6, 3))
    with pytest.raises(InvalidInput, match="for a number"):
        engine_for(several, engine=engine, numbers=True).bind(numbers(6, 5))
    with pytest.raises(InvalidInput, match="one score per class"):
        engine_for(make_known({}), engine=engine).bind(Dataset(np.zeros((4, 6)), np.array([0, 1, 0, 1]), 2))
    with pytest.raises(InvalidInput, match="double precision"):
        TorchEngine(make_known({})).bind(numbers(6, 5))
    data = numbers(6, 5)
    other = RegressionDataset(data.x, data.y, target_range=(0, 1))
    given_ = Settings(1.0, 1.0, 1, 1.0, 1.0, 5.0)
    with pytest.raises(InvalidInput, match="same range"):
        DpSgdTrainer(make_known, given_, validation=other, engine=engine).check({}, data)


def test_a_number_that_is_missing_and_a_record_that_overflows_leave_others_alone() -> None:
    for name in ("network", "torch") if kernel is not None else ("torch",):
        engine = engine_for(make_known({}), engine=name, numbers=True)
        flat, data = flat_of(make_known({})), records(6, 1)
        without = summed(engine, data.take(np.arange(PEERS)), flat, 0.5)
        for value, target in ((np.inf, 0.5), (np.nan, 0.5), (3e38, 0.5), (1.0, np.nan)):
            odd = RegressionDataset.__new__(RegressionDataset)  # a data set repairs them; an engine must not rely on it
            x, y = data.x.copy(), data.y.copy()
            x[-1], y[-1] = value, target
            for key, own in {"x": x, "y": y, "classes": 1, "target_range": (0.0, 1.0)}.items():
                object.__setattr__(odd, key, own)
            having = summed(engine, odd, flat, 0.5)
            assert np.linalg.norm(having - without) <= 0.5 * (1.0 + 1e-5)
