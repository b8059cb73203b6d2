"""Clipping rules: one record moves a sum by at most the clip norm whatever the rule, tail coordinate included."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.training.sensitivity import CLASSES, Sums, check, fast, records, secure

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.training import Adam, AdamBC, DpSgdTrainer, Settings, Sgd, descend, engine_for, softmax
from dptune.training.clipping import Automatic, Clipping, Flat, Quantile, named_clipping
from dptune.training.models import Mlp, Regression, dp_hypo_cnn
from dptune.training.ruled_sums import Following, RuledSums
from dptune.units import UnitDataset

RULES: list[Clipping] = [Automatic(), Automatic(0.0), Quantile(), Quantile(0.8, 0.5, 0.3)]
MODELS = [
    softmax(20, CLASSES),
    Mlp(20, CLASSES, (7,), "relu"),
    Mlp(20, 2, (9, 6), "tanh"),
    Regression(20, (5,), target_range=(0, 1)),
]
SETTINGS = Settings(0.5, 1.0, steps=5, clip_norm=0.7, learning_rate=0.3, batch_size=4.0)


def ruled(model: Any, rule: Clipping, engine: str = "auto") -> RuledSums:
    return RuledSums(engine_for(model, double=True, engine=engine), rule)


@pytest.mark.parametrize("sums", [fast, secure])
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__ + str(model.hidden))
def test_one_record_moves_the_joint_sum_by_at_most_the_clip_norm(model: Mlp, rule: Clipping, sums: Sums) -> None:
    check(lambda: ruled(model, rule), records(20, model.classes), sums)


@pytest.mark.parametrize("rule", [Flat(), Automatic(), Automatic(1e-4), Quantile()], ids=repr)
@pytest.mark.parametrize("hidden", [(), (1,)])
def test_no_record_turns_the_errors_of_others_that_are_zero_but_for_rounding(
    rule: Clipping, hidden: tuple[int, ...]
) -> None:
    """Large features that cancel: a product of all rows at once would round by how many there are."""
    rng, moved = np.random.default_rng(0), []
    for _ in range(40):
        width, count = int(rng.integers(3, 40)), int(rng.integers(2, 60))
        model = Regression(width, hidden, "relu", target_range=(0, 1))
        weights, row = rng.normal(size=width), rng.normal(size=width) * 1e7
        row -= weights * (row @ weights) / (weights @ weights)
        flat = np.append(weights, [0.5 - row @ weights, *([1.0, 0.0] if hidden else []), *[0.0] * rule.tails])
        x, y = np.vstack([rng.normal(size=width), *[row] * count]), np.append(0.1, np.full(count, 0.5))
        engine = engine_for(model, double=True) if isinstance(rule, Flat) else ruled(model, rule)
        engine.bind(RegressionDataset(x, y, target_range=(0, 1)))
        out = np.empty((2, engine.dimension))
        for total, batch in zip(out, (np.arange(count + 1), np.arange(1, count + 1)), strict=True):
            engine.clipped_sums(flat[None], [batch], np.ones(1), total[None])
        moved.append(np.linalg.norm(out[0] - out[1]))
    assert 0.5 < max(moved) <= 1.0 + 1e-6


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("engine", ["torch", "network"])
def test_engines_that_know_no_rule_are_asked_for_single_records(engine: str, rule: Clipping) -> None:
    pytest.importorskip("torch")
    model = Mlp(20, CLASSES, (7,), "tanh")
    check(lambda: ruled(model, rule, engine), records(20, CLASSES))
    data, own = records(20, CLASSES), ruled(model, rule, engine)
    level, expected = 0.5, np.zeros(own.dimension)
    for place in range(len(data)):
        gradient = fast(own.engine, data.take(np.array([place])), 1e6)
        norm = np.array([np.linalg.norm(gradient)])
        tail = rule.tail(norm, 0.5, level)[: rule.tails]
        expected += np.append(gradient * rule.factors(norm, 0.5, level), tail)
    np.testing.assert_allclose(fast(own, data, 0.5), expected, atol=1e-6)


def test_the_small_network_follows_a_rule_too() -> None:
    check(lambda: ruled(dp_hypo_cnn(), Quantile()), records(784, 10), clips=[1.0])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_shares_are_what_the_rule_says(rule: Clipping) -> None:
    """Against gradients that are written out here."""
    rng = np.random.default_rng(5)
    data = Dataset(rng.normal(size=(9, 4)), rng.integers(0, 3, 9), 3)
    weights, clip = rng.normal(size=(5, 3)), 0.6
    level = clip * np.exp(0.4) if isinstance(rule, Quantile) else clip
    engine = ruled(softmax(4, 3), rule)
    engine.bind(data)
    flat = np.append(weights.ravel(), [0.4] * rule.tails)
    out = np.empty((1, len(flat)))
    engine.clipped_sums(flat[None], [np.arange(9)], np.array([clip]), out)
    expected = np.zeros(len(flat))
    for x, y in zip(data.x, data.y, strict=True):
        row = np.append(x, 1.0)
        scores = np.exp(row @ weights)
        gradient = np.outer(row, scores / scores.sum() - (np.arange(3) == y)).ravel()
        norm = np.linalg.norm(gradient)
        if isinstance(rule, Automatic):
            expected += clip * gradient / (norm + rule.stability)
        elif isinstance(rule, Quantile):
            kept = gradient * min(1.0, level / norm) * clip / level * np.sqrt(1.0 - rule.share)
            count = np.clip((level - norm) / (0.1 * level), -1.0, 1.0) * clip * np.sqrt(rule.share)
            expected += np.append(kept, count)
    np.testing.assert_allclose(out[0], expected, atol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_no_norm_makes_a_share_longer_than_the_clip_norm(rule: Clipping) -> None:
    norms = np.concatenate([[0.0], np.geomspace(1e-300, 1e300, 4001), np.linspace(0.5, 2.0, 4001)])
    for clip, level in ((1e-9, 1e-9), (0.1, 3.0), (1.0, 1.0), (1e6, 0.5)):
        share = np.hypot(rule.factors(norms, clip, level) * norms, rule.tail(norms, clip, level))
        assert np.all(share <= clip * (1.0 + 1e-12))


def test_a_record_that_overflows_contributes_no_gradient() -> None:
    data = Dataset(np.array([[1e300, -1e300]]), np.array([1]), 2)
    for rule in RULES:
        total = fast(ruled(softmax(2, 2), rule), data, 1.0)
        assert np.all(np.isfinite(total))
        assert np.linalg.norm(total) <= 1.0 + 1e-9


def test_units_are_clipped_as_a_whole_by_every_rule() -> None:
    rows = records(20, CLASSES)
    for rule in RULES:
        moved = []
        for kept in (rows, rows.take(np.arange(4))):
            engine = ruled(softmax(20, CLASSES), rule)
            engine.bind(UnitDataset(kept, [0, 0, 1, 1, 2, 2, 2][: len(kept)], unit_rows=3))
            out = np.empty((1, engine.dimension))
            parameters = np.full((1, engine.dimension), 0.1)
            engine.clipped_sums(parameters, [np.arange(2 if len(kept) == 4 else 3)], np.array([1.0]), out)
            moved.append(out[0])
        assert 0.5 < np.linalg.norm(moved[0] - moved[1]) <= 1.0 + 1e-9


def test_the_clip_norm_finds_the_quantile() -> None:
    """Without noise: norms of these gradients are known, and so is their quantile."""
    rng = np.random.default_rng(2)
    lengths = rng.uniform(0.5, 1.5, 4000)
    rule = Quantile(quantile=0.3)
    update = Following(Sgd(), rule, (4.0,)).start(np.zeros((1, 2)))
    known = np.zeros((1, 2))
    for _ in range(200):
        level = 4.0 * np.exp(known[0, 1])
        share = float(np.mean(rule.tail(lengths, 4.0, level)))
        update(known, np.array([[0.0, share]]), np.array([[1.0]]))
    assert 4.0 * np.exp(known[0, 1]) == pytest.approx(np.quantile(lengths, 0.3), abs=0.02)


def test_a_quantile_run_moves_as_far_as_one_that_is_clipped_to_its_level() -> None:
    """The sum is in units of the first clip norm; what the optimiser gets is not."""
    moved = []
    for rule in (Flat(), Quantile(rate=0.0)):
        parameters, gradient = np.zeros((1, 1 + rule.tails)), np.zeros((1, 1 + rule.tails))
        gradient[0, 0] = float(rule.factors(np.array([2.0]), 0.5, 0.5)[0]) * 2.0
        optimizer = Following(Sgd(), rule, (0.5,)) if isinstance(rule, Quantile) else Sgd()
        optimizer.start(parameters)(parameters, gradient, np.ones((1, 1)))
        moved.append(parameters[0, 0])
    assert moved[0] == pytest.approx(moved[1])


@pytest.mark.parametrize("rule", ["automatic", "quantile"])
@pytest.mark.parametrize("secured", [False, True])
def test_a_rule_trains(rule: str, secured: bool) -> None:
    data = Dataset(np.repeat([[1.0, 0.2], [-1.0, 0.1]], 60, axis=0), np.repeat([1, 0], 60), classes=2)
    settings = Settings(0.5, 0.5, 30, 1.0, 1.0, 60.0, secure=secured, clipping=named_clipping(rule))
    trainer = DpSgdTrainer(softmax(2, 2), settings)
    trainer.check({}, data)
    fitted = trainer.fit({}, data, Randomness.rehearsal(1))
    assert fitted.model.accuracy(data) == 1.0
    assert fitted.model.parameters.shape == (6,)
    assert trainer.cost({}) == DpSgdTrainer(softmax(2, 2), dataclasses.replace(settings, clipping=Flat())).cost({})
    assert trainer.shape({}) is None  # trained alone


def test_a_warm_start_begins_where_the_model_is() -> None:
    data = Dataset(np.eye(4), np.array([0, 1, 0, 1]), 2)
    engine = engine_for(softmax(4, 2), double=True)
    still = dataclasses.replace(SETTINGS, clipping=Quantile(), learning_rate=1e-12, noise_multiplier=0.0)
    begin = np.arange(10.0)
    (end,) = descend(engine, data, [still], [Randomness.rehearsal(1)], [begin])
    np.testing.assert_allclose(end, begin, atol=1e-9)


def test_what_cannot_be_is_refused() -> None:
    automatic, data = dataclasses.replace(SETTINGS, clipping="automatic"), Dataset(np.eye(2), np.arange(2), 2)
    with pytest.raises(InvalidInput, match="double precision"):
        descend(engine_for(softmax(2, 2)), data, [automatic], [Randomness.rehearsal(1)])
    twice = RuledSums(engine_for(softmax(2, 2), double=True), Quantile())
    with pytest.raises(InvalidInput, match="Use one rule"):
        descend(twice, data, [automatic], [Randomness.rehearsal(1)])
    with pytest.raises(InvalidInput, match="flat, automatic, quantile"):
        dataclasses.replace(SETTINGS, clipping="none")
    with pytest.raises(InvalidInput, match="size of the noise"):
        dataclasses.replace(SETTINGS, clipping=Quantile(), optimizer=AdamBC())
    with pytest.raises(InvalidInput):
        Automatic(-1.0)
    with pytest.raises(InvalidInput):
        Quantile(share=1.0)


def test_names_may_be_tuned() -> None:
    trainer = DpSgdTrainer(softmax(2, 2), SETTINGS)
    assert trainer.resolve({"clipping": "automatic"}).clipping == Automatic()


def test_adam_without_its_bias_finds_the_gradient_below_the_noise() -> None:
    """The corrected second moment is that of the gradient alone; Adam's is that of the noise."""
    rng, signal, noise = np.random.default_rng(4), 0.2, 1.0
    gradients = [signal + noise * rng.normal(size=(1, 400)) for _ in range(4000)]
    one, other = np.zeros((1, 400)), np.zeros((1, 400))
    mends = AdamBC(0.99, 0.9995, floor=0.01).start_knowing(one, np.array([[noise]]))
    usual = Adam(0.99, 0.9995).start(other)
    for gradient in gradients[:-1]:
        mends(one, gradient, np.array([[1.0]]))
        usual(other, gradient, np.array([[1.0]]))
    before = one.copy(), other.copy()
    mends(one, gradients[-1], np.array([[1.0]]))
    usual(other, gradients[-1], np.array([[1.0]]))
    assert float(np.median(before[0] - one)) == pytest.approx(1.0, abs=0.15)  # signal / signal
    assert float(np.median(before[1] - other)) == pytest.approx(0.2, abs=0.05)  # signal / noise


