"""The compiled engine for described networks against gradients in double precision and Opacus, on drawn networks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.training import network_reference as reference
from tests.training.sensitivity import check, fast, records, secure

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings, engines
from dptune.training._compiled import kernel
from dptune.training._formula import Formula
from dptune.training._network import Dense, Pointwise, program
from dptune.units import UnitDataset

torch = pytest.importorskip("torch", reason="modules need torch")
from tests.training.drawn_networks import CLASSES, networks  # noqa: E402 - as above
from tests.training.some_networks import (  # noqa: E402 - as above
    MAKERS,
    drawn_records,
    expected_gradients,
    expected_size,
    flat_net,
    flat_of,
    image_net,
    pooled_net,
    summed,
)
from torch import nn  # noqa: E402 - after the check that torch exists

from dptune.training._recognise import NotDescribed, describe, record_shape  # noqa: E402 - as above
from dptune.training.engines import engine_for  # noqa: E402 - as above
from dptune.training.network_engine import FusedModuleEngine, NetworkEngine  # noqa: E402 - as above
from dptune.training.torch_engine import TorchEngine  # noqa: E402 - as above
from dptune.training.torch_models import build  # noqa: E402 - as above

pytestmark = pytest.mark.skipif(kernel is None, reason="the kernels are not compiled")
DRAWN = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=() if kernel is None else kernel.instructions())
def instructions(request: Any) -> Iterator[str]:
    kernel.instructions(request.param)
    yield request.param
    kernel.instructions(kernel.instructions()[-1])


@given(networks(), st.sampled_from([0.01, 1.0, 1e6]), st.integers(0, 2))
@DRAWN
def test_drawn_networks_equal_double_precision(drawn: Any, clip: float, level: int) -> None:
    module, features = drawn
    layers, data, flat = describe(module), drawn_records(features, 17), flat_of(module)
    kernel.instructions(kernel.instructions()[min(level, len(kernel.instructions()) - 1)])
    try:
        engine = engine_for(module, engine="network")
        found = summed(engine, data, flat, clip)
        scores = engine.logits(flat, data.x)
    finally:
        kernel.instructions(kernel.instructions()[-1])
    expected = reference.clipped_sum(layers, (features,), flat, data, clip)
    assert np.linalg.norm(found - expected) <= 1e-6 * expected_size(layers, flat, data, clip)
    own = np.array([reference.outputs(layers, (features,), flat, x) for x in data.x])
    assert np.abs(scores - own).max() <= 1e-5 * (1.0 + np.abs(own).max())


@pytest.mark.parametrize("records_", [0, 1, 17, 61, 300])
@pytest.mark.parametrize("make", MAKERS)
def test_batches_of_every_size_equal_double_precision(make: Any, records_: int, instructions: str) -> None:
    module = make()
    data, each = expected_gradients(make)
    shares = each * np.minimum(1.0, 0.7 / np.linalg.norm(each, axis=1, keepdims=True))
    found = summed(engine_for(module), data, flat_of(module), 0.7, records_)
    if not records_:
        assert not found.any()
        return
    error = np.linalg.norm(found - shares[:records_].sum(0))
    assert error <= 1e-6 * np.linalg.norm(shares[:records_], axis=1).sum()


@pytest.mark.parametrize("deep", [1, 4, 5, 8])
def test_gradients_of_deep_networks_in_tiles_equal_double_precision(deep: int, instructions: str) -> None:
    """Errors of one layer are inputs of the next: large tiles are for four layers at most, small ones for more.

    One record of nine may stand at the kink of a relu, where the last bit of any arithmetic decides.
    """
    torch.manual_seed(deep)
    rest: list[nn.Module] = []
    for _ in range(deep):
        rest += [nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()]
    first = nn.Conv2d(1, 16, 3, padding=1)
    module = nn.Sequential(
        nn.Unflatten(1, (1, 12, 16)), first, *rest, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)
    )
    data, flat, errors = drawn_records(192, 9), flat_of(module), []
    engine = engine_for(module, engine="network")
    for place in range(9):
        own = reference.gradient(describe(module), (192,), flat, data.x[place], int(data.y[place]))
        found = summed(engine, data.take(np.array([place])), flat, 1e6)
        errors.append(np.linalg.norm(found - own) / np.linalg.norm(own))
    assert sorted(errors)[7] <= 1e-6


@given(networks(), st.sampled_from([0.1, 1e6]))
@settings(DRAWN, max_examples=25)
@pytest.mark.filterwarnings("ignore")
def test_drawn_networks_equal_opacus(drawn: Any, clip: float) -> None:
    opacus = pytest.importorskip("opacus")
    module, features = drawn
    assume(not any(isinstance(layer, nn.LayerNorm) and layer.bias is None for layer in module[0]))  # Opacus needs one
    data = drawn_records(features, 17)
    found = summed(engine_for(module, engine="network"), data, flat_of(module), clip)
    private = opacus.GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    scores = private(torch.from_numpy(data.x))
    loss: Any = nn.functional.cross_entropy(scores, torch.from_numpy(data.y), reduction="sum")
    loss.backward()
    each = torch.cat([p.grad_sample.reshape(17, -1) for p in private.parameters()], 1).double().numpy()
    norms = np.linalg.norm(each, axis=1)
    expected = (each * np.minimum(1.0, clip / norms)[:, None]).sum(0)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.minimum(norms, clip).sum()


@given(networks(), st.sampled_from([1e-3, 1.0]))
@settings(DRAWN, max_examples=25)
def test_one_record_moves_a_sum_of_drawn_networks_by_the_clip_norm(drawn: Any, clip: float) -> None:
    module, features = drawn
    data, engine = drawn_records(features, 18), engine_for(module, engine="network")
    flat, peers = flat_of(module), np.arange(17)
    without = summed(engine, data.take(peers), flat, clip)
    for place in (0, 8, 17):
        having = summed(engine, data.take(np.insert(peers, place, 17)), flat, clip)
        assert np.linalg.norm(having - without) <= clip * (1.0 + 1e-6)


def test_a_norm_of_one_value_lets_no_derivative_through(instructions: str) -> None:
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(3, 1, bias=False), nn.LayerNorm(1), nn.Linear(1, CLASSES))
    found = summed(engine_for(module, engine="network"), drawn_records(3, 17), flat_of(module), 1.0)
    assert not found[:3].any()
    assert found[3:].any()


def dropping() -> dict[str, nn.Module]:
    torch.manual_seed(3)
    image: list[nn.Module] = [nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 3, 3, padding=1)]
    return {
        "dense": nn.Sequential(nn.Linear(32, 12), nn.Dropout(0.5), nn.ReLU(), nn.Linear(12, CLASSES)),
        "first": nn.Sequential(nn.Dropout(0.5), nn.Linear(32, CLASSES)),
        "image": nn.Sequential(*image, nn.Tanh(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(48, CLASSES)),
        "channels": nn.Sequential(*image, nn.Dropout2d(0.3), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, CLASSES)),
        "wide": nn.Sequential(nn.Linear(32, 2048), nn.Tanh(), nn.Dropout(0.5), nn.Linear(2048, CLASSES)),
        "nothing": nn.Sequential(nn.Linear(32, 2048), nn.ReLU(), nn.Dropout(1.0), nn.Linear(2048, CLASSES)),
    }


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("name", list(dropping()))
def test_dropout_has_one_mask_a_step(name: str, sums: Any) -> None:
    module = dropping()[name]
    double = sums is secure
    check(lambda: engine_for(module, engine="network", double=double), records(32, CLASSES), sums, [0.1, 1.0])


def test_dropout_is_what_the_masks_say() -> None:
    module = dropping()["image"]
    engine: Any = engine_for(module, engine="network")
    data, flat = drawn_records(32, 5), flat_of(module)
    found = summed(engine, data, flat, 1e6)
    mask = engine._pass._masks(flat).reshape(16, 3).T.reshape(3, 4, 4).astype(np.float64)
    assert 0.0 < (mask == 0.0).mean() < 0.6
    assert set(np.unique(mask.round(6))) == {0.0, round(1 / 0.7, 6)}
    each = [
        reference.gradient(describe(module), (32,), flat, x, int(y), [mask])
        for x, y in zip(data.x, data.y, strict=True)
    ]
    assert np.linalg.norm(found - sum(each)) <= 1e-6 * sum(map(np.linalg.norm, each))
    other = engine._pass._masks(flat + np.float32(1e-3))
    assert not np.array_equal(other, engine._pass._masks(flat))


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_large_dense_layers_leave_out_what_is_dropped(rate: float, instructions: str) -> None:
    torch.manual_seed(12)
    module = nn.Sequential(
        nn.Linear(24, 1024), nn.Tanh(), nn.Linear(1024, 70), nn.ReLU(), nn.Dropout(rate), nn.Linear(70, CLASSES)
    )
    engine: Any = engine_for(module, engine="network")
    data, flat = drawn_records(24, 37), flat_of(module)
    mask = engine._pass._masks(flat).astype(np.float64)
    each = [
        reference.gradient(describe(module), (24,), flat, x, int(y), [mask])
        for x, y in zip(data.x, data.y, strict=True)
    ]
    found = summed(engine, data, flat, 1e6)
    assert np.linalg.norm(found - sum(each)) <= 1e-6 * sum(map(np.linalg.norm, each))
    weights = found[25 * 1024 :][: 70 * 1024].reshape(70, 1024)
    assert np.array_equal(weights.any(axis=1), mask > 0)
    assert not summed(engine, data, flat, 1.0, count=0).any()


@pytest.mark.parametrize("make", MAKERS)
def test_exact_sums(make: Any, instructions: str) -> None:
    module = make()
    features = record_shape(describe(module))[0]  # type: ignore[index] # all say their shape
    data, engine, flat = drawn_records(features, 61), engine_for(module, double=True), flat_of(module)
    engine.bind(data)
    out, clip, lattice = np.empty((4, len(flat))), np.full(4, 0.5), [2.0**-20] * 4
    rng = np.random.default_rng(0)
    parts = [np.arange(61), rng.permutation(61), np.arange(30), np.arange(30, 61)]
    assert engine.lattice_sums(np.repeat(flat[None], 4, 0).astype(float), parts, clip, lattice, out)  # type: ignore[attr-defined] # it has them
    assert np.array_equal(out[0], out[1])
    assert np.array_equal(out[0], out[2] + out[3])
    assert np.array_equal(out * 2.0**20, np.rint(out * 2.0**20))
    expected = reference.clipped_sum(describe(module), data.x.shape[1:], flat, data, 0.5)
    assert np.abs(out[0] - expected).max() <= 61 * 2.0**-20


@pytest.mark.parametrize("make", MAKERS)
def test_small_and_large_whole_numbers_are_added_alike(make: Any, instructions: str) -> None:
    """Sums that fit 32 bits are added in such; both ways round a record's share to the same whole numbers."""
    module = make()
    data, _ = expected_gradients(make)
    engine: Any = engine_for(module, double=True, engine="network")
    engine.bind(data)
    flat, batch = flat_of(module), np.arange(61)
    for unit in (2.0**10, 2.0**16):
        small, norms = engine.formula_sum(flat, batch, Formula(64.0, 0.0, 64.0), unit)
        large, _ = engine.formula_sum(flat, batch, Formula(2.0**40, 0.0, 2.0**40), unit)  # of which 61 may be too many
        assert norms.max() < 64.0  # so that nothing is clipped
        assert np.array_equal(small, np.rint(small))
        assert np.array_equal(small, large)
    for unit in (2.0**20, 2.0**24, 2.0**30):  # on both sides of the bound
        whole, _ = engine.formula_sum(flat, batch, Formula(0.5, 0.0, 0.5), unit)
        each = [engine.formula_sum(flat, batch[[k]], Formula(0.5, 0.0, 0.5), unit)[0] for k in range(61)]
        assert np.array_equal(whole, np.sum(each, axis=0))


