"""Defaults of a kind of data with some settings changed: what is not said follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dptune.cli._kinds import SETTINGS, features_of, kind_of
from dptune.errors import InvalidInput
from dptune.planner.changes import Changes
from dptune.planner.kinds import KINDS
from dptune.randomness import Randomness
from dptune.spaces import Float
from dptune.training import Adam, AdamBC, Cosine, Dataset, Momentum, Sgd

WIDTH, CLASSES, RECORDS = 100, 10, 20_000


def _both(name: str, **said: Any) -> tuple[Any, Any]:
    kind = KINDS[name]
    usual = kind.trainer(WIDTH, CLASSES, RECORDS, epsilon=1.0)
    return usual, Changes(**said).of(kind).trainer(WIDTH, CLASSES, RECORDS, epsilon=1.0)


def _rates(name: str, **said: Any) -> Float:
    ((_, found),) = Changes(**said).of(KINDS[name]).space(WIDTH, RECORDS, epsilon=1.0).dimensions
    assert isinstance(found, Float)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_without_changes_nothing_changes(name: str) -> None:
    usual, made = _both(name)
    assert made == usual
    assert Changes().of(KINDS[name]).space(WIDTH, RECORDS, epsilon=1.0) == KINDS[name].space(
        WIDTH, RECORDS, epsilon=1.0
    )


@pytest.mark.parametrize("said", [{"steps": 50}, {"clip_norm": 0.7}, {"steps": 50, "clip_norm": 2.0}])
def test_the_way_stays(said: dict[str, Any]) -> None:
    ways = [one.learning_rate * one.steps * one.clip_norm for one in (each.settings for each in _both("image", **said))]
    assert ways[0] == pytest.approx(ways[1])


def test_everything_else_stays() -> None:
    usual, made = _both("image", clipping="automatic", schedule=Cosine())
    assert made.settings.schedule == Cosine()
    assert type(made.settings.rule).__name__ == "Automatic"
    assert made.whitening == usual.whitening
    assert made.prepared == usual.prepared == "two-scale-gradients"
    same = ("sampling_rate", "steps", "clip_norm", "learning_rate", "batch_size", "optimizer")
    assert [getattr(made.settings, one) for one in same] == [getattr(usual.settings, one) for one in same]


def test_optimisers_go_as_far() -> None:
    """Weights that a gradient of always the same direction reaches: as far with and without momentum."""

    def reached(settings: Any) -> float:
        weight = np.zeros((1, 1))
        update = settings.optimizer.start(weight)
        for _ in range(settings.steps):
            update(weight, np.full((1, 1), settings.clip_norm), np.full((1, 1), settings.learning_rate))
        return float(weight[0, 0])

    usual, plain = _both("text", optimizer=Sgd())
    assert reached(plain.settings) == pytest.approx(reached(usual.settings), rel=0.05)
    _, slower = _both("text", optimizer=Momentum(0.5))
    assert reached(slower.settings) == pytest.approx(reached(usual.settings), rel=0.05)


@pytest.mark.parametrize("optimizer", [Adam(), AdamBC()])
def test_adam_has_its_own_learning_rates(optimizer: Any) -> None:
    _, made = _both("image", optimizer=optimizer, steps=300)
    assert 0.01 < made.settings.learning_rate < 0.1
    rates = _rates("image", optimizer=optimizer, steps=300)
    assert (rates.low, rates.high) == pytest.approx((0.01, 0.1))


def test_what_is_tried_moves_with_the_trainer() -> None:
    assert _rates("image", learning_rate=7.0).around == pytest.approx(7.0)
    usual, half = (
        _rates("image"),
        _rates("image", steps=2 * KINDS["image"].trainer(WIDTH, 10, RECORDS, epsilon=1).settings.steps),
    )
    assert half.low == pytest.approx(usual.low / 2)
    table = _rates("table", steps=300)
    assert (table.low, table.around, table.high) == pytest.approx((0.0125, 0.1, 0.8))
    plain = _rates("table", steps=300, whitening=False)  # records as they are
    assert plain.around is None
    assert (plain.low, plain.high) == pytest.approx((0.01, 0.1))


def test_the_clip_norm_of_a_quantile_begins_at_one() -> None:
    usual, made = _both("image", clipping="quantile")
    assert made.settings.clip_norm == 1.0
    assert made.settings.learning_rate == pytest.approx(usual.settings.learning_rate * usual.settings.clip_norm)


def test_whitening_as_said() -> None:
    assert _both("image", whitening=False)[1].whitening is None
    assert _both("text", whitening=True)[1].whitening is not None
    wide = Changes(whitening=True).of(KINDS["photo"]).trainer(3000, 10, 40, epsilon=1.0)
    data = Dataset(np.zeros((40, 3000), np.float32), np.zeros(40, np.int64), 10)
    with pytest.raises(InvalidInput, match="at most 2048 features"):
        wide.fit({"noise_multiplier": 1.0}, data, Randomness.rehearsal(1))


@pytest.mark.parametrize(
    ("sections", "kind", "features"),
    [
        ({"data": {"name": "mnist"}, "model": {"clipping": "automatic"}}, "image", "two-scale-gradients"),
        ({"data": {"name": "mnist"}, "space": {"learning_rate": [1.0]}}, "image", "two-scale-gradients"),
        ({"data": {"name": "mnist"}, "model": {"kind": "softmax"}}, None, "none"),
        ({"data": {"name": "mnist"}, "model": {"hidden": [8], "steps": 3}}, None, "none"),
        ({"data": {"name": "digits"}}, "image", "two-scale-gradients"),
        ({"data": {"schema": "icu.toml"}, "model": {"steps": 3, "optimizer": "adambc"}}, "table", "none"),
        ({"data": {"schema": "icu.toml"}, "model": {"optimizer": "sgd"}}, None, "none"),
        ({"data": {"name": "adult"}, "model": {"optimizer": "sgd"}}, None, "none"),
        ({"data": {"file": "x.npz"}, "model": {"steps": 3}}, None, "none"),
        ({"data": {"file": "x.npz", "features": "scattering"}, "model": {"steps": 3}}, "image", "scattering"),
    ],
)
def test_a_job_keeps_the_defaults_until_it_says_a_model(sections: Any, kind: str | None, features: str) -> None:
    found = kind_of(sections)
    assert (None if found is None else found.name) == kind
    assert features_of(sections) == features


def test_a_job_can_change_every_setting() -> None:
    assert set(Changes.__dataclass_fields__) == SETTINGS


def test_features_are_not_for_tables() -> None:
    """Records would be changed and the model would not know: it would take no row."""
    with pytest.raises(InvalidInput, match="leave 'scattering' out for a table"):
        features_of({"data": {"schema": "icu.toml", "features": "scattering"}})


@pytest.mark.parametrize("said", [{"steps": 0}, {"clip_norm": 0.0}, {"learning_rate": -1.0}, {"batch_size": 0.0}])
def test_what_is_out_of_range_is_refused_in_one_line(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(said))):
        Changes(**said)


def test_a_learning_rate_of_adams_own_is_the_middle_of_what_is_tried() -> None:
    rates = _rates("image", optimizer=Adam(), learning_rate=0.003)
    assert rates.middle == pytest.approx(0.003)