def test_a_trainer_says_how_it_trains() -> None:
    trainer = DpSgdTrainer(softmax(2, 2), dataclasses.replace(SETTINGS, clipping=Automatic(), optimizer=AdamBC()))
    told = trainer.declared_training
    assert "automatic clipping: gradients times 0.7 / (norm + 0.01)" in told
    assert "AdamBC(" in told


class Wild(Flat):
    """Breaks its promise in both parts of a share."""

    tails = 1

    def factors(self, norms: Any, clip: float, level: float) -> Any:
        return np.full_like(norms, 50.0)

    def tail(self, norms: Any, clip: float, level: float) -> Any:
        return np.full_like(norms, -7.0)


@pytest.mark.parametrize("units", [False, True])
def test_a_rule_that_breaks_its_promise_is_held_to_it(units: bool) -> None:
    row = Dataset(np.array([[3.0, -1.0]]), np.array([1]), 2)
    for one in (row, Dataset(np.zeros((1, 2)), np.array([0]), 2)):
        total = np.empty((1, 7))
        engine = ruled(softmax(2, 2), Wild())
        engine.bind(UnitDataset(one, [0], unit_rows=1) if units else one)
        engine.clipped_sums(np.zeros((1, 7)), [np.arange(1)], np.ones(1), total)
        assert 0.9 < np.linalg.norm(total) <= 1.0 + 1e-9


def test_an_engine_that_had_rows_before_takes_units_as_units() -> None:
    rows = records(20, CLASSES)
    data, found = UnitDataset(rows, [0] * len(rows), unit_rows=len(rows)), []
    for before in (False, True):
        engine = ruled(softmax(20, CLASSES), Automatic())
        if before:
            engine.bind(rows)
        engine.bind(data)
        out = np.empty((1, engine.dimension))
        engine.clipped_sums(np.full((1, engine.dimension), 0.1), [np.arange(1)], np.ones(1), out)
        found.append(out)
    assert np.array_equal(found[0], found[1])