@pytest.mark.parametrize("make", MAKERS)
def test_one_record_moves_an_exact_sum_by_the_clip_norm(make: Any) -> None:
    module = make()
    features = record_shape(describe(module))[0]  # type: ignore[index] # all say their shape
    check(lambda: engine_for(module, double=True), records(features, CLASSES), secure, [0.1, 1.0])


@pytest.mark.parametrize("first", ["convolution", "dense"])
def test_inputs_next_to_nothing_do_not_overflow_an_exact_sum(first: str) -> None:
    torch.manual_seed(0)
    begin: list[nn.Module] = [nn.Linear(4, 8, bias=False)]
    if first == "convolution":
        begin = [nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 8, 2, bias=False), nn.Flatten()]
    last = nn.Linear(8, CLASSES)
    with torch.no_grad():
        last.weight.mul_(1e38)
    module = nn.Sequential(*begin, last)
    data = drawn_records(4, 12)
    data = Dataset(data.x * np.float32(1e-38), data.y, CLASSES)
    engine = engine_for(module, double=True)
    assert type(engine) is NetworkEngine
    without, having = (secure(engine, data.take(np.arange(count)), 0.1) for count in (11, 12))
    assert np.isfinite(having).all()
    assert np.linalg.norm(having - without) <= 0.1


