"""Clipping rules in the compiled engine: what trainers ask for, against gradients in double precision."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.training.sensitivity import check, fast, records, secure

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings, _network_pass
from dptune.training._compiled import kernel
from dptune.training.clipping import Automatic, Clipping, Flat, PerLayer, Quantile
from dptune.training.models import Mlp, dp_hypo_cnn
from dptune.training.ruled_sums import RuledSums

torch = pytest.importorskip("torch", reason="modules need torch")
from tests.training.drawn_networks import CLASSES  # noqa: E402 - after the check that torch exists
from tests.training.some_networks import (  # noqa: E402 - as above
    MAKERS,
    drawn_records,
    expected_gradients,
    flat_net,
    flat_of,
    image_net,
)
from torch import nn  # noqa: E402 - as above

from dptune.training._recognise import describe, record_shape  # noqa: E402 - as above
from dptune.training.engines import engine_for  # noqa: E402 - as above
from dptune.training.fused_engine import FusedEngine  # noqa: E402 - as above
from dptune.training.network_engine import NetworkEngine  # noqa: E402 - as above

pytestmark = pytest.mark.skipif(kernel is None, reason="the kernels are not compiled")
RULES: list[Clipping] = [Automatic(), Automatic(0.3), PerLayer(), Quantile(), Quantile(0.8, 0.5, 0.3)]


@pytest.fixture
def calls(monkeypatch: Any) -> list[int]:
    """How many records each call of the kernel was about."""
    seen: list[int] = []
    inner = kernel.net_sum

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(kernel, name)

        def net_sum(self, *given: Any) -> Any:
            seen.append(len(given[7]))
            return inner(*given)

    monkeypatch.setattr(_network_pass, "kernel", Counted())
    return seen


def ruled(module: Any, rule: Clipping, double: bool = False) -> RuledSums:
    return RuledSums(engine_for(module, double=double, rule=rule), rule)


def by_rule(each: Any, sizes: list[int], clip: float, level: float, rule: Clipping) -> Any:
    """The sum of shares, tail included, written out from gradients and the number of every layer's parameters."""
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    if isinstance(rule, Automatic):
        return (each * clip / (norms + rule.stability)).sum(0)
    if isinstance(rule, Quantile):
        kept = each * np.minimum(1.0, level / norms) * clip / level * np.sqrt(1.0 - rule.share)
        count = np.clip((level - norms) / (0.1 * level), -1.0, 1.0) * clip * np.sqrt(rule.share)
        return np.append(kept.sum(0), count.sum())
    most = clip / np.sqrt(len(sizes))
    parts = np.split(each, np.cumsum(sizes)[:-1], axis=1)
    lengths = [np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-30) for part in parts]
    return np.concatenate([(p * np.minimum(1.0, most / own)).sum(0) for p, own in zip(parts, lengths, strict=True)])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("make", MAKERS)
def test_rules_equal_double_precision(make: Any, rule: Clipping, calls: list[int]) -> None:
    module = make()
    data, each = expected_gradients(make)
    data, each, flat = data.take(np.arange(61)), each[:61], flat_of(module)
    sizes = [sum(p.numel() for p in m.parameters()) for m in module if list(m.parameters())]
    for clip, double in ((0.05, False), (0.7, True)):
        engine = ruled(module, rule, double)
        assert engine.dtype is (np.float64 if double else np.float32)
        engine.bind(data)
        known: Any = np.append(flat, [0.4] * rule.tails).astype(engine.dtype)
        level = clip * np.exp(0.4) if rule.tails else clip
        expected, out = by_rule(each, sizes, clip, level, rule), np.empty((1, len(known)), engine.dtype)
        engine.clipped_sums(known[None], [np.arange(61)], np.array([clip]), out)
        assert np.linalg.norm(out[0] - expected) <= 1e-6 * 61 * clip
        if double:
            assert engine.lattice_sums(known[None], [np.arange(61)], np.array([clip]), [2.0**-20], out)
            assert np.abs(out[0] - expected).max() <= 61 * 2.0**-20
            assert np.array_equal(out * 2.0**20, np.rint(out * 2.0**20))
    assert max(calls) > 60  # the compiled pass took them all at once


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("rule", [*RULES, Automatic(0.0)], ids=repr)
@pytest.mark.parametrize("make", MAKERS)
def test_one_record_moves_a_sum_by_the_clip_norm(make: Any, rule: Clipping, sums: Any) -> None:
    module = make()
    features = record_shape(describe(module))[0]  # type: ignore[index] # all say their shape
    check(lambda: ruled(module, rule, sums is secure), records(features, CLASSES), sums, [0.1, 1.0])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_exact_sums_do_not_depend_on_company(rule: Clipping) -> None:
    module = image_net()
    engine, data = ruled(module, rule, double=True), drawn_records(144, 61)
    engine.bind(data)
    known = np.append(flat_of(module), [0.2] * rule.tails).astype(float)
    parts = [np.arange(61), np.random.default_rng(0).permutation(61), np.arange(30), np.arange(30, 61)]
    out = np.empty((4, len(known)))
    assert engine.lattice_sums(np.repeat(known[None], 4, 0), parts, np.full(4, 0.5), [2.0**-20] * 4, out)
    assert np.array_equal(out[0], out[1])
    assert np.array_equal(out[0], out[2] + out[3])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_build_that_rounds_by_place_takes_records_alone(rule: Clipping, monkeypatch: Any, calls: list[int]) -> None:
    monkeypatch.setattr(_network_pass.Pass, "steady", False)
    check(lambda: ruled(flat_net(), rule), records(21, CLASSES), fast, [1.0])
    assert set(calls) == {1}


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("name", ["flat", "automatic", "quantile", "per_layer"])
def test_trainers_use_the_compiled_rules(name: str, secured: bool, calls: list[int]) -> None:
    rng = np.random.default_rng(0)
    data = drawn_records(16, 200, 2)
    data.x[:] = rng.normal(size=(200, 16)) * 0.3 + np.where(data.y, 1.0, -1.0)[:, None]

    def model(params: Any) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))

    given = Settings(0.25, 0.5, 25, 1.0, 0.5, 25.0, secure=secured, clipping=name)
    trainer = DpSgdTrainer(model, given)
    fitted = trainer.fit({}, data, Randomness.rehearsal(1))
    kind = torch.float64 if secured else torch.float32
    assert next(fitted.model.parameters()).dtype is kind
    with torch.no_grad():
        assert (fitted.model(torch.from_numpy(data.x).to(kind)).argmax(1).numpy() == data.y).mean() > 0.9
    assert max(calls) > 20  # whole batches
    assert trainer.cost({}) == DpSgdTrainer(model, dataclasses.replace(given, clipping=Flat())).cost({})