@pytest.mark.parametrize("make", MAKERS)
def test_a_record_is_judged_alike_in_any_company(make: Any, instructions: str) -> None:
    module = make()
    engine, flat = engine_for(module), flat_of(module)
    data = drawn_records(record_shape(describe(module))[0], 110)  # type: ignore[index] # all say their shape
    together = engine.logits(flat, data.x)
    for size in (1, 2, 7, 37):
        parts = [engine.logits(flat, data.x[first : first + size]) for first in range(0, 110, size)]
        assert np.array_equal(np.concatenate(parts), together)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e30, -1e20, 1e-42])
@pytest.mark.parametrize("make", MAKERS)
def test_records_that_overflow_leave_others_alone(make: Any, value: float) -> None:
    module = make()
    data = drawn_records(record_shape(describe(module))[0], 18)  # type: ignore[index] # all say their shape
    flat, engine = flat_of(module), engine_for(module)
    for place in (0, 9, 17):
        x = data.x.copy()
        x[place, ::2] = value
        odd = Dataset.__new__(Dataset)  # a data set repairs such records; an engine must not rely on it
        object.__setattr__(odd, "x", x)
        object.__setattr__(odd, "y", data.y)
        object.__setattr__(odd, "classes", CLASSES)
        having = summed(engine, odd, flat, 1.0)
        without = summed(engine, data.take(np.delete(np.arange(18), place)), flat, 1.0)
        assert np.linalg.norm(having - without) <= 1.0 + 1e-5


def test_arrays_that_are_not_contiguous_and_channels_last_images() -> None:
    module = nn.Sequential(*list(image_net())[1:])
    flat, rng = flat_of(module), np.random.default_rng(0)
    images = rng.normal(size=(9, 2, 9, 8)).astype(np.float32)
    last = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wide = np.zeros((9, 300), np.float64)
    wide[:, ::2][:, :144] = images.reshape(9, -1)
    engine = engine_for(image_net())
    plain = summed(engine, Dataset(images.reshape(9, -1), np.arange(9) % CLASSES, CLASSES), flat, 1.0)
    for rows in (last.reshape(9, -1), wide[:, ::2][:, :144]):
        found = summed(engine, Dataset(rows, np.arange(9) % CLASSES, CLASSES), flat, 1.0)
        assert np.array_equal(found, plain)
    assert np.array_equal(engine.logits(flat, last.reshape(9, -1)), engine.logits(flat, images.reshape(9, -1)))


def test_modules_whose_weights_lie_channels_last() -> None:
    plain, last = image_net(), copy.deepcopy(image_net())
    for p in last.parameters():
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    data, flat = drawn_records(144, 9), flat_of(plain)
    assert type(engine_for(last)) is NetworkEngine
    assert np.array_equal(engine_for(last).start(Randomness.rehearsal(0)), flat)
    found = [summed(engine_for(one), data, flat, 1.0) for one in (plain, last)]
    assert np.array_equal(*found)