def test_engines_are_chosen_by_the_rule() -> None:
    assert type(engine_for(dp_hypo_cnn(), rule=Automatic())) is NetworkEngine
    assert type(engine_for(dp_hypo_cnn(), rule=Flat())) is FusedEngine
    alone = engine_for(image_net(), rule=Automatic(0.0))  # each record by itself
    assert (type(alone), alone.dtype) == (NetworkEngine, np.float64)
    assert engine_for(Mlp(3, 2), rule=Automatic(0.0)).dtype is np.float64
    assert engine_for(Mlp(3, 2, (4,)), rule=Automatic()).dtype is np.float64
    assert engine_for(Mlp(3, 2, (4,)), engine="torch", rule=PerLayer()).dtype is np.float64


def test_a_rule_of_ones_own_is_not_taken_for_a_known_one(calls: list[int]) -> None:
    class Halved(Automatic):
        def factors(self, norms: Any, clip: float, level: float) -> Any:
            return 0.5 * super().factors(norms, clip, level)

    module, data = flat_net(), drawn_records(21, 9)
    found = fast(ruled(module, Halved()), data, 1.0)
    assert set(calls) == {1}
    np.testing.assert_allclose(found, 0.5 * fast(ruled(module, Automatic()), data, 1.0), atol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "torch", "fused", "network"])
def test_every_engine_knows_its_layers(engine: str) -> None:
    model: Any = dp_hypo_cnn() if engine == "fused" else Mlp(20, CLASSES, (7, 6), "tanh")
    made = RuledSums(engine_for(model, double=True, engine=engine), PerLayer())
    data = records(784 if engine == "fused" else 20, 10 if engine == "fused" else CLASSES)
    check(lambda: made, data, fast, [0.5])
    sizes = [len(places) for places in made.engine.layer_places]  # type: ignore[attr-defined] # all have them
    assert sizes == ([1040, 8224, 16416, 330] if engine == "fused" else [147, 48, 7 * CLASSES])
    one = fast(made, data.take(np.array([6])), 0.5)
    for places in made.engine.layer_places:  # type: ignore[attr-defined] # as above
        assert np.linalg.norm(one[places]) <= 0.5 / np.sqrt(len(sizes)) * (1.0 + 1e-6)


def test_an_engine_that_knows_no_layers_is_refused() -> None:
    class Bare:
        dtype, dimension, together = np.float64, 3, 1

    with pytest.raises(InvalidInput, match="knows its layers; Bare does not"):
        RuledSums(Bare(), PerLayer())  # type: ignore[arg-type] # on purpose


def test_units_need_double_precision_under_a_rule_too() -> None:
    from dptune.units import UnitDataset  # noqa: PLC0415 - for this test alone

    engine = ruled(flat_net(), Automatic())
    with pytest.raises(InvalidInput, match="double precision"):
        engine.bind(UnitDataset(drawn_records(21, 4), [0, 0, 1, 1], unit_rows=2))