def test_margins_may_be_wider_than_the_image() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Unflatten(1, (2, 1, 2)), nn.Conv2d(2, 3, 1, padding=(4, 5)), nn.Flatten(), nn.Linear(324, CLASSES)
    )
    data, flat = drawn_records(4, 9), flat_of(module)
    found = summed(engine_for(module, engine="network"), data, flat, 0.1)
    expected = summed(engine_for(module, engine="torch", double=True), data, flat, 0.1)
    assert np.linalg.norm(found - expected) <= 1e-6 * 9 * 0.1


def test_shapes_that_do_not_fit() -> None:
    engine = engine_for(flat_net())
    with pytest.raises(InvalidInput, match="cannot take rows of 20 features: its first layer takes 21"):
        engine.bind(drawn_records(20, 3))
    with pytest.raises(InvalidInput, match="gives 5 outputs for 7 classes"):
        engine.bind(drawn_records(21, 9, classes=7))
    bad = nn.Sequential(nn.Linear(4, 3), nn.Linear(2, 2))
    with pytest.raises(InvalidInput, match=r"Layer 1 .* takes 2 values, but 3 values come in"):
        engine_for(bad, engine="network")
    with pytest.raises(InvalidInput, match=r"windows of .* larger than"):
        engine_for(nn.Sequential(nn.Unflatten(1, (1, 3, 3)), nn.Conv2d(1, 2, 5)), engine="network")
    with pytest.raises(InvalidInput, match=r"fewer than 2\^31"):
        program((Dense(2**16, 2**16),), (2**16,))
    with pytest.raises(InvalidInput, match=r"fewer than 2\^31"):
        program((Pointwise("relu"),), (2**31,))


def test_the_kernel_refuses_what_is_not_a_network() -> None:
    made = program((Dense(4, 3), Pointwise("relu"), Dense(3, 2)), (4,))
    for row, column, value in [(2, 2, 4), (0, 0, 9), (1, 1, 30), (2, 5, -1), (2, 5, 2**40), (0, 3, 0)]:
        fields = made.fields.copy()
        fields[row, column] = value
        with pytest.raises(ValueError, match="not a possible network"):
            kernel.net_room(fields, made.constants, False)
    room = np.zeros(kernel.net_room(made.fields, made.constants, False), np.uint8)
    x, y = np.zeros((2, 4), np.float32), np.array([0, 5])
    order = made.order.astype(np.int32)
    good = (made.fields, made.constants, order, np.zeros(23, np.float32), np.zeros(0, np.float32), x)
    out, norms, rule = np.zeros(23, np.float32), np.zeros(2), (1.0, 0.0, 1.0, False)
    with pytest.raises(IndexError):
        kernel.net_sum(*good, y, np.array([0, 1]), rule, 0.0, False, room, out, norms)
    for place in (23, -1, 2**31 - 1):
        bad_order = order.copy()
        bad_order[7] = place
        with pytest.raises(IndexError, match="parameter"):
            kernel.net_sum(*good[:2], bad_order, *good[3:], y, np.array([0]), rule, 0.0, False, room, out, norms)
        with pytest.raises(IndexError, match="parameter"):
            kernel.net_forward(*good[:2], bad_order, good[3], x, room, np.zeros((2, 2), np.float32))
    swapped = order.copy()
    swapped[[0, 1]] = swapped[[1, 0]]  # outputs of a layer that do not follow each other
    with pytest.raises(IndexError, match="parameter"):
        kernel.net_sum(*good[:2], swapped, *good[3:], y, np.array([0]), rule, 0.0, False, room, out, norms)
    large = program((Dense(256, 256), Dense(256, 2)), (256,))  # inputs of the first are brought into torch's order
    outside = large.order.astype(np.int32)
    outside[: 256 * 256] += 256 * 256  # places of the next layer, each of them one of the network's
    outside[0:256] -= 256 * 256
    given = (large.fields, large.constants, outside, np.zeros(len(outside), np.float32))
    with pytest.raises(IndexError, match="parameter"):
        kernel.net_forward(
            *given, np.zeros((1, 256), np.float32), np.zeros(kernel.net_room(*given[:2], False), np.uint8), out
        )
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        kernel.net_sum(
            *good[:5], np.zeros((2, 8), np.float32)[:, ::2], y, np.array([0]), rule, 0.0, False, room, out, norms
        )
    with pytest.raises(ValueError, match="order"):
        kernel.net_sum(*good[:2], order[:9], *good[3:], y, np.array([0]), rule, 0.0, False, room, out, norms)
    with pytest.raises(ValueError, match="room"):
        kernel.net_sum(*good, y, np.array([0]), rule, 0.0, False, room[:100], out, norms)
    with pytest.raises(ValueError, match="norms"):
        kernel.net_sum(*good, y, np.array([0, 0]), rule, 0.0, False, room, out, norms[:1])
    for bad in [(np.nan, 0.0, 1.0, False), (np.inf, 0.0, 1.0, False), (1.0, -1.0, 1.0, False), (1.0, 0.0, 0.0, False)]:
        with pytest.raises(ValueError, match="rule of clipping"):
            kernel.net_sum(*good, y, np.array([0]), bad, 0.0, False, room, out, norms)
    with pytest.raises(ValueError, match="several outputs"):
        kernel.net_sum(*good, np.zeros(2), np.array([0]), rule, 0.0, True, room, out, norms)
    with pytest.raises(ValueError, match="sum"):
        kernel.net_sum(*good, y, np.array([0]), rule, 1.0, False, room, out, norms)


class Doubled(nn.Linear):
    """Not what it seems."""

    def forward(self, x: Any) -> Any:
        return 2.0 * super().forward(x)


def changed() -> nn.Module:
    layer = nn.Linear(4, 4)
    vars(layer)["forward"] = lambda x: x  # as a user might
    return layer


def frozen() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.weight.requires_grad_(False)
    return layer


SHARED = nn.Linear(4, 4)
UNKNOWN: dict[str, Any] = {
    "subclass": lambda: nn.Sequential(Doubled(4, 4)),
    "changed": lambda: nn.Sequential(changed(), nn.Linear(4, 4)),
    "frozen": lambda: nn.Sequential(frozen(), nn.Linear(4, 4)),
    "shared": lambda: nn.Sequential(SHARED, nn.Tanh(), SHARED),
    "normed": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
    "softplus": lambda: nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 4)),
    "groups": lambda: nn.Sequential(nn.Unflatten(1, (2, 2, 1)), nn.Conv2d(2, 4, 1, groups=2), nn.Flatten()),
    "dilation": lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 1, dilation=2), nn.Flatten()),
    "reflect": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), nn.Flatten()
    ),
    "ceil": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.MaxPool2d(2, 2, ceil_mode=True), nn.Flatten(), nn.Linear(1, 4)
    ),
    "divisor": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.AvgPool2d(2, divisor_override=3), nn.Flatten(), nn.Linear(1, 4)
    ),
    "partly flat": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 1)), nn.Flatten(2), nn.Linear(2, 1), nn.Flatten(), nn.Linear(2, 4)
    ),
    "class": lambda: type("Own", (nn.Sequential,), {})(nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", list(UNKNOWN))
def test_what_is_not_understood_goes_to_torch(name: str, caplog: Any) -> None:
    engines._say_once.cache_clear()
    module = UNKNOWN[name]()
    with caplog.at_level(logging.WARNING):
        assert isinstance(engine_for(module), TorchEngine)
        assert isinstance(engine_for(module), TorchEngine)
    assert [record.name for record in caplog.records] == [engines.__name__]
    with pytest.raises(InvalidInput):
        engine_for(module, engine="network")


def test_modules_that_mix_records_are_refused() -> None:
    for engine in ("auto", "network"):
        with pytest.raises(InvalidInput, match="depends on the others"):
            engine_for(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), engine=engine)
    hooked = flat_net()
    hooked[0].register_forward_hook(lambda *given: None)
    with pytest.raises(InvalidInput, match="hook"):
        engine_for(hooked)


def test_what_is_understood_is_described() -> None:
    pooled = nn.Sequential(nn.Unflatten(1, (1, 6, 6)), nn.Sequential(nn.MaxPool2d(3), nn.Identity()))
    layers = describe(pooled)
    assert (
        str(layers[1])
        == "Pool(kind='max', kernel=(3, 3), stride=(3, 3), padding=(0, 0), margin=True, sides=(None, None))"
    )
    same = nn.Conv2d(1, 2, (3, 5), padding="same", bias=False)
    assert describe(nn.Sequential(same)) == describe(nn.Sequential(nn.Conv2d(1, 2, (3, 5), padding=(1, 2), bias=False)))
    with pytest.raises(NotDescribed, match="differs from side to side"):
        describe(nn.Sequential(nn.Conv2d(1, 2, 2, padding="same")))


def test_engines_are_chosen() -> None:
    assert type(engine_for(image_net())) is NetworkEngine
    assert engine_for(image_net()).mode == "compiled"  # type: ignore[attr-defined] # modules' engines have one
    from dptune.training.models import Cnn, Conv, dp_hypo_cnn  # noqa: PLC0415 - for this test alone

    assert type(engine_for(build(dp_hypo_cnn()))) is FusedModuleEngine
    description = Cnn((1, 6, 6), 3, (Conv(4, 3),), dense=(5,))
    compiled, plain = engine_for(description), engine_for(description, engine="torch")
    assert type(compiled) is NetworkEngine
    key = Randomness.rehearsal(5)
    assert np.array_equal(compiled.start(key), plain.start(key))


def test_models_come_back_as_modules() -> None:
    module = image_net()
    engine: Any = engine_for(module)
    flat = flat_of(module) + np.float32(0.25)
    made = engine.release(flat)
    assert np.array_equal(flat_of(made), flat)
    assert not made.training
    assert made is not module
    assert not np.array_equal(flat_of(module), flat)
    x = drawn_records(144, 5).x
    with torch.no_grad():
        assert np.allclose(made(torch.from_numpy(x)).numpy(), engine.logits(flat, x), atol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_a_sum_does_not_depend_on_the_number_of_threads(double: bool) -> None:
    module = pooled_net()
    data, flat = drawn_records(663, 400), flat_of(module).astype(np.float64 if double else np.float32)
    found = []
    for threads in (1, 2, 3, 7):
        engine: Any = engine_for(module, double=double, engine="network", threads=threads)
        engine.bind(data)
        out = np.empty((1, len(flat)), engine.dtype)
        for _ in range(2):
            engine.lattice_sums(flat[None], [np.arange(400)], np.ones(1), [2.0**-20 if double else 0.0], out)
            found.append(out.copy())
    assert all(np.array_equal(one, found[0]) for one in found)
    with pytest.raises(InvalidInput, match="threads"):
        engine_for(module, threads=0)


@pytest.mark.parametrize("secure_", [False, True])
@pytest.mark.parametrize("by_unit", [False, True])
def test_a_trainer_trains_a_users_module(secure_: bool, by_unit: bool) -> None:
    def model(params: Any) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(24, 2)
        )

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = rng.normal(size=(200, 16)).astype(np.float32) * 0.3 + np.where(y, 1.0, -1.0)[:, None].astype(np.float32)
    rows = Dataset(x, y, 2)
    data = UnitDataset(rows, [f"unit {place // 2}" for place in range(200)], unit_rows=2) if by_unit else rows
    given = Settings(0.25, 0.5, steps=25, clip_norm=1.0, learning_rate=0.5, batch_size=25, secure=secure_)
    fitted = DpSgdTrainer(model, given).fit({}, data, Randomness.rehearsal(1))
    assert isinstance(fitted.model, nn.Sequential)
    with torch.no_grad():
        made = fitted.model(torch.from_numpy(x.astype(np.float64 if secure_ or by_unit else np.float32)))
    assert (made.argmax(1).numpy() == y).mean() > 0.9
